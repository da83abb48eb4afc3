"""The cost of changes between groups of cores, measured on devices with known costs."""

import json

import numpy as np
import pytest

from placement import methods
from placement.analysis import group_changes
from placement.analysis.group_changes import GroupChanges
from placement.files import CorruptFileError
from placement.graphs import coarsen
from placement.instance import Instance
from placement.pipeline import change_costs, loading, saved_costs
from placement.runtime.devices import Device
from placement.runtime.measurement.request import Failure, Interval, Measurement
from tests import helpers

RESOURCES = np.array([[True, True], [True, False], [False, True]])
DEVICES = tuple(
    Device(name, f"{name} [simulated]", "f32", len(cores), None, {}, True, cores)
    for name, cores in (("CPU_ALL", (0, 1)), ("CPU_CORE_0", (0,)), ("CPU_CORE_1", (1,)))
)
NAMES = tuple(device.name for device in DEVICES)


class SimulatedMeasurer:
    """Times placements by a cost model, or lets all but the first fail."""

    def __init__(self, graph, costs, *, fails=False):
        self.devices = DEVICES
        self._problem, self._fails = Instance(graph, costs, "makespan", NAMES), fails
        self.num_requests = 0

    def latency_s(self, candidate):
        graph = self._problem.graph
        index = {name: op for op, name in enumerate(graph.op_names)}
        order = np.array(
            [index[name] for part in candidate.segments for name in part.ops], np.int32
        )
        placement = np.array([NAMES.index(candidate.affinity[op]) for op in graph.op_names])
        problem = self._problem.with_order(order)
        return float(np.asarray(problem.evaluate(placement[None].astype(np.int32)))[0])

    def ask(self, request):
        self.num_requests += 1
        seconds = [self.latency_s(candidate) for candidate in request.candidates]
        outcomes = []
        for number, latency_s in enumerate(seconds):
            if self._fails and number:
                outcomes.append(Failure("compile", "simulated"))
                continue
            exact = (Interval(x, x, x, 15) for x in (latency_s, latency_s / seconds[0]))
            outcomes.append(
                Measurement(*exact, 1, 0.0, 1, True, NAMES, 1.0, 0.0, 0.0, 1.0, compile_s=0.0)
            )
        return outcomes


@pytest.fixture(scope="module")
def network():
    graph = helpers.fork_join(2, 6)
    return loading.Network(None, graph, coarsen.coarsen(graph), {})


@pytest.fixture(scope="module")
def profiled(network):
    """Two branches, which take 0.93 of the time of all cores on one core each."""
    graph = network.graph
    compute_s = np.tile([5.4e-3, 10e-3, 10e-3], (graph.num_ops, 1)).astype(np.float32)
    costs = helpers.unit_costs(graph, 3, compute_s=compute_s, resources=RESOURCES)
    return costs._replace(
        transfer_latency_s=np.where(np.eye(3, dtype=bool), 0, 5e-5).astype(np.float32),
        transfer_s_per_byte=np.zeros((3, 3), np.float32),
    )


def best_placement(network, costs):
    problem = loading.make_search_problem(network, costs, NAMES, "makespan").coarse
    solution = methods.solve(problem, "search", budget=20_000)
    return coarsen.lift(network.coarsening.assignment, solution.placement), solution.value_s


@pytest.mark.parametrize(
    ("slowdown", "latency_s", "is_all_cores"),
    [(0.15, 1e-3, True), (0.0, 3e-3, True), (0.0, 1e-4, False), (0.0, 0.0, False)],
)
def test_a_search_then_finds_no_placement_that_is_slower_than_all_cores(
    network, profiled, slowdown, latency_s, is_all_cores
):
    truth = GroupChanges(slowdown * np.array([0, 1, 1]), latency_s * (1 - np.eye(3)))
    actual = group_changes.apply(profiled, truth)
    measurer = SimulatedMeasurer(network.graph, actual)
    saved, is_complete = change_costs.measure(network, profiled, measurer, 60.0, lambda _: None)
    assert is_complete
    fitted = group_changes.apply(profiled, group_changes.from_json(saved))
    placement, predicted_s = best_placement(network, fitted)
    assert (len(np.unique(placement)) == 1) == is_all_cores
    real = Instance(network.graph, actual, "makespan", NAMES)
    whole = np.zeros((1, network.graph.num_ops), np.int32)
    actual_s, whole_s = (
        float(np.asarray(real.evaluate(p))[0]) for p in (placement[None].astype(np.int32), whole)
    )
    assert actual_s <= 1.005 * whole_s
    assert actual_s * (1 - 1e-5) <= predicted_s < 1.1 * actual_s  # cautious
    first, *others = saved["placements"]
    assert first["measured_s"] == first["profiled_s"] == pytest.approx(whole_s)
    assert others
    for row in others:
        assert row["fitted_s"] == pytest.approx(row["measured_s"], rel=0.05)


def assert_has_costs_of_prior(saved):
    """A standard deviation each: 10% for groups of one core, and 1 ms for a change."""
    np.testing.assert_allclose(saved["slowdown"], 0.1 * np.array([0, 1, 1]), rtol=0.05)
    np.testing.assert_allclose(saved["latency_s"], 1e-3 * (1 - np.eye(3)))


def test_without_time_nothing_is_measured(network, profiled):
    measurer = SimulatedMeasurer(network.graph, profiled)
    saved, is_complete = change_costs.measure(network, profiled, measurer, 0.0, lambda _: None)
    assert not is_complete
    assert measurer.num_requests == 0
    assert_has_costs_of_prior(saved)


def test_slow_rounds_need_enough_time(network, profiled):
    slow = profiled._replace(compute_s=profiled.compute_s * 1e3)
    measurer = SimulatedMeasurer(network.graph, slow)
    _, is_complete = change_costs.measure(network, slow, measurer, 30.0, lambda _: None)
    assert not is_complete
    assert measurer.num_requests == 0


def test_placements_that_cannot_run_say_nothing_about_changes(network, profiled):
    measurer = SimulatedMeasurer(network.graph, profiled, fails=True)
    saved, is_complete = change_costs.measure(network, profiled, measurer, 60.0, lambda _: None)
    assert not is_complete
    assert_has_costs_of_prior(saved)


def test_where_all_cores_are_the_fastest_nothing_needs_to_be_measured(network, profiled):
    costs = profiled._replace(transfer_latency_s=1 - np.eye(3, dtype=np.float32))
    measurer = SimulatedMeasurer(network.graph, costs)
    saved, is_complete = change_costs.measure(network, costs, measurer, 60.0, lambda _: None)
    assert is_complete
    assert measurer.num_requests == 0
    assert_has_costs_of_prior(saved)


def save_profile(path, graph, changes):
    kernels = [[[name], 1e-3] for name in graph.op_names]
    profile = {"latency_s": 1e-3 * len(kernels), "kernels": kernels, "unsupported": []}
    none = np.zeros((3, 3)).tolist()
    saved = {
        "profiles": [profile | {"device": device.label} for device in DEVICES],
        "crossings": {"latency_s": none, "s_per_byte": none},
        "key": "",
        "transfers": [],
        "conditions": {"limit_s": 1.0, "left_out": [], "busy": None},
        "cores": [list(device.cores) for device in DEVICES],
        "changes": changes,
    }
    path.write_text(json.dumps(saved))


def test_saved_costs_of_changes_are_part_of_the_costs(network, tmp_path):
    changes = GroupChanges(np.array([0.0, 0.5, 0.5]), 2e-3 * (1 - np.eye(3)))
    save_profile(tmp_path / "profile.json", network.graph, group_changes.to_json(changes))
    costs = saved_costs.cost_model(network.graph, saved_costs.read(tmp_path / "profile.json"))
    np.testing.assert_allclose(costs.compute_s[0], [1e-3, 1.5e-3, 1.5e-3], rtol=1e-6)
    np.testing.assert_allclose(costs.transfer_latency_s, changes.latency_s, rtol=1e-6)
    np.testing.assert_array_equal(costs.resources, RESOURCES)


@pytest.mark.parametrize(
    "changes",
    [
        {"slowdown": [0.0, 0.1], "latency_s": [[0.0] * 3] * 3},
        {"slowdown": [0.0, 0.1, 0.1], "latency_s": [[0.0] * 3] * 2},
        {"slowdown": "much"},
    ],
)
def test_costs_of_changes_of_other_devices_are_refused(network, changes, tmp_path):
    save_profile(tmp_path / "profile.json", network.graph, changes)
    with pytest.raises(CorruptFileError, match=r"give the profile\.json of a run"):
        saved_costs.read(tmp_path / "profile.json")
