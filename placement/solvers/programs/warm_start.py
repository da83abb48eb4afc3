"""A placement to begin with: segments of a topological order, then descent by single moves.

An exact search needs some placement, as a horizon and to fall back on. Candidates are, for several
shares T of the total load, the classes in topological order dealt out to one device after another,
each full when it has computed for T or its memory is full; and every device alone. The best of them
is improved by moving the one class that helps most, until none does.
"""

from typing import NamedTuple

import chex
import numpy as np

from placement import simulators
from placement.graphs import dag
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.types import OpGraph, Problem

_SHARES = 24  # loads tried
_ROUNDS = 60  # moves at most
_BATCH = 512  # placements that are simulated at a time
_SPENT = 0.1  # of the time that is left


class WarmStart(NamedTuple):
    """A placement to begin with; none has an infinite value."""

    placement: np.ndarray | None  # int [N]
    value_s: float
    evaluations: int


def find(
    problem: Problem, seed: int, limits: SearchLimits, *, contiguous: bool = False
) -> WarmStart:
    """Finds the best placement of a descent.

    Args:
      problem: what is to be placed.
      seed: which of equally good moves are made first.
      limits: a tenth of what is left is spent at most, beside one round.
      contiguous: whether all placements must be.
    """
    rng = np.random.default_rng(seed)
    until_s = limits.left_s() * (1 - _SPENT)
    classes, evaluate = base.classes(problem), simulators.evaluator(problem)
    reach = phases(problem.graph) if contiguous else None
    candidates = _segments(problem, classes)
    best, value_s = _first(evaluate, candidates, classes, reach, np.inf)
    evaluations = len(candidates)
    limits.tell(evaluations, value_s, None if best is None else best[classes.number])
    for _ in range(_ROUNDS):
        if best is None or limits.left_s() < until_s:
            break
        moves = rng.permutation(_moves(best, classes))
        evaluations += len(moves)
        better, better_s = _first(evaluate, moves, classes, reach, value_s)
        if better is None:
            break
        best, value_s = better, better_s
        limits.tell(evaluations, value_s, best[classes.number])
    if best is None:
        return WarmStart(None, np.inf, evaluations)
    return WarmStart(best[classes.number], value_s, evaluations)


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


def _first(
    evaluate: simulators.Evaluate,
    candidates: np.ndarray,
    classes: base.Classes,
    reach: np.ndarray | None,
    below_s: float,
) -> tuple[np.ndarray | None, float]:
    """Returns the best of candidates int [M, C] below a value, contiguous if that is asked for."""
    padded = -len(candidates) % _BATCH
    rows = np.concatenate([candidates, np.repeat(candidates[:1], padded, axis=0)])
    rows = rows[:, classes.number]
    values = [np.asarray(evaluate(rows[i : i + _BATCH])) for i in range(0, len(rows), _BATCH)]
    seconds = np.concatenate(values)[: len(candidates)]
    for row in np.argsort(seconds, kind="stable"):
        if not seconds[row] < below_s:
            break
        if reach is None or is_contiguous(candidates[row][classes.number], reach):
            return candidates[row], float(seconds[row])
    return None, np.inf


def _moves(placement: np.ndarray, classes: base.Classes) -> np.ndarray:
    """Returns placements int [M, C] in which one class moved to a device that can run it."""
    others = classes.allowed.copy()
    others[np.arange(len(placement)), placement] = False
    which, device = np.nonzero(others)
    moved = np.repeat(placement[None], max(len(which), 1), axis=0)
    moved[np.arange(len(which)), which] = device
    return moved


def _segments(problem: Problem, classes: base.Classes) -> np.ndarray:
    """Returns placements of classes int [M, C]: segments of the order, each device alone."""
    order = base.in_order(problem, classes)
    accelerator = np.asarray(problem.costs.accelerator)
    devices = np.argsort(accelerator < 0, kind="stable")  # hosts take what is left
    total_s = np.where(classes.allowed, classes.compute_s, np.inf).min(axis=1).sum()
    shares = np.geomspace(1 / len(devices), 1.5, _SHARES)
    candidates = [_filled(problem, classes, order, devices, total_s * share) for share in shares]
    candidates += [_filled(problem, classes, order, np.roll(devices, -d), np.inf) for d in devices]
    return np.stack(candidates)


def _filled(
    problem: Problem,
    classes: base.Classes,
    order: np.ndarray,
    devices: np.ndarray,
    share_s: float,
) -> np.ndarray:
    """Deals classes int [C] in order to devices in turn; what fits nowhere goes to the last."""
    memory = base.memory(problem)
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
            placement[number] = _anywhere(classes, memory, room, number)
    return placement


def _anywhere(classes: base.Classes, memory: base.Memory, room: np.ndarray, number: int) -> int:
    """Chooses the fastest device that can run a class and has room; it takes the room."""
    small = classes.memory_bytes[number] > room
    full = (memory.devices & small[:, None]).any(axis=0)
    seconds = classes.compute_s[number] + np.where(full, 1e30, 0.0)
    device = int(seconds.argmin())
    room[memory.devices[:, device]] -= classes.memory_bytes[number]
    return device
