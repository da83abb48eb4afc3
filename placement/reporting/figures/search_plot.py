"""The figure of searches: the best and the mean latency over the evaluations."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.reporting import summaries, units
from placement.reporting.figures import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def search(metrics: Sequence[Mapping[str, Any]], rows: Sequence[summaries.Row] = ()) -> "Figure":
    """Draws the best and the mean latency of searches on a graph over their evaluations.

    Args:
      metrics: records of `metrics.jsonl`: `method`, `seed`, `evaluations`, `best_s`, and optionally
        `mean_s`; each method has a colour, each seed a line. Null leaves a gap.
      rows: rows of the summary: the best single device and the proven bound of the searches'
        placements become lines. A search starts with the single devices, before its first record.

    Raises:
      NothingToDrawError: the metrics are empty, or matplotlib is not installed.
    """
    if not metrics:
        raise plots.NothingToDrawError("the search left no metrics to plot")
    searches: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for record in metrics:
        searches.setdefault((record["method"], record["seed"]), []).append(record)
    unit = units.latency_unit(record.get("best_s") for record in metrics)
    methods = dict.fromkeys(method for method, _ in searches)
    colours = dict(zip(methods, itertools.cycle(plots.COLOURS), strict=False))
    figure = plots.new_figure(7.5, 4.6)
    from matplotlib.ticker import LogLocator, NullFormatter

    axes = figure.subplots()
    singles = [row for row in rows if summaries.is_single(row) and summaries.predicted_s(row)]
    single = min(map(unit.convert, map(summaries.predicted_s, singles)), default=math.nan)
    styles: dict[str, Any] = {}
    for (method, _), records in searches.items():
        counts = [record["evaluations"] for record in records]
        best, mean = (
            [unit.convert(record.get(key)) for record in records] for key in ("best_s", "mean_s")
        )
        if counts[0] > len(singles) and best[0] <= single:
            counts, best, mean = [len(singles), *counts], [single, *best], [math.nan, *mean]
        line: Any = {"color": colours[method], "linewidth": 2.0}
        axes.step(counts, best, where="post", **line)
        styles[f"{method}: best"] = line
        if not np.isnan(mean).all():
            line = line | {"linewidth": 1.0, "alpha": 0.5}
            axes.plot(counts, mean, **line)
            styles[f"{method}: mean"] = line
    bounds = [unit.convert(row.get("bound_s")) for row in rows if row["method"] in colours]
    bound = min((value for value in bounds if value > 0), default=math.nan)
    grey = {"color": plots.GREY, "linestyle": "--", "linewidth": 1}
    for title, value, line in (
        ("best single device, predicted", single, grey),
        ("proven bound of predictions", bound, plots.BOUND),
    ):
        if not math.isnan(value):
            axes.axhline(value, **line, zorder=1)
            styles[f"{title}: {value:.{unit.decimals}f}"] = line
    axes.set_title("Search: latency of the placements tried", loc="left")
    axes.set_xlabel("placements evaluated")
    axes.set_ylabel(f"latency as the search evaluates it ({unit.name})")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(left=0)
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])
    values = values[values > 0]  # nan leaves a gap
    if values.size and values.max() > 10 * values.min():  # with several labelled ticks in a decade
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    plots.legend_below(figure, styles.items())
    axes.spines[["top", "right"]].set_visible(False)
    return figure
