"""The two marks of tests that `make test` leaves to `make test-all`; each names the tests that cover it.

`@pytest.mark.exhaustive(covered)`: the whole test repeats others; `covered` names them.
`@pytest.mark.exhaustive_unless(kept, covered)`: `make test` keeps the cases for which `kept` is true, a
function of the parameters that it names; the others repeat them.
"""

import functools
import inspect

import pytest


def mark_repetitions(items):
    """Mark the cases of `exhaustive_unless` that are not kept as `exhaustive`."""
    named = functools.cache(lambda kept: inspect.signature(kept).parameters.keys())  # of thousands of cases
    for item in items:
        mark = item.get_closest_marker("exhaustive_unless")
        if mark is None or item.get_closest_marker("exhaustive"):
            continue
        kept, covered = mark.args
        if unknown := named(kept) - item.callspec.params.keys():
            raise pytest.UsageError(f"{item.nodeid}: exhaustive_unless names no parameter: {sorted(unknown)}")
        if not kept(**{name: item.callspec.params[name] for name in named(kept)}):
            item.add_marker(pytest.mark.exhaustive(covered))
