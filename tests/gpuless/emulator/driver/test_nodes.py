"""Graphs built node by node, with the driver's functions and with `cuda.core`."""

import pytest
from driver_programs import pytestmark, run  # noqa: F401 (the mark holds here too)


def test_nodes_run_in_order_and_only_when_launched():
    run("nodes_run_in_order_and_only_when_launched.py")


def test_a_node_can_be_changed_in_an_existing_graph():
    run("a_node_can_be_changed_in_an_existing_graph.py")


def test_parameters_of_a_node_can_be_queried():
    """Captured nodes too; a kernel node owns its arguments."""
    run("parameters_of_a_node_can_be_queried.py")


def test_copies_and_sets_of_rows():
    run("copies_and_sets_of_rows.py")


def test_edges_decide_the_order():
    run("edges_decide_the_order.py")


def test_child_graphs_events_and_host_functions():
    run("child_graphs_events_and_host_functions.py")


def test_a_graph_of_cuda_core():
    pytest.importorskip("cuda.core.graph")
    out = run("a_graph_of_cuda_core.py")
    assert out == ["4 3 ['MemcpyNode']", "called", "True"]
