"""Progress of learned methods: latencies at the start and at the end of training, and their cost.

Searches that stop at different times cannot be compared by their final results. So they are
compared by the fastest placement that each had found after equal numbers of evaluations: those of
the search on the graph that ended with the fewest.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.reporting import units
from placement.reporting.tables import grids

# A record of metrics.jsonl: method, seed, step, evaluations, best_s, mean_s, and loss if the step
# updated the parameters. A latency is null where no placement could run.
Record = Mapping[str, Any]

_HEADER = (
    *("graph", "method", "seeds", "first update", "last updates", "improvement"),
    *("evaluations", "best at equal evaluations"),
)
_LEGEND = (
    "Means over the seeds with their 95% intervals. First and last: mean latency of the samples of "
    "the first update and of the last tenth. Best: the fastest placement known, as a ratio to the "
    "best single device and, in brackets, itself."
)


class Learned(NamedTuple):
    """Progress of a method on a graph."""

    seeds: int
    first_s: grids.Estimate  # mean latency of the first update's samples
    last_s: grids.Estimate  # mean latency of the last updates' samples
    improvement: grids.Estimate  # 1 - last / first, paired by seed
    evaluations: float  # mean number of evaluations
    best_s: grids.Estimate  # fastest placement known, at `Curves.budgets`


class Curves(NamedTuple):
    """`learned[graph][method]`; a method may be missing on a graph."""

    learned: dict[str, dict[str, Learned]]
    budgets: dict[str, int]  # the smallest number of evaluations of the searches on each graph
    single_s: dict[str, float]  # latency of the best single device; nan where none runs


def summarise(
    records: Mapping[str, Iterable[Record]], single_s: Mapping[str, float | None]
) -> Curves:
    """Aggregates the logs of searches.

    Args:
      records: graph -> records of all its searches, of any method and seed, in any order.
      single_s: graph -> latency of the best single device, as the searches evaluate it; None, inf
        or nan where none runs. It is also a search's best latency before its first record, because
        every search evaluates the single devices first.
    """
    curves = Curves({}, {}, {})
    for graph, graph_records in records.items():
        searches: dict[str, dict[Any, list[Record]]] = {}
        for record in sorted(graph_records, key=lambda record: record["step"]):
            seeds = searches.setdefault(record["method"], {})
            seeds.setdefault(record["seed"], []).append(record)
        if not searches:
            continue
        budget = min(
            search[-1]["evaluations"] for seeds in searches.values() for search in seeds.values()
        )
        best_single_s = units.or_nan(single_s.get(graph))
        curves.budgets[graph], curves.single_s[graph] = budget, best_single_s
        curves.learned[graph] = {
            method: _learned(list(seeds.values()), budget, best_single_s)
            for method, seeds in searches.items()
        }
    return curves


def verdict(curves: Curves) -> str:
    """Returns a sentence on the best method at equal evaluations, of curves with learned methods.

    Methods are ranked by the geometric mean over graphs of the ratio to the best single device.
    Means with equal three decimals are ties. Graphs on which no single device runs, and methods
    without a ratio on any other graph, are not ranked but named.
    """
    counted = [graph for graph in curves.learned if not math.isnan(curves.single_s[graph])]
    methods = list(dict.fromkeys(itertools.chain.from_iterable(curves.learned.values())))
    means: dict[str, str] = {}  # formatted mean ratios of methods with a ratio on every graph
    for method in methods:
        ratios = [
            units.ratio(curves.learned[graph][method].best_s.mean, curves.single_s[graph])
            for graph in counted
            if method in curves.learned[graph]
        ]
        if ratios and len(ratios) == len(counted) and np.isfinite(ratios).all():
            means[method] = f"{math.exp(np.mean(np.log(ratios))):.3f}"
    if not means:
        return "At equal evaluations, no learned method has a ratio on every graph."
    ranked = sorted(means, key=lambda method: float(means[method]))  # stable
    lowest = means[ranked[0]]
    first = [method for method in ranked if means[method] == lowest]
    text = (
        "Of the learned methods, at equal evaluations, the lowest geometric mean over "
        f"{len(counted)} graph{'s' if len(counted) > 1 else ''} of the ratio to the best single "
        f"device is {lowest}, of {'a tie of ' if len(first) > 1 else ''}{_listed(first)}"
    )
    text += "".join(f"; `{m}` has {means[m]}" for m in ranked[len(first) :]) + "."
    if float(lowest) >= 1:
        text += " None is faster than the best single device."
    missing = [method for method in methods if method not in means]
    if missing:
        text += f" Not ranked, without a number on some graph: {_listed(missing)}."
    uncounted = [graph for graph in curves.learned if graph not in counted]
    if uncounted:
        text += f" Not counted, no single device runs: {_listed(uncounted)}."
    return text


def markdown(curves: Curves) -> str:
    """Writes a Markdown section: a row for each graph and method, the verdict and the budgets."""
    budgets = ", ".join(f"{graph} {budget}" for graph, budget in curves.budgets.items())
    parts = [
        "### How the learned methods learned",
        grids.markdown(_HEADER, _rows(curves)),
        verdict(curves),
        f"Equal evaluations: {budgets}.",
        _LEGEND,
    ]
    return "\n\n".join(parts)


def _learned(searches: Sequence[Sequence[Record]], budget: int, single_s: float) -> Learned:
    first_s, last_s = np.empty(len(searches)), np.empty(len(searches))
    for number, search in enumerate(searches):
        # The steps that updated the parameters; the budget may cut the last one short.
        updates = [record for record in search if "loss" in record] or search
        means_s = [units.or_nan(record["mean_s"]) for record in updates]
        first_s[number] = means_s[0]
        last_s[number] = np.mean(means_s[-max(1, int(0.1 * len(updates))) :])
    return Learned(
        seeds=len(searches),
        first_s=grids.estimate(first_s),
        last_s=grids.estimate(last_s),
        improvement=grids.estimate(1 - last_s / first_s),
        evaluations=float(np.mean([search[-1]["evaluations"] for search in searches])),
        best_s=grids.estimate([_best_s(search, budget, single_s) for search in searches]),
    )


def _best_s(search: Sequence[Record], budget: int, single_s: float) -> float:
    """Returns the search's best latency after so many evaluations."""
    affordable = [record for record in search if record["evaluations"] <= budget]
    return units.or_nan(affordable[-1]["best_s"]) if affordable else single_s


def _listed(names: Sequence[str]) -> str:
    *first_names, last_name = (f"`{name}`" for name in names)
    return f"{', '.join(first_names)} and {last_name}" if first_names else last_name


def _rows(curves: Curves) -> list[list[str]]:
    rows = []
    for graph, methods in curves.learned.items():
        estimates = [learned.best_s for learned in methods.values()]
        unit = units.latency_unit(estimate.mean for estimate in estimates)
        bests = _format_bests(estimates, curves.single_s[graph], unit)
        for (method, learned), best in zip(methods.items(), bests, strict=True):
            gain = learned.improvement
            improvement = "-" if math.isnan(gain.mean) else f"{gain.mean:.1%}"
            improvement += "" if math.isnan(gain.half_width) else f" ± {gain.half_width:.1%}"
            rows.append(
                [
                    *(f"{graph}, {unit.name}", method, str(learned.seeds)),
                    *(learned.first_s.write(unit), learned.last_s.write(unit), improvement),
                    *(f"{learned.evaluations:.0f}", best),
                ]
            )
    return rows


def _format_bests(
    estimates: Sequence[grids.Estimate], single_s: float, unit: units.Unit
) -> list[str]:
    """Formats ratios with their latencies in brackets; the lowest ones with intervals are bold."""
    values = [units.ratio(estimate.mean, single_s) for estimate in estimates]
    ratios = [f"{value:.3f}" if math.isfinite(value) else "-" for value in values]
    lowest = min((ratio for ratio in ratios if ratio != "-"), key=float, default="")
    marked = [
        grids.BOLD_MARKDOWN.format(ratio)
        if ratio == lowest and not math.isnan(estimate.half_width)
        else ratio
        for ratio, estimate in zip(ratios, estimates, strict=True)
    ]
    return [f"{r} ({e.write(unit)})" for r, e in zip(marked, estimates, strict=True)]
