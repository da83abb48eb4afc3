"""The figure of a schedule: what runs when on each device, predicted above measured."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from placement.reporting import timelines, units
from placement.reporting.details import Details, Timeline
from placement.reporting.figures import labels, plots
from placement.types import Span

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 11.69  # inches: A4 in landscape
_AROUND = 0.55  # inches that a panel takes beside its lanes
_ALL_LANES, _LARGEST_LANE, _SMALLEST_LANE = 4.6, 0.36, 0.03  # inches
_SMALLEST_ROW = 0.2  # inches: of a device
_APART = 0.3  # of a lane, between devices
_LABEL_SIZE, _MOST_LABEL = 9.0, 190.0  # of a device, in points
_TINT = 0.55
_OUTLINED = 3.0  # from this width in points on, a line parts spans
_MOST_SHAPES = 5_000  # in an SVG; more become an image in it
_TEXT_SIZE, _PADDING = 7.0, 3.0  # of what a span runs, in points
_CENTRED: Any = {"fontsize": _TEXT_SIZE, "ha": "center", "va": "center", "zorder": 3}
_LATENCY: Any = {"color": "black", "linewidth": 1.2, "linestyle": "--", "zorder": 4}
_PREDICTED: Any = {"color": plots.ALARM, "linewidth": 1.4, "linestyle": ":", "zorder": 4}


_WHAT = ("predicted", "measured")


class _Panel(NamedTuple):
    """A schedule as it is drawn, lane under lane; heights are in lanes."""

    schedule: Timeline
    what: str
    lane_of: list[int]  # of each span, within its device
    rooms: np.ndarray  # float64 [D]: the lanes of each device, or what its label needs
    tops: np.ndarray  # float64 [D]

    @property
    def height(self) -> float:
        return float(self.tops[-1] + self.rooms[-1] + _APART)


def timeline(details: Details) -> "Figure":
    """Draws when each device works on one request: a row a device, lanes where spans overlap.

    Grey is idle. Predicted and measured are panels with the same time axis; where nothing was
    measured there is one panel, whose title says so.

    Raises:
      NothingToDrawError: no schedule is known, or matplotlib is not installed.
    """
    schedules = [details.predicted, *filter(None, [details.measured])]
    latest_s = max(map(timelines.latency_s, schedules))
    if latest_s == 0:
        raise plots.NothingToDrawError("no schedule of the placement is known to draw")
    counts = [_lanes(schedule, len(details.devices)) for schedule in schedules]
    lane = np.clip(_ALL_LANES / sum(map(sum, counts)), _SMALLEST_LANE, _LARGEST_LANE)
    drawn = [
        _panel(what, schedule, np.maximum(lanes, _SMALLEST_ROW / lane))
        for what, schedule, lanes in zip(_WHAT, schedules, counts, strict=False)
    ]
    heights = [panel.height for panel in drawn]
    figure = plots.new_figure(_WIDTH, lane * sum(heights) + _AROUND * (len(drawn) + 1))
    panels = figure.subplots(len(drawn), 1, sharex=True, squeeze=False, height_ratios=heights)
    unit = units.of_latencies([latest_s])
    for axes, panel in zip(panels[:, 0], drawn, strict=True):
        _draw_panel(axes, panel, details, unit)
    axes.set_xlim(0, 1.01 * latest_s * unit.per_s)
    axes.set_xlabel(f"time since the request ({unit.name})")
    figure.suptitle(_title(details), x=0.01, ha="left", fontsize="medium")
    keys = [plots.line_key("latency", _LATENCY), plots.line_key("predicted", _PREDICTED)]
    labels.legend_below(figure, keys[: len(drawn)])
    plots.arrange(figure)  # after which widths are known
    for axes, panel in zip(panels[:, 0], drawn, strict=True):
        _draw_spans(axes, panel, details, unit)
    return figure


def _lanes(schedule: Timeline, num_devices: int) -> list[int]:
    """Counts the lanes that each device needs, one of an idle device."""
    lanes = [1] * num_devices
    for span, lane in zip(schedule.spans, timelines.lanes(schedule), strict=True):
        lanes[span.device] = max(lanes[span.device], lane + 1)
    return lanes


def _panel(what: str, schedule: Timeline, rooms: np.ndarray) -> _Panel:
    tops = np.cumsum(rooms + _APART) - rooms
    return _Panel(schedule, what, timelines.lanes(schedule), rooms, tops)


def _title(details: Details) -> str:
    title = f"{details.graph.name}: one request, placed by {details.method}"
    return title if details.measured else f"{title}; nothing was measured"


def _draw_panel(axes: Any, panel: _Panel, details: Details, unit: units.Unit) -> None:
    """Draws everything but the spans."""
    latency_s = timelines.latency_s(panel.schedule)
    busy_s = timelines.busy_s(panel.schedule.spans, len(details.devices))
    busy = busy_s / latency_s if latency_s > 0 else busy_s  # nothing takes any time
    axes.set_ylim(panel.height, 0)
    names = [labels.shortened(label, _LABEL_SIZE, _MOST_LABEL) for label in details.devices]
    axes.set_yticks(panel.tops + panel.rooms / 2, names, fontsize=_LABEL_SIZE)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    for top, room, share in zip(panel.tops, panel.rooms, busy, strict=True):
        axes.axhspan(top, top + room, facecolor=plots.PALE, zorder=0)
        axes.annotate(
            f"{share:.0%} busy",
            (1.01, top + room / 2),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=_LABEL_SIZE,
        )
    axes.axvline(latency_s * unit.per_s, **_LATENCY)
    if panel.schedule is details.measured:
        axes.axvline(timelines.latency_s(details.predicted) * unit.per_s, **_PREDICTED)
    heading = timelines.heading(panel.what, panel.schedule)
    axes.set_title(f"{heading}; latency {units.duration(latency_s)}", loc="left", fontsize=10)


def _draw_spans(axes: Any, panel: _Panel, details: Details, unit: units.Unit) -> None:
    """Draws bars, and what they run where that fits."""
    from matplotlib.collections import PolyCollection

    size = axes.get_position().size * axes.figure.get_size_inches() * 72  # points
    per_s, tall = size[0] / axes.get_xlim()[1] * unit.per_s, size[1] / panel.height
    boxes: dict[tuple[int, bool], list[np.ndarray]] = {}
    for span, lane in zip(panel.schedule.spans, panel.lane_of, strict=True):
        left, right = span.start_s * unit.per_s, span.finish_s * unit.per_s
        top = panel.tops[span.device] + lane
        corners = np.array([(left, top), (right, top), (right, top + 1), (left, top + 1)])
        width = (span.finish_s - span.start_s) * per_s
        boxes.setdefault((span.device, width > _OUTLINED), []).append(corners)
        text = _fitting(details, span, width - _PADDING) if tall > _TEXT_SIZE else ""
        if text:
            axes.text((left + right) / 2, top + 0.5, text, **_CENTRED)
    for (device, outlined), polygons in boxes.items():
        tint = plots.mixed(plots.device_style(device)["facecolor"], _TINT)
        line: Any = {"edgecolor": "white", "linewidth": 0.6} if outlined else {"edgecolor": "none"}
        bars = PolyCollection(polygons, facecolor=tint, zorder=2, **line)
        bars.set_rasterized(len(polygons) > _MOST_SHAPES)
        axes.add_collection(bars)


def _fitting(details: Details, span: Span, width: float) -> str:
    """Returns the name of what runs, else its type, else nothing."""
    texts = [timelines.name(details, span)]
    texts += [details.coarse.op_types[op] for op in span.ops if len(span.ops) == 1]
    return next((text for text in texts if labels.width(text, _TEXT_SIZE) <= width), "")
