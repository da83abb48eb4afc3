"""Figures of the devices: the spans of a schedule; the time for one request and the memory."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from placement.reporting import units
from placement.reporting.details import Details, Timeline
from placement.reporting.figures import labels, plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 11.69  # inches: A4 in landscape
_GAP = 0.3  # between devices, in lanes
_LABEL_SIZE, _LABEL_WIDTH = 9.0, 190.0  # of a device's label, in points
_TEXT_SIZE = 7.0  # of a span's name, in points
_LATENCY: Any = {"color": "black", "linewidth": 1.2, "linestyle": "--", "zorder": 4}
_PREDICTED: Any = {"color": plots.ALARM, "linewidth": 1.4, "linestyle": ":", "zorder": 4}
_KINDS = ("predicted", "measured")
_BAR_HEIGHT = 0.55
_TRANSFER: Any = {"facecolor": "white", "edgecolor": plots.GREY, "hatch": "////"}
_CAPACITY: Any = {"color": plots.ALARM, "linewidth": 2.5}


class _Panel(NamedTuple):
    """A drawn schedule, lane under lane; heights are in lanes."""

    kind: str  # one of `_KINDS`
    schedule: Timeline
    heights: np.ndarray  # float64 [D]: the lanes of each device, or the height of its label

    @property
    def tops(self) -> np.ndarray:
        """Upper ends of the devices' rows, float64 [D]."""
        return np.cumsum(self.heights + _GAP) - self.heights

    @property
    def height(self) -> float:
        return float(self.tops[-1] + self.heights[-1] + _GAP)


def timeline(details: Details) -> "Figure":
    """Draws the times at which each device works on one request.

    Each device has a row, with several lanes where its spans overlap.

    Grey is idle. Predicted and measured are panels with the same time axis; where nothing was
    measured there is one panel, whose title says so.

    Raises:
      NothingToDrawError: the details have no schedule, or matplotlib is not installed.
    """
    schedules = [details.predicted, *filter(None, [details.measured])]
    latest_s = max(schedule.latency_s for schedule in schedules)
    if latest_s == 0:
        raise plots.NothingToDrawError("no schedule of the placement is known to draw")
    counts = [_lanes(schedule, len(details.devices)) for schedule in schedules]
    lane = np.clip(4.6 / sum(map(sum, counts)), 0.03, 0.36)  # inches
    drawn_panels = [
        _Panel(kind, schedule, np.maximum(lanes, 0.2 / lane))
        for kind, schedule, lanes in zip(_KINDS, schedules, counts, strict=False)
    ]
    heights = [panel.height for panel in drawn_panels]
    figure = plots.new_figure(_WIDTH, lane * sum(heights) + 0.55 * (len(drawn_panels) + 1))
    panels = figure.subplots(
        len(drawn_panels), 1, sharex=True, squeeze=False, height_ratios=heights
    )
    unit = units.latency_unit([latest_s])
    for axes, panel in zip(panels[:, 0], drawn_panels, strict=True):
        _draw_panel(axes, panel, details, unit)
    axes.set_xlim(0, 1.01 * latest_s * unit.per_s)
    axes.set_xlabel(f"time since the request ({unit.name})")
    title = f"{details.graph.name}: one request, placed by {details.method}"
    title += "" if details.measured else "; nothing was measured"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    keys = [plots.line_key("latency", _LATENCY), plots.line_key("predicted", _PREDICTED)]
    labels.legend_below(figure, keys[: len(drawn_panels)])
    plots.arrange(figure)  # fixes the widths
    for axes, panel in zip(panels[:, 0], drawn_panels, strict=True):
        _draw_spans(axes, panel, details, unit)
    return figure


def _lanes(schedule: Timeline, num_devices: int) -> list[int]:
    """Counts the lanes that each device needs; an idle device has one."""
    lanes = [1] * num_devices
    for span, lane in zip(schedule.spans, schedule.lanes(), strict=True):
        lanes[span.device] = max(lanes[span.device], lane + 1)
    return lanes


def _draw_panel(axes: Any, panel: _Panel, details: Details, unit: units.Unit) -> None:
    """Draws a panel without its spans: labels, idle background, busy shares and latency lines."""
    latency_s = panel.schedule.latency_s
    busy_s = panel.schedule.busy_s(len(details.devices))
    busy = busy_s / latency_s if latency_s > 0 else busy_s  # all spans are empty
    axes.set_ylim(panel.height, 0)
    names = [labels.shortened(label, _LABEL_SIZE, _LABEL_WIDTH) for label in details.devices]
    axes.set_yticks(panel.tops + panel.heights / 2, names, fontsize=_LABEL_SIZE)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    for top, height, share in zip(panel.tops, panel.heights, busy, strict=True):
        axes.axhspan(top, top + height, facecolor=plots.PALE, zorder=0)
        axes.annotate(
            f"{share:.0%} busy",
            (1.01, top + height / 2),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=_LABEL_SIZE,
        )
    axes.axvline(latency_s * unit.per_s, **_LATENCY)
    if panel.schedule is details.measured:
        axes.axvline(details.predicted.latency_s * unit.per_s, **_PREDICTED)
    heading = panel.schedule.heading(panel.kind)
    axes.set_title(f"{heading}; latency {units.duration(latency_s)}", loc="left", fontsize=10)


def _draw_spans(axes: Any, panel: _Panel, details: Details, unit: units.Unit) -> None:
    """Draws bars, with their names, or the type of their only operation, where these fit."""
    from matplotlib.collections import PolyCollection

    size = axes.get_position().size * axes.figure.get_size_inches() * 72  # points
    per_s, tall = size[0] / axes.get_xlim()[1] * unit.per_s, size[1] / panel.height
    boxes: dict[tuple[int, bool], list[np.ndarray]] = {}
    for span, lane in zip(panel.schedule.spans, panel.schedule.lanes(), strict=True):
        left, right = span.start_s * unit.per_s, span.finish_s * unit.per_s
        top = panel.tops[span.device] + lane
        corners = np.array([(left, top), (right, top), (right, top + 1), (left, top + 1)])
        width = (span.finish_s - span.start_s) * per_s
        boxes.setdefault((span.device, width > 3), []).append(corners)
        if tall <= _TEXT_SIZE:
            continue
        texts = [details.span_name(span)]
        texts += [details.coarse.op_types[op] for op in span.ops if len(span.ops) == 1]
        fitting = (t for t in texts if labels.width(t, _TEXT_SIZE) <= width - 3)
        if text := next(fitting, ""):
            style: Any = {"fontsize": _TEXT_SIZE, "ha": "center", "va": "center", "zorder": 3}
            axes.text((left + right) / 2, top + 0.5, text, **style)
    for (device, outlined), polygons in boxes.items():
        tint = plots.mixed(plots.device_style(device)["facecolor"], 0.55)
        line: Any = {"edgecolor": "white", "linewidth": 0.6} if outlined else {"edgecolor": "none"}
        bars = PolyCollection(polygons, facecolor=tint, zorder=2, **line)
        bars.set_rasterized(len(polygons) > 5_000)  # an SVG of more shapes is slow to show
        axes.add_collection(bars)


def loads(details: Details) -> "Figure":
    """Draws time and memory of every device: computing, transferring, and its capacity.

    Raises:
      NothingToDrawError: no device has any load, or matplotlib is not installed.
    """
    draw_functions = [
        draw
        for draw, load in (
            (_draw_time, details.compute_load_s + details.transfer_load_s),
            (_draw_memory, details.load_bytes),
        )
        if load.any()
    ]
    if not draw_functions:
        raise plots.NothingToDrawError("no device of the placement has a load to draw")
    figure = plots.new_figure(1.5 + 4.5 * len(draw_functions), 1.5 + 0.42 * len(details.devices))
    panels = figure.subplots(1, len(draw_functions), sharey=True, squeeze=False)[0]
    names = [labels.shortened(label, _LABEL_SIZE, _LABEL_WIDTH) for label in details.devices]
    panels[0].set_yticks(range(len(names)), names, fontsize=_LABEL_SIZE)
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    keys = [
        key
        for draw, axes in zip(draw_functions, panels, strict=True)
        for key in draw(axes, details)
    ]
    for axes in panels:
        axes.use_sticky_edges = False
        axes.margins(x=0.3)  # for the numbers
        axes.set_xlim(left=0)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
    title = f"{details.graph.name}: load of the devices, placed by {details.method}"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium")
    labels.legend_below(figure, keys)
    return figure


def _draw_time(axes: Any, details: Details) -> list[Any]:
    """Draws the panel and returns its legend entries."""
    from matplotlib.patches import Patch

    busy_s = details.compute_load_s + details.transfer_load_s
    unit = units.latency_unit(seconds for seconds in busy_s)
    for device, (compute_s, transfer_s) in enumerate(
        zip(details.compute_load_s, details.transfer_load_s, strict=True)
    ):
        compute, transfer = compute_s * unit.per_s, transfer_s * unit.per_s
        axes.barh(device, compute, _BAR_HEIGHT, **plots.device_style(device))
        axes.barh(device, transfer, _BAR_HEIGHT, left=compute, **_TRANSFER)
        _write(axes, compute + transfer, device, units.duration(compute_s + transfer_s))
    axes.set_xlabel(f"time of one request ({unit.name})")
    computes = Patch(facecolor=plots.GREY, label="computes")
    transfers = Patch(**_TRANSFER, label="receives and sends")
    return [computes, transfers] if details.transfer_load_s.any() else [computes]


def _draw_memory(axes: Any, details: Details) -> list[Any]:
    """Draws the panel and returns its legend entries."""
    load_bytes, capacity = details.load_bytes, details.capacity_bytes
    is_near = capacity <= 20 * load_bytes.max()  # a larger capacity is only written
    name, unit_bytes = units.byte_unit(max(load_bytes.max(), capacity[is_near].max(initial=0.0)))
    for device, (load, limit) in enumerate(zip(load_bytes, capacity, strict=True)):
        axes.barh(device, load / unit_bytes, _BAR_HEIGHT, **plots.device_style(device))
        limited = f" of {units.size(limit)}" if np.isfinite(limit) else ""
        if is_near[device]:
            ends = [device - _BAR_HEIGHT / 2 - 0.1, device + _BAR_HEIGHT / 2 + 0.1]
            axes.plot([limit / unit_bytes] * 2, ends, **_CAPACITY)
        end = max(load, limit) if is_near[device] else load
        _write(axes, end / unit_bytes, device, units.size(load) + limited)
    axes.set_xlabel(f"memory ({name})")
    return [plots.line_key("capacity", _CAPACITY)] if is_near.any() else []


def _write(axes: Any, x: float, device: int, text: str) -> None:
    offset = {"xytext": (6, 0), "textcoords": "offset points"}
    axes.annotate(text, (x, device), va="center", fontsize=_LABEL_SIZE, **offset)
