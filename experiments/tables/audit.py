"""The tables of the audit: every method on problems of the suite that no training saw.

`experiments.tables.audit_runs` makes the runs. A run is one search of a method on a problem with a
seed; its points are the improvements of the best value, in the order of time. A score is a value
over the best known one of the problem. A search without a solution, for example because it still
compiles, counts as the best single device.
"""

import csv
import functools
import gzip
import io
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from placement import methods, suite
from placement.reporting import statistics, units
from placement.reporting.statistics import Interval, Ratio
from placement.suite import archive

VERSION = 1  # of the suite
STORED = Path(__file__).with_name("audit.csv.gz")
HEADER = (
    *("problem", "method", "seed", "budget", "parameters", "compile_s"),
    *("seconds", "evaluations", "best_s"),
)
EVALUATIONS, WARM_S, COLD_S = 1_000, 5.0, 20.0
LIMIT_S = 20.0  # of a search with a budget
POINTS = (
    f"{EVALUATIONS:,} evaluations or {LIMIT_S:g} s",
    f"{WARM_S:g} s, compiled",
    f"{COLD_S:g} s, cold",
)
SINGLE, SHARDED = "single", "sharded_"
_PLACETO, _COLOCRL = "placeto:variant=tuned", "colocrl:variant=tuned"
_GIPH, _DOPPLER = "giph:variant=tuned", "doppler:variant=tuned"
COLD = -1  # see `Run`
# The newest methods, and those that they are compared with; they also run on sharded products.
COMPARED = (
    *(SINGLE, "heft", "m_etf", "search"),
    *("hierarchical:variant=tuned", _PLACETO, _GIPH, _DOPPLER),
)
# The papers' conclusions: the paper, its method, a method that it is better than, and the family
# that the conclusion is about. Names with `variant=tuned` stand for methods of which the audit has
# no runs with the constants of their papers.
CONCLUSIONS = (
    ("HSDAG", "hsdag", _PLACETO, ""),
    ("HSDAG", "hsdag", _COLOCRL, ""),
    ("HSDAG, released program", "hsdag:variant=released", _PLACETO, ""),
    ("Hierarchical Planner", "hierarchical", _COLOCRL, ""),
    ("Hierarchical Planner", "hierarchical", "human_expert", "rnnlm"),
    ("Hierarchical Planner", "hierarchical", "scotch", ""),
    ("Hierarchical Planner", "hierarchical", SINGLE, ""),
    ("Placeto", _PLACETO, _COLOCRL, ""),
    ("GiPH", _GIPH, _PLACETO, ""),
    ("GiPH", _GIPH, "heft", ""),
    ("DOPPLER", _DOPPLER, "heft", SHARDED),
    ("DOPPLER", _DOPPLER, _PLACETO, SHARDED),
    ("DOPPLER", _DOPPLER, _GIPH, SHARDED),
)
_MAX_OPS = 2_000  # larger graphs would take hours with every method
_DECIMALS = 5  # of scores; further ones are rounding in single precision

Grid = tuple[list[str], list[list[str]]]  # a header, and rows


class Point(NamedTuple):
    """The state of a search after one of its steps."""

    seconds: float  # since the start, without compilation
    evaluations: int
    best_s: float  # the best value; inf while no placement can run


class Run(NamedTuple):
    """One search."""

    problem: str  # of `placement.suite`
    method: str
    seed: int
    budget: int  # of evaluations; 0: limited by time instead; COLD: likewise, and not compiled
    num_parameters: int  # of a learned method's policy; else 0
    compile_s: float  # the seconds of `points` do not contain it; 0 in a run that is COLD
    points: tuple[Point, ...]

    def best_until(self, seconds: float = math.inf) -> float:
        """Returns the best value after so many seconds; inf before the first point."""
        return min((p.best_s for p in self.points if p.seconds <= seconds), default=math.inf)


def read(path: Path) -> list[Run]:
    """Reads runs from a compressed CSV file with a row for each point."""
    text = gzip.decompress(path.read_bytes()).decode()
    points: dict[tuple[str, str, int, int, int, float], list[Point]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        numbers = int(row["seed"]), int(row["budget"]), int(row["parameters"])
        key = row["problem"], row["method"], *numbers, float(row["compile_s"])
        point = Point(float(row["seconds"]), int(row["evaluations"]), float(row["best_s"]))
        points.setdefault(key, []).append(point)
    return [Run(*key, tuple(curve)) for key, curve in points.items()]


def write(runs: Iterable[Run], path: Path) -> None:
    """Writes runs; equal runs make equal bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for run in runs:
        for seconds, evaluations, best_s in run.points:
            numbers = f"{run.compile_s:.3f}", f"{seconds:.3f}", evaluations, f"{best_s:.7g}"
            writer.writerow([*run[:5], *numbers])
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def list_problems(family: str = "", split: str = "test") -> tuple[str, ...]:
    """Lists the problems of the audit by name, the smallest one first.

    Args:
      family: how their families begin.
      split: 'test', or '' for the sharded products of other splits as well.
    """
    entries = [
        entry
        for entry in suite.list_entries(version=VERSION)
        if entry.objective == "makespan"
        and entry.num_ops <= _MAX_OPS
        and entry.family.startswith(family)
        and (entry.split == "test" or (not split and entry.family.startswith(SHARDED)))
    ]
    return tuple(entry.name for entry in sorted(entries, key=lambda entry: entry.num_ops))


@functools.cache
def read_stored() -> list[Run]:
    """Reads the stored runs."""
    return read(STORED)


class Results(NamedTuple):
    """The runs of some methods on some problems, read at each of the `POINTS`."""

    problems: tuple[str, ...]
    runs: dict[tuple[str, str], list[Run]]  # by method and problem
    # By method: at each point, float64 [K] for each problem. More seeds may have a budget than a
    # time limit.
    scores: dict[str, list[list[np.ndarray]]]

    def compare(self, method: str, other: str, point: int) -> Ratio:
        """Compares the scores of two methods."""
        return statistics.compare(self.scores[method][point], self.scores[other][point])


@functools.cache
def evaluate(problems: tuple[str, ...], methods: tuple[str, ...] = ()) -> Results:
    """Reads the stored runs of methods on problems; no `methods`: all with runs on each problem."""
    known, runs = archive.read(VERSION), dict[tuple[str, str], list[Run]]()
    for run in read_stored():
        if run.problem in problems:
            runs.setdefault((run.method, run.problem), []).append(run)
    names = dict.fromkeys(method for method, _ in runs)
    complete = [m for m in names if all((m, problem) in runs for problem in problems)]
    scores: dict[str, list[list[np.ndarray]]] = {}
    for method in methods or complete:
        scores[method] = [[] for _ in POINTS]
        for problem in problems:
            single_s = runs[SINGLE, problem][0].best_until()
            timed = [run for run in runs[method, problem] if run.budget == 0]
            cold = [run for run in runs[method, problem] if run.budget == COLD] or timed
            values_s = (
                [run.best_until() for run in runs[method, problem] if run.budget > 0],
                [run.best_until(WARM_S) for run in timed],
                [run.best_until(COLD_S - run.compile_s) for run in cold],
            )
            for values, point_scores in zip(values_s, scores[method], strict=True):
                filled = np.where(np.isinf(values), single_s, values)
                point_scores.append(np.round(filled / known[problem].value_s, _DECIMALS))
    return Results(problems, runs, scores)


def read_methods() -> Grid:
    """Reads the geometric mean of each method at each point."""
    header, rows = read_summary()
    columns = [0, *(i for i, title in enumerate(header) if title.endswith(": mean"))]
    return ["method", *POINTS], [[row[i] for i in columns] for row in rows]


@functools.cache
def read_summary() -> Grid:
    """Reads means, speeds and sizes: a row for each method, the lowest mean when compiled first."""
    problems = list_problems()
    results = evaluate(problems)
    means = {m: [*map(statistics.geometric_mean, scores)] for m, scores in results.scores.items()}
    header = ["method", "seeds"]
    for name in POINTS:
        header += [f"{name}: mean"]
    header += [f"{POINTS[1]}: over `search`"]
    header += ["evaluations a second", "parameters", "s to compile"]
    rows = []
    for method in sorted(means, key=lambda m: means[m][1].value):
        scores = results.scores[method]
        counts = [str(min(map(len, by_problem))) for by_problem in scores]
        row = [f"`{method}`", ", ".join(counts) if len({*counts}) > 1 else counts[0]]
        row += [mean.write() for mean in means[method]]
        runs = [run for problem in problems for run in results.runs[method, problem]]
        timed = [run for run in runs if run.budget == 0]
        rates = [run.points[-1].evaluations / run.points[-1].seconds for run in timed]
        sizes = [run.num_parameters for run in runs]
        size = " to ".join(f"{size:,}" for size in dict.fromkeys((min(sizes), max(sizes))))
        compile_s = float(np.mean([run.compile_s for run in timed]))
        row += [
            results.compare(method, "search", 1).interval.write(),
            f"{np.median(rates):,.0f}" if len(timed) > len(problems) else "-",
            size if methods.is_learned(method) else "-",
            f"{compile_s:.1f}" if compile_s else "-",
        ]
        rows.append(row)
    return header, rows


def read_conclusions() -> Grid:
    """Returns for each conclusion the ratio of the scores at the first point, and Holm's p."""
    ratios, counts = [], []
    for _, method, baseline, family in CONCLUSIONS:
        results = evaluate(list_problems(family, "" if family else "test"), (method, baseline))
        ratio, count = results.compare(method, baseline, 0), len(results.problems)
        if count < statistics.MIN_GRAPHS:  # no conclusion about other problems
            ratio = Ratio(Interval(ratio.interval.value, math.nan, math.nan), math.nan)
        ratios.append(ratio)
        counts.append(count)
    p_values = statistics.adjust([ratio.p_value for ratio in ratios])
    rows = []
    for (paper, method, baseline, _), (interval, _), count, p_value in zip(
        CONCLUSIONS, ratios, counts, p_values, strict=True
    ):
        verdict = "undecided" if count >= statistics.MIN_GRAPHS else "too few problems"
        if p_value < statistics.LEVEL:
            verdict = "holds" if interval.value < 1 else "does not"
        text = f"`{method}` is better than `{baseline}`"
        numbers = str(count), interval.write(), units.write(p_value, ".3f")
        rows.append([paper, text, *numbers, verdict])
    return ["paper", "conclusion", "problems", f"ratio, {POINTS[0]}", "p", "here"], rows


TABLES: dict[str, Callable[[], Grid]] = {
    "methods": read_methods,
    "audit": read_summary,
    "audit_conclusions": read_conclusions,
}
