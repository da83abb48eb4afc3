"""The best value of a search by evaluations and by seconds.

Seconds are those of the processor on one core (`taskset -c 0`), which other processes change less
than those of a clock. Those of a learned method begin with its first step. What comes before counts
as compilation: compiling its programs, and imitation in `doppler`.
"""

import math
import time
from typing import NamedTuple

import jax
import numpy as np

from placement import methods
from placement.instance import Instance
from placement.methods import learned
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.types import Solution

NO_BUDGET = 10**12  # evaluations
_FIRST = 64  # evaluations, for which a learned method compiles all of its programs
_STEP = 1e-4  # relative: a smaller improvement is no point of its own
# Of searches that show how long compilation takes. The time decides which fast methods contribute
# starts, and so whether a start is proven optimal or chains are compiled.
_LIMITS_S = 20.0, 5.0


class Point(NamedTuple):
    """The state of a search after one of its steps."""

    seconds: float  # since the start, without `Solution.compile_s`
    evaluations: int
    best_s: float  # the best value; inf while no placement can run


class Curve(NamedTuple):
    """The progress of one search, and its result."""

    points: tuple[Point, ...]  # in the order of time; the last one is the end
    solution: Solution


def best_until(points: tuple[Point, ...], seconds: float = math.inf) -> float:
    """Returns the best value after so many seconds; inf before the first point."""
    return min((point.best_s for point in points if point.seconds <= seconds), default=math.inf)


def run(
    name: str,
    find: base.Find,
    problem: Instance,
    seed: int,
    *,
    seconds: float,
    budget: int = NO_BUDGET,
    stop_after: int = NO_BUDGET,
) -> Curve:
    """Runs a method on a problem and records its curve.

    Args:
      name: of the method, for messages.
      find: the method.
      problem, seed: as of `methods.solve`.
      seconds: the time limit.
      budget: evaluations at most, which the method knows in advance.
      stop_after: evaluations after which the search is stopped.
    """
    points: list[Point] = []
    start_s = time.process_time()

    def observe(evaluations: int, best_s: float, *_: object) -> None:
        # The released HSDAG evaluates its starts, the single devices, as 1e10 s.
        value_s = best_s if best_s < learned.RELEASED_SINGLE_DEVICE_S else math.inf
        points.append(Point(time.process_time() - start_s, evaluations, value_s))

    def stop() -> bool:
        return bool(points) and points[-1].evaluations >= stop_after

    limits = SearchLimits(seconds, budget, observe, stop, time.process_time)
    solution = methods.run(name, find, problem, seed, limits)
    evaluations = max(solution.evaluations, points[-1].evaluations if points else 1)
    observe(evaluations, solution.value_s)
    # A step that has begun is completed, so that the end may come after the limit.
    counted = [
        point._replace(seconds=min(max(0.0, point.seconds - solution.compile_s), seconds))
        for point in points
    ]
    return Curve(_thin(counted), solution)


def measure_compilation(name: str, find: base.Find, problem: Instance) -> float:
    """Returns the seconds that a search takes longer in a new process than later.

    Later searches of the process with the same problem then compile nothing. A learned method
    compiles all of its programs for its first step. Other searches compile some of theirs later,
    and so run until each of `_LIMITS_S`.
    """
    is_learned = learned.is_learned(name)
    stop_after = _FIRST if is_learned else NO_BUDGET
    compile_s = 0.0
    jax.clear_caches()
    for limit_s in _LIMITS_S[:1] if is_learned else _LIMITS_S:
        cold, warm = (
            run(name, find, problem, 0, seconds=limit_s, stop_after=stop_after) for _ in range(2)
        )
        common = min(cold.points[-1].evaluations, warm.points[-1].evaluations)
        delay_s = _find_seconds(cold, common) - _find_seconds(warm, common)
        compile_s += cold.solution.compile_s + max(0.0, delay_s)
    return compile_s


def _find_seconds(curve: Curve, evaluations: int) -> float:
    """Returns the seconds until so many evaluations, interpolated between points."""
    counts, seconds = zip(*((p.evaluations, p.seconds) for p in curve.points), strict=True)
    return float(np.interp(evaluations, counts, seconds))


def _thin(points: list[Point]) -> tuple[Point, ...]:
    """Returns the first point, those that improve on the ones before by `_STEP`, and the last."""
    kept = points[:1]
    for point in points[1:-1]:
        if point.best_s < kept[-1].best_s * (1 - _STEP):
            kept.append(point)
    return (*kept, *points[-1:]) if len(points) > 1 else tuple(kept)
