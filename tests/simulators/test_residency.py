"""Memory over time against a plain walk through events, and what it makes of placements."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import numpy as np
import pytest

from placement import methods, simulators
from placement.costs import roofline
from placement.graphs import opgraph, training
from placement.instance import Instance
from placement.pipeline import loading
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
_bound_bytes = jax.jit(residency.bound_peak_bytes)


@functools.partial(jax.jit, static_argnums=0)
def _simulate(objective: str, tables: Any, placements: np.ndarray) -> simulators.Outcome:
    return simulators.get_objective(objective).simulate(tables, placements)


def _drawn(
    rng: np.random.Generator, size: tuple[int, int, int, int]
) -> tuple[Instance, np.ndarray]:
    """As the reference draws them, with tensors of a few pages or none."""
    problem, placements = reference.random_problem(rng, "makespan", size)
    _, number = np.unique(problem.graph.tensors, return_inverse=True)
    pages = rng.integers(0, 9, (2, number.max() + 1))[:, number]
    alive = TensorBytes(*(PAGE * pages).astype(np.float32))
    return problem._replace(costs=problem.costs._replace(tensor_bytes=alive)), placements


def _times(problem: Instance, placement: list[int]) -> tuple[list[float], list[float]]:
    """When operations start and end: one by one, by priority."""
    graph, costs = problem.graph, problem.costs
    start, finish = [0.0] * graph.num_ops, [0.0] * graph.num_ops
    free = [0.0] * len(problem.devices)
    for op in problem.priority_order.tolist():
        device, ready = placement[op], 0.0
        for edge in np.flatnonzero(graph.receivers == op):
            sender = int(graph.senders[edge])
            ready = max(ready, finish[sender] + _delay(problem, edge, placement[sender], device))
        start[op] = max(ready, free[device])
        finish[op] = free[device] = start[op] + float(costs.compute_s[op, device])
    return start, finish


def _delay(problem: Instance, edge: int, source: int, device: int) -> float:
    if source == device:
        return 0.0
    costs = problem.costs
    moving = problem.graph.edge_bytes[edge] * costs.transfer_s_per_byte[source, device]
    fixed = costs.transfer_latency_s[source, device] + costs.transfer_fixed_s[edge]
    return float(moving + fixed + costs.fusion_loss_s[edge])


def _walk(problem: Instance, placement: list[int]) -> list[float]:
    """Peaks by allocating and releasing, event after event; what is released comes first."""
    graph, costs = problem.graph, problem.costs
    start, finish = _times(problem, placement)
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


@pytest.mark.parametrize("size", reference.SIZES[3::4])
def test_peaks_equal_reference(size):
    """432 schedules in all."""
    rng = np.random.default_rng(sum(size))
    for _ in range(12):
        problem, placements = _drawn(rng, size)
        tables = *problem.links, problem.tensor_blocks
        t = residency.build_tables(problem.graph, problem.costs.tensor_bytes, *tables)
        wanted = np.ones(18, bool)
        peak = np.asarray(_peak_bytes(t, problem.makespan_tables, placements.T, wanted))
        most = np.asarray(_bound_bytes(t, placements.T))
        plain = np.array([_walk(problem, placement) for placement in placements.tolist()]).T
        np.testing.assert_array_equal(peak, plain)
        assert (most >= peak).all()


@pytest.mark.parametrize("objective", ["makespan", "max_load"])
def test_feasible_if_peaks_fit(objective):
    rng, seen = np.random.default_rng(7), set()
    for _ in range(10):
        problem, placements = _drawn(rng, reference.SIZES[4])
        plain = np.array([_walk(problem, placement) for placement in placements.tolist()])
        static = np.stack(
            [(problem.costs.memory_bytes * (placements == d)).sum(axis=1) for d in range(2)], 1
        )
        capacity = np.median(plain + static, axis=0).astype(np.float32)
        costs = problem.costs._replace(capacity_bytes=capacity)
        limited = problem._replace(costs=costs, objective=objective)
        outcome = _simulate(objective, limited.tables, placements)
        excess = np.maximum(plain + static - capacity, 0) / np.maximum(capacity, 1)
        np.testing.assert_allclose(outcome.overflow, excess.max(axis=1), rtol=1e-6)
        fits = np.asarray(outcome.feasible)
        finite = np.isfinite(np.asarray(outcome.latency_s))
        assert (fits == ((excess <= 0).all(axis=1) & finite)).all()
        seen |= set(fits.tolist())
    assert seen == {True, False}


def test_tensor_waits_for_own_transfers():
    # op0 sends a small tensor for 100 s; the large one beside it is released long before.
    graph = opgraph.make_graph(
        name="fork",
        op_names=list("abcde"),
        op_types=["MatMul"] * 5,
        senders=[0, 0, 1, 3],
        receivers=[1, 2, 3, 4],
        edge_bytes=[0] * 4,
        tensors=[0, 1, 2, 3],
    )
    pages = PAGE * np.array([4, 1, 1, 4], np.float32)
    costs = helpers.unit_costs(
        graph, tensor_bytes=TensorBytes(pages, pages), capacity_bytes=PAGE * np.array([6, 2])
    )
    problem = helpers.as_problem(graph, costs, "makespan").with_order(np.arange(5, dtype=np.int32))
    placement = np.array([0, 0, 1, 0, 0])
    assert problem.peak_bytes(placement).tolist() == [6 * PAGE, PAGE]
    assert np.isfinite(problem.value_s(placement))


@pytest.mark.parametrize("objective", simulators.OBJECTIVES)
def test_values_agree_with_peaks(objective):
    """Parts of one accelerator, pages, and copies larger than their operation."""
    rng, seen = np.random.default_rng(4), set()
    placements, base_graph = helpers.all_placements(4, 3), helpers.random_dag_of_size(rng, 4, 4, 3)
    for _ in range(12):
        graph = helpers.rewired(rng, base_graph)
        source, reader = rng.permutation(4)[:2]
        graph = dataclasses.replace(
            graph,
            copy_sources=np.array([source]),
            copy_readers=np.array([reader]),
            copy_bytes=np.array([rng.integers(0, 400)]),
            copy_constants=np.zeros(1, int),
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
        singles_s = [limited.value_s(placement) for placement in limited.single_devices]
        np.testing.assert_array_equal(compute_single_device_values(limited), singles_s)
    assert seen == {True, False}


def _wide() -> Instance:
    """Six branches whose tensors all wait for the last operation: alone, a device is too small."""
    graph = helpers.fork_join(6)
    pages = np.where(graph.senders == 0, 0, 4).astype(np.float32)
    costs = helpers.unit_costs(
        graph,
        2,
        capacity_bytes=np.array([18 * PAGE, 30 * PAGE], np.float32),
        transfer_latency_s=0.1 * (1 - np.eye(2, dtype=np.float32)),
        transfer_s_per_byte=np.zeros((2, 2), np.float32),
        tensor_bytes=TensorBytes(PAGE * pages, PAGE * pages),
    )
    compute_s = np.array(costs.compute_s)
    compute_s[:, 1] = 9
    return helpers.as_problem(graph, costs._replace(compute_s=compute_s), "makespan")


def test_searches_respect_peaks():
    problem = _wide()
    everything = np.zeros((1, problem.graph.num_ops), np.int32)
    assert np.isinf(problem.evaluate(everything)).all()
    free = problem._replace(
        costs=problem.costs._replace(capacity_bytes=np.full(2, np.inf, np.float32))
    )
    assert np.isfinite(free.evaluate(everything)).all()
    best = methods.solve(problem, "brute_force")
    assert best.status == "optimal"
    assert best.value_s > methods.solve(free, "brute_force").value_s
    found = methods.solve(problem, "search", budget=4000, time_limit_s=20)
    assert found.value_s == pytest.approx(best.value_s)


def test_training_tensors_on_described_devices():
    text = "rnnlm:steps=2,batch=4,hidden=32,vocabulary=50"
    network = loading.extract_zoo_graph(text, constants=True)
    graph = training.make_training_graph(network).graph
    alive = roofline.cost_model(graph, ("cpu", "gpu")).tensor_bytes
    stored = [graph.op_types[s] in ("Variable", "Constant") for s in graph.senders]
    assert (alive.copied == graph.edge_bytes).all()
    assert (alive.produced == np.where(stored, 0, graph.edge_bytes)).all()
    assert any(stored)
