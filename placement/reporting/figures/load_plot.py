"""The figure of each device's time for one request and of its memory."""

from typing import TYPE_CHECKING, Any

import numpy as np

from placement.reporting import units
from placement.reporting.details import Details
from placement.reporting.figures import labels, plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BAR_HEIGHT = 0.55
_LABEL_SIZE, _LABEL_WIDTH = 9.0, 190.0  # of a device's label, in points
_TRANSFER: Any = {"facecolor": "white", "edgecolor": plots.GREY, "hatch": "////"}
_CAPACITY: Any = {"color": plots.ALARM, "linewidth": 2.5}
_FAR = 20.0  # a capacity of more than this many times the largest load is only written


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
    is_near = capacity <= _FAR * load_bytes.max()
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
