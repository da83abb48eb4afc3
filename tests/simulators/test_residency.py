"""Memory over time against a plain walk through events, and what it makes of placements."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from placement import simulators
from placement.costs import roofline
from placement.graphs import training
from placement.pipeline import loading
from placement.problem import Problem
from placement.simulators import makespan, residency
from placement.solvers.base import compute_single_device_values
from placement.types import TensorBytes
from tests import helpers
from tests.simulators import reference

PAGE = residency.PAGE_BYTES
_peak_bytes = jax.jit(
    lambda tables, schedule, placements, is_needed: residency.compute_peak_bytes(
        tables, placements, *makespan.compute_times(schedule, placements), is_needed
    )
)
_times = jax.jit(makespan.compute_times)
_bound_bytes = jax.jit(residency.bound_peak_bytes)


def _drawn(rng: np.random.Generator, size: tuple[int, int, int, int]) -> tuple[Problem, np.ndarray]:
    """As the reference draws them, with tensors of a few pages or none."""
    problem, placements = reference.random_problem(rng, "makespan", size)
    _, number = np.unique(problem.graph.tensors, return_inverse=True)
    pages = rng.integers(0, 9, (2, number.max() + 1))[:, number]
    alive = TensorBytes(*(PAGE * pages).astype(np.float32))
    return problem._replace(costs=problem.costs._replace(tensor_bytes=alive)), placements


def _delay(problem: Problem, edge: int, source: int, device: int) -> float:
    if source == device:
        return 0.0
    costs = problem.costs
    moving = problem.graph.edge_bytes[edge] * costs.transfer_s_per_byte[source, device]
    fixed = costs.transfer_latency_s[source, device] + costs.transfer_fixed_s[edge]
    return float(moving + fixed + costs.fusion_loss_s[edge])


def _walk(
    problem: Problem, placement: list[int], start: np.ndarray, finish: np.ndarray
) -> list[float]:
    """Peaks by allocating and releasing, event after event; what is released comes first."""
    graph, costs = problem.graph, problem.costs
    events = []
    for tensor in set(graph.tensors.tolist()):
        edges = np.flatnonzero(graph.tensors == tensor)
        sender = int(graph.senders[edges[0]])
        own = placement[sender]
        for device in {own, *(placement[r] for r in graph.receivers[edges])}:
            ends = [finish[r] for r in graph.receivers[edges] if placement[r] == device]
            begin, size = finish[sender], costs.tensor_bytes.copied[edges[0]]
            if device == own:
                begin, size = start[sender], costs.tensor_bytes.produced[edges[0]]
                reader = [placement[r] for r in graph.receivers]
                ends += [finish[sender] + _delay(problem, e, own, reader[e]) for e in edges]
            events += [(max(ends), 0, device, -size), (begin, 1, device, size)]
    used, peak = [0.0] * len(problem.devices), [0.0] * len(problem.devices)
    for _, together in itertools.groupby(sorted(events), key=lambda event: event[0]):
        for _, _, device, change in together:
            used[device] += change
        peak = [max(pair) for pair in zip(peak, used, strict=True)]
    return peak


@pytest.mark.parametrize("size", reference.SIZES[3::3])
def test_peaks_equal_reference(size):
    rng = np.random.default_rng(sum(size))
    for _ in range(6):
        problem, placements = _drawn(rng, size)
        tables = *problem.links, problem.tensor_blocks
        t = residency.build_tables(problem.graph, problem.costs.tensor_bytes, *tables)
        wanted = np.ones(18, bool)
        peak = np.asarray(_peak_bytes(t, problem.makespan_tables, placements.T, wanted))
        most = np.asarray(_bound_bytes(t, placements.T))
        times = np.array(_times(problem.makespan_tables, placements.T)).transpose(2, 0, 1)
        for row, schedule, column in zip(placements.tolist(), times, peak.T, strict=True):
            assert _walk(problem, row, *schedule) == column.tolist()
        assert (most >= peak).all()


@pytest.mark.parametrize("objective", helpers.nightly_except(["makespan"], simulators.OBJECTIVES))
def test_values_agree_with_peaks(objective):
    """Parts of one accelerator, pages, and copies larger than their operation."""
    rng, seen = np.random.default_rng(4), set()
    placements, base_graph = helpers.all_placements(4, 3), helpers.random_dag_of_size(rng, 4, 4, 3)
    for num_copies in (0, 1) * 4:
        graph = helpers.rewired(rng, base_graph)
        source, reader = rng.permutation(4)[:2]
        graph = dataclasses.replace(
            graph,
            copy_sources=np.array([source])[:num_copies],
            copy_readers=np.array([reader])[:num_copies],
            copy_bytes=np.array([rng.integers(0, 400)])[:num_copies],
            copy_constants=np.zeros(num_copies, int),
        )
        costs = helpers.random_costs(rng, graph, 3, accelerator=rng.integers(-1, 2, 3))
        sizes = rng.integers(0, 300, (2, graph.num_edges))[:, graph.senders]
        costs = costs._replace(tensor_bytes=TensorBytes(*sizes.astype(np.float32)))
        free = helpers.as_problem(graph, costs, objective)
        peaks = np.array([free.peak_bytes(placement) for placement in placements])
        capacity = np.where(rng.random(3) < 0.7, peaks[rng.integers(len(peaks))], np.inf)
        limited = free._replace(costs=costs._replace(capacity_bytes=capacity.astype(np.float32)))
        fits = (peaks <= capacity).all(axis=1)
        expected = np.where(fits, free.evaluate(placements), np.inf)
        np.testing.assert_array_equal(limited.evaluate(placements), expected)
        seen |= set(fits.tolist())
        values_s = [limited.value_s(placement) for placement in placements]
        np.testing.assert_array_equal(values_s, expected)
        singles_s = [limited.value_s(placement) for placement in limited.single_devices]
        np.testing.assert_array_equal(compute_single_device_values(limited), singles_s)
    assert seen == {True, False}


def test_training_tensors_on_described_devices():
    text = "rnnlm:steps=2,batch=4,hidden=32,vocabulary=50"
    network = loading.extract_zoo_graph(text, constants=True)
    graph = training.make_training_graph(network).graph
    alive = roofline.cost_model(graph, ("cpu", "gpu")).tensor_bytes
    stored = [graph.op_types[s] in ("Variable", "Constant") for s in graph.senders]
    assert (alive.copied == graph.edge_bytes).all()
    assert (alive.produced == np.where(stored, 0, graph.edge_bytes)).all()
    assert any(stored)
