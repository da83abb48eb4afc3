"""Placements without a search, and brute force.

`fill_in_order` and `split_by_memory` look at memory alone: they are the ways in which models are
usually split over devices. Both take the decisions in topological order and the devices in their
order, so that few tensors cross.
"""

import numpy as np

from placement.errors import UserError
from placement.graphs import dag
from placement.problem import Problem
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

# Brute force refuses problems with more decisions that have a choice, or with more placements.
_MAX_FREE_DECISIONS = 20
_MAX_PLACEMENTS = 2**22
_BATCH = 4096
_FILLED_SHARES = np.linspace(1.0, 0.5, 51)
_SLICE_RATIOS = 0.25, 0.5, 1.0, 2.0, 4.0


def random(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Every decision on a uniformly random device that supports it."""
    decisions = problem.decisions
    draw = np.random.default_rng(seed).random(decisions.compute_s.shape)
    placement = np.where(decisions.allowed, draw, -1.0).argmax(axis=1)
    return Solution(placement, evaluations=1)


def round_robin(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Decisions in topological order, each on the next device in turn that supports it."""
    decisions = problem.decisions
    num_devices = decisions.compute_s.shape[1]
    placement = np.zeros(len(decisions.compute_s), np.int32)
    device = -1
    for number in problem.decision_order:
        turns = (device + 1 + np.arange(num_devices)) % num_devices
        device = turns[np.argmax(decisions.allowed[number, turns])]
        placement[number] = device
    return Solution(placement, evaluations=1)


def topological(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """A topological order cut into one segment per device, in the order of the devices.

    The shares of the work, in mean seconds over the devices, are proportional to the devices'
    speeds. A decision that its segment's device does not support goes to its fastest device.
    """
    return Solution(_cut_order(problem, np.ones(len(problem.devices))), evaluations=1)


def slices(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """The fastest of some cuts of a topological order into one segment per accelerator.

    The work of the segments grows or shrinks geometrically, so that the last one has one of
    `_SLICE_RATIOS` times the work of the first. Without an accelerator, all devices take part.
    """
    takes_part = np.asarray(problem.costs.accelerator) >= 0
    takes_part |= ~takes_part.any()
    exponent = (np.cumsum(takes_part) - 1) / max(takes_part.sum() - 1, 1)
    cuts = [_cut_order(problem, takes_part * ratio**exponent) for ratio in _SLICE_RATIOS]
    values_s = [problem.value_s(cut) for cut in cuts]
    return Solution(cuts[int(np.argmin(values_s))], evaluations=len(cuts))


def _cut_order(problem: Problem, weights: np.ndarray) -> np.ndarray:
    """Cuts the topological order into one segment per device: a placement int32 [K].

    Args:
      problem: the problem.
      weights: float [D]: the devices' shares of the work for equal speeds; zero: no segment.
    """
    decisions = problem.decisions
    finite_s = np.where(decisions.allowed, decisions.compute_s, 0.0)
    work_s = finite_s.sum(axis=1) / np.maximum(decisions.allowed.sum(axis=1), 1)
    # All the work on each device, at the mean time of the decisions that it does not support.
    total_s = np.where(decisions.allowed, decisions.compute_s, work_s[:, None]).sum(axis=0)
    share = weights / np.maximum(total_s, total_s.max() * 1e-9 or 1.0)
    ends = np.cumsum(share)[:-1] / share.sum() * work_s.sum()
    order = problem.decision_order
    middle = np.cumsum(work_s[order]) - work_s[order] / 2
    placement = np.zeros(len(order), np.int32)
    placement[order] = np.searchsorted(ends, middle, side="right")
    supported = decisions.allowed[np.arange(len(order)), placement]
    placement = np.where(supported, placement, decisions.compute_s.argmin(axis=1))
    return placement.astype(np.int32)


def greedy(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Fills the accelerators in order; the baseline of Tarnawski et al. (2020).

    Departures: it takes decisions in their own topological order if they have one, else in the
    order of their first operations. A decision that an accelerator does not support goes to the
    host and leaves the accelerator open. Only the first part of each accelerator is used. Without a
    host, the last accelerator takes the rest.
    """
    decisions = problem.decisions
    accelerator = np.asarray(problem.costs.accelerator)
    _, first = np.unique(accelerator, return_index=True)
    parts = np.sort(first[accelerator[first] >= 0]).tolist()
    hosts = np.flatnonzero(accelerator < 0)
    host = int(hosts[0]) if len(hosts) else parts[-1]
    free_bytes = np.asarray(problem.costs.capacity_bytes, np.float64)[parts].tolist()
    order = dag.sort_nodes(
        problem.num_decisions,
        *dag.quotient(problem.graph.senders, problem.graph.receivers, problem.decision),
    )
    if len(order) < problem.num_decisions:  # the decisions have no topological order
        order = problem.decision_order
    placement = np.full(problem.num_decisions, -1)
    current = 0
    for number in order.tolist():
        decision_bytes = decisions.memory_bytes[number]
        placement[number] = host
        if current < len(parts) and decisions.allowed[number, parts[current]]:
            while current < len(parts) and decision_bytes > free_bytes[current]:
                current += 1
            if current < len(parts):
                placement[number] = parts[current]
                free_bytes[current] -= decision_bytes
    return Solution(placement, evaluations=1)


def fill_in_order(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Operations in topological order on the first device until its memory is full, then the next.

    The limits also count tensors while they are alive, which depends on the schedule. So shares of
    the memory are filled, 100% to 50%, and the largest share that fits is the result. A decision
    that the device does not support goes to the first device that supports it and has free memory.
    """
    decisions, num_devices = problem.decisions, len(problem.devices)
    capacity_bytes = np.asarray(problem.costs.capacity_bytes, np.float64)
    placements = np.zeros((len(_FILLED_SHARES), problem.num_decisions), np.int32)
    for row, share in zip(placements, _FILLED_SHARES, strict=True):
        free_bytes, device = share * capacity_bytes, 0
        for number in problem.decision_order:
            decision_bytes = decisions.memory_bytes[number]
            while device + 1 < num_devices and 0 < decision_bytes > free_bytes[device]:
                device += 1
            index, is_allowed = device, decisions.allowed[number]
            if not is_allowed[device]:
                has_memory = is_allowed & (decision_bytes <= free_bytes)
                index = int(np.argmax(has_memory if has_memory.any() else is_allowed))
            row[number] = index
            free_bytes[problem.shares_memory[index]] -= decision_bytes
    fits = np.isfinite(np.asarray(problem.evaluate(placements)))
    return Solution(placements[int(np.argmax(fits))], evaluations=len(placements))


def split_by_memory(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Contiguous parts in topological order, in proportion to the devices' memory.

    OpenVINO's PIPELINE_PARALLEL does the same. A device without a limit counts as one that holds
    the whole model, and as the largest; so devices without limits get equal parts. A decision that
    its device does not support goes to the first one that does.
    """
    decisions = problem.decisions
    decision_bytes = decisions.memory_bytes[problem.decision_order]
    total_bytes = decision_bytes.sum()
    # Parts of one accelerator have their memory together.
    sharing = problem.shares_memory.sum(axis=1)
    capacity_bytes = np.asarray(problem.costs.capacity_bytes, np.float64)
    is_limited = np.isfinite(capacity_bytes)
    largest_bytes = max(total_bytes, capacity_bytes[is_limited].max(initial=0.0))
    ends = np.cumsum(np.where(is_limited, capacity_bytes, largest_bytes) / sharing)
    ends = ends / ends[-1] if ends[-1] else np.linspace(0, 1, len(ends) + 1)[1:]
    # The middle of each decision decides; without any bytes, all are on the first device.
    middle = (np.cumsum(decision_bytes) - decision_bytes / 2) / (total_bytes or 1.0)
    placement = np.zeros(len(decision_bytes), np.int32)
    placement[problem.decision_order] = np.searchsorted(ends[:-1], middle, side="right")
    is_allowed = decisions.allowed[np.arange(len(placement)), placement]
    placement = np.where(is_allowed, placement, decisions.allowed.argmax(axis=1))
    return Solution(placement.astype(np.int32), evaluations=1)


def brute_force(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Every placement, simulated: the proven optimum of a small graph.

    Raises:
      UserError: there are too many placements.
    """
    decisions = problem.decisions
    choices = [np.flatnonzero(row) for row in decisions.allowed]
    sizes = [len(choice) for choice in choices]
    num_free = sum(size > 1 for size in sizes)
    total = float(np.prod(np.array(sizes, float)))
    if num_free > _MAX_FREE_DECISIONS or total > _MAX_PLACEMENTS:
        raise UserError(
            f"graph {problem.graph.name!r} has {num_free} free operations (with a choice of "
            f"devices) and {total:.3g} placements; brute_force takes at most {_MAX_FREE_DECISIONS} "
            f"and {_MAX_PLACEMENTS}: give a smaller graph, fewer devices or another method"
        )
    base.report_single_device(problem, limits)
    best, best_s, begin = None, np.inf, 0
    while begin < total and not limits.is_over():
        # The last batch wraps around, so that all have one size and compile once.
        rows = np.unravel_index(np.arange(begin, begin + _BATCH) % int(total), sizes)
        placements = np.stack([c[row] for c, row in zip(choices, rows, strict=True)], axis=1)
        latency_s = np.asarray(problem.evaluate(placements))
        if latency_s.min() < best_s:
            best, best_s = placements[latency_s.argmin()], float(latency_s.min())
        begin += _BATCH
        limits.report(min(begin, int(total)), best_s, best)
    evaluations = min(begin, int(total))
    if begin < total:
        return Solution(best, status=Status.TIME_LIMIT, evaluations=evaluations)
    if best is None:
        return Solution(None, status=Status.INFEASIBLE, evaluations=evaluations)
    return Solution(
        best,
        bound_s=best_s,
        status=Status.OPTIMAL,
        evaluations=evaluations,
        # The simulator runs its order of priority alone.
        scope=base.GIVEN_ORDER if problem.objective == "makespan" else base.ALL,
    )
