import numpy as np
import pytest

from placement.errors import UserError
from placement.graphs import dag
from placement.problem import Problem
from placement.zoo import synthetic


def _build(arguments: str) -> Problem:
    workload = synthetic.build_workload(f"synthetic:family={arguments}")
    return Problem(workload.graph, workload.costs, "makespan", workload.devices)


@pytest.mark.parametrize(
    ("family", "size", "num_ops", "num_sources", "longest_path"),
    [
        ("gaussian_elimination", 5, (25 + 5 - 2) // 2, 1, 2 * 4),
        ("fft", 8, 2 * 8 - 1 + 8 * 3, 1, 4 + 3),
        ("cholesky", 4, 4 * 5 * 6 // 6, 1, 3 * 3 + 1),
        ("montage", 3, 9 + 20 + 9 + 6, 9, 9),
        ("epigenomics", 2, 4 * (1 + 2 * 4 + 1) + 3, 4, 9),
    ],
)
def test_shapes_are_the_literatures(family, size, num_ops, num_sources, longest_path):
    problem = _build(f"{family},size={size},heterogeneity=0,ccr=0")
    graph = problem.graph
    assert graph.num_ops == num_ops == len(set(graph.op_names))
    assert len(set(range(num_ops)) - set(graph.receivers.tolist())) == num_sources
    assert len(set(zip(graph.senders, graph.receivers, strict=True))) == graph.num_edges
    assert dag.levels(num_ops, graph.senders, graph.receivers).max() + 1 == longest_path


def test_costs_have_the_given_ratios():
    problem = _build("cholesky,size=12,devices=3,ccr=200,heterogeneity=50,memory=150,seed=1")
    costs = problem.costs
    assert costs.compute_s.mean() == pytest.approx(1e-3, rel=0.1)
    assert costs.transfer_fixed_s.mean() == pytest.approx(2e-3, rel=0.1)
    spread = costs.compute_s.max(axis=1) / costs.compute_s.min(axis=1)
    assert 1.3 < spread.max() <= 1.25 / 0.75 * (1 + 1e-6)
    np.testing.assert_allclose(costs.capacity_bytes, costs.memory_bytes.sum() / 2, rtol=1e-6)
    assert np.isinf(problem.evaluate(problem.single_devices)).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("fft,size=1", "at least 2"),
        ("cholesky,size=1000", "number of edges=100001 is out of range"),
        ("montage,heterogeneity=300", "from 0 to 200"),
        ("epigenomics,lanes=2", "unknown argument 'lanes'"),
    ],
)
def test_mistakes_are_named(arguments, said):
    with pytest.raises(UserError, match=said):
        _build(arguments)
