"""Scatter plots: predicted against measured latency, and methods against the best single device."""

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from placement.reporting import summaries, units
from placement.reporting.figures import labels, plots
from placement.reporting.tables import grids

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EQUAL: Any = {"color": "black", "linewidth": 1.0, "zorder": 1}
_NEAR = 0.1  # half the relative width of the band around equality
_MARGIN = 1.08  # factor beyond the outermost points
_MARKED: Any = {"linestyle": "none", "markeredgecolor": "white", "markersize": 7}
_SMALL = 8.0  # points
_KINDS: dict[str, dict[str, Any]] = {
    "learned": {"marker": "o", "color": plots.COLOURS[0]},
    "other": {"marker": "s", "color": plots.COLOURS[1]},
}


class Pair(NamedTuple):
    """A placement with a predicted and a measured latency."""

    kind: str
    predicted_s: float
    measured_s: float


_NONE = grids.Estimate(math.nan, math.nan)


def pairs(rows: Iterable[summaries.Row]) -> list[Pair]:
    """Lists the placements with both latencies; each row's method is a kind."""
    latencies = [
        (row["method"], units.number(row["predicted_s"]), summaries.median_s(row))
        for row in summaries.split_references(rows)[0]
    ]
    return [Pair(kind, p, m) for kind, p, m in latencies if p is not None and m is not None]


def errors(samples: Sequence[Pair], name: str) -> "Figure":
    """Draws predicted against measured latencies, with the errors in the title.

    An error is |predicted / measured - 1|. The line marks equality, the band errors up to a tenth.
    Axes are logarithmic where latencies span more than a factor of ten. Samples that are not finite
    are left out.

    Raises:
      NothingToDrawError: fewer than two samples are left, or matplotlib is not installed.
    """
    finite = [s for s in samples if 0 < s.predicted_s < math.inf and 0 < s.measured_s < math.inf]
    if len(finite) < 2:
        raise plots.NothingToDrawError("fewer than two placements were both predicted and measured")
    unit = units.latency_unit(sample.measured_s for sample in finite)
    seconds = np.array([(sample.measured_s, sample.predicted_s) for sample in finite])
    ends = np.array([seconds.min() / _MARGIN, seconds.max() * _MARGIN]) * unit.per_s
    figure = plots.new_figure(6.4, 6.4)
    axes = figure.subplots()
    axes.fill_between(ends, ends * (1 - _NEAR), ends * (1 + _NEAR), color=plots.PALE, zorder=0)
    axes.plot(ends, ends, **_EQUAL)
    kinds = list(dict.fromkeys(sample.kind for sample in finite))
    for number, kind in enumerate(kinds):
        is_kind = [sample.kind == kind for sample in finite]
        style = {"marker": plots.MARKERS[number % len(plots.MARKERS)]} | _MARKED
        colour = plots.COLOURS[number % len(plots.COLOURS)]
        axes.plot(*(seconds[is_kind] * unit.per_s).T, color=colour, label=kind, **style)
    for axis_name in ("x", "y"):
        plots.scale_axis(axes, axis_name, seconds.ravel())
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    axes.set_xlabel(f"measured latency ({unit.name}); band: ±{_NEAR:.0%}")
    axes.set_ylabel(f"predicted latency ({unit.name})")
    figure.suptitle(f"{name}\n{_judged(seconds)}", x=0.01, ha="left", fontsize="medium")
    labels.legend_below(figure, axes.get_legend_handles_labels()[0])
    return figure


def _judged(seconds: np.ndarray) -> str:
    """Returns a line with the prediction errors and the rank correlation."""
    from scipy import stats  # takes a second to import

    measured_s, predicted_s = seconds.T
    error = np.abs(predicted_s / measured_s - 1)
    text = f"{len(seconds)} placements, error: median {np.median(error):.1%}"
    text += f", 90th percentile {np.quantile(error, 0.9):.1%}"
    if np.ptp(measured_s) == 0 or np.ptp(predicted_s) == 0:
        return text  # constant values have no rank correlation
    return f"{text}; Spearman {stats.spearmanr(predicted_s, measured_s)[0]:.3f}"


def ratios(rows: Sequence[summaries.Row], learned: Collection[str]) -> "Figure":
    """Draws latencies over that of the best single device, one panel for each graph.

    A point is the mean over the seeds, with its 95% interval (Student's t); methods are sorted by
    the geometric mean over graphs. Ratios above two are arrows at the edge. Reference rows are left
    out.

    Raises:
      NothingToDrawError: no row has a ratio, or matplotlib is not installed.
    """
    estimates = _ratios(rows)  # by graph and method
    methods = list(dict.fromkeys(itertools.chain.from_iterable(estimates.values())))
    means = np.array([[e.get(m, _NONE).mean for e in estimates.values()] for m in methods])
    if not np.isfinite(means).any():
        raise plots.NothingToDrawError("no method has a ratio to the best single device to plot")
    # By the geometric mean over graphs; methods without a number on every graph come last.
    ranks = np.where(np.isfinite(means).all(axis=1), np.log(means).mean(axis=1), np.inf)
    methods = [methods[i] for i in np.argsort(ranks, kind="stable")]
    down = math.ceil(len(estimates) / 3)  # three panels side by side
    columns = math.ceil(len(estimates) / down)
    figure = plots.new_figure(2.2 + 3.2 * columns, 0.8 + down * (0.7 + 0.21 * len(methods)))
    panels = figure.subplots(down, columns, sharey=True, squeeze=False).ravel()
    panels[0].set_yticks(range(len(methods)), methods)
    panels[0].set_ylim(len(methods) - 0.4, -0.6)
    for axes, (graph, estimates_by_method) in zip(panels, estimates.items(), strict=False):
        axes.set_title(graph, loc="left", fontsize=10)
        drawn_ratios = [estimates_by_method.get(method, _NONE) for method in methods]
        bound = _bound([row for row in rows if row["graph"] == graph])
        _draw_ratios(axes, drawn_ratios, bound, [method in learned for method in methods])
    for axes in panels[len(estimates) :]:
        axes.set_axis_off()
    title = "Latency over that of the best single device: less is better"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    keys = [plots.line_key("best single device", _EQUAL)]
    keys += [plots.line_key(kind, _KINDS[kind] | _MARKED) for kind in _KINDS]
    labels.legend_below(figure, [*keys, plots.line_key("proven bound (predicted)", plots.BOUND)])
    return figure


def _draw_ratios(
    axes: Any, drawn_ratios: Sequence[grids.Estimate], bound: float, is_learned: Sequence[bool]
) -> None:
    """Draws a panel, with the numbers to its right."""
    means = np.array([ratio.mean for ratio in drawn_ratios])
    low = np.nanmin([means.min(initial=1.0, where=np.isfinite(means)), bound])
    high = min(2.0, max(1.0, means.max(initial=1.0, where=np.isfinite(means))))
    margin = 0.06 * (high - low) + 0.01
    axes.set_xlim(low - margin, high + margin)
    axes.axvline(1.0, **_EQUAL)
    axes.axvline(bound, **plots.BOUND, zorder=1)
    best = np.nanmin(np.append(means, np.inf))
    for place, (ratio, learned) in enumerate(zip(drawn_ratios, is_learned, strict=True)):
        style = _KINDS["learned" if learned else "other"] | _MARKED
        if ratio.mean > high:
            style |= {"marker": ">"}
        shown = min(ratio.mean, high) if math.isfinite(ratio.mean) else math.nan
        axes.plot(shown, place, **style, zorder=3)
        if ratio.half_width > 0 and shown == ratio.mean:
            axes.errorbar(shown, place, xerr=ratio.half_width, color="black", capsize=2, zorder=2)
        weight = "bold" if ratio.mean == best else "normal"
        position = {"xycoords": ("axes fraction", "data"), "annotation_clip": False}
        text = f"{ratio.mean:.3f}" if math.isfinite(ratio.mean) else "-"
        text += f" ± {ratio.half_width:.3f}" if ratio.half_width > 0 else ""
        axes.annotate(text, (1.02, place), va="center", fontsize=_SMALL, weight=weight, **position)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=plots.PALE)
    axes.tick_params(axis="y", length=0, labelsize=_SMALL)
    axes.spines[["top", "right"]].set_visible(False)


def _ratios(rows: Sequence[summaries.Row]) -> dict[str, dict[str, grids.Estimate]]:
    """Estimates ratios by graph and method, without the single devices."""
    seeds: dict[str, dict[str, list[float]]] = {}
    for row in summaries.split_references(rows)[0]:
        estimates_by_method = seeds.setdefault(row["graph"], {})
        if not summaries.is_single(row):
            ratio = units.or_nan(row["versus_best_single_device"])
            estimates_by_method.setdefault(row["method"], []).append(ratio)
    return {
        graph: {method: grids.estimate(values) for method, values in estimates_by_method.items()}
        for graph, estimates_by_method in seeds.items()
    }


def _bound(rows: Sequence[summaries.Row]) -> float:
    """Returns the least bound over the best single device's prediction; nan without one."""
    placements = summaries.split_references(rows)[0]
    single = [units.number(row["predicted_s"]) for row in placements if summaries.is_single(row)]
    bounds = [units.number(row.get("bound_s")) for row in placements]
    return min(filter(None, bounds), default=math.nan) / min(filter(None, single), default=math.nan)
