"""Graphs that are built node by node, by the driver's functions and as `cuda.core` does it."""

import pytest
from test_emulator_driver import pytestmark, run  # noqa: F401 (the mark holds here too)


def test_nodes_are_run_one_after_the_other_and_not_before():
    run("nodes_are_run_one_after_the_other_and_not_before.py")


def test_what_a_node_does_may_change_without_another_graph():
    run("what_a_node_does_may_change_without_another_graph.py")


def test_what_a_node_was_given_can_be_asked_for():
    """Of nodes that were captured as well; the arguments of a kernel are the node's own."""
    run("what_a_node_was_given_can_be_asked_for.py")


def test_rows_of_a_copy_and_of_a_set():
    run("rows_of_a_copy_and_of_a_set.py")


def test_edges_decide_the_order():
    run("edges_decide_the_order.py")


def test_graphs_in_a_graph_events_and_functions_of_the_host():
    run("graphs_in_a_graph_events_and_functions_of_the_host.py")


def test_a_graph_of_cuda_core():
    pytest.importorskip("cuda.core.graph")
    out = run("a_graph_of_cuda_core.py")
    assert out == ["4 3 ['MemcpyNode']", "called", "True"]
