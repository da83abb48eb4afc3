"""The contribution of each part of HSDAG: `experiments.benchmarks parts [POLICY ...]`.

Each variant of `hsdag` lacks a part. They are compared on graphs of families that no pretraining
saw, and with `search`, with and without the placement of its trained policy as a start. Every
POLICY is the policy.msgpack of another pretraining of `hsdag`, such as one with another seed.

A search is read at three points:

- after 8,000 evaluations,
- after 5 s if all programs are compiled,
- after 15 s if none is. The seconds of the compilation are those of one more search, which is the
  first one of its method on the graph. A search that still compiles counts as the best single
  device.

Seconds are those of the processor, which other processes hardly change. They equal seconds of a
clock on one idle core; `taskset -c 0` keeps the benchmark on one.

A score is a latency over the optimum, where it is known, else over the best latency of all
searches. A table shows interquartile means over graphs and seeds, with 95% intervals.
"""

import json
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console

from experiments.benchmarks import cells
from placement import methods
from placement.instance import Instance
from placement.methods import learned, pretrained
from placement.reporting import statistics
from placement.reporting.tables import grids
from placement.solvers import base
from placement.solvers.limits import SearchLimits
from placement.types import Solution
from placement.zoo import known_optimum

_OTHER_GRAPHS = "rnnlm", "two_stream", "synthetic:family=fork_join,ops=300", "inception_v3"
_DEVICES = "roofline:cpu,gpu,gpu"
_OPTIMUM_GRAPHS = tuple(
    f"synthetic:family={known_optimum.FAMILY},ops={ops},devices={devices}"
    for ops, devices in ((100, 4), (200, 8))
)
_METHODS = (
    "hsdag",
    "hsdag:learning_rate=0",
    "hsdag:scores=prior",
    "hsdag:uniform=1",
    "hsdag:variant=untrained",
    "hsdag:variant=untrained,learning_rate=0",
    "search",
    "search_untrained",
)
_SEEDS = range(10)
_EVALUATIONS, _COMPILED_S, _COLD_S = 8_000, 5.0, 15.0
_FIRST = 256  # evaluations, for which all programs are compiled
_LIMIT_S = 60.0  # by the clock
POINTS = f"{_EVALUATIONS:,} evaluations", f"{_COMPILED_S:g} s, compiled", f"{_COLD_S:g} s, cold"
HEADER = (
    "method",
    *(f"{graphs}, {point}" for graphs in ("known optimum", "others") for point in POINTS),
    "s to compile",
)


class Result(NamedTuple):
    """The latencies of one search."""

    method: str
    graph: str
    seed: int
    reference_s: float  # the optimum, or nan
    compile_s: float
    best_s: tuple[float, ...]  # at each of the `POINTS`


class _Curve:
    """The best latency of a search, by evaluations and by seconds of the processor."""

    def __init__(self) -> None:
        self._start_s = time.process_time()
        self._points: list[tuple[float, int, float]] = []  # seconds, evaluations, latency

    def observe(self, evaluations: int, best_s: float, *_: object) -> None:
        """Adds a point (`placement.solvers.limits.Observe`)."""
        self._points.append((self.elapsed_s(), evaluations, best_s))

    def elapsed_s(self) -> float:
        return time.process_time() - self._start_s

    def seconds_until(self, evaluations: int) -> float:
        return next((t for t, n, _ in self._points if n >= evaluations), self._points[-1][0])

    @property
    def evaluations(self) -> int:
        return self._points[-1][1] if self._points else 0

    def best_s(self, seconds: float = np.inf, evaluations: float = np.inf) -> float:
        """Returns the best latency until then; inf before the first point."""
        reached = (s for t, n, s in self._points if t <= seconds and n <= evaluations)
        return min(reached, default=np.inf)


def run(*policies: str) -> None:
    """Prints a row for each method.

    Args:
      *policies: files, see above.

    Raises:
      UserError: a file cannot be read, or holds no policy of `hsdag`.
    """
    table = grids.new_table("latency over the optimum or the best known", (), HEADER)
    for row in make_rows(measure(policies)):
        table.add_row(*row)
    Console(width=160).print(table)


def measure(policies: Iterable[str] = (), seeds: Iterable[int] = _SEEDS) -> list[Result]:
    """Returns the result of every search, and prints it to stderr as soon as it is known."""
    searches = {method: methods.get_find(method) for method in _METHODS}
    for number, policy in enumerate(policies, 1):
        searches[f"hsdag, pretraining {number}"] = partial(_find_with_policy, Path(policy))
    results = []
    for graph in (*_OPTIMUM_GRAPHS, *_OTHER_GRAPHS):
        problem, reference_s = make_problem(graph)
        for name, find in searches.items():
            jax.clear_caches()
            cold, warm = (_run(name, find, problem, 0, _FIRST, 0.0) for _ in range(2))
            compile_s = cold.seconds_until(_FIRST) - warm.seconds_until(_FIRST)
            end_s = max(_COMPILED_S, _COLD_S - compile_s)
            for seed in seeds:
                curve = _run(name, find, problem, seed, _EVALUATIONS, end_s)
                best_s = (
                    curve.best_s(evaluations=_EVALUATIONS),
                    curve.best_s(seconds=_COMPILED_S),
                    min(curve.best_s(seconds=_COLD_S - compile_s), _single_s(problem)),
                )
                results.append(Result(name, graph, seed, reference_s, compile_s, best_s))
                print(*results[-1], file=sys.stderr, flush=True)
    return results


def make_rows(results: Iterable[Result]) -> list[list[str]]:
    """Returns a row of `HEADER` for each method."""
    results = list(results)
    best_s: dict[str, float] = {}
    for result in results:
        values = (*result.best_s, best_s.get(result.graph, np.inf))
        has_optimum = np.isfinite(result.reference_s)
        best_s[result.graph] = result.reference_s if has_optimum else min(values)
    rows = []
    for method in dict.fromkeys(result.method for result in results):
        row, compile_s = [method], []
        for is_optimum in (True, False):
            for point in range(len(POINTS)):
                scores: dict[str, list[float]] = {}
                for result in results:
                    if result.method == method and np.isfinite(result.reference_s) == is_optimum:
                        ratio = result.best_s[point] / best_s[result.graph]
                        scores.setdefault(result.graph, []).append(ratio)
                        compile_s.append(result.compile_s)
                mean = statistics.interquartile_mean([np.array(runs) for runs in scores.values()])
                row.append(f"{mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}]")
        rows.append([*row, f"{np.mean(compile_s):.1f}"])
    return rows


def _find_with_policy(path: Path, problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Searches with `hsdag` from the parameters in a file."""
    method = "hsdag:variant=untrained"
    load = partial(pretrained.load, path, method)
    return learned.find(method, problem, seed, limits, load=load)


def make_problem(graph: str) -> tuple[Instance, float]:
    """Returns the problem of a graph, and its optimum in seconds, or nan where it is not known."""
    if known_optimum.FAMILY not in graph:
        return cells.describe_problem(graph, _DEVICES, constants=True).coarse, np.nan
    workload = known_optimum.build(graph)
    problem = Instance(workload.graph, workload.costs, "makespan", workload.devices)
    return problem, known_optimum.OPTIMUM_S


def _single_s(problem: Instance) -> float:
    return float(np.min(problem.evaluate(problem.single_devices)))


def _run(
    name: str, find: base.Find, problem: Instance, seed: int, evaluations: int, seconds: float
) -> _Curve:
    """Searches for some evaluations and seconds, whichever takes longer."""
    curve = _Curve()

    def stop() -> bool:
        return curve.elapsed_s() >= seconds and curve.evaluations >= evaluations

    limits = SearchLimits(_LIMIT_S, 10**12, curve.observe, stop)
    methods.run(name, find, problem, seed, limits)
    return curve


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1:])))
