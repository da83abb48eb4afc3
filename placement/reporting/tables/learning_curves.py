"""Progress of learned methods: latencies at the start and at the end of training, and their cost.

Searches that stop at different times cannot be compared by their final results. So they are
compared by the fastest placement that each had found after equal numbers of evaluations: those of
the search on the graph that ended with the fewest.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.reporting import statistics, units
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
    first_s: statistics.Estimate  # mean latency of the first update's samples
    last_s: statistics.Estimate  # mean latency of the last updates' samples
    improvement: statistics.Estimate  # 1 - last / first, paired by seed
    evaluations: float  # mean number of evaluations
    best_s: statistics.Estimate  # fastest placement known, at `Curves.budgets`


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


def markdown(curves: Curves) -> str:
    """Writes a Markdown section: a row for each graph and method, and the budgets."""
    table = grids.Grid(_HEADER, (False, False, *[True] * 6))
    for graph, methods in curves.learned.items():
        estimates = [learned.best_s for learned in methods.values()]
        unit = units.latency_unit(estimate.mean for estimate in estimates)
        values = [units.ratio(estimate.mean, curves.single_s[graph]) for estimate in estimates]
        ratios = [f"{value:.3f}" if math.isfinite(value) else units.NONE for value in values]
        lowest = min((ratio for ratio in ratios if ratio != units.NONE), key=float, default="")
        for (method, learned), ratio in zip(methods.items(), ratios, strict=True):
            gain = learned.improvement
            improvement = units.NONE if math.isnan(gain.mean) else f"{gain.mean:.1%}"
            improvement += "" if math.isnan(gain.half_width) else f" ± {gain.half_width:.1%}"
            # Few seeds do not show which method is best.
            is_best = ratio == lowest and not math.isnan(learned.best_s.half_width)
            best = grids.bold(ratio) if is_best else ratio
            table.add_row(
                *(f"{graph}, {unit.name}", method, str(learned.seeds)),
                *(learned.first_s.write(unit), learned.last_s.write(unit), improvement),
                *(f"{learned.evaluations:.0f}", f"{best} ({learned.best_s.write(unit)})"),
            )
    budgets = ", ".join(f"{graph} {budget}" for graph, budget in curves.budgets.items())
    title = "### How the learned methods learned"
    return "\n\n".join([title, table.markdown(), f"Equal evaluations: {budgets}.", _LEGEND])


def _learned(searches: Sequence[Sequence[Record]], budget: int, single_s: float) -> Learned:
    first_s, last_s, best_s = np.empty((3, len(searches)))
    for number, search in enumerate(searches):
        # The steps that updated the parameters; the budget may cut the last one short.
        updates = [record for record in search if "loss" in record] or search
        means_s = [units.or_nan(record["mean_s"]) for record in updates]
        first_s[number] = means_s[0]
        last_s[number] = np.mean(means_s[-max(1, int(0.1 * len(updates))) :])
        affordable = [record for record in search if record["evaluations"] <= budget]
        best_s[number] = units.or_nan(affordable[-1]["best_s"]) if affordable else single_s
    return Learned(
        seeds=len(searches),
        first_s=statistics.estimate(first_s),
        last_s=statistics.estimate(last_s),
        improvement=statistics.estimate(1 - last_s / first_s),
        evaluations=float(np.mean([search[-1]["evaluations"] for search in searches])),
        best_s=statistics.estimate(best_s),
    )
