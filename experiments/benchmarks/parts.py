"""The contribution of each part of HSDAG: `experiments.benchmarks parts [POLICY ...]`.

Each variant of `hsdag` lacks a part. They are compared on graphs of families that no pretraining
saw, and with `search`, with and without the placement of its trained policy as a start. Every
POLICY is the policy.msgpack of another pretraining of `hsdag`, such as one with another seed.

Each search is made with a budget of evaluations and with a time limit, and read at three points:

- with a budget of 8,000 evaluations,
- after 5 s if all programs are compiled,
- after 15 s if none is. A search that still compiles counts as the best single device.

Seconds are those of the processor, see `experiments.audit.curves`.

A score is a latency over the optimum, where it is known, else over the best latency of all
searches. A table shows interquartile means over graphs and seeds, with 95% intervals.
"""

import json
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from experiments.audit import curves
from experiments.benchmarks import cells
from placement import methods
from placement.instance import Instance
from placement.methods import learned, pretrained
from placement.reporting import statistics
from placement.reporting.tables import grids
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
_LIMIT_S = 60.0  # of a search with a budget
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
            compile_s = curves.measure_compilation(name, find, problem)
            end_s = max(_COMPILED_S, _COLD_S - compile_s)
            for seed in seeds:
                limited = curves.run(
                    name, find, problem, seed, seconds=_LIMIT_S, budget=_EVALUATIONS
                )
                timed = curves.run(name, find, problem, seed, seconds=end_s)
                best_s = (
                    curves.best_until(limited.points),
                    curves.best_until(timed.points, _COMPILED_S),
                    min(curves.best_until(timed.points, _COLD_S - compile_s), _single_s(problem)),
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
                row.append(mean.write())
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


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1:])))
