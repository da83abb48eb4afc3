"""The figure of all methods: their latencies over that of the best single device."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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


class _Ratio(NamedTuple):
    """A method's latency over that of the best single device of a graph, and the 95% interval."""

    mean: float
    low: float
    high: float
    kind: str  # a key of `_KINDS`


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
    ratios = [_ratios(graph) for graph in graphs]  # by method
    names = list(dict.fromkeys(itertools.chain.from_iterable(ratios)))
    nothing = _Ratio(math.nan, math.nan, math.nan, "predicted")
    means = np.array([[graph.get(name, nothing).mean for graph in ratios] for name in names])
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
    for axes, graph, graph_ratios in zip(panels, graphs, ratios, strict=False):
        axes.set_title(graph[0].get("graph", ""), loc="left", fontsize=10)
        _draw_panel(axes, [graph_ratios.get(name, nothing) for name in names], _bound(graph))
    for axes in panels[len(graphs) :]:
        axes.set_axis_off()
    title = "Latency over that of the best single device: less is better"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    keys = [plots.line_key("best single device", _EQUAL)]
    kinds = {ratio.kind for graph in ratios for ratio in graph.values()}
    keys += [plots.line_key(kind, _KINDS[kind]) for kind in _KINDS if kind in kinds]
    plots.legend_below(figure, [*keys, plots.line_key("proven bound (predicted)", plots.BOUND)])
    return figure


def _draw_panel(axes: Any, ratios: Sequence[_Ratio], bound: float) -> None:
    """Draws the ratios of one graph, with the numbers to the right."""
    means = np.array([ratio.mean for ratio in ratios])
    low = np.nanmin([means.min(initial=1.0, where=np.isfinite(means)), bound])
    high = min(2.0, max(1.0, means.max(initial=1.0, where=np.isfinite(means))))
    margin = 0.06 * (high - low) + 0.01
    axes.set_xlim(low - margin, high + margin)
    axes.axvline(1.0, **_EQUAL)
    axes.axvline(bound, **plots.BOUND, zorder=1)
    best = np.nanmin(np.append(means, np.inf))
    for place, ratio in enumerate(ratios):
        style = _KINDS[ratio.kind] | ({"marker": ">"} if ratio.mean > high else {})
        if ratio.mean <= high and not math.isnan(ratio.low):
            axes.plot([ratio.low, ratio.high], [place, place], color="black", linewidth=1, zorder=2)
        axes.plot(min(ratio.mean, high), place, **style, zorder=3)
        text = f"{ratio.mean:.3f}" if math.isfinite(ratio.mean) else units.NONE
        text += "" if math.isnan(ratio.low) else f" [{ratio.low:.3f}, {ratio.high:.3f}]"
        axes.annotate(
            text,
            (1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=_SMALL,
            weight="bold" if ratio.mean == best else "normal",
            annotation_clip=False,
        )
    axes.grid(axis="y", color=plots.PALE)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, labelsize=_SMALL)
    axes.spines[["top", "right"]].set_visible(False)


def _ratios(rows: Sequence[summaries.Row]) -> dict[str, _Ratio]:
    """Estimates the ratios of one graph, by method."""
    seeds: dict[str, list[summaries.Row]] = {}
    for row in rows:
        seeds.setdefault(summaries.label(row), []).append(row)
    ratios = {}
    for method, group in seeds.items():
        values = [units.or_nan(row["versus_best_single_device"]) for row in group]
        mean, half_width = statistics.estimate(values)
        low, high = mean - half_width, mean + half_width
        if len(group) == 1 and group[0].get("versus_interval"):
            low, high = map(units.or_nan, group[0]["versus_interval"])
        is_measured = all(summaries.median_s(row) is not None for row in group)
        ratios[method] = _Ratio(mean, low, high, "measured" if is_measured else "predicted")
    return ratios


def _bound(rows: Sequence[summaries.Row]) -> float:
    """Returns the least bound over the best single device's prediction; nan without one."""
    placements = summaries.split_references(rows)[0]
    single = [units.number(row["predicted_s"]) for row in placements if summaries.is_single(row)]
    bounds = [units.number(row.get("bound_s")) for row in placements]
    return min(filter(None, bounds), default=math.nan) / min(filter(None, single), default=math.nan)
