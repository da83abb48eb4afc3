"""Placements of fast methods for each objective, from which longer searches start."""

import contextlib
from collections.abc import Iterator

import chex
import numpy as np

from placement.errors import UserError
from placement.graphs import dag
from placement.instance import Instance
from placement.solvers import base, graph_cut
from placement.solvers.diagrams import search as diagrams
from placement.solvers.heuristics import baechi, greedy, list_scheduling
from placement.solvers.heuristics.large_neighbourhood import BATCH_SIZE, pad_batch, polish
from placement.solvers.limits import SearchLimits
from placement.solvers.splits import ideals_dp, pipedream
from placement.types import OpGraph, Solution

_NUM_SHARES = 24
_CANDIDATES_SHARE, _IMPROVEMENT_SHARE = 0.06, 0.04  # of the remaining time
_MIN_CANDIDATES_S = 1.0  # if so much remains: a short limit is no worse than the heuristics alone
_EVALUATIONS_PER_CLASS = 128  # while improving

# The fastest methods come first, because time may run out before the last.
STARTS: dict[str, tuple[base.Find, ...]] = {
    "serial": (graph_cut.graph_cut,),
    "makespan": (
        list_scheduling.heft,
        baechi.m_topo,
        list_scheduling.peft,
        baechi.m_etf,
        baechi.m_sct,
        diagrams.narrow_diagram,
    ),
    "max_load": (pipedream.pipedream, ideals_dp.linearised_dp),
    "subgraph": (
        greedy.fill_accelerators,
        pipedream.pipedream,
        ideals_dp.linearised_dp,
        ideals_dp.dp_split,
    ),
}


def find_starts(problem: Instance, seed: int, limits: SearchLimits) -> Iterator[Solution]:
    """Yields the placement of each method for the problem's objective.

    Leaves out methods that refuse the problem or find no placement.

    Args:
      problem: the problem to place.
      seed: of all randomness.
      limits: of all methods together.
    """
    for method in STARTS[problem.objective]:
        if limits.is_over():
            return
        with contextlib.suppress(UserError):  # a method may refuse the problem
            result = method(problem, seed, limits)
            if result.placement is not None:
                yield result


def find_warm_start(
    problem: Instance, seed: int, limits: SearchLimits, *, contiguous: bool = False
) -> Solution:
    """Finds a placement from which an exact search starts: the best of fast methods, improved.

    An exact search needs it as a horizon, as a hint and to fall back on. The candidates are

    1. the results of `find_starts`;
    2. for several shares T of the total load, the classes in topological order dealt to one device
       after another, each of which is full when it has computed for T or its memory is full;
    3. every device alone.

    The best of them in the simulator is improved by steepest descent over moves of a single class,
    and then by large-neighbourhood search. The latter ignores contiguity, so that for contiguous
    placements the descent is all.

    Args:
      problem: the problem.
      seed: of the improvement.
      limits: a tenth of the remaining time is spent at most, or a second, not counting the
        compilation of the simulator.
      contiguous: whether to admit only contiguous placements.

    Returns:
      The placement with its value and the evaluations; None and inf if none is feasible.
    """
    classes = problem.classes
    reach = reachability_within_passes(problem.graph) if contiguous else None

    def take_best(start: Solution, candidates: np.ndarray, limits: SearchLimits) -> Solution:
        """Returns the best of a start and of as many candidates int [M, N] as time permits."""
        batches_s: list[np.ndarray] = []
        for first in range(0, len(candidates), BATCH_SIZE):
            if batches_s and limits.is_over():
                break
            rows = candidates[first : first + BATCH_SIZE]
            padded = pad_batch(rows)
            batches_s.append(np.asarray(problem.evaluate(padded))[: len(rows)])
        values_s = np.concatenate([np.zeros(0), *batches_s])
        placement, value_s = start.placement, start.value_s
        for row in np.argsort(values_s, kind="stable"):
            if not values_s[row] < value_s:
                break
            if reach is None or is_contiguous(candidates[row], reach):
                placement, value_s = candidates[row], float(values_s[row])
        evaluations = start.evaluations + len(values_s)
        limits.report(evaluations, value_s, placement)
        return Solution(placement, value_s, evaluations=evaluations)

    share = max(_CANDIDATES_SHARE, _MIN_CANDIDATES_S / max(_MIN_CANDIDATES_S, limits.remaining_s()))
    results = find_starts(problem, seed, limits.take_share(share, limits.budget))
    placements = [result.placement for result in results if result.placement is not None]
    candidates = np.stack([*placements, *_deal_classes(problem)[:, classes.ids]])
    start = take_best(Solution(None, np.inf), candidates, limits)  # compiles

    limits = limits.take_share(_IMPROVEMENT_SHARE, _EVALUATIONS_PER_CLASS * len(classes.compute_s))
    rng, previous_s = np.random.default_rng(seed), np.inf
    while start.placement is not None and start.value_s < previous_s and not limits.is_over():
        previous_s = start.value_s
        class_devices, can_move = start.placement[classes.first_ops], classes.allowed.copy()
        can_move[np.arange(len(class_devices)), class_devices] = False
        moved_class, device = np.nonzero(can_move)
        moves = np.repeat(class_devices[None], len(moved_class), axis=0)
        moves[np.arange(len(moved_class)), moved_class] = device
        start = take_best(start, rng.permutation(moves)[:, classes.ids], limits)
    if contiguous:
        return start
    placement = candidates[0] if start.placement is None else start.placement
    polish_limits = limits.take_share(1.0, limits.budget, start.evaluations)
    polished = polish(problem, placement, seed, polish_limits)
    assert polished.placement is not None
    start = start._replace(evaluations=start.evaluations + polished.evaluations)
    return take_best(start, polished.placement[None], limits)


def is_contiguous(placement: np.ndarray, reach: np.ndarray) -> bool:
    """Whether no path leaves a device and returns to it.

    Args:
      placement: int [N].
      reach: bool [N, N], whether a path leads from i to j.
    """
    chex.assert_rank([placement, reach], [1, 2])
    chex.assert_type([placement, reach], [int, bool])
    for device in np.unique(placement):
        is_inside = placement == device
        is_between = reach[is_inside].any(axis=0) & reach[:, is_inside].any(axis=1)
        if (is_between & ~is_inside).any():
            return False
    return True


def reachability_within_passes(graph: OpGraph) -> np.ndarray:
    """Returns bool [N, N]: the paths within the forward or within the backward operations."""
    reach, backward = dag.reachability(graph), graph.backward
    return reach & (backward[:, None] == backward)


def _deal_classes(problem: Instance) -> np.ndarray:
    """Returns placements of classes int [M, C]: dealt to devices in turn, or all on one device."""
    classes, memory, order = problem.classes, problem.memory_limits, problem.class_order

    def deal(devices: np.ndarray, share_s: float) -> np.ndarray:
        """Deals int [C] to devices in turn, each up to its share; the last one gets the rest."""
        free_bytes = memory.capacity_bytes.copy()
        placement = np.full(len(order), -1)
        current, load_s = 0, 0.0
        for c in order.tolist():
            for position in range(current, len(devices)):
                device = devices[position]
                seconds = classes.compute_s[c, device]
                memories = memory.devices[:, device]
                fits = (free_bytes[memories] >= classes.memory_bytes[c]).all()
                device_load_s = load_s if position == current else 0.0
                is_light = device_load_s == 0 or device_load_s + seconds <= share_s
                is_last = position == len(devices) - 1
                if np.isfinite(seconds) and fits and (is_light or is_last):
                    current, load_s = position, device_load_s + seconds
                    free_bytes[memories] -= classes.memory_bytes[c]
                    placement[c] = device
                    break
            if placement[c] < 0:  # the fastest device with free memory, else the fastest
                is_small = classes.memory_bytes[c] > free_bytes
                is_full = (memory.devices & is_small[:, None]).any(axis=0)
                device = int((classes.compute_s[c] + np.where(is_full, 1e30, 0.0)).argmin())
                free_bytes[memory.devices[:, device]] -= classes.memory_bytes[c]
                placement[c] = device
        return placement

    accelerator = np.asarray(problem.costs.accelerator)
    devices = np.argsort(accelerator < 0, kind="stable")  # hosts come last
    total_s = np.where(classes.allowed, classes.compute_s, np.inf).min(axis=1).sum()
    shares = np.geomspace(1 / len(devices), 1.5, _NUM_SHARES)
    candidates = [deal(devices, total_s * share) for share in shares]
    candidates += [deal(np.roll(devices, -d), np.inf) for d in devices]
    return np.stack(candidates)
