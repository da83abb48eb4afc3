"""Problems with a known optimum: the generator's schedule, and what the methods make of it."""

import numpy as np
import pytest

from placement.costs import workloads
from placement.errors import UserError
from placement.pipeline import loading
from placement.pipeline.settings import Settings
from placement.problem import Problem
from placement.zoo import known_optimum, synthetic

_SIZES = ("ops=7,devices=7", "ops=31,devices=2,density=0", "ops=203,devices=8,density=30")


def _text(arguments: str, seed: int = 0) -> str:
    return f"synthetic:family=known_optimum,{arguments},seed={seed}"


def _build(arguments: str, seed: int = 0) -> tuple[Problem, workloads.Optimum]:
    workload = known_optimum.build(_text(arguments, seed))
    assert workload.optimum is not None
    problem = Problem(workload.graph, workload.costs, "makespan", workload.devices)
    return problem, workload.optimum


@pytest.mark.parametrize("arguments", _SIZES)
def test_known_schedule_is_optimal(arguments):
    problem, optimum = _build(arguments)
    assert problem.value_s(optimum.placement) == optimum.value_s == 1.0
    num_devices = len(problem.devices)
    load_s = np.bincount(optimum.placement, problem.costs.compute_s[:, 0], num_devices)
    np.testing.assert_array_equal(load_s, np.ones(num_devices))
    assert (problem.costs.compute_s == problem.costs.compute_s[:, :1]).all()


def test_seeds():
    def read(seed: int) -> tuple[bytes, bytes]:
        problem, _ = _build("ops=60,devices=3,density=5", seed)
        return problem.costs.compute_s.tobytes(), problem.graph.senders.tobytes()

    assert read(0) == read(0)
    assert len({times for times, _ in map(read, range(3))}) == 3
    assert len({edges for _, edges in map(read, range(3))}) == 3


def test_runs_know_the_optimum():
    text = _text("ops=60,devices=3,density=5")
    network = loading.load_network(Settings(graph=text, objective="makespan"))
    assert network.workload is not None
    assert network.workload.devices == ("acc0", "acc1", "acc2")
    assert network.optimum is not None
    assert synthetic.build(text).num_edges == network.graph.num_edges
    with pytest.raises(UserError, match="objective 'makespan', not 'serial'"):
        loading.load_network(Settings(graph=text, objective="serial"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("ops=3,devices=4", "ops=3 is out of range; set from 4 to 20,000"),
        ("ops=5000", "number of edges=1249750 .* to 1,000,000"),
        ("density=101", "density=101 is out of range; set from 0 to 100"),
        ("width=2", "unknown argument 'width'.* density=10"),
    ],
)
def test_wrong_arguments_are_refused(arguments, said):
    with pytest.raises(UserError, match=said) as error:
        known_optimum.build(f"synthetic:family=known_optimum,{arguments}")
    assert "\n" not in str(error.value)
