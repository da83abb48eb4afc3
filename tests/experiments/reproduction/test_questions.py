import numpy as np

from experiments.benchmarks import cells
from experiments.reproduction import questions
from placement.costs import roofline
from placement.graphs import roles
from placement.instance import Instance
from placement.search import block_orders
from tests import helpers


def _described(devices: str) -> Instance:
    graph, names = helpers.fork_join(4, 3), roofline.parse_devices(devices)
    return Instance(graph, roofline.cost_model(graph, names), "makespan", names)


def test_latency_is_bytes_cut_and_memory_the_balance():
    problem = _described("roofline:gpu,gpu")
    cut = questions.balanced_cut(problem)
    number = np.arange(problem.graph.num_ops)
    rows = np.stack([(number > 6), (number > 9), number % 2]).astype(np.int32)
    costs = problem.costs.compute_s[:, 0]
    evaluate = cut.evaluate
    for row, value in zip(rows, np.asarray(evaluate(rows)), strict=True):
        share = max(costs[row == 0].sum(), costs[row == 1].sum()) / costs.sum()
        crosses = row[problem.graph.senders] != row[problem.graph.receivers]
        assert np.isfinite(value) == (share <= 0.5 * 1.03)
        assert not np.isfinite(value) or value == problem.graph.edge_bytes[crosses].sum()


def test_a_host_takes_no_part():
    cut = questions.balanced_cut(_described("roofline:cpu,gpu,gpu"))
    np.testing.assert_allclose(cut.costs.capacity_bytes, [0, 0.515, 0.515])


def test_copied_constants_are_no_load():
    network = "rnnlm:hidden=32,steps=3,vocabulary=50"
    problem = cells.describe_problem(network, "roofline:gpu,gpu", constants=True).coarse
    assert problem.constant_copies is not None
    assert questions.balanced_cut(problem).constant_copies is None


def test_names_say_as_much_of_roles_as_their_title():
    problem = helpers.random_problem()
    graphs = dict(questions.label_roles(problem.graph))
    sets = {
        title: {
            frozenset(role.tolist())
            for role in block_orders._matching_classes(
                list(graph.op_names), np.arange(graph.num_ops), 99
            )
        }
        for title, graph in graphs.items()
    }
    assert not sets["no roles"]
    colour = roles.find_roles_by_neighbours(problem.graph)
    alike = {frozenset(np.flatnonzero(colour == c).tolist()) for c in colour}
    assert sets["blocks of roles by neighbours"] == {role for role in alike if len(role) > 1}
    together = problem._replace(graph=graphs["one decision a role, by neighbours"])
    np.testing.assert_array_equal(together.classes.ids, colour)
