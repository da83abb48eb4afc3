"""The tables of the audit, and the sentences about them, from the stored runs.

A score is a value over the best known one of its problem (`placement.suite.archive`). A search
without a solution, for example because it still compiles, counts as the best single device.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.audit import curves, runs
from experiments.audit.runs import Run
from placement import suite
from placement.methods import learned
from placement.reporting import statistics
from placement.reporting.statistics import Interval
from placement.suite import archive
from placement.zoo import known_optimum

EVALUATIONS, WARM_S, COLD_S = 1_000, 5.0, 20.0
LIMIT_S = 20.0  # of a search with a budget
PRETRAINING = "hsdag, pretraining {}"  # with another seed than the installed one
GAIN = f"{WARM_S:g} s, compiled: of the best single device"
POINTS = (
    f"{EVALUATIONS:,} evaluations or {LIMIT_S:g} s",
    f"{WARM_S:g} s, compiled",
    f"{COLD_S:g} s, cold",
)
_SINGLE, _MAIN = "single", "hsdag"
_MAX_OPS = 2_000  # larger graphs would take hours with every method
_SHARDED = "sharded_"
_NEWEST = ("giph", "doppler")
# The methods that the newest ones are compared with, on more problems than all other methods.
COMPARED = (
    *(_SINGLE, "heft", "m_etf", "search"),
    *("hsdag", "hierarchical", "placeto", *_NEWEST),
)
# Variants of `_MAIN` that each lack a part, and what they have instead.
PARTS = {
    f"{_MAIN}:learning_rate=0": "no learning on the graph",
    f"{_MAIN}:scores=prior": "edges scored by their delays alone",
    f"{_MAIN}:uniform=1": "moves drawn uniformly",
    f"{_MAIN}:variant=untrained": "no pretraining",
}
_EVEN = 0.5  # probability
_DECIMALS = 5  # of scores; further ones are rounding in single precision

Grid = tuple[list[str], list[list[str]]]


class Conclusion(NamedTuple):
    """A paper's statement that its method places better than another one."""

    paper: str
    method: str  # as the authors describe or released it
    baseline: str
    # It is judged on the families of `test` that begin so, or on all sharded products.
    families: str = ""


CONCLUSIONS = (
    Conclusion("HSDAG", "hsdag:variant=paper", "placeto"),
    Conclusion("HSDAG", "hsdag:variant=paper", "colocrl"),
    Conclusion("HSDAG, released program", "hsdag:variant=released", "placeto"),
    Conclusion("Hierarchical Planner", "hierarchical:variant=paper", "colocrl"),
    Conclusion("Hierarchical Planner", "hierarchical:variant=paper", "human_expert", "rnnlm"),
    Conclusion("Hierarchical Planner", "hierarchical:variant=paper", "scotch"),
    Conclusion("Hierarchical Planner", "hierarchical:variant=paper", _SINGLE),
    Conclusion("Placeto", "placeto", "colocrl"),
    Conclusion("GiPH", "giph", "placeto"),
    Conclusion("GiPH", "giph", "heft"),
    Conclusion("DOPPLER", "doppler", "heft", _SHARDED),
    Conclusion("DOPPLER", "doppler", "placeto", _SHARDED),
    Conclusion("DOPPLER", "doppler", "giph", _SHARDED),
)


class Results(NamedTuple):
    """The runs of some problems, read at each of the `POINTS`."""

    problems: tuple[str, ...]
    runs: dict[tuple[str, str], list[Run]]  # by method and problem
    # The same: float64 [K] at each point. More seeds may have a budget than a time limit.
    scores: dict[tuple[str, str], tuple[np.ndarray, ...]]

    @property
    def methods(self) -> list[str]:
        """The methods with runs on every problem."""
        names = dict.fromkeys(method for method, _ in self.runs)
        return [m for m in names if all((m, problem) in self.runs for problem in self.problems)]

    def at(self, method: str, point: int) -> list[np.ndarray]:
        """Returns the scores of a method at a point: float64 [K] for each problem."""
        return [self.scores[method, problem][point] for problem in self.problems]


def _read(run: Run, single: Run, seconds: float = math.inf) -> float:
    """Returns the best value until then, or that of the best single device."""
    best_s = curves.best_until(run.points, seconds)
    return best_s if math.isfinite(best_s) else single.points[-1].best_s


def list_problems() -> list[suite.Entry]:
    """Lists the problems of the audit: of `test`, and sharded products of `validation`.

    Problems under `makespan` with at most `_MAX_OPS` operations, the smallest one first.
    """
    entries = [
        entry
        for entry in suite.list_entries()
        if entry.objective == "makespan"
        and entry.num_ops <= _MAX_OPS
        and (entry.split == "test" or entry.family.startswith(_SHARDED))
    ]
    return sorted(entries, key=lambda entry: entry.num_ops)


def read_stored() -> list[Run]:
    """Reads the stored runs of the problems of the audit."""
    names = {entry.name for entry in list_problems()}
    return [run for run in runs.read(runs.STORED) if run.problem in names]


def evaluate(
    stored: Iterable[Run], problems: Sequence[str], methods: Sequence[str] = ()
) -> Results:
    """Reads the runs of some methods at each point; empty `methods` stand for all."""
    known = archive.read()
    by_cell: dict[tuple[str, str], list[Run]] = {}
    for run in stored:
        if run.problem in problems and run.method in (methods or (run.method,)):
            by_cell.setdefault((run.method, run.problem), []).append(run)
    scores = {}
    for (method, problem), cell in by_cell.items():
        single = by_cell[_SINGLE, problem][0]
        timed = [run for run in cell if run.budget == 0]
        cold = [run for run in cell if run.budget == runs.COLD] or timed
        values_s = [
            [_read(run, single) for run in cell if run.budget > 0],
            [_read(run, single, WARM_S) for run in timed],
            [_read(run, single, COLD_S - run.compile_s) for run in cold],
        ]
        scores[method, problem] = tuple(
            np.round(np.array(values) / known[problem].value_s, _DECIMALS) for values in values_s
        )
    return Results(tuple(problems), by_cell, scores)


def list_run_problems(stored: Iterable[Run], methods: Collection[str]) -> list[suite.Entry]:
    """Lists the problems of the audit that have runs of all these methods."""
    methods_by_problem: dict[str, set[str]] = {}
    for run in stored:
        methods_by_problem.setdefault(run.problem, set()).add(run.method)
    return [
        entry
        for entry in list_problems()
        if methods_by_problem.get(entry.name, set()).issuperset(methods)
    ]


def make_tables(stored: Sequence[Run]) -> dict[str, Grid]:
    """Returns the tables of the documents by name: header and rows."""
    test = _list_test(stored)
    results = evaluate(stored, [entry.name for entry in test])
    compared = [entry.name for entry in list_run_problems(stored, COMPARED)]
    return {
        "methods": _list_means(results),
        "audit": _summarise(results),
        "audit_families": _summarise_families(results, test),
        "audit_pairs": _summarise_pairs(results),
        "audit_conclusions": _judge_conclusions(stored),
        "audit_newest": _summarise(evaluate(stored, compared, COMPARED)),
        "audit_parts": _summarise_parts(stored),
        "audit_sharded": _summarise(evaluate(stored, _list_sharded(stored), COMPARED)),
    }


def _list_means(results: Results) -> Grid:
    """Returns the geometric mean of each method at each point, without variants of `_MAIN`."""
    return ["method", *POINTS], [
        [
            f"`{method}`",
            *(_mean(results, method, point).write() for point in range(len(POINTS))),
        ]
        for method in _rank(results, 1)
        if method not in PARTS and not method.startswith(f"{_MAIN}, ")
    ]


def _rank(results: Results, point: int) -> list[str]:
    """Returns the methods, the one with the lowest geometric mean at a point first."""
    return sorted(results.methods, key=lambda method: _mean(results, method, point).value)


def _summarise(results: Results) -> Grid:
    """Returns a row of means, speeds and sizes for each method, the lowest mean first."""
    header = ["method", "seeds"]
    for name in POINTS:
        header += [f"{name}: mean", "interquartile mean"]
    header += [GAIN, "evaluations a second", "parameters", "s to compile"]
    rows = []
    for method in _rank(results, 1):
        scores = [results.at(method, point) for point in range(len(POINTS))]
        row = [f"`{method}`", _write_seeds(scores)]
        for point in range(len(POINTS)):
            row.append(_mean(results, method, point).write())
            row.append(statistics.interquartile_mean(scores[point]).write())
        cells = [run for problem in results.problems for run in results.runs[method, problem]]
        timed = [run for run in cells if run.budget == 0]
        rates = [run.points[-1].evaluations / run.points[-1].seconds for run in timed]
        sizes = [run.num_parameters for run in cells]
        gain = statistics.geometric_mean(
            [
                seeds / single
                for seeds, single in zip(scores[1], results.at(_SINGLE, 1), strict=True)
            ]
        )
        size = " to ".join(f"{size:,}" for size in dict.fromkeys((min(sizes), max(sizes))))
        compile_s = float(np.mean([run.compile_s for run in timed]))
        row += [
            gain.write(),
            f"{np.median(rates):,.0f}" if len(timed) > len(results.problems) else "-",
            size if learned.is_learned(method) else "-",
            f"{compile_s:.1f}" if compile_s else "-",
        ]
        rows.append(row)
    return header, rows


def _write_seeds(scores: Sequence[Sequence[np.ndarray]]) -> str:
    """Returns the number of seeds at each of the `POINTS`, or one number if all are equal."""
    counts = [min(len(seeds) for seeds in by_problem) for by_problem in scores]
    return ", ".join(str(count) for count in (counts if len(set(counts)) > 1 else counts[:1]))


def _summarise_families(results: Results, entries: Sequence[suite.Entry]) -> Grid:
    """Returns the geometric mean of each method on each family, at the second point."""
    families: dict[str, list[str]] = {}
    for entry in entries:
        families.setdefault(entry.family, []).append(entry.name)
    rows = []
    for method in _rank(results, 1):
        means = [
            statistics.geometric_mean([results.scores[method, name][1] for name in names]).value
            for names in families.values()
        ]
        rows.append([f"`{method}`", *(f"{mean:.3f}" for mean in means)])
    return ["method", *(f"{family} ({len(names)})" for family, names in families.items())], rows


def _summarise_pairs(results: Results) -> Grid:
    """Returns the probabilities that a run of `_MAIN` is better than one of each method."""
    rows = []
    for method in _rank(results, 1):
        if method != _MAIN:
            pairs = [_compare(results, _MAIN, method, point) for point in range(len(POINTS))]
            rows.append([f"`{method}`", *(pair.write(2) for pair in pairs)])
    return ["method", *(f"`{_MAIN}` is better, {point}" for point in POINTS)], rows


def _summarise_parts(stored: Sequence[Run]) -> Grid:
    """Returns how much worse `_MAIN` is without each part, by kind of graph and point.

    The cold point is left out: there most of these searches still compile.
    """
    kinds, points = _split_kinds(stored), range(len(POINTS) - 1)
    rows = [
        [
            *(f"`{method}`", difference),
            *(_relative(results, method, p).write() for results in kinds.values() for p in points),
        ]
        for method, difference in PARTS.items()
    ]
    columns = (f"{kind}, {POINTS[point]}" for kind in kinds for point in points)
    return ["method", "difference", *columns], rows


def _relative(results: Results, method: str, point: int) -> Interval:
    """Returns the geometric mean of a method's scores over those of `_MAIN`, seed by seed."""
    pairs = zip(results.at(method, point), results.at(_MAIN, point), strict=True)
    return statistics.geometric_mean([scores / main for scores, main in pairs])


def _split_kinds(stored: Sequence[Run]) -> dict[str, Results]:
    """Returns the runs of `_MAIN` and its `PARTS` on graphs with a known optimum, and on others."""
    methods = (_SINGLE, _MAIN, *PARTS)
    names: dict[str, list[str]] = {}
    for entry in list_run_problems(stored, methods):
        if entry.split == "test":
            kind = "known optimum" if entry.family == known_optimum.FAMILY else "others"
            names.setdefault(kind, []).append(entry.name)
    return {kind: evaluate(stored, names[kind], methods) for kind in sorted(names)}


def _judge_conclusions(stored: Sequence[Run]) -> Grid:
    """Returns for each conclusion how likely a run of the method is better, at the first point."""
    rows = []
    for paper, method, baseline, families in CONCLUSIONS:
        names = [
            entry.name
            for entry in list_run_problems(stored, (method, baseline))
            if entry.family.startswith(families) and (entry.split == "test" or families == _SHARDED)
        ]
        if names:
            results = evaluate(stored, names, (method, baseline, _SINGLE))
            probability = _compare(results, method, baseline, 0)
            rows.append(
                [
                    *(paper, f"`{method}` is better than `{baseline}`", str(len(names))),
                    *(probability.write(2), _judge(probability)),
                ]
            )
    return ["paper", "conclusion", "problems", f"probability, {POINTS[0]}", "here"], rows


def _count_conclusions(stored: Sequence[Run]) -> str:
    verdicts = [row[-1] for row in _judge_conclusions(stored)[1]]
    holds, fails, unknown = (verdicts.count(v) for v in ("holds", "does not", "inconclusive"))
    return (
        "**The papers' algorithms.** Conclusions of the papers that hold: "
        f"{holds} of {len(verdicts)}; that do not hold: {fails}; inconclusive: {unknown}."
    )


def _judge(probability: Interval) -> str:
    if probability.low > _EVEN:
        return "holds"
    return "does not" if probability.high < _EVEN else "inconclusive"


def describe_coverage(stored: Sequence[Run]) -> str:
    """Says which problems the tables cover."""
    names = [entry.name for entry in _list_test(stored)]
    num_problems = sum(entry.split == "test" for entry in list_problems())
    covered = ", ".join(f"`{name}`" for name in names)
    return f"The runs cover {len(names)} of {num_problems} problems: {covered}."


def describe_excess(stored: Sequence[Run]) -> list[str]:
    """Returns a sentence on the methods whose runs exceed the budget of evaluations, if any."""
    names = [entry.name for entry in _list_test(stored)]
    counts: dict[str, list[int]] = {}
    for run in stored:
        if run.problem in names and run.points[-1].evaluations > run.budget > 0:
            counts.setdefault(run.method, []).append(run.points[-1].evaluations)
    texts = [f"`{m}` ({min(c):,} to {max(c):,})" for m, c in counts.items()]
    start = f"Runs of these methods exceed the budget of {EVALUATIONS:,} evaluations"
    return [f"{start}: {', '.join(texts)}."] if texts else []


def make_sentences(stored: Sequence[Run]) -> list[str]:
    """Returns which problems the tables cover, and what follows from the tables at each point.

    The learned methods but `PARTS`, which have sentences of their own, are compared with `_MAIN`.
    """
    results = evaluate(stored, [entry.name for entry in _list_test(stored)])
    compared = [m for m in results.methods if learned.is_learned(m) and m not in PARTS]
    return [
        describe_coverage(stored),
        *(_make_sentence(results, point, [_MAIN], compared) for point in range(len(POINTS))),
        *describe_excess(stored),
        _name_slow_methods(results),
        _count_conclusions(stored),
    ]


def _list_test(stored: Sequence[Run]) -> list[suite.Entry]:
    """Lists the problems of `test` with runs of all methods, not of those in `COMPARED` alone."""
    finished = {run.problem for run in stored if run.method not in COMPARED}
    entries = list_run_problems(stored, (_SINGLE,))
    return [entry for entry in entries if entry.split == "test" and entry.name in finished]


def _name_slow_methods(results: Results) -> str:
    """Names the methods that do not make all evaluations within the limit of time."""
    counts = {
        method: np.median(
            [
                run.points[-1].evaluations
                for problem in results.problems
                for run in results.runs[method, problem]
                if run.budget > 0 and run.points[-1].seconds >= LIMIT_S
            ]
            or [EVALUATIONS]
        )
        for method in results.methods
        if learned.is_learned(method)
    }
    slow = [f"`{m}` ({count:,.0f})" for m, count in counts.items() if count < EVALUATIONS]
    if not slow:
        return f"All learned methods make {EVALUATIONS:,} evaluations within {LIMIT_S:g} s."
    return (
        f"Some runs of these methods end before {EVALUATIONS:,} evaluations, because "
        f"{LIMIT_S:g} s are over: {', '.join(slow)}. In brackets is the median of these runs."
    )


def make_newest_sentences(stored: Sequence[Run]) -> list[str]:
    """Returns what follows from the table of the newest methods on all kinds of graphs."""
    names = [entry.name for entry in list_run_problems(stored, COMPARED)]
    return _compare_all(evaluate(stored, names, COMPARED), _NEWEST)


def make_sharded_sentences(stored: Sequence[Run]) -> list[str]:
    """Returns what follows from the table of products of sharded matrices."""
    return _compare_all(evaluate(stored, _list_sharded(stored), COMPARED), ["doppler"])


def make_parts_sentences(stored: Sequence[Run]) -> list[str]:
    """Returns which variants differ from `_MAIN` by kind of graph, by the intervals of ratios."""
    sentences = []
    for kind, results in _split_kinds(stored).items():
        texts = []
        for point in range(len(POINTS) - 1):
            ratios = {method: _relative(results, method, point) for method in PARTS}
            worse = [f"`{m}` {ratio.write()}" for m, ratio in ratios.items() if ratio.low > 1]
            better = [f"`{m}` {ratio.write()}" for m, ratio in ratios.items() if ratio.high < 1]
            texts += [f"{POINTS[point]}, worse: {', '.join(worse) or 'none'}."]
            texts += [f"Better: {', '.join(better)}."] if better else []
        sentences.append(
            f"**{kind.capitalize()} (problems: {len(results.problems)}).** {' '.join(texts)}"
        )
    return sentences


def _list_sharded(stored: Iterable[Run]) -> list[str]:
    entries = list_run_problems(stored, COMPARED)
    return [entry.name for entry in entries if entry.family.startswith(_SHARDED)]


def _compare_all(results: Results, main: Sequence[str]) -> list[str]:
    """Returns the problems, and at each point how the main methods compare with all others."""
    covered = ", ".join(f"`{name}`" for name in results.problems)
    points = range(len(POINTS))
    return [
        f"The runs cover {covered}.",
        *(_make_sentence(results, point, main, results.methods) for point in points),
    ]


def _make_sentence(results: Results, point: int, main: Sequence[str], others: Sequence[str]) -> str:
    """Names the methods with the lowest means, and compares some methods with others."""
    ranked = _rank(results, point)
    lowest = [f"`{m}` {_mean(results, m, point).write()}" for m in ranked[:3]]
    sentences = [f"**{POINTS[point]}.** The lowest means are {', '.join(lowest)}."]
    for name in main:
        sentences += _compare_with(results, point, name, sorted(others, key=ranked.index))
    return " ".join(sentences)


def _compare_with(results: Results, point: int, name: str, others: Sequence[str]) -> list[str]:
    """Returns a sentence for each verdict of a method against others."""
    better, worse, undecided = list[str](), list[str](), list[str]()
    verdicts = {"holds": better, "does not": worse, "inconclusive": undecided}
    for method in others:
        if method != name:
            verdicts[_judge(_compare(results, name, method, point))].append(f"`{method}`")
    texts = {"better than": better, "worse than": worse, "undecided against": undecided}
    return [f"`{name}` is {text} {', '.join(ms)}." for text, ms in texts.items() if ms]


def _mean(results: Results, method: str, point: int) -> Interval:
    return statistics.geometric_mean(results.at(method, point))


def _compare(results: Results, method: str, other: str, point: int) -> Interval:
    """Returns the probability that a run of a method is better than one of another."""
    return statistics.probability_of_improvement(
        results.at(method, point), results.at(other, point)
    )
