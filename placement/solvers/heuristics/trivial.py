"""Placements that nobody searches for, and the search that leaves nothing out."""

import numpy as np

from placement.errors import UserError
from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

_FREE = 20
_MOST = 2**22  # placements that brute force enumerates
_BATCH = 4096


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
    """A topological order cut into one segment a device, in the devices' order.

    A segment has the share of the work, in mean seconds over the devices, that its device does per
    second. A class that its device does not support goes where it is fastest.
    """
    classes = problem.classes
    finite = np.where(classes.allowed, classes.compute_s, 0.0)
    work_s = finite.sum(axis=1) / np.maximum(classes.allowed.sum(axis=1), 1)
    # What a device takes for all the work, if it took the mean for what it does not support.
    whole_s = np.where(classes.allowed, classes.compute_s, work_s[:, None]).sum(axis=0)
    speed = 1 / np.maximum(whole_s, whole_s.max() * 1e-9 or 1.0)
    ends = np.cumsum(speed)[:-1] / speed.sum() * work_s.sum()
    order = problem.class_order
    middle = np.cumsum(work_s[order]) - work_s[order] / 2
    placement = np.zeros(len(order), int)
    placement[order] = np.searchsorted(ends, middle, side="right")
    supported = classes.allowed[np.arange(len(order)), placement]
    placement = np.where(supported, placement, classes.compute_s.argmin(axis=1))
    return Solution(placement[classes.ids], evaluations=1)


def brute_force(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Every placement, simulated: of small graphs, a proven optimum.

    Raises:
      UserError: there are too many.
    """
    classes = problem.classes
    choices = [np.flatnonzero(row) for row in classes.allowed]
    sizes = [len(choice) for choice in choices]
    free = sum(size > 1 for size in sizes)
    total = float(np.prod(np.array(sizes, float)))
    if free > _FREE or total > _MOST:
        raise UserError(
            f"graph {problem.graph.name!r} has {free} free operations and {total:.3g} placements; "
            f"brute_force takes at most {_FREE} and {_MOST}: give a smaller graph, fewer devices "
            "or another method"
        )
    best, best_s, seen = None, np.inf, 0
    while seen < total and not limits.over():
        # The last batch wraps around: one size of batch, one compilation.
        rows = np.unravel_index(np.arange(seen, seen + _BATCH) % int(total), sizes)
        placements = np.stack([c[row] for c, row in zip(choices, rows, strict=True)], axis=1)
        placements = placements[:, classes.ids]
        latency_s = np.asarray(problem.evaluate(placements))
        if latency_s.min() < best_s:
            best, best_s = placements[latency_s.argmin()], float(latency_s.min())
        seen += _BATCH
        limits.tell(min(seen, int(total)), best_s, best)
    evaluations = min(seen, int(total))
    if seen < total:
        return Solution(best, status=Status.TIME_LIMIT, evaluations=evaluations)
    if best is None:
        return Solution(None, status=Status.INFEASIBLE, evaluations=evaluations)
    return Solution(best, bound_s=best_s, status=Status.OPTIMAL, evaluations=evaluations)
