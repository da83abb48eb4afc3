"""A placement to begin with: the best that heuristics know, improved.

An exact search needs some placement: as a horizon, as a hint and to fall back on. Candidates are

- what fast methods for the objective find (`placement.solvers.starts`);
- for several shares T of the total load, the classes in topological order dealt out to one device
  after another, each full when it has computed for T or its memory is full;
- every device alone.

The best of them in the simulator is improved by moving the one class that helps most, until none
does, and then by large neighbourhoods. These know nothing of contiguous placements, so that where
such are asked for the moves are all.
"""

from typing import NamedTuple

import chex
import numpy as np

from placement.graphs import dag
from placement.instance import ColocationClasses, Instance
from placement.solvers import starts
from placement.solvers.heuristics import large_neighbourhood
from placement.solvers.limits import SearchLimits
from placement.types import Evaluate, OpGraph

_SHARES = 24  # loads tried
_BATCH = large_neighbourhood.BATCH  # placements simulated at a time: one compilation for all
_FINDING, _IMPROVING = 0.06, 0.04  # of the time that is left
_LEAST_S = 1.0  # for heuristics, where so much is left: not worse than them under a short limit
_PER_CLASS = 128  # placements simulated in large neighbourhoods


class WarmStart(NamedTuple):
    """A placement to begin with; none has an infinite value."""

    placement: np.ndarray | None  # int [N]
    value_s: float
    evaluations: int


class _Space(NamedTuple):
    """The problem, and which of its placements count."""

    problem: Instance
    reach: np.ndarray | None  # bool [N, N], of `phases`, where placements must be contiguous


def find(
    problem: Instance, seed: int, limits: SearchLimits, *, contiguous: bool = False
) -> WarmStart:
    """Finds the best placement that heuristics know, and a better one near it.

    Args:
      problem: what is to be placed.
      seed: of the search near it.
      limits: a tenth of what is left is spent at most, or a second, beside compiling the simulator.
      contiguous: whether all placements must be.
    """
    classes = problem.classes
    reach = phases(problem.graph) if contiguous else None
    space = _Space(problem, reach)
    share = max(_FINDING, _LEAST_S / max(_LEAST_S, limits.left_s()))
    known = starts.find(problem, seed, limits.part(share, limits.budget))
    found = [result.placement for result in known if result.placement is not None]
    candidates = np.stack([*found, *_segments(problem)[:, classes.ids]])
    start = _best(space, WarmStart(None, np.inf, 0), candidates, limits)  # compiles
    improving = limits.part(_IMPROVING, _PER_CLASS * len(classes.compute_s))
    start = _descend(space, start, seed, improving)
    if contiguous:
        return start
    begin = candidates[0] if start.placement is None else start.placement
    rest = improving.part(1.0, improving.budget, start.evaluations)
    polished = large_neighbourhood.polish(problem, begin, seed, rest)
    assert polished.placement is not None
    start = start._replace(evaluations=start.evaluations + polished.evaluations)
    return _best(space, start, polished.placement[None], improving)


def is_contiguous(placement: np.ndarray, reach: np.ndarray) -> bool:
    """Whether no path leaves a device and returns to it; `reach` bool [N, N] from i to j."""
    chex.assert_rank([placement, reach], [1, 2])
    chex.assert_type([placement, reach], [int, bool])
    for device in np.unique(placement):
        inside = placement == device
        between = reach[inside].any(axis=0) & reach[:, inside].any(axis=1)
        if (between & ~inside).any():
            return False
    return True


def phases(graph: OpGraph) -> np.ndarray:
    """Returns bool [N, N]: paths within the forward or within the backward operations."""
    reach, backward = dag.reachability(graph), graph.backward
    return reach & (backward[:, None] == backward)


def _best(
    space: _Space, start: WarmStart, candidates: np.ndarray, limits: SearchLimits
) -> WarmStart:
    """Returns the best of a start and placements int [M, N], of which one batch at least counts."""
    seconds = _values(space.problem.evaluate, candidates, limits)
    placement, value_s, evaluations = start
    for row in np.argsort(seconds, kind="stable"):
        if not seconds[row] < value_s:
            break
        if space.reach is None or is_contiguous(candidates[row], space.reach):
            placement, value_s = candidates[row], float(seconds[row])
    evaluations += len(seconds)
    limits.tell(evaluations, value_s, placement)
    return WarmStart(placement, value_s, evaluations)


def _values(evaluate: Evaluate, placements: np.ndarray, limits: SearchLimits) -> np.ndarray:
    """Computes what placements int [M, N] are worth: as many, in batches, as there is time for."""
    seconds: list[np.ndarray] = []
    for start in range(0, len(placements), _BATCH):
        if seconds and limits.over():
            break
        rows = placements[start : start + _BATCH]
        padded = np.concatenate([rows, np.repeat(rows[-1:], _BATCH - len(rows), axis=0)])
        seconds.append(np.asarray(evaluate(padded))[: len(rows)])
    return np.concatenate([np.zeros(0), *seconds])


def _descend(space: _Space, start: WarmStart, seed: int, limits: SearchLimits) -> WarmStart:
    """Makes the best single move, as long as one helps."""
    rng, before_s = np.random.default_rng(seed), np.inf
    while start.placement is not None and start.value_s < before_s and not limits.over():
        before_s = start.value_s
        classes = space.problem.classes
        moves = rng.permutation(_moves(start.placement, classes))
        start = _best(space, start, moves[:, classes.ids], limits)
    return start


def _moves(placement: np.ndarray, classes: ColocationClasses) -> np.ndarray:
    """Returns placements of classes int [M, C] in which one moved to a device that can run it."""
    home, others = placement[classes.first_ops], classes.allowed.copy()
    others[np.arange(len(home)), home] = False
    which, device = np.nonzero(others)
    moved = np.repeat(home[None], len(which), axis=0)
    moved[np.arange(len(which)), which] = device
    return moved


def _segments(problem: Instance) -> np.ndarray:
    """Returns placements of classes int [M, C]: segments of the order, each device alone."""
    classes = problem.classes
    accelerator = np.asarray(problem.costs.accelerator)
    devices = np.argsort(accelerator < 0, kind="stable")  # hosts take what is left
    total_s = np.where(classes.allowed, classes.compute_s, np.inf).min(axis=1).sum()
    shares = np.geomspace(1 / len(devices), 1.5, _SHARES)
    candidates = [_filled(problem, devices, total_s * share) for share in shares]
    candidates += [_filled(problem, np.roll(devices, -d), np.inf) for d in devices]
    return np.stack(candidates)


def _filled(problem: Instance, devices: np.ndarray, share_s: float) -> np.ndarray:
    """Deals classes int [C] in order to devices in turn; what fits nowhere goes to the last."""
    classes, memory, order = problem.classes, problem.memory_limits, problem.class_order
    room = memory.capacity_bytes.copy()
    placement = np.full(len(order), -1)
    current, load_s = 0, 0.0
    for number in order.tolist():
        for position in range(current, len(devices)):
            device = devices[position]
            seconds = classes.compute_s[number, device]
            held = memory.devices[:, device]
            fits = (room[held] >= classes.memory_bytes[number]).all()
            before_s = load_s if position == current else 0.0
            light = before_s == 0 or before_s + seconds <= share_s
            if np.isfinite(seconds) and fits and (light or position == len(devices) - 1):
                current, load_s = position, before_s + seconds
                room[held] -= classes.memory_bytes[number]
                placement[number] = device
                break
        if placement[number] < 0:
            placement[number] = _anywhere(problem, room, number)
    return placement


def _anywhere(problem: Instance, room: np.ndarray, number: int) -> int:
    """Chooses the fastest device that can run a class and has room; it takes the room."""
    classes, memory = problem.classes, problem.memory_limits
    small = classes.memory_bytes[number] > room
    full = (memory.devices & small[:, None]).any(axis=0)
    seconds = classes.compute_s[number] + np.where(full, 1e30, 0.0)
    device = int(seconds.argmin())
    room[memory.devices[:, device]] -= classes.memory_bytes[number]
    return device
