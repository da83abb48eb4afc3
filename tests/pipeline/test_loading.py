"""Candidates for measuring."""

import numpy as np

from placement.graphs import coarsen, dag
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
    setting = loading.make_search_problem(net, costs, names, "makespan")
    placement = np.arange(coarsening.graph.num_ops, dtype=np.int32) % 2
    where = {
        name: names[placement[op]]
        for name, op in zip(graph.op_names, coarsening.assignment, strict=True)
    }
    result = loading.make_candidate(setting, placement, host, "concurrent")
    assert (result.affinity, result.devices) == (where, host)
    assert sorted(op for _, ops in result.segments for op in ops) == sorted(graph.op_names)
    assert all(where[op] == device for device, ops in result.segments for op in ops)
    position = {op: i for i, op in enumerate(op for _, ops in result.segments for op in ops)}
    for sender, receiver in zip(graph.senders, graph.receivers, strict=True):
        assert position[graph.op_names[sender]] < position[graph.op_names[receiver]]
    assert loading.make_candidate(setting, placement, host, "hetero") == Candidate(where, host)


def test_candidates_follow_the_order():
    problem = test_schedule_search.waiting_problem()  # the second device runs op1 and op2
    host, leaders = devices.resolve("host:f32,f32"), np.arange(3)
    setting = loading.SearchProblem(problem, problem, leaders, leaders, problem.evaluate)
    placement = np.int32([0, 1, 1])
    for order, expected in ((None, ["op1", "op2"]), (np.int32([2, 0, 1]), ["op2", "op1"])):
        ordered = setting.with_order(order)
        result = loading.make_candidate(ordered, placement, host, "concurrent")
        ops = [op for device, ops in result.segments if device == host[1].name for op in ops]
        assert ops == expected
        assert ordered.simulate(placement[None])[0] == (11 if order is None else 8)


def test_coarse_orders_are_expanded():
    graph = helpers.random_dag(np.random.default_rng(4), 30, edge_probability=0.1)
    net = loading.Network(None, graph, coarsen.coarsen(graph), {})
    costs = helpers.random_costs(np.random.default_rng(3), graph, 2)
    setting = loading.make_search_problem(net, costs, ("a", "b"), "makespan")
    assert setting.coarse.graph.num_ops < graph.num_ops
    order = dag.topological_order(setting.coarse.graph)
    names = setting.with_order(order).list_ordered_ops()
    dag.check_order(graph, np.array([graph.op_names.index(name) for name in names]))
    coarse = [setting.assignment[graph.op_names.index(name)] for name in names]
    assert list(dict.fromkeys(coarse)) == order.tolist()
