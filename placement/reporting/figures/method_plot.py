"""The figure of all methods: their latencies over that of the best single device."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.reporting import statistics, summaries, units
from placement.reporting.figures import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EQUAL: Any = {"color": "black", "linewidth": 1.0, "zorder": 1}
_POINT: Any = {"linestyle": "none", "markeredgecolor": "white", "markersize": 7}
_KINDS: dict[str, Any] = {
    "measured": _POINT | {"marker": "o", "color": plots.COLOURS[0]},
    "predicted": _POINT | {"marker": "D", "color": plots.COLOURS[1]},
}
_SMALL = 8.0  # points


def methods(rows: Iterable[summaries.Row]) -> "Figure":
    """Draws latencies over that of the best single device, one panel for each graph.

    A point is a measured ratio, or a predicted one where nothing was measured, with its 95%
    interval: that of the measurement, or over the seeds (Student's t). Methods are sorted by the
    geometric mean over graphs; references are devices outside the placement. Ratios above two are
    arrows at the edge.

    Raises:
      NothingToDrawError: no row has a ratio, or matplotlib is not installed.
    """
    graphs = summaries.group_by_graph(rows)
    groups = [summaries.group(graph, summaries.label) for graph in graphs]  # by method
    names = list(dict.fromkeys(name for methods_of_graph in groups for name in methods_of_graph))
    means = np.array([[_ratio(group.get(name, []))[0] for group in groups] for name in names])
    if not np.isfinite(means).any():
        raise plots.NothingToDrawError("no method has a ratio to the best single device to plot")
    # By the geometric mean over graphs; methods without a number on every graph come last.
    ranks = np.where(np.isfinite(means).all(axis=1), np.log(means).mean(axis=1), np.inf)
    names = [names[i] for i in np.argsort(ranks, kind="stable")]
    down = math.ceil(len(graphs) / 3)  # three panels side by side
    columns = math.ceil(len(graphs) / down)
    figure = plots.new_figure(2.6 + 3.6 * columns, 0.8 + down * (0.8 + 0.21 * len(names)))
    panels = figure.subplots(down, columns, sharey=True, squeeze=False).ravel()
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    for axes, graph, group in zip(panels, graphs, groups, strict=False):
        axes.set_title(graph[0].get("graph", ""), loc="left", fontsize=10)
        _draw_panel(axes, [group.get(name, []) for name in names], _bound(graph))
    for axes in panels[len(graphs) :]:
        axes.set_axis_off()
    title = "Latency over that of the best single device: less is better"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    keys = [("best single device", _EQUAL), *_KINDS.items()]
    plots.legend_below(figure, [*keys, ("proven bound (predicted)", plots.BOUND)])
    return figure


def _draw_panel(axes: Any, groups: Sequence[Sequence[summaries.Row]], bound: float) -> None:
    """Draws the ratios of one graph, with the numbers to the right."""
    ratios = [_ratio(group) for group in groups]
    means = [mean for mean, _, _ in ratios if math.isfinite(mean)]
    left = np.nanmin([1.0, bound, *means])
    right = min(2.0, max([1.0, *means]))
    margin = 0.06 * (right - left) + 0.01
    axes.set_xlim(left - margin, right + margin)
    axes.axvline(1.0, **_EQUAL)
    axes.axvline(bound, **plots.BOUND, zorder=1)
    for place, (group, (mean, low, high)) in enumerate(zip(groups, ratios, strict=True)):
        is_measured = all(summaries.median_s(row) is not None for row in group)
        style = _KINDS["measured" if is_measured else "predicted"]
        text = units.with_interval(mean, low, high, "{:.3f}".format)
        if mean > right:
            style = style | {"marker": ">"}
        elif not math.isnan(low):
            axes.plot([low, high], [place, place], color="black", linewidth=1, zorder=2)
        axes.plot(min(mean, right), place, **style, zorder=3)
        weight = "bold" if mean == min(means, default=math.nan) else "normal"
        where: Any = {"xycoords": ("axes fraction", "data"), "va": "center"}
        axes.annotate(text, (1.02, place), fontsize=_SMALL, weight=weight, **where)
    axes.grid(axis="y", color=plots.PALE)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelsize=_SMALL)
    axes.spines[["top", "right"]].set_visible(False)


def _ratio(rows: Sequence[summaries.Row]) -> tuple[float, float, float]:
    """Returns the mean over a method's seeds on one graph, and its 95% interval, nan if unknown."""
    if len(rows) == 1 and rows[0]["versus_interval"]:
        return rows[0]["versus_best_single_device"], *rows[0]["versus_interval"]
    ratios = [units.or_nan(row["versus_best_single_device"]) for row in rows] or [math.nan]
    mean, half_width = statistics.estimate(ratios)
    return mean, mean - half_width, mean + half_width


def _bound(rows: Sequence[summaries.Row]) -> float:
    """Returns the least bound over the best single device's prediction; nan without one."""
    placements = summaries.split_references(rows)[0]
    single = [units.number(row["predicted_s"]) for row in placements if summaries.is_single(row)]
    bounds = [units.number(row.get("bound_s")) for row in placements]
    return min(filter(None, bounds), default=math.nan) / min(filter(None, single), default=math.nan)
