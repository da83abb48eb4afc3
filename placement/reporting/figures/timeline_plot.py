"""The figure of a schedule: the times at which each device works on one request."""

from typing import TYPE_CHECKING, Any

import numpy as np

from placement.reporting import units
from placement.reporting.details import Details, Timeline
from placement.reporting.figures import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 11.69  # inches: A4 in landscape
_GAP = 0.3  # between devices, in lanes
_LABEL_SIZE, _LABEL_WIDTH = 9.0, 190.0  # of a device's label, in points
_TEXT_SIZE = 7.0  # of a span's name, in points
_LATENCY: Any = {"color": "black", "linewidth": 1.2, "linestyle": "--", "zorder": 4}
_PREDICTED: Any = {"color": plots.ALARM, "linewidth": 1.4, "linestyle": ":", "zorder": 4}


def timeline(details: Details) -> "Figure":
    """Draws the times at which each device works on one request.

    Each device has a row, with several lanes where its spans overlap; grey is idle. Predicted and
    measured are panels with the same time axis; where nothing was measured there is one panel, and
    the title says so.

    Raises:
      NothingToDrawError: the details have no schedule, or matplotlib is not installed.
    """
    schedules = {"predicted": details.predicted}
    if details.measured is not None:
        schedules["measured"] = details.measured
    latest_s = max(schedule.latency_s for schedule in schedules.values())
    if latest_s == 0:
        raise plots.NothingToDrawError("no schedule of the placement is known to draw")
    lanes = np.ones((len(schedules), len(details.devices)))  # an idle device has one
    for number, schedule in enumerate(schedules.values()):
        for span, lane in zip(schedule.spans, schedule.lanes(), strict=True):
            lanes[number, span.device] = max(lanes[number, span.device], lane + 1)
    lane_inches = float(np.clip(4.6 / lanes.sum(), 0.03, 0.36))
    rows = np.maximum(lanes, 0.2 / lane_inches)  # heights of the devices' rows, in lanes
    heights = (rows + _GAP).sum(axis=1)
    figure = plots.new_figure(_WIDTH, lane_inches * heights.sum() + 0.55 * (len(schedules) + 1))
    panels = figure.subplots(
        len(schedules), 1, sharex=True, squeeze=False, height_ratios=heights.tolist()
    )[:, 0]
    unit = units.latency_unit([latest_s])
    names = [plots.shortened(label, _LABEL_SIZE, _LABEL_WIDTH) for label in details.devices]
    tops = np.cumsum(rows + _GAP, axis=1) - rows  # upper ends of the devices' rows
    for number, (kind, schedule) in enumerate(schedules.items()):
        axes, latency_s = panels[number], schedule.latency_s
        busy_s = schedule.busy_s(len(details.devices))
        axes.set_ylim(heights[number], 0)
        axes.set_yticks(tops[number] + rows[number] / 2, names, fontsize=_LABEL_SIZE)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        for top, height, busy in zip(tops[number], rows[number], busy_s, strict=True):
            axes.axhspan(top, top + height, facecolor=plots.PALE, zorder=0)
            axes.annotate(
                f"{busy / (latency_s or 1.0):.0%} busy",
                (1.01, top + height / 2),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=_LABEL_SIZE,
            )
        axes.axvline(latency_s * unit.per_s, **_LATENCY)
        if kind == "measured":
            axes.axvline(details.predicted.latency_s * unit.per_s, **_PREDICTED)
        title = f"{schedule.heading(kind)}; latency {units.duration(latency_s)}"
        axes.set_title(title, loc="left", fontsize=10)
    panels[-1].set_xlim(0, 1.01 * latest_s * unit.per_s)
    panels[-1].set_xlabel(f"time since the request ({unit.name})")
    title = f"{details.graph.name}: one request, placed by {details.method}"
    title += "" if details.measured else "; nothing was measured"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    keys = [plots.line_key("latency", _LATENCY), plots.line_key("predicted", _PREDICTED)]
    plots.legend_below(figure, keys[: len(schedules)])
    plots.take_literally(figure)
    figure.draw_without_rendering()  # fixes the widths, which decide where names fit
    for number, schedule in enumerate(schedules.values()):
        _draw_spans(panels[number], schedule, details, unit, tops[number])
    return figure


def _draw_spans(
    axes: Any, schedule: Timeline, details: Details, unit: units.Unit, tops: np.ndarray
) -> None:
    """Draws bars, with their names, or the type of their only operation, where these fit."""
    from matplotlib.collections import PolyCollection

    size = axes.get_position().size * axes.figure.get_size_inches() * 72  # points
    per_s, lane_height = size[0] / axes.get_xlim()[1] * unit.per_s, size[1] / axes.get_ylim()[0]
    bars: dict[int, list[np.ndarray]] = {}  # by device
    for span, lane in zip(schedule.spans, schedule.lanes(), strict=True):
        left, right = span.start_s * unit.per_s, span.finish_s * unit.per_s
        top = tops[span.device] + lane
        corners = np.array([(left, top), (right, top), (right, top + 1), (left, top + 1)])
        bars.setdefault(span.device, []).append(corners)
        if lane_height <= _TEXT_SIZE:
            continue
        width = (span.finish_s - span.start_s) * per_s
        texts = [details.span_name(span)]
        texts += [details.coarse.op_types[op] for op in span.ops if len(span.ops) == 1]
        fitting = (t for t in texts if plots.text_width(t, _TEXT_SIZE) <= width - 3)
        if text := next(fitting, ""):
            style: Any = {"fontsize": _TEXT_SIZE, "ha": "center", "va": "center", "zorder": 3}
            axes.text((left + right) / 2, top + 0.5, text, **style)
    for device, polygons in bars.items():
        tint = plots.mixed(plots.device_style(device)["facecolor"], 0.55)
        line: Any = {"edgecolor": "white", "linewidth": 0.6 if len(polygons) < 200 else 0}
        drawn = PolyCollection(polygons, facecolor=tint, zorder=2, **line)
        drawn.set_rasterized(len(polygons) > 5_000)  # an SVG of more shapes is slow to show
        axes.add_collection(drawn)
