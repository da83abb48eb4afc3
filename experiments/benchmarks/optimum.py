"""The distance of searches from a known optimum: `experiments.benchmarks optimum [SECONDS]`.

The problems are those of `placement.zoo.known_optimum`, whose best `makespan` is 1 s. A cell is the
mean gap to it, over problems of five seeds, after so many seconds (by default 15). A search whose
programs compile runs for some evaluations first, so that compilation does not count. HEFT takes no
time, and is there for comparison.
"""

import json
import statistics
import sys
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax
from rich.console import Console

from placement import methods
from placement.errors import UserError
from placement.instance import Instance
from placement.reporting.tables import grids
from placement.zoo import known_optimum

METHODS = "heft", "lns", "cpsat", "cpsat_free", "search"
HEADER = "operations", "devices", *METHODS
_SIZES = (100, 4), (200, 4), (200, 8), (500, 8)  # operations, devices
_SEEDS = range(5)
_SECONDS = "15"
_COMPILED = {"search": 30_000}  # evaluations in which a method uses all of its programs
_UNLIMITED = 10**12  # evaluations
_COMPILATION_S = 60.0


class Result(NamedTuple):
    """The gaps to the optimum of one problem."""

    num_ops: int
    num_devices: int
    gaps: dict[str, float]  # by method


def run(*seconds: str) -> None:
    """Prints the mean gap of each method, a row for each size.

    Args:
      *seconds: the time limit of each search; none: `_SECONDS`.

    Raises:
      UserError: more than one value, or not a number above 0.
    """
    text = " ".join(seconds) or _SECONDS
    try:
        limit_s = float(text)
    except ValueError:
        limit_s = 0.0
    if not 0 < limit_s < float("inf"):
        raise UserError(f"optimum takes the seconds of each search, such as 10; given {text!r}")
    title = f"gap to the optimum after {limit_s:g} s, mean of {len(_SEEDS)} problems"
    table = grids.new_table(title, (), HEADER)
    for row in make_rows(measure(limit_s)):
        table.add_row(*row)
    Console(width=100).print(table)


def measure(limit_s: float = float(_SECONDS)) -> list[Result]:
    """Returns the result of every problem, and prints it to stderr as soon as it is known."""
    results = []
    for num_ops, num_devices in _SIZES:
        for seed in _SEEDS:
            text = (
                f"synthetic:family={known_optimum.FAMILY},ops={num_ops},devices={num_devices},"
                f"seed={seed}"
            )
            workload = known_optimum.build(text)
            problem = Instance(workload.graph, workload.costs, "makespan", workload.devices)
            gaps = {}
            for method in METHODS:
                solve = partial(methods.solve, problem, method, seed=seed)
                if method in _COMPILED:
                    solve(time_limit_s=_COMPILATION_S, budget=_COMPILED[method])
                solution = solve(time_limit_s=limit_s, budget=_UNLIMITED)
                gaps[method] = solution.value_s / known_optimum.OPTIMUM_S - 1
            jax.clear_caches()  # each graph compiles for its own sizes
            shown = ", ".join(f"{method} {gap:.1%}" for method, gap in gaps.items())
            print(f"{text}: {shown}", file=sys.stderr, flush=True)
            results.append(Result(num_ops, num_devices, gaps))
    return results


def make_rows(results: Iterable[Result]) -> list[list[str]]:
    """Returns a row of `HEADER` for each size, with means over its problems."""
    groups: dict[tuple[int, int], list[dict[str, float]]] = {}
    for num_ops, num_devices, gaps in results:
        groups.setdefault((num_ops, num_devices), []).append(gaps)
    return [
        [*map(str, size), *(f"{statistics.mean(gaps[m] for gaps in group):.1%}" for m in METHODS)]
        for size, group in groups.items()
    ]


if __name__ == "__main__":
    print(json.dumps(measure()))
