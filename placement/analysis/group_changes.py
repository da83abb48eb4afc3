"""The cost of changes between groups of cores, fitted to measured placements.

Groups of cores share a processor. If consecutive operations run on different groups, threads have
to wake up, and the groups that compute at the same time share caches and memory. A profile of
single operations shows these costs only in part. Therefore placements of the whole model are
measured, and the difference from their prediction is explained by

    measured - predicted = sum over kinds k of slowdown_k * compute_k
                         + sum over pairs of kinds (j, k) of latency_jk * changes_jk.

Groups with the same number of cores are of one kind. compute_k is the time in which groups of kind
k compute on a longest path of the `makespan` schedule. changes_jk counts the tensors that groups of
the two kinds hand over on it. The largest group is the reference, so it has no slowdown. All
coefficients are at least zero, and a Gaussian prior around zero decides whatever the measurements
leave open. The longest path depends on the coefficients, so the fit is repeated. It also starts
from latencies above zero, because a longest path without transfers says nothing about their cost.
The coefficients with the highest posterior probability are the result.

A search prefers placements whose costs are underestimated. It can therefore be given cautious
costs: each coefficient plus a number of its standard deviations. These are of the posterior
linearised at the result, with the errors of the measured placements if they are larger than
assumed. The error of a prediction itself is a part of the slowdowns' deviations. What no
measurement has tested then costs what the prior allows.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import chex
import jax
import numpy as np
from scipy.optimize import nnls

from placement.instance import Instance
from placement.simulators import makespan
from placement.types import CostModel

ERROR = 0.02  # the relative error of a prediction with the right coefficients
# Standard deviations of the prior. A thread that wakes up late may wait for the system's next tick,
# which takes 1 to 4 ms.
_SLOWDOWN_DEVIATION = 0.1
_LATENCY_DEVIATION_S = 1e-3
_ROUNDS = 5
_START_LATENCIES_S = (0.0, 1e-5, 1e-4, 1e-3)

_compute_times = jax.jit(makespan.compute_times)


class GroupChanges(NamedTuple):
    """The fitted costs, beside those of the profile."""

    slowdown: np.ndarray  # float64 [D]: relative, of each operation on a device
    latency_s: np.ndarray  # float64 [D, D], symmetric, zero diagonal: of each transfer


class PathTerms(NamedTuple):
    """The quantities on a longest path of a `makespan` schedule."""

    latency_s: float
    compute_s: np.ndarray  # float64 [D]: on each device
    num_transfers: np.ndarray  # float64 [D, D]: tensors from device to device


def find_longest_path(problem: Instance, placement: np.ndarray) -> PathTerms:
    """Finds a longest path of the `makespan` schedule of a placement int32 [N]."""
    chex.assert_shape(placement, (problem.graph.num_ops,))
    chex.assert_type(placement, int)
    graph, order = problem.graph, problem.priority_order
    num_devices = len(problem.devices)
    conflicts = np.eye(num_devices, dtype=bool) if problem.conflicts is None else problem.conflicts
    times = _compute_times(problem.makespan_tables, placement[:, None])
    start_s, finish_s = (np.asarray(column, np.float64)[:, 0] for column in times)
    edges = np.arange(graph.num_edges)
    delay_s = problem.edge_delay_s[edges, placement[graph.senders], placement[graph.receivers]]
    arrival_s = finish_s[graph.senders] + delay_s
    position = np.argsort(order)
    compute_s, num_transfers = np.zeros(num_devices), np.zeros((num_devices, num_devices))
    op, latency_s = int(finish_s.argmax()), float(finish_s.max())
    while True:
        device = placement[op]
        compute_s[device] += finish_s[op] - start_s[op]
        incoming = np.flatnonzero(graph.receivers == op)
        earlier = order[: position[op]]
        earlier = earlier[conflicts[device, placement[earlier]]]
        arrived_s = arrival_s[incoming].max(initial=0.0)
        free_s = finish_s[earlier].max(initial=0.0)
        if not len(incoming) and not len(earlier):
            return PathTerms(latency_s, compute_s, num_transfers)
        if free_s >= arrived_s and len(earlier):
            op = int(earlier[finish_s[earlier].argmax()])
            continue
        edge = incoming[arrival_s[incoming].argmax()]
        op = int(graph.senders[edge])
        num_transfers[placement[op], device] += placement[op] != device


def fit(
    problems: Sequence[Instance],
    placements: Sequence[np.ndarray],
    latency_s: np.ndarray,
    num_cores: Sequence[int],
    *,
    num_deviations: float = 0.0,
) -> GroupChanges:
    """Fits the costs of changes to measured placements.

    Args:
      problems: M problems that differ only in their order of priority, with objective `makespan`
        and at profiled costs.
      placements: for each of them a placement int32 [N].
      latency_s: float [M], the measured latencies.
      num_cores: the number of cores of each of the D devices.
      num_deviations: standard deviations by which each cost exceeds the most probable one.
    """
    chex.assert_shape(latency_s, (len(problems),))
    chex.assert_type(latency_s, float)
    kinds, kind = np.unique(num_cores, return_inverse=True)
    members = np.eye(len(kinds))[kind]  # float64 [D, K]
    pairs = list(itertools.combinations_with_replacement(range(len(kinds)), 2))
    num_slowdowns = len(kinds) - 1
    deviation = np.array(
        [_SLOWDOWN_DEVIATION] * num_slowdowns + [_LATENCY_DEVIATION_S] * len(pairs)
    )
    weight = 1 / (ERROR * latency_s)

    def make_changes(coefficients: np.ndarray) -> GroupChanges:
        slowdown = np.append(coefficients[:num_slowdowns], 0.0)
        pair_s = np.zeros((len(kinds), len(kinds)))
        for (j, k), value in zip(pairs, coefficients[num_slowdowns:], strict=True):
            pair_s[j, k] = pair_s[k, j] = value
        device_s = pair_s[kind][:, kind]
        np.fill_diagonal(device_s, 0.0)
        return GroupChanges(slowdown[kind], device_s)

    def linearise(coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the terms float64 [M, C] of the longest paths, and their latencies [M]."""
        changes = make_changes(coefficients)
        rows, predicted_s = [], []
        for problem, placement in zip(problems, placements, strict=True):
            path = find_longest_path(
                problem._replace(costs=apply(problem.costs, changes)), placement
            )
            compute_s = members.T @ (path.compute_s / (1 + changes.slowdown))
            transfers = members.T @ path.num_transfers @ members
            transfers = transfers + transfers.T * ~np.eye(len(kinds), dtype=bool)
            rows.append([*compute_s[:num_slowdowns], *(transfers[pair] for pair in pairs)])
            predicted_s.append(path.latency_s)
        return np.array(rows), np.array(predicted_s)

    def scale(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Returns the least-squares matrix [M + C, C], in standard deviations of the prior."""
        return np.concatenate([rows * weight[:, None] * deviation, np.eye(len(deviation))])

    fits = list[tuple[float, np.ndarray]]()  # -2 times the log posterior, up to a constant
    for start_s in _START_LATENCIES_S:
        coefficients = np.array([0.0] * num_slowdowns + [start_s] * len(pairs))
        for _ in range(_ROUNDS):
            rows, predicted_s = linearise(coefficients)
            profiled_s = predicted_s - rows @ coefficients
            target = np.append((latency_s - profiled_s) * weight, np.zeros(len(deviation)))
            coefficients = nnls(scale(rows, weight), target)[0] * deviation
            residuals = (latency_s - linearise(coefficients)[1]) * weight
            loss = float(np.sum(residuals**2) + np.sum((coefficients / deviation) ** 2))
            fits.append((loss, coefficients))
    coefficients = min(fits, key=lambda fit: fit[0])[1]
    rows, predicted_s = linearise(coefficients)
    sum_of_squares = float(np.sum((predicted_s / latency_s - 1) ** 2))
    error = max(ERROR, math.sqrt(sum_of_squares / max(1, len(problems) - 1)))
    matrix = scale(rows, 1 / (error * latency_s))
    variance = deviation**2 * np.diag(np.linalg.inv(matrix.T @ matrix))
    variance[:num_slowdowns] += error**2
    return make_changes(coefficients + num_deviations * np.sqrt(variance))


def apply(costs: CostModel, changes: GroupChanges) -> CostModel:
    """Returns profiled costs with the costs of changes.

    In segments, the slowdown of a device that others disturb is then only the part that exceeds the
    fitted one.
    """
    segment_costs = costs.segment_costs
    if segment_costs is not None:
        slowdown = (1 + np.asarray(segment_costs.slowdown)) / (1 + changes.slowdown) - 1
        slowdown = np.where(changes.slowdown > 0, np.maximum(slowdown, 0.0), slowdown)
        segment_costs = segment_costs._replace(slowdown=slowdown.astype(np.float32))
    return costs._replace(
        segment_costs=segment_costs,
        compute_s=(np.asarray(costs.compute_s) * (1 + changes.slowdown)).astype(np.float32),
        transfer_latency_s=(np.asarray(costs.transfer_latency_s) + changes.latency_s).astype(
            np.float32
        ),
    )


def to_json(changes: GroupChanges) -> dict[str, Any]:
    """Returns JSON-able data."""
    return {name: value.tolist() for name, value in changes._asdict().items()}


def from_json(data: dict[str, Any]) -> GroupChanges:
    """Reads the data of `to_json`; other keys are ignored."""
    return GroupChanges(*(np.array(data[name], float) for name in GroupChanges._fields))
