"""The tables of the audit: every method on problems of the suite that no decision looked at.

`experiments.tables.audit_runs` makes the results. A result is the best value that a search of a
method with a seed had reported when it reached a limit. A score is a result over the best known
value of the problem. Means are over families of problems, and intervals are for other families
(`placement.reporting.statistics`).
"""

import csv
import functools
import gzip
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from placement import methods, suite
from placement.reporting import statistics, units
from placement.reporting.statistics import Scores

STORED = Path(__file__).with_name("audit.csv.gz")


class Limit(NamedTuple):
    """The end of a search: these seconds or evaluations, whichever comes first."""

    name: str
    seconds: float  # of the processor
    evaluations: int = 10**12


SHORT, LONG, COLD = "5 s", "30 s", "20 s, cold"
_LIMITS = (
    *(Limit("200 evaluations", 30, 200), Limit("1,000 evaluations", 30, 1_000)),
    *(Limit("10,000 evaluations", 30, 10_000), Limit("0.1 s", 0.1), Limit("1 s", 1)),
    *(Limit(SHORT, 5), Limit(LONG, 30), Limit(COLD, 20)),  # cold: nothing is compiled before
)
LIMITS = {limit.name: limit for limit in _LIMITS}
SMALL_BUDGETS = "200 evaluations", "1,000 evaluations"
CHEAP = "5 s", "1 s", "0.1 s", *SMALL_BUDGETS
_BUDGETS, _SECONDS = (*SMALL_BUDGETS, "10,000 evaluations"), ("0.1 s", "1 s", SHORT, LONG)
FAST = "single", "heft", "m_etf", "scotch"  # they read no limit
METHODS = (
    *(*FAST, "local_search", "lns", "cpsat_free", "scheduler"),
    *("hsdag", "hsdag:variant=released", "hierarchical", "hierarchical:grouping=random"),
    *("colocrl", "placeto", "search"),
)
_ANY_ORDER = "search", "cpsat_free"  # they choose the order of operations as well
# The papers' conclusions: the paper, its method, and the methods that it is better than.
CONCLUSIONS = (
    ("HSDAG", "hsdag", ("single", "placeto", "colocrl")),
    ("HSDAG, released program", "hsdag:variant=released", ("placeto",)),
    (
        "Hierarchical Planner",
        "hierarchical",
        ("single", "scotch", "colocrl", "hierarchical:grouping=random"),
    ),
    ("Placeto", "placeto", ("colocrl",)),
)
CONCLUSION_LIMIT = "1,000 evaluations"
_MAX_OPS = 2_000  # larger graphs would take hours with every method
_DECIMALS = 5  # of scores; further ones are rounding in single precision
_NO_RATIO = statistics.Ratio(statistics.Interval(*[math.nan] * 3), math.nan)

Grid = tuple[list[str], list[list[str]]]  # a header, and rows


class Result(NamedTuple):
    """The state of a search when it reached a limit: a row of the store."""

    problem: str  # of `placement.suite`
    method: str
    seed: int
    limit: str  # a key of `LIMITS`
    seconds: float  # of the last step until the limit
    evaluations: int  # until then
    best_s: float  # inf where there is no result
    own_best_s: float  # without the starts of a learned method; else the same


def read(lines: Iterable[str]) -> list[Result]:
    """Reads results from lines of CSV without a header."""
    return [
        Result(name, method, int(seed), limit, float(a), int(b), float(c), float(d))
        for name, method, seed, limit, a, b, c, d in csv.reader(lines)  # as in `Result`
    ]


def write(results: Iterable[Result]) -> str:
    """Writes results as CSV without a header."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [*r[:4], f"{r.seconds:.3f}", r.evaluations, f"{r.best_s:.7g}", f"{r.own_best_s:.7g}"]
        for r in results
    )
    return text.getvalue()


@functools.cache
def read_stored() -> list[Result]:
    """Reads the stored results."""
    return read(gzip.decompress(STORED.read_bytes()).decode().splitlines()[1:])


@functools.cache
def list_problems() -> dict[str, str]:
    """Returns the family of each problem of the audit by its name, the smallest one first."""
    entries = sorted(suite.list_entries("test"), key=lambda entry: entry.num_ops)
    return {
        entry.name: entry.family
        for entry in entries
        if entry.objective == "makespan" and entry.num_ops <= _MAX_OPS
    }


def _group_by_family(values: Mapping[str, np.ndarray]) -> Scores:
    """Joins the scores of problems, float64 [K] each, by family."""
    scores: dict[str, np.ndarray] = {}
    for name, value in values.items():
        family = list_problems()[name]
        scores[family] = np.append(scores.get(family, []), np.round(value, _DECIMALS))
    return [*scores.values()]


@functools.cache
def read_known() -> tuple[dict[str, float], dict[str, float]]:
    """Reads the best known value of each problem, and the best result in the given order."""
    best_known_s = {name: suite.best_known(name).value_s for name in list_problems()}
    given_order_s = dict.fromkeys(best_known_s, math.inf)
    for result in read_stored():
        name = result.problem
        if result.method not in _ANY_ORDER:
            given_order_s[name] = min(given_order_s[name], result.best_s)
        best_known_s[name] = min(best_known_s[name], result.best_s)
    return best_known_s, given_order_s


@functools.cache
def read_scores(limit: str, *, is_own: bool = False) -> dict[str, dict[str, np.ndarray]]:
    """Reads the scores of all methods with results under a limit, of seeds that all problems have.

    Args:
      limit: a key of `LIMITS`.
      is_own: whether only placements count that a learned method drew, not its starts.

    Returns:
      By method and problem, float64 [K] of K seeds: inf where the search had no result, or a
      learned method had not drawn a placement.
    """
    best_known_s, scores = read_known()[0], dict[str, dict[str, np.ndarray]]()
    values_s: dict[str, dict[int, dict[str, float]]] = {}  # by method, seed and problem
    for result in read_stored():
        if result.limit == limit:
            value_s = result.own_best_s if is_own or np.isinf(result.own_best_s) else result.best_s
            seed_values_s = values_s.setdefault(result.method, {})
            seed_values_s.setdefault(result.seed, {})[result.problem] = value_s
    for method, seed_values_s in values_s.items():
        complete = [row for row in seed_values_s.values() if len(row) == len(best_known_s)]
        if complete:
            scores[method] = {
                name: np.array([row[name] for row in complete]) / best_s
                for name, best_s in best_known_s.items()
            }
    return scores


def _mean(scores: Mapping[str, np.ndarray]) -> statistics.Interval:
    return statistics.geometric_mean(_group_by_family(scores))


def _write_mean(scores: Mapping[str, np.ndarray] | None) -> str:
    """Writes the mean of a method's scores, or the share of runs without a result."""
    if scores is None:
        return units.NONE
    missing = np.isinf([*scores.values()]).mean()
    return f"no result: {missing:.0%}" if missing else _mean(scores).write()


def read_means(limits: Sequence[str], *, is_own: bool = False) -> Grid:
    """Reads the means of each method under some limits.

    The methods are in the order of their means after 5 s. The first row is the best that any run
    reached in the given order of priority, which only `search` and `cpsat_free` can change. With
    `is_own`, only the learned methods' own placements count.
    """
    scores = {limit: read_scores(limit, is_own=is_own) for limit in limits}
    best_known_s, given_order_s = read_known()
    floor = {name: np.array([given_order_s[name] / s]) for name, s in best_known_s.items()}
    rows = [["best in the given order", units.NONE, *[_write_mean(floor)] * len(limits)]]
    order = read_scores(SHORT, is_own=is_own)
    for method in sorted(order, key=lambda name: _mean(order[name]).value):
        found = [scores[limit].get(method) for limit in limits]
        counts = {len(next(iter(s.values()))) for s in found if s is not None}
        seeds = " to ".join(map(str, sorted(counts)[:: max(1, len(counts) - 1)]))
        if counts and (not is_own or methods.is_learned(method)):
            rows.append([f"`{method}`", seeds, *map(_write_mean, found)])
    return ["method", "seeds", *limits], rows[1:] if is_own else rows


def read_ratios() -> Grid:
    """Reads each method's ratio to `search`; bold: p < 0.05 after Holm's correction of a column."""
    header, (_, *mean_rows) = read_means((*_BUDGETS, *_SECONDS))
    others = [row[0].strip("`") for row in mean_rows if row[0] != "`search`"]
    columns = []
    for limit in header[2:]:
        scores = {method: _group_by_family(s) for method, s in read_scores(limit).items()}
        ratios = {m: statistics.compare(scores[m], scores["search"]) for m in others if m in scores}
        p_values = statistics.adjust([ratio.p_value for ratio in ratios.values()])
        cells = dict.fromkeys(others, units.NONE)
        for (method, (interval, _)), p_value in zip(ratios.items(), p_values, strict=True):
            mark = "**" * (p_value < statistics.LEVEL)
            cells[method] = f"{mark}{interval.write()}{mark}"
        columns.append(cells)
    rows = [[f"`{method}`", *(cells[method] for cells in columns)] for method in others]
    rows = [row for row in rows if {*row[1:]} != {units.NONE}]
    return ["method over `search`", *header[2:]], rows


def read_conclusions() -> Grid:
    """Reads for each conclusion the ratio of the scores without starts, and Holm's p.

    It is over the problems on which all runs of both methods have a result.
    """
    stored, ratios, texts = read_scores(CONCLUSION_LIMIT, is_own=True), [], []
    for paper, method, others in CONCLUSIONS:
        for other in (other for other in others if {method, other} <= stored.keys()):
            pair = stored[method], stored[other]
            names = [n for n in list_problems() if np.isfinite([*pair[0][n], *pair[1][n]]).all()]
            ours, theirs = (_group_by_family({name: s[name] for name in names}) for s in pair)
            has_families = len(ours) >= statistics.MIN_GRAPHS
            ratios.append(statistics.compare(ours, theirs) if has_families else _NO_RATIO)
            texts.append([paper, f"`{method}` is better than `{other}`", str(len(names))])
    p_values = statistics.adjust([ratio.p_value for ratio in ratios])
    rows = []
    for text, (ratio, _), p_value in zip(texts, ratios, p_values, strict=True):
        verdict = "holds" if ratio.value < 1 else "does not"
        verdict = verdict if p_value < statistics.LEVEL else "undecided"
        rows.append([*text, ratio.write(), units.write(p_value, ".3f"), verdict])
    return ["paper", "conclusion", "problems", f"ratio, {CONCLUSION_LIMIT}", "p", "here"], rows


TABLES: dict[str, Callable[[], Grid]] = {
    "methods": functools.partial(read_means, ("1,000 evaluations", "1 s", SHORT)),
    "audit_evaluations": functools.partial(read_means, _BUDGETS),
    "audit_seconds": functools.partial(read_means, (*_SECONDS, COLD)),
    "audit_own": functools.partial(read_means, (*_BUDGETS, *_SECONDS[1:]), is_own=True),
    "audit_ratios": read_ratios,
    "audit_conclusions": read_conclusions,
}
