"""How pytest-xdist deals the tests to its processes: file by file, those with the most work first."""

from collections import Counter

from xdist.scheduler import LoadScopeScheduling

#: Dealt before all others: they compile what others then find in caches, and not at the same time.
FIRST = ("test_compile.py", "test_bench.py")


def scope_of(nodeid):
    """Return what is kept in one process: a file, as its tests share what it compiles.

    The notebooks share nothing and take longest: each of their tests is dealt by itself.
    """
    path = nodeid.partition("::")[0]
    return nodeid if path.endswith("test_notebooks.py") else path


class ByFile(LoadScopeScheduling):
    """Deal scopes in the order in which they were collected."""

    def __init__(self, config, log):
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid):
        return scope_of(nodeid)

    def remove_node(self, node):
        """Take the work back of a process that has ended, but for the test that it ended in.

        It would end the next process too, and so on.
        """
        units = self.assigned_work[node].values()
        pending = ((unit, nodeid) for unit in units for nodeid, done in unit.items() if not done)
        unit, crashed = next(pending, ({}, None))
        unit[crashed] = True
        super().remove_node(node)
        return crashed


def sort(items):
    """Put those that compile for others first, then scopes with many slow tests, those with few tests last.

    Whoever gets the last one works alone. What is slow is known where tests are collected, not where they are
    dealt.
    """
    tests = Counter(scope_of(item.nodeid) for item in items)
    slow = Counter(scope_of(item.nodeid) for item in items if item.get_closest_marker("slow"))

    def place(item):
        scope = scope_of(item.nodeid)
        return not scope.endswith(FIRST), -slow[scope], -tests[scope]

    items.sort(key=place)
