"""The figures of a run: timeline, methods, search.

A figure is a pure function of a run's files; equal data give equal files. matplotlib is an optional
extra, imported only when a figure is drawn.

The colours are Okabe and Ito's, which colour-blind readers can distinguish
(https://jfly.uni-koeln.de/color/).
"""

import io
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placement import files
from placement.errors import UserError, import_extra
from placement.reporting import statistics, summaries, units
from placement.reporting.details import Details

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The suffixes of a figure's files, with the metadata that would differ from run to run.
SUFFIXES: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}}
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442")
_ALARM = "#d55e00"  # emphasises
_GREY, _PALE = "#767676", "#ececec"
_BOUND: Any = {"color": "black", "linestyle": ":", "linewidth": 1.5}
_MOST_POINTS = 500  # of a curve


class NothingToDrawError(UserError):
    """A figure cannot be drawn; the message says why, in one line."""


def save(figure: "Figure", directory: Path, name: str) -> str:
    """Writes NAME.png and NAME.svg; equal figures make equal files. Returns the SVG."""
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a dollar sign in a name starts no formula
    content = b""
    for suffix, metadata in SUFFIXES.items():
        image = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "placement", "svg.fonttype": "none"}):
            figure.savefig(image, dpi=150, format=suffix, metadata=metadata)
        figure.set_layout_engine("none")  # the first file's layout, which takes long, stays
        content = image.getvalue()
        files.write_bytes(directory / f"{name}.{suffix}", content)
    return content.decode()


def new_figure(width: float, height: float) -> "Figure":
    """Makes an empty figure, sizes in inches; a UserError without matplotlib."""
    # Without pyplot no state is global, no display is needed and no figure must be closed.
    module = import_extra("matplotlib.figure", "plots")
    return module.Figure(figsize=(width, height), layout="constrained")


def shortened(text: str, size: float, width: float) -> str:
    """Returns the text, or its beginning where a font of this size makes it too wide.

    A character is taken to be 0.62 times as wide as high, in points: a cautious mean.
    """
    most = int(width / (0.62 * size))
    return text if len(text) <= most else f"{text[: max(0, most - 1)]}…"


def legend_below(figure: "Figure", styles: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Draws the legend of lines and markers below the axes: a label and a style of each."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **style, label=label) for label, style in styles]
    figure.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False)


def timeline(details: Details) -> "Figure":
    """Draws the times at which each device works on one request.

    Each device has a row, with several lanes where its spans overlap; grey is idle. Predicted and
    measured are panels with the same time axis; where nothing was measured there is one panel, and
    the title says so.

    Raises:
      NothingToDrawError: the details have no schedule.
    """
    schedules = {"predicted": details.predicted}
    if details.measured is not None:
        schedules["measured"] = details.measured
    latest_s = max(schedule.latency_s for schedule in schedules.values())
    if latest_s == 0:
        raise NothingToDrawError("no schedule of the placement is known to draw")
    num_devices, unit = len(details.devices), units.latency_unit([latest_s])
    label_size, text_size, plot_width = 9.0, 7.0, 600.0  # points; the last is the time axis's
    # The width is that of A4 in landscape.
    figure = new_figure(11.69, (0.8 + 0.5 * num_devices) * len(schedules) + 0.6)
    from matplotlib.colors import to_rgb

    panels = figure.subplots(len(schedules), 1, sharex=True, squeeze=False)[:, 0]
    labels = [shortened(label, label_size, 190.0) for label in details.devices]
    for axes, (kind, schedule) in zip(panels, schedules.items(), strict=True):
        latency_s, busy_s = schedule.latency_s, schedule.busy_s(num_devices)
        lanes = schedule.lanes()
        axes.set_ylim(num_devices - 0.5, -0.5)
        axes.set_yticks(range(num_devices), labels, fontsize=label_size)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        for device in range(num_devices):
            # Mixed with white, under the names of operations.
            colour = 1 - 0.55 * (1 - np.array(to_rgb(_COLOURS[device % len(_COLOURS)])))
            axes.axhspan(device - 0.4, device + 0.4, facecolor=_PALE, zorder=0)
            busy, middle = f"{busy_s[device] / (latency_s or 1.0):.0%} busy", (1.01, device)
            place: Any = {"xycoords": ("axes fraction", "data"), "va": "center"}
            axes.annotate(busy, middle, fontsize=label_size, **place)
            pairs = zip(lanes, schedule.spans, strict=True)
            spans = [(lane, span) for lane, span in pairs if span.device == device]
            height = 0.8 / (1 + max((lane for lane, _ in spans), default=0))
            line: Any = {"edgecolor": "white", "linewidth": 0.6 if len(spans) < 200 else 0}
            # An SVG of more shapes is slow to show.
            line |= {"rasterized": len(spans) > 5_000, "zorder": 2}
            for number in sorted({lane for lane, _ in spans}):
                bars = [
                    (unit.per_s * span.start_s, unit.per_s * (span.finish_s - span.start_s))
                    for lane, span in spans
                    if lane == number
                ]
                bottom = device - 0.4 + height * number
                axes.broken_barh(bars, (bottom, height), facecolor=colour, **line)
            for lane, span in spans if height > 0.3 else ():
                width = plot_width * (span.finish_s - span.start_s) / latest_s
                name = details.span_name(span)
                if shortened(name, text_size, width) == name:
                    x = unit.per_s * (span.start_s + span.finish_s) / 2
                    y = device - 0.4 + height * (lane + 0.5)
                    style: Any = {"ha": "center", "va": "center", "zorder": 3}
                    axes.text(x, y, name, fontsize=text_size, **style)
        axes.set_title(schedule.heading(kind), loc="left", fontsize=10)
    panels[-1].set_xlim(0, 1.01 * latest_s * unit.per_s)
    panels[-1].set_xlabel(f"time since the request ({unit.name})")
    title = f"{details.graph.name}: one request, placed by {details.method}"
    title += "" if details.measured else "; nothing was measured"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    return figure


def methods(rows: Iterable[summaries.Row]) -> "Figure":
    """Draws latencies over that of the best single device, one panel for each graph.

    A point is a measured ratio, or a predicted one where nothing was measured, with its 95%
    interval: that of the measurement, or over the seeds (Student's t). Methods are sorted by the
    geometric mean over graphs; references are devices outside the placement. Ratios above two are
    arrows at the edge. The least bound is drawn where nothing was measured.

    Raises:
      NothingToDrawError: no row has a ratio.
    """
    graphs = summaries.group_by_graph(rows)
    groups = [summaries.group(graph, summaries.label) for graph in graphs]  # by method
    names = list(dict.fromkeys(name for group in groups for name in group))
    ratios = np.full((len(names), len(graphs), 3), math.nan)  # mean, and ends of the interval
    for line, column in np.ndindex(len(names), len(graphs)):
        seeds = groups[column].get(names[line], [])
        values = [units.or_nan(row["versus_best_single_device"]) for row in seeds]
        if len(seeds) == 1 and seeds[0]["versus_interval"]:
            ratios[line, column] = *values, *seeds[0]["versus_interval"]
        elif seeds:
            mean, half_width = statistics.estimate(values)
            ratios[line, column] = mean, mean - half_width, mean + half_width
    means = ratios[:, :, 0]
    if not np.isfinite(means).any():
        raise NothingToDrawError("no method has a ratio to the best single device to plot")
    # Methods without a number on every graph come last.
    ranks = np.where(np.isfinite(means).all(axis=1), np.log(means).mean(axis=1), np.inf)
    order = np.argsort(ranks, kind="stable")
    down = math.ceil(len(graphs) / 3)  # three panels side by side
    columns = math.ceil(len(graphs) / down)
    figure = new_figure(2.6 + 3.6 * columns, 0.8 + down * (0.8 + 0.21 * len(names)))
    panels = figure.subplots(down, columns, sharey=True, squeeze=False).ravel()
    panels[0].set_yticks(range(len(names)), [names[line] for line in order])
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    equal: Any = {"color": "black", "linewidth": 1.0, "zorder": 1}
    point: Any = {"linestyle": "none", "markeredgecolor": "white", "markersize": 7}
    keys: dict[str, Any] = {"best single device": equal}
    for column, (axes, graph) in enumerate(zip(panels, graphs, strict=False)):
        axes.set_title(graph[0].get("graph", ""), loc="left", fontsize=10)
        # The least bound over the best single device's prediction; nan without one.
        placements = summaries.split_references(graph)[0]
        singles = [summaries.predicted_s(row) for row in placements if summaries.is_single(row)]
        bounds = [units.number(row.get("bound_s")) for row in placements]
        bound = min(filter(None, bounds), default=math.nan)
        bound /= min(filter(None, singles), default=math.nan)
        if any(summaries.median_s(row) is not None for row in graph):
            bound = math.nan  # of predictions
        if not math.isnan(bound):
            keys["proven bound"] = _BOUND
        finite = means[np.isfinite(means[:, column]), column]
        left = np.nanmin([1.0, bound, *finite])
        right = min(2.0, max([1.0, *finite]))
        margin = 0.06 * (right - left) + 0.01
        axes.set_xlim(left - margin, right + margin)
        axes.axvline(1.0, **equal)
        axes.axvline(bound, **_BOUND, zorder=1)
        for place, line in enumerate(order):
            mean, low, high = ratios[line, column]
            group = groups[column].get(names[line], [])
            if not group:
                continue
            is_measured = all(summaries.median_s(row) is not None for row in group)
            is_plain = summaries.is_single(group[0]) or bool(group[0].get("reference"))
            key = "without placing" if is_plain else "placement"
            key += ", measured" if is_measured else ", predicted"
            marker = "o" if is_measured else "D"
            keys[key] = style = point | {"marker": marker, "color": _COLOURS[is_plain]}
            if mean > right:
                style = style | {"marker": ">"}
            elif not math.isnan(low):
                axes.plot([low, high], [place, place], color="black", linewidth=1, zorder=2)
            axes.plot(min(mean, right), place, **style, zorder=3)
            text = units.with_interval(mean, low, high, "{:.3f}".format)
            weight = "bold" if len(finite) and mean == finite.min() else "normal"
            where: Any = {"xycoords": ("axes fraction", "data"), "va": "center"}
            axes.annotate(text, (1.02, place), fontsize=8.0, weight=weight, **where)
        axes.grid(axis="y", color=_PALE)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0, labelsize=8.0)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(graphs) :]:
        axes.set_axis_off()
    title = "Latency over that of the best single device: less is better"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    legend_below(figure, keys.items())
    return figure


def search(metrics: Sequence[Mapping[str, Any]], rows: Sequence[summaries.Row] = ()) -> "Figure":
    """Draws learning curves: latencies of searches on a graph over their evaluations.

    Each method has a colour and up to three lines: the best placement so far, which may be a start;
    the best that the method drew itself; and the mean of the placements of each step. A line is the
    mean over the seeds, and a band reaches from the lowest seed to the highest.

    Args:
      metrics: records of `metrics.jsonl`: `method`, `seed`, `evaluations`, `best_s`, and optionally
        `step_best_s` and `mean_s`. Null leaves a gap.
      rows: rows of the summary: the best single device, the best method without records and the
        proven bound of the searches' placements become lines.

    Raises:
      NothingToDrawError: the metrics are empty.
    """
    if not metrics:
        raise NothingToDrawError("the search left no metrics to plot")
    searches: dict[str, dict[int, list[Mapping[str, Any]]]] = {}
    for record in metrics:
        searches.setdefault(record["method"], {}).setdefault(record["seed"], []).append(record)
    unit = units.latency_unit(record.get("best_s") for record in metrics)
    colours = dict(zip(searches, itertools.cycle(_COLOURS), strict=False))
    figure = new_figure(7.5, 4.6)
    from matplotlib.ticker import LogLocator, NullFormatter

    axes = figure.subplots()
    styles: dict[str, Any] = {}
    num_seeds = max(len(by_seed) for by_seed in searches.values())
    for method, by_seed in searches.items():
        counts = [np.array([r["evaluations"] for r in records]) for records in by_seed.values()]
        # Where all seeds have records; the last one at or before each point counts.
        points = np.unique(np.concatenate(counts))
        points = points[points >= max(c[0] for c in counts)]
        points = points[points <= max(points[0], min(c[-1] for c in counts))]
        points = points[np.unique(np.linspace(0, len(points) - 1, _MOST_POINTS).astype(int))]
        for key, label, style in (
            ("best_s", "best", {"linewidth": 2.0, "drawstyle": "steps-post"}),
            ("step_best_s", "own best", {"linewidth": 1.5, "linestyle": "--"}),
            ("mean_s", "mean", {"linewidth": 1.0, "alpha": 0.6}),
        ):
            curves = []
            for seed_counts, records in zip(counts, by_seed.values(), strict=True):
                values = np.array([unit.convert(record.get(key)) for record in records])
                if key == "step_best_s":
                    values = np.fmin.accumulate(values)
                curves.append(values[np.searchsorted(seed_counts, points, side="right") - 1])
            if np.isnan(curves).all():
                continue
            line: Any = {"color": colours[method], **style}
            axes.plot(points, np.mean(curves, axis=0), **line)
            if len(curves) > 1:
                ends = np.min(curves, axis=0), np.max(curves, axis=0)
                axes.fill_between(points, *ends, color=colours[method], alpha=0.15, linewidth=0)
            styles[f"{method}: {label}"] = line
    placements = [row for row in rows if summaries.predicted_s(row)]
    singles = [row for row in placements if summaries.is_single(row)]
    single = min(map(unit.convert, map(summaries.predicted_s, singles)), default=math.nan)
    others = [row for row in placements if row not in singles and row["method"] not in colours]
    fastest_other = sorted(others, key=lambda row: row["predicted_s"])[:1]
    bounds = [unit.convert(row.get("bound_s")) for row in rows if row["method"] in colours]
    bound = min((value for value in bounds if value > 0), default=math.nan)
    grey = {"color": _GREY, "linestyle": "--", "linewidth": 1}
    dotted = grey | {"linestyle": "-."}
    for title, value, line in (
        ("best single device, predicted", single, grey | {"color": _ALARM}),
        ("proven bound of predictions", bound, _BOUND),
        *((row["method"], unit.convert(row["predicted_s"]), dotted) for row in fastest_other),
    ):
        if not math.isnan(value):
            axes.axhline(value, **line, zorder=1)
            styles[f"{title}: {value:.{unit.decimals}f}"] = line
    seeds = f"; mean and range of {num_seeds} seeds" if num_seeds > 1 else ""
    axes.set_title(f"Search: latency of the placements tried{seeds}", loc="left")
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
    legend_below(figure, styles.items())
    axes.spines[["top", "right"]].set_visible(False)
    return figure
