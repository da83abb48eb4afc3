"""The partitioners' objective as an instance of `serial`."""

import numpy as np

from experiments.benchmarks import cells
from experiments.tables import objectives
from placement.costs import roofline
from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from tests import helpers


def _described(devices: str) -> Instance:
    graph, names = helpers.fork_join(4, 3), roofline.parse_devices(devices)
    return Instance(graph, roofline.cost_model(graph, names), "makespan", names)


def test_latency_is_the_bytes_cut():
    problem = _described("roofline:gpu,gpu")
    cut = objectives.balanced_cut(problem)
    number = np.arange(problem.graph.num_ops)
    rows = np.stack([(number > 6), (number > 9), number % 2]).astype(np.int32)
    costs = problem.costs.compute_s[:, 0]
    for row, value in zip(rows, np.asarray(cut.evaluate(rows)), strict=True):
        share = max(costs[row == 0].sum(), costs[row == 1].sum()) / costs.sum()
        crosses = row[problem.graph.senders] != row[problem.graph.receivers]
        assert np.isfinite(value) == (share <= 0.5 * 1.03)
        assert not np.isfinite(value) or value == problem.graph.edge_bytes[crosses].sum()


def test_hosts_hold_no_load():
    cut = objectives.balanced_cut(_described("roofline:cpu,gpu,gpu"))
    np.testing.assert_allclose(cut.costs.capacity_bytes, [0, 0.515, 0.515])


def test_copied_constants_are_no_load():
    network = "rnnlm:hidden=32,steps=3,vocabulary=50"
    problem = cells.describe_problem(network, "roofline:gpu,gpu", constants=True).coarse
    assert problem.constant_copies is not None
    assert objectives.balanced_cut(problem).constant_copies is None


def test_refined_placements_are_not_slower(monkeypatch):
    for name, value in (("_BUDGET", 64), ("_SEEDS", range(1)), ("_LIMITS", SearchLimits(60.0, 64))):
        monkeypatch.setattr(objectives, name, value)
    monkeypatch.setattr(objectives, "GRAPHS", ("synthetic:family=layered,ops=12",))
    monkeypatch.setattr(
        objectives,
        "_list_methods",
        lambda problem, single: {"single": lambda seed: problem.single_devices[single]},
    )
    (result,) = objectives.compare()
    assert result.makespan_s == result.single_s
    assert 0 < result.refined_s <= result.makespan_s
