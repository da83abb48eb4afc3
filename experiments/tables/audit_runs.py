"""The runs of the audit (`experiments.tables.audit`), each a search of a method on a problem.

    python -m experiments.tables audit FOLDER [PART PARTS]

With a PART of PARTS, counted from 0, it makes the part's runs that FOLDER and `audit.csv.gz` lack,
and appends their results to `FOLDER/PART.csv`; after an interruption the same command continues.
Several processes share the work, each on a core of its own (`taskset -c`). Without a PART, the
results of FOLDER go into `audit.csv.gz`.

Every run has the limit that it is judged by, in seconds of the processor, which other processes
hardly change. Before it, a run with another seed compiles the programs, unless the limit is cold.
Fast methods read no limit, and learned ones no seconds until they have passed: there a run serves
several limits. But the results of an update are recorded at its end, and it may be larger than a
small budget. So 200 and 1,000 evaluations have separate runs, which the budget ends, unless the
method updates after at most 16 evaluations.
"""

import gzip
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from experiments.tables import audit
from experiments.tables.audit import (
    CHEAP,
    COLD,
    LIMITS,
    LONG,
    SHORT,
    SMALL_BUDGETS,
    Limit,
    Result,
)
from placement import methods, suite
from placement.errors import UserError
from placement.learning import trainer
from placement.methods import learned
from placement.pipeline.console.compilation_cache import limit_compiled
from placement.problem import Problem
from placement.solvers.limits import SearchLimits
from placement.types import Solution

_WARMING_SEED = 1_000  # added to the seed of the run that compiles
_SMALL_UPDATES = "hierarchical", "hierarchical:grouping=random", "colocrl"
_CONCLUDED = ("1,000 evaluations",)  # the limits of a phase of the methods in conclusions alone
# Seeds and limits; the phases run one after the other.
_PHASES = (
    ((0, 1, 2, 3, 4), CHEAP),
    ((0, 1, 2, 3, 4), ("10,000 evaluations", LONG)),
    ((0,), (COLD,)),
    ((5, 6, 7, 8, 9), _CONCLUDED),
)


class Point(NamedTuple):
    """The state of a search after one of its steps; the values are as in `audit.Result`."""

    seconds: float
    evaluations: int
    best_s: float
    own_best_s: float


def list_served(method: str, limit: str) -> list[str]:
    """Lists the limits that a run with a limit serves."""
    if method in audit.FAST:
        return [*LIMITS]
    if methods.is_learned(method) and limit == LONG:
        others = (COLD,) if method in _SMALL_UPDATES else (COLD, *SMALL_BUDGETS)
        return [name for name in LIMITS if name not in others]
    return [limit]


def list_jobs() -> Iterator[tuple[str, str, list[tuple[str, int]]]]:
    """Yields a problem, a method, and the limits and seeds of its runs, the most urgent first."""
    concluded = {name for _, method, others in audit.CONCLUSIONS for name in (method, *others)}
    for seeds, limits in _PHASES:
        for method in audit.METHODS:
            if limits == _CONCLUDED and method not in concluded:
                continue
            used_seeds = seeds if methods.entry(method).seeded else [s for s in seeds if s == 0]
            run_limits: Sequence[str] = limits
            if method in audit.FAST:
                run_limits = (LONG,)
            elif methods.is_learned(method) and limits == CHEAP:
                run_limits = (LONG,) if method in _SMALL_UPDATES else (LONG, *SMALL_BUDGETS)
            elif method == "cpsat_free":  # which counts no evaluations
                run_limits = [limit for limit in limits if not limit.endswith("evaluations")]
            runs = [(limit, seed) for limit in run_limits for seed in used_seeds]
            yield from ((problem, method, runs) for problem in audit.list_problems())


def run(folder: Path, part: int, parts: int) -> None:
    """Makes the missing runs of a part of all runs."""
    folder.mkdir(parents=True, exist_ok=True)
    path, num_problems = folder / f"{part}.csv", len(audit.list_problems())
    path.touch()
    path.write_text(_read_whole_lines(path))
    for number, (name, method, runs) in enumerate(list_jobs()):
        # Shifted by one with each method, so that every part has problems of all sizes.
        if sum(divmod(number, num_problems)) % parts == part:
            done = {result[:4] for result in _read_all(folder)}
            missing = [
                (limit, seed)
                for limit, seed in runs
                if {(name, method, seed, served) for served in list_served(method, limit)} - done
            ]
            if missing:
                _run_job(name, method, missing, path)


def store(folder: Path) -> None:
    """Stores the results of a folder; equal results make equal bytes."""
    if not any(folder.glob("*.csv")):
        raise UserError(f"{folder} has no results; give the folder of the runs")
    text = ",".join(Result._fields) + "\n" + audit.write(_read_all(folder))
    audit.STORED.write_bytes(gzip.compress(text.encode(), mtime=0))


def _read_whole_lines(path: Path) -> str:
    """Reads a file, whose last line is incomplete if its process was killed."""
    text = path.read_text("utf-8")
    return text[: text.rfind("\n") + 1]


def _read_all(folder: Path) -> list[Result]:
    """Reads the stored results and those of a folder, sorted; of equal keys the folder's."""
    texts = [_read_whole_lines(path) for path in folder.glob("*.csv")]
    results = [*audit.read_stored(), *audit.read("".join(texts).splitlines())]
    by_key = {result[:4]: result for result in results}
    return [by_key[key] for key in sorted(by_key)]


def _run_job(name: str, method: str, runs: Sequence[tuple[str, int]], path: Path) -> None:
    """Makes runs of one method on one problem, and appends their results to a file."""
    problem, warmed = suite.load(name), set[int]()
    for limit_name, seed in runs:
        limit, is_cold = LIMITS[limit_name], limit_name == COLD
        try:
            if is_cold:
                limit_compiled(0)
                problem, warmed = suite.load(name), set()  # without anything derived from it
            elif limit.evaluations not in warmed:  # a budget may decide what is compiled
                warming = limit._replace(seconds=LIMITS[SHORT].seconds)
                run_curve(method, problem, seed + _WARMING_SEED, warming, is_warming=True)
                warmed.add(limit.evaluations)
            jax.config.update("jax_enable_compilation_cache", not is_cold)
            compilation_cache.reset_cache()  # which remembers whether it is used
            points = run_curve(method, problem, seed, limit)
        except UserError as error:
            print(f"{name}: {method} left out: {error}", file=sys.stderr)
            return
        results = []
        for served in list_served(method, limit_name):
            _, max_s, budget = LIMITS[served]
            *_, last = (p for p in points if p.seconds <= max_s and p.evaluations <= budget)
            results.append(Result(name, method, seed, served, *last))
        with path.open("a", encoding="utf-8") as file:
            file.write(audit.write(results))
        print(f"{name}: {method}, {limit_name}, seed {seed}: {points[-1]}", flush=True)
    limit_compiled()


def run_curve(
    method: str, problem: Problem, seed: int, limit: Limit, *, is_warming: bool = False
) -> list[Point]:
    """Runs a search and returns its state at the beginning and after each step.

    Args:
      method: its name.
      problem, seed: as of `methods.solve`.
      limit: of the search.
      is_warming: whether a learned method stops as soon as it is compiled.
    """
    start_s, points = time.process_time(), [Point(0.0, 0, np.inf, np.inf)]

    def elapsed_s() -> float:
        return time.process_time() - start_s

    def add(seconds: float, evaluations: int, *values_s: float) -> None:
        # The released HSDAG evaluates single devices as 1e10 s.
        is_real = np.less(values_s, trainer.RELEASED_SINGLE_DEVICE_S)
        best_s = np.minimum(np.where(is_real, values_s, np.inf), points[-1][2:])
        points.append(Point(seconds, evaluations, *best_s.tolist()))

    def observe(evaluations: int, best_s: float, *_: object) -> None:
        add(elapsed_s(), evaluations, best_s, best_s)

    def find_learned(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
        """Runs a learned method, with a point for each of its steps."""
        search = learned.Search.prepare(method, problem)
        progress = search.start(seed, limits)
        add(elapsed_s(), progress.evaluations, progress.best_s, np.inf)

        def on_report(report: trainer.Report, _: float) -> None:
            began, seconds, end = points[-1], elapsed_s(), report.progress.evaluations
            for record in report.records:
                count = int(record["evaluations"])
                share = (count - began.evaluations) / (end - began.evaluations)
                at_s = began.seconds + share * (seconds - began.seconds)
                add(at_s, count, record["best_s"], record["step_best_s"])
            if not report.records:  # all is compiled
                add(seconds, began.evaluations, np.inf, np.inf)

        return search.run(progress, limits, on_report)

    def stop() -> bool:
        """Ends a learned method, whose limits do not count what comes before its first step."""
        return (is_warming and len(points) > 2) or elapsed_s() >= limit.seconds

    if methods.is_learned(method):
        limits = SearchLimits(limit.seconds, limit.evaluations, stop=stop, clock=time.process_time)
        methods.run(method, find_learned, problem, seed, limits)
    else:
        limits = SearchLimits(limit.seconds, limit.evaluations, observe, clock=time.process_time)
        search = methods.find(method, problem.objective)
        solution = methods.run(method, search, problem, seed, limits)
        add(solution.search_s, solution.evaluations, *[solution.value_s] * 2)
    return points
