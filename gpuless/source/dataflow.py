"""Find from a kernel's source what its numbers depend on: the thread, memory, or neither.

Without source nothing is known; each function says what it returns then.
"""

import ast
import functools

from gpuless.source.branches import LOOPS, conditions, path

_THREAD = {"threadIdx", "laneid"}
_LAUNCH = {"blockIdx", "blockDim", "gridDim"}
# Calls that return the same number for the same arguments.
_PLAIN_CALLS = set("range len min max abs int round int32 int64 uint32 uint64 gridsize".split())
# Operators that atomic operations exist for.
_ATOMIC_OPERATORS = (ast.Add, ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor)


def is_data_dependent(code, offset):
    """Return whether the index of a write comes from memory, or from other threads; False without source."""
    nodes = path(code, offset)
    indices = [node.slice for node in ast.walk(nodes[-1]) if isinstance(node, ast.Subscript)] if nodes else ()
    return any(_is_data(node) for index in indices for node in _flow(nodes[0]).made_of(index))


@functools.lru_cache(maxsize=1024)
def is_atomic_update(code, offset):
    """Return whether an atomic operation could replace a write and the read before it; True without source.

    It can if the new value combines the element's old value with a value from elsewhere, by adding or
    comparing. It can't for a swap, where the new value is that of another element.
    """
    nodes = path(code, offset)
    if not nodes:
        return True
    flow, (statement, target) = _flow(nodes[0]), _assignment(nodes)
    if target is None:
        return False
    name, text = _root(target), ast.unparse(target)
    tests = [node.test for node, _ in conditions(code, offset) if isinstance(node, ast.If)]
    asking = [test for test in tests if any(_reads(node, text) for node in flow.made_of(test))]
    value = flow.resolved(_value_of(statement, target))
    # A swap, a stencil or a tree reads other elements of the array for the new value.
    if any(_reads_elsewhere(flow.made_of(each), name, text) for each in (value, *asking)):
        return False
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, _ATOMIC_OPERATORS)
    parts = ()
    if isinstance(value, ast.BinOp) and isinstance(value.op, _ATOMIC_OPERATORS):
        parts = value.left, value.right
    elif _called(value) in ("min", "max"):
        parts = value.args
    return bool(asking) or any(_reads(flow.resolved(part), text) for part in parts)


def is_of_the_thread_alone(function, test):
    """Return whether a condition depends only on the thread, so that it is the same in every launch."""
    flow = _flow(function)
    return not any(
        isinstance(node, (ast.Subscript, ast.Call))
        or (isinstance(node, ast.Attribute) and node.attr in _LAUNCH)
        or (isinstance(node, ast.Name) and node.id in flow.parameters | _LAUNCH)
        for node in flow.made_of(test)
    )


def round_variables(code, offset, in_kernel):
    """Return the variables that identify the round of the loops around an instruction; none without source.

    Only for loops in which a thread can bypass the instruction, and only variables with the same value in all
    threads within a round. (A kernel's arguments have that; a device function's may not.)
    """
    nodes, found = path(code, offset), []
    uniform = uniform_in(nodes[0], in_kernel) if nodes else None
    around = [node for node, _ in conditions(code, offset)]
    for number, loop in enumerate(around):
        inner = around[number + 1 :]
        skips = any(isinstance(node, ast.Continue) for node in ast.walk(loop))
        if isinstance(loop, LOOPS) and (skips or not all(uniform.is_so(_deciding(node)) for node in inner)):
            found += uniform.header(loop)
    return tuple(dict.fromkeys(found))


def has_uneven_rounds(code, offset, in_kernel):
    """Return whether a loop around an instruction begins or ends at a different number in each thread.

    False without source, and for a range with a step.
    """
    nodes = path(code, offset)
    uniform = uniform_in(nodes[0], in_kernel) if nodes else None
    loops = (node for node, _ in conditions(code, offset) if isinstance(node, ast.For))
    bounds = (loop.iter.args for loop in loops if _called(loop.iter) == "range" and len(loop.iter.args) < 3)
    return any(sum(not uniform.is_so(bound) for bound in both) == 1 for both in bounds)


class _Flow:
    """The expressions that the local names of a function are assigned from."""

    def __init__(self, function):
        self.parameters = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        self.sources = {}
        for names, value, _ in _assignments(function):
            for name in names:
                self.sources.setdefault(name, []).append(value)

    def made_of(self, expression):
        """Return all nodes of an expression, and of the expressions that its names are assigned from."""
        waiting, seen, nodes = [expression], set(), []
        while waiting:
            for node in ast.walk(waiting.pop()):
                nodes.append(node)
                if isinstance(node, ast.Name) and node.id not in seen:
                    seen.add(node.id)
                    waiting += self.sources.get(node.id, ())
        return nodes

    def resolved(self, expression):
        """Return the expression that a name stands for, following names that are assigned once."""
        for _ in self.sources:
            if not isinstance(expression, ast.Name) or len(self.sources.get(expression.id, ())) != 1:
                break
            (expression,) = self.sources[expression.id]
        return expression


class Uniform:
    """The names of a function with the same value in all threads that execute an instruction together."""

    def __init__(self, function, in_kernel):
        self._varying = set() if in_kernel else set(_flow(function).parameters)
        self._assignments = list(_assignments(function))
        known = -1
        while known != len(self._varying):
            known = len(self._varying)
            for names, value, around in self._assignments:
                if not (self.is_so(value) and all(map(self._leaves_together, around))):
                    self._varying.update(names)

    def is_so(self, expression):
        """Return whether an expression has the same value in all threads; False if unsure."""
        return all(map(self._keeps, ast.walk(expression)))

    def header(self, loop):
        """Return the variables of a loop that change from round to round, the same way in all threads."""
        if isinstance(loop, ast.While):
            names = {node.id for node in ast.walk(loop.test) if isinstance(node, ast.Name)}
            return sorted(name for name in names & self._assigned if name not in self._varying)
        if _called(loop.iter) != "range" or not isinstance(loop.target, ast.Name):
            return []
        # A thread may leave the loop early; within it the variable counts the rounds.
        name = loop.target.id
        sources = [value for names, value, _ in self._assignments if name in names]
        return [name] if all(map(self.is_so, sources)) else []

    @property
    def _assigned(self):
        return {name for names, _, _ in self._assignments for name in names}

    def _keeps(self, node):
        if isinstance(node, ast.Name):
            return node.id not in self._varying | _THREAD
        if isinstance(node, ast.Attribute):
            return node.attr not in _THREAD
        if isinstance(node, ast.Subscript):
            return _is_shape(node)
        return not isinstance(node, ast.Call) or _called(node) in _PLAIN_CALLS

    def _leaves_together(self, node):
        """Return whether all threads enter a branch or loop together, and leave a loop together."""
        escapes = (ast.Break, ast.Continue)  # not `return`: that thread executes nothing more
        return self.is_so(_deciding(node)) and not (
            isinstance(node, LOOPS) and any(isinstance(each, escapes) for each in ast.walk(node))
        )


# Cached, as a launch may have thousands of races between the same two lines.
uniform_in = functools.lru_cache(maxsize=256)(Uniform)


@functools.lru_cache(maxsize=256)
def _flow(function):
    return _Flow(function)


def _assignments(function):
    """Yield assigned names, the expression that they are assigned from, and the branches and loops around."""

    def visit(node, around):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for part, value in _side_by_side(target, node.value):
                    yield _names(part), value, around
        elif isinstance(node, ast.AugAssign):
            yield _names(node.target), ast.BinOp(_loaded(node.target), node.op, node.value), around
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            yield _names(node.target), node.value, around
        if isinstance(node, (ast.If, *LOOPS)):
            around = (*around, node)
        if isinstance(node, ast.For):
            yield _names(node.target), node.iter, around
        for child in ast.iter_child_nodes(node):
            yield from visit(child, around)

    yield from visit(function, ())


def _side_by_side(target, value):
    """Yield each target with its value; an assignment of a tuple to a tuple is split into its parts."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for part, of in zip(target.elts, value.elts, strict=True):
            yield from _side_by_side(part, of)
    else:
        yield target, value


def _names(target):
    """Return the local names in a target; elements of arrays are left out."""
    if isinstance(target, ast.Name):
        return [target.id]
    return [name for part in getattr(target, "elts", ()) for name in _names(part)]


def _loaded(target):
    return ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else ast.Constant(0)


def _deciding(node):
    """Return the expression that decides whether, or how often, the inside of a node is executed."""
    if isinstance(node, ast.For):
        return node.iter
    return node if isinstance(node, ast.BoolOp) else node.test


def _assignment(nodes):
    """Return the statement that writes, and the target that it writes."""
    target = nodes[-1] if isinstance(nodes[-1], (ast.Subscript, ast.Attribute)) else None
    statement = next(
        (node for node in reversed(nodes) if isinstance(node, (ast.Assign, ast.AugAssign))), None
    )
    if isinstance(statement, ast.AugAssign):
        return statement, statement.target
    return statement, target if statement is not None else None


def _value_of(statement, target):
    """Return the expression that a target is assigned from, also if it is one of several targets."""
    if isinstance(statement, ast.Assign):
        for each in statement.targets:
            for part, value in _side_by_side(each, statement.value):
                if part is target:
                    return value
    return statement.value


def _root(node):
    """Return the name of the array of an element, or of an element's field."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _reads(node, text):
    return isinstance(node, (ast.Subscript, ast.Attribute)) and ast.unparse(node) == text


def _reads_elsewhere(nodes, name, text):
    """Return whether any of the nodes reads another element of an array than the one in `text`."""
    same = {part for node in nodes if _reads(node, text) for part in ast.walk(node)}
    elements = (node for node in nodes if isinstance(node, ast.Subscript) and not _is_shape(node))
    return any(_root(node) == name for node in elements if node not in same)


def _is_shape(node):
    return isinstance(node.value, ast.Attribute) and node.value.attr in ("shape", "strides")


def _is_data(node):
    """Return whether a node reads from memory, or a value of another thread."""
    if isinstance(node, ast.Subscript):
        return not _is_shape(node)
    if not isinstance(node, ast.Call):
        return False
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return _called(node).endswith("_sync") or (owner is not None and ast.unparse(owner).endswith("atomic"))


def _called(node):
    """Return the last name of the function called, such as ``add`` in ``cuda.atomic.add``; "" if no call."""
    return ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
