"""How pytest-xdist distributes the tests: file by file, those with the most work first."""

from collections import Counter

from xdist.scheduler import LoadScopeScheduling

#: Run before all others, in this order: they compile what others then find in caches, not in parallel.
FIRST = ("test_compile.py", "test_start.py", "test_bench.py")


def scope_of(nodeid):
    """Return what is kept in one process: a file, as its tests share what it compiles.

    The notebooks share nothing and take longest: each of their tests is distributed separately.
    """
    path = nodeid.partition("::")[0]
    return nodeid if path.endswith("test_notebooks.py") else path


class Places(list):
    """A list of different items that looks up where an item is: a list would compare it with those before."""

    def __init__(self, items):
        super().__init__(items)
        self.places = {item: place for place, item in enumerate(self)}

    def index(self, item):
        return self.places[item]


class ByFile(LoadScopeScheduling):
    """Distribute scopes in the order in which they were collected."""

    def __init__(self, config, log):
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid):
        return scope_of(nodeid)

    def add_node_collection(self, node, collection):
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = Places(collection)

    def remove_node(self, node):
        """Take back the work of a process that has ended, except the test in which it ended.

        That test would end the next process too, and so on.
        """
        units = self.assigned_work[node].values()
        pending = ((unit, nodeid) for unit in units for nodeid, done in unit.items() if not done)
        unit, crashed = next(pending, ({}, None))
        unit[crashed] = True
        super().remove_node(node)
        return crashed


def sort(items):
    """Put those that compile for others first, then scopes with many slow tests, those with few tests last.

    The process with the last one works alone. Slow tests are known at collection, not later.
    """
    tests = Counter(scope_of(item.nodeid) for item in items)
    slow = Counter(scope_of(item.nodeid) for item in items if item.get_closest_marker("slow"))

    def place(item):
        scope = scope_of(item.nodeid)
        name = scope.rpartition("/")[2]
        first = FIRST.index(name) if name in FIRST else len(FIRST)
        return first, -slow[scope], -tests[scope]

    items.sort(key=place)
