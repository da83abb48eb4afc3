"""Candidates for measuring."""

import numpy as np

from placement.graphs import coarsen
from placement.pipeline import loading
from placement.runtime import devices
from placement.runtime.measurement.request import Candidate
from tests import helpers
from tests.search import test_schedule_search


def test_segments_hold_every_operation():
    graph = helpers.random_dag(np.random.default_rng(2), 30, edge_probability=0.1)
    coarsening = coarsen.coarsen(graph)
    host = devices.resolve("host:f32,f32")
    names = tuple(device.name for device in host)
    net = loading.Network(None, graph, coarsening, {})
    costs = helpers.random_costs(np.random.default_rng(3), graph, 2)
    problem = loading.make_problem(net, costs, names, "makespan")
    placement = np.arange(coarsening.graph.num_ops, dtype=np.int32) % 2
    where = {
        name: names[placement[op]]
        for name, op in zip(graph.op_names, coarsening.assignment, strict=True)
    }
    result = loading.make_candidate(net, problem, placement, host, "concurrent")
    assert (result.affinity, result.devices) == (where, host)
    assert sorted(op for _, ops in result.segments for op in ops) == sorted(graph.op_names)
    assert all(where[op] == device for device, ops in result.segments for op in ops)
    position = {op: i for i, op in enumerate(op for _, ops in result.segments for op in ops)}
    for sender, receiver in zip(graph.senders, graph.receivers, strict=True):
        assert position[graph.op_names[sender]] < position[graph.op_names[receiver]]
    on_hetero = loading.make_candidate(net, problem, placement, host, "hetero")
    assert on_hetero == Candidate(where, host)


def test_candidates_follow_the_order():
    problem = test_schedule_search.waiting_problem()  # the second device runs op1 and op2
    host = devices.resolve("host:f32,f32")
    net = loading.Network(
        None, problem.graph, coarsen.Coarsening(problem.graph, np.arange(3), ()), {}
    )
    placement = np.int32([0, 1, 1])
    for order, expected in ((None, ["op1", "op2"]), (np.int32([2, 0, 1]), ["op2", "op1"])):
        ordered = problem.with_order(order)
        result = loading.make_candidate(net, ordered, placement, host, "concurrent")
        ops = [op for device, ops in result.segments if device == host[1].name for op in ops]
        assert ops == expected
        assert ordered.evaluate(placement[None])[0] == (11 if order is None else 8)
