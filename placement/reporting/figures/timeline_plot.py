"""The figure of a schedule: the times at which each device works on one request."""

from typing import TYPE_CHECKING, Any

from placement.reporting import units
from placement.reporting.details import Details
from placement.reporting.figures import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _PLOT_WIDTH = 11.69, 600.0  # of A4 in landscape in inches, of the time axis in points
_LABEL_SIZE, _TEXT_SIZE = 9.0, 7.0  # points
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
    num_devices, unit = len(details.devices), units.latency_unit([latest_s])
    figure = plots.new_figure(_WIDTH, (0.8 + 0.5 * num_devices) * len(schedules) + 0.6)
    panels = figure.subplots(len(schedules), 1, sharex=True, squeeze=False)[:, 0]
    labels = [plots.shortened(label, _LABEL_SIZE, 190.0) for label in details.devices]
    for axes, (kind, schedule) in zip(panels, schedules.items(), strict=True):
        latency_s, busy_s = schedule.latency_s, schedule.busy_s(num_devices)
        lanes = schedule.lanes()
        axes.set_ylim(num_devices - 0.5, -0.5)
        axes.set_yticks(range(num_devices), labels, fontsize=_LABEL_SIZE)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        for device in range(num_devices):
            axes.axhspan(device - 0.4, device + 0.4, facecolor=plots.PALE, zorder=0)
            busy, middle = f"{busy_s[device] / (latency_s or 1.0):.0%} busy", (1.01, device)
            place: Any = {"xycoords": ("axes fraction", "data"), "va": "center"}
            axes.annotate(busy, middle, fontsize=_LABEL_SIZE, **place)
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
                tint = plots.tint(device, 0.55)
                axes.broken_barh(bars, (bottom, height), facecolor=tint, **line)
            for lane, span in spans if height > 0.3 else ():
                width = _PLOT_WIDTH * (span.finish_s - span.start_s) / latest_s
                name = details.span_name(span)
                if plots.shortened(name, _TEXT_SIZE, width) == name:
                    x = unit.per_s * (span.start_s + span.finish_s) / 2
                    y = device - 0.4 + height * (lane + 0.5)
                    style: Any = {"ha": "center", "va": "center", "zorder": 3}
                    axes.text(x, y, name, fontsize=_TEXT_SIZE, **style)
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
    plots.legend_below(figure, [("latency", _LATENCY), ("predicted", _PREDICTED)][: len(schedules)])
    return figure
