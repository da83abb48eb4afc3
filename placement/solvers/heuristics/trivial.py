"""Placements without a search, and brute force."""

import numpy as np

from placement.errors import UserError
from placement.instance import Instance
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

# Brute force refuses problems with more classes that have a choice, or with more placements.
_MAX_FREE_CLASSES = 20
_MAX_PLACEMENTS = 2**22
_BATCH = 4096
_SLICE_RATIOS = 0.25, 0.5, 1.0, 2.0, 4.0


def random(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Every class on a uniformly random device that supports it."""
    classes = problem.classes
    draw = np.random.default_rng(seed).random(classes.compute_s.shape)
    placement = np.where(classes.allowed, draw, -1.0).argmax(axis=1)
    return Solution(placement[classes.ids], evaluations=1)


def round_robin(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Classes in topological order, each on the next device in turn that supports it."""
    classes = problem.classes
    num_devices = classes.compute_s.shape[1]
    placement = np.zeros(len(classes.compute_s), np.int32)
    device = -1
    for number in problem.class_order:
        turns = (device + 1 + np.arange(num_devices)) % num_devices
        device = turns[np.argmax(classes.allowed[number, turns])]
        placement[number] = device
    return Solution(placement[classes.ids], evaluations=1)


def topological(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """A topological order cut into one segment per device, in the order of the devices.

    The shares of the work, in mean seconds over the devices, are proportional to the devices'
    speeds. A class that its segment's device does not support goes to its fastest device.
    """
    return Solution(_cut_order(problem, np.ones(len(problem.devices))), evaluations=1)


def slices(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
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


def _cut_order(problem: Instance, weights: np.ndarray) -> np.ndarray:
    """Cuts the topological order into one segment per device: a placement int32 [N].

    Args:
      problem: the problem.
      weights: float [D]: the devices' shares of the work for equal speeds; zero: no segment.
    """
    classes = problem.classes
    finite_s = np.where(classes.allowed, classes.compute_s, 0.0)
    work_s = finite_s.sum(axis=1) / np.maximum(classes.allowed.sum(axis=1), 1)
    # All the work on each device, at the mean time of the classes that it does not support.
    total_s = np.where(classes.allowed, classes.compute_s, work_s[:, None]).sum(axis=0)
    share = weights / np.maximum(total_s, total_s.max() * 1e-9 or 1.0)
    ends = np.cumsum(share)[:-1] / share.sum() * work_s.sum()
    order = problem.class_order
    middle = np.cumsum(work_s[order]) - work_s[order] / 2
    placement = np.zeros(len(order), np.int32)
    placement[order] = np.searchsorted(ends, middle, side="right")
    supported = classes.allowed[np.arange(len(order)), placement]
    placement = np.where(supported, placement, classes.compute_s.argmin(axis=1))
    return placement[classes.ids].astype(np.int32)


def brute_force(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Every placement, simulated: the proven optimum of a small graph.

    Raises:
      UserError: there are too many placements.
    """
    classes = problem.classes
    choices = [np.flatnonzero(row) for row in classes.allowed]
    sizes = [len(choice) for choice in choices]
    num_free = sum(size > 1 for size in sizes)
    total = float(np.prod(np.array(sizes, float)))
    if num_free > _MAX_FREE_CLASSES or total > _MAX_PLACEMENTS:
        raise UserError(
            f"graph {problem.graph.name!r} has {num_free} free operations (with a choice of "
            f"devices) and {total:.3g} placements; brute_force takes at most {_MAX_FREE_CLASSES} "
            f"and {_MAX_PLACEMENTS}: give a smaller graph, fewer devices or another method"
        )
    base.report_single_device(problem, limits)
    best, best_s, begin = None, np.inf, 0
    while begin < total and not limits.is_over():
        # The last batch wraps around, so that all have one size and compile once.
        rows = np.unravel_index(np.arange(begin, begin + _BATCH) % int(total), sizes)
        placements = np.stack([c[row] for c, row in zip(choices, rows, strict=True)], axis=1)
        placements = placements[:, classes.ids]
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
        scope=base.find_scope(problem),
    )
