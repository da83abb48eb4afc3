"""The figure of searches: the best and the mean latency over the evaluations."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.reporting import summaries, units
from placement.reporting.figures import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def search(metrics: Sequence[Mapping[str, Any]], rows: Sequence[summaries.Row] = ()) -> "Figure":
    """Draws the best and the mean latency of searches over their evaluations.

    Args:
      metrics: records of `metrics.jsonl`: `evaluations`, `best_s`, and optionally `mean_s`,
        `method` and `seed`; each method has a colour, each seed a line. Null leaves a gap.
      rows: rows of the summary: single devices and the proven bound of the searches' placements
        become lines. A search starts with the single devices, before its first record.

    Raises:
      NothingToDrawError: the metrics are empty, or matplotlib is not installed.
    """
    if not metrics:
        raise plots.NothingToDrawError("the search left no metrics to plot")
    searches: dict[tuple[str, Any], list[Mapping[str, Any]]] = {}
    for record in metrics:
        key = (str(record.get("method", "search")), record.get("seed"))
        searches.setdefault(key, []).append(record)
    unit = units.latency_unit(record.get("best_s") for record in metrics)
    methods = list(dict.fromkeys(method for method, _ in searches))
    figure = plots.new_figure(7.5, 4.6)
    from matplotlib.ticker import LogLocator, NullFormatter

    axes = figure.subplots()
    singles = {  # the predicted latencies of the single devices, by name
        row["method"].removeprefix("single:"): value
        for row in rows
        if summaries.is_single(row) and (value := unit.convert(row["predicted_s"])) > 0
    }
    start = min(singles.values(), default=math.nan)
    for (method, _), records in searches.items():
        colour = plots.COLOURS[methods.index(method) % len(plots.COLOURS)]
        counts = [record["evaluations"] for record in records]
        best, mean = (
            [unit.convert(record.get(key)) for record in records] for key in ("best_s", "mean_s")
        )
        if counts[0] > len(singles) and best[0] <= start:
            counts, best, mean = [len(singles), *counts], [start, *best], [math.nan, *mean]
        axes.step(counts, best, color=colour, linewidth=2.0, where="post", label=f"{method}: best")
        if not np.isnan(mean).all():
            axes.plot(counts, mean, color=colour, linewidth=1, alpha=0.5, label=f"{method}: mean")
    for number, (name, value) in enumerate(singles.items()):
        dashes = (number, (4 + 2 * number, 2))
        label = f"{name} alone, predicted: {value:.{unit.decimals}f}"
        axes.axhline(value, color=plots.GREY, linestyle=dashes, linewidth=1, zorder=1, label=label)
    bounds = [unit.convert(row.get("bound_s")) for row in rows if row["method"] in methods]
    bound = min((value for value in bounds if value > 0), default=math.nan)
    if not math.isnan(bound):
        label = f"proven bound of predictions: {bound:.{unit.decimals}f}"
        axes.axhline(bound, **plots.BOUND, zorder=1, label=label)
    axes.set_title("Search: latency of the placements tried", loc="left")
    axes.set_xlabel("placements evaluated")
    axes.set_ylabel(f"latency as the search evaluates it ({unit.name})")
    axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    axes.set_xlim(left=0)
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])
    values = values[values > 0]  # nan leaves a gap
    if values.size and values.max() > 10 * values.min():  # with several labelled ticks in a decade
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    handles, texts = axes.get_legend_handles_labels()
    plots.legend_below(figure, list(dict(zip(texts, handles, strict=True)).values()))
    axes.spines[["top", "right"]].set_visible(False)
    return figure
