"""Searches by their seconds: `experiments.benchmarks search [METHOD ...]`.

A new process searches each test problem of the audit twice with one seed: first without any
compiled program ("cold"), then again. The columns are values over the best known one, by seconds of
the processor since the search began; "-" means that nothing was found. The last row has geometric
means.
"""

import json
import sys
from collections.abc import Sequence

import numpy as np
from rich.console import Console

from experiments.benchmarks import shared
from experiments.tables import audit, audit_runs
from placement import methods, suite
from placement.reporting.tables import grids

_TIMES_S = 0.1, 0.2, 0.5, 1.0, 2.0, 5.0


def run(*names: str) -> None:
    """Prints a table for each method, by default `search`, with a row for every problem."""
    for method in names:
        methods.check(method, "makespan")
    columns = [f"{what} {time_s:g} s" for what in ("cold", "compiled") for time_s in _TIMES_S]
    environment = {"JAX_ENABLE_COMPILATION_CACHE": "false"}

    def write(ratios: Sequence[float]) -> list[str]:
        return [f"{ratio:.3f}" if np.isfinite(ratio) else "-" for ratio in ratios]

    for method in names or ("search",):
        table = grids.new_table(f"{method}: value over the best known", ("problem",), columns)
        rows = []
        for problem in audit.list_problems():
            request = json.dumps([method, problem])
            rows.append(shared.run_module("experiments.benchmarks.search", request, environment))
            table.add_row(problem.removesuffix("-makespan"), *write(rows[-1]))
        table.add_row("together", *write(np.exp(np.log(rows).mean(axis=0))))
        Console(width=150).print(table)


def measure_ratios(method: str, name: str, times_s: Sequence[float] = _TIMES_S) -> list[float]:
    """Returns the values over the best known one: cold at each time, then compiled; inf: none."""
    best_s, ratios = suite.best_known(name).value_s, []
    for _ in range(2):
        problem = suite.load(name)  # without anything derived from it
        points = audit_runs.run_curve(method, problem, 0, audit.Limit("", max(times_s)))
        for time_s in times_s:
            values_s = [point.best_s for point in points if point.seconds <= time_s]
            ratios.append(min(values_s, default=np.inf) / best_s)
    return ratios


if __name__ == "__main__":
    print(json.dumps(measure_ratios(*json.loads(sys.argv[1]))))
