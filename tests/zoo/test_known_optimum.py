"""Problems with a known optimum: the generator's schedule, and what the methods make of it."""

import numpy as np
import pytest

from placement import methods
from placement.costs import workloads
from placement.errors import UserError
from placement.instance import Instance
from placement.pipeline import loading
from placement.pipeline.results import bounds
from placement.pipeline.settings import Settings
from placement.simulators import makespan
from placement.zoo import known_optimum, synthetic

_SIZES = ("ops=7,devices=7", "ops=31,devices=2,density=0", "ops=60,devices=3,density=5")
_LARGER = ("ops=100,devices=4,density=100", "ops=203,devices=8,density=30")


def _text(arguments: str, seed: int = 0) -> str:
    return f"synthetic:family=known_optimum,{arguments},seed={seed}"


def _build(arguments: str, seed: int = 0) -> tuple[Instance, workloads.Optimum]:
    workload = known_optimum.build(_text(arguments, seed))
    assert workload.optimum is not None
    problem = Instance(workload.graph, workload.costs, "makespan", workload.devices)
    return problem, workload.optimum


@pytest.mark.parametrize("arguments", [*_SIZES, *_LARGER])
@pytest.mark.parametrize("seed", range(3))
def test_the_known_schedule_takes_exactly_the_optimum_and_fills_all_devices(arguments, seed):
    problem, optimum = _build(arguments, seed)
    assert problem.value_s(optimum.placement) == optimum.value_s == 1.0
    num_devices = len(problem.devices)
    load_s = np.bincount(optimum.placement, problem.costs.compute_s[:, 0], num_devices)
    np.testing.assert_array_equal(load_s, np.ones(num_devices))
    assert (problem.costs.compute_s == problem.costs.compute_s[:, :1]).all()


def test_the_known_schedule_respects_all_edges():
    problem, optimum = _build("ops=60,devices=3,density=5")
    start_s, finish_s = makespan.compute_times(
        problem.makespan_tables, optimum.placement.astype(np.int32)[:, None]
    )
    graph, device = problem.graph, optimum.placement
    delay_s = problem.edge_delay_s[
        np.arange(graph.num_edges), device[graph.senders], device[graph.receivers]
    ]
    assert (delay_s > 0).any()
    assert (start_s[graph.receivers, 0] >= finish_s[graph.senders, 0] + delay_s).all()


@pytest.mark.parametrize("method", ["heft", "peft", "m_etf", "lns", "cpsat", "annealing"])
def test_no_method_is_below_the_optimum(method):
    problem, optimum = _build("ops=60,devices=3,density=5")
    solution = methods.solve(problem, method, budget=2_000, time_limit_s=20)
    assert solution.value_s >= optimum.value_s
    assert not solution.bound_s > optimum.value_s


def test_density_is_a_percentage_of_the_admissible_pairs():
    num_edges = [
        _build(f"ops=100,devices=4,density={density}")[0].graph.num_edges
        for density in (0, 10, 50, 100)
    ]
    assert num_edges[0] < 100  # only those that order the operations of a device
    assert num_edges[1:3] == pytest.approx([0.1 * num_edges[3], 0.5 * num_edges[3]], rel=0.2)


def test_seeds_differ_and_equal_texts_are_equal():
    def read(seed: int) -> tuple[bytes, bytes]:
        problem, _ = _build("ops=60,devices=3,density=5", seed)
        return problem.costs.compute_s.tobytes(), problem.graph.senders.tobytes()

    assert read(0) == read(0)
    assert len({times for times, _ in map(read, range(3))}) == 3
    assert len({edges for _, edges in map(read, range(3))}) == 3


def test_a_run_has_the_devices_of_the_graph_and_the_optimum_as_its_bound(tmp_path):
    text = _text("ops=60,devices=3,density=5")
    network = loading.load_network(Settings(graph=text, objective="makespan"))
    assert network.workload is not None
    assert network.workload.devices == ("acc0", "acc1", "acc2")
    assert network.optimum is not None
    assert synthetic.build(text).num_edges == network.graph.num_edges
    assert bounds.add_bounds([], None, tmp_path / "bounds.json", network.optimum) == []
    with pytest.raises(UserError, match="objective 'makespan', not 'serial'"):
        loading.load_network(Settings(graph=text, objective="serial"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("ops=3,devices=4", "ops=3 is out of range; set from 4 to 20,000"),
        ("ops=20001", "to 20,000"),
        ("ops=5000", "number of edges=1249750 .* to 1,000,000"),
        ("devices=1", "devices as '1'.* at least 2"),
        ("density=101", "density=101 is out of range; set from 0 to 100"),
        ("density=half", "density as 'half'"),
        ("width=2", "unknown argument 'width'.* density=10"),
        ("ops=2000,devices=1025", "devices=1025 is out of range"),
    ],
)
def test_bad_arguments_are_answered_in_one_line(arguments, said):
    with pytest.raises(UserError, match=said) as error:
        known_optimum.build(f"synthetic:family=known_optimum,{arguments}")
    assert "\n" not in str(error.value)
