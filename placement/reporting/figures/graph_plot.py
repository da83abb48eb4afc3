"""The figure of a placement on its graph: its blocks in layers, from top to bottom."""

from typing import TYPE_CHECKING, Any

import numpy as np

from placement.graphs import dag
from placement.reporting import units
from placement.reporting.details import Details
from placement.reporting.figures import blocks, layout, plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BLOCKS, _MOST_BLOCKS = 70, 200  # blocks to aim at, and to draw at most
_WIDTH, _LAYER = 10.0, 0.32  # inches: of the figure, and from layer to layer
_BOX = (0.94, 0.62)  # the share of a box in the distances to the next node and layer
_TEXT_SIZE = 7.0  # points
_SHADES = (0.12, 0.75)  # the share of the device's colour in a box, from fast to slow


def placement(details: Details) -> "Figure":
    """Draws the graph in blocks, with the device of each, darker where it takes longer.

    Transfers between devices are bold and dashed.

    Raises:
      NothingToDrawError: the devices alternate so often that there are too many blocks, or
        matplotlib is not installed.
    """
    parts = blocks.blocks(details, _BLOCKS)
    num_blocks, num_devices = int(parts.max()) + 1, len(details.devices)
    if num_blocks > _MOST_BLOCKS:
        raise plots.NothingToDrawError(
            f"the placement alternates between devices so often that its graph takes "
            f"{num_blocks} blocks to draw; a figure holds {_MOST_BLOCKS}"
        )
    senders, receivers = dag.quotient(details.coarse.senders, details.coarse.receivers, parts)
    drawing = layout.layered(num_blocks, senders, receivers)
    device = np.zeros(num_blocks, np.int32)
    device[parts] = details.placement
    num_layers = drawing.x.max() + 1
    turns = [path[:, 1] for path in drawing.paths]
    ends = np.concatenate([drawing.y - 0.5, drawing.y + 0.5, *turns])
    center, columns = (ends.min() + ends.max()) / 2, max(4.0, np.ptp(ends))
    height = _LAYER * num_layers + 0.22 * num_devices + 0.8
    figure = plots.new_figure(_WIDTH, height)
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Patch, Rectangle

    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(center - columns / 2, center + columns / 2)
    axes.set_ylim(num_layers - 0.5, -0.5)
    title = f"{details.graph.name}: placed by {details.method} for {details.objective}"
    figure.suptitle(plots.shortened(title, 12, 72 * _WIDTH), x=0.01, ha="left", fontsize=12)
    subtitle = (
        f"{details.graph.num_ops:,} operations in {num_blocks} blocks, darker where they take "
        f"longer; tensors that cross between devices: {details.num_crossings:,} (bold, dashed)"
    )
    axes.set_title(subtitle, loc="left", fontsize=8.5)
    load_s = np.bincount(details.op_placement, details.op_compute_s, minlength=num_devices)
    counts = np.bincount(details.op_placement, minlength=num_devices)
    keys = []
    for number, label in enumerate(details.devices):
        share = load_s[number] / (load_s.sum() or 1.0)
        text = f"{label}: {counts[number]:,} operation{'' if counts[number] == 1 else 's'}, "
        text += f"{share:.0%} of computing time"
        keys.append(Patch(label=text, **plots.device_style(number)))
    figure.legend(handles=keys, loc="outside lower left", frameon=False, fontsize=8.5)

    width, height = _BOX
    crosses = device[senders] != device[receivers]
    within: Any = {"color": plots.GREY, "linewidth": 0.7, "zorder": 1}
    across: Any = {"color": plots.ALARM, "linewidth": 1.5, "linestyle": (0, (3, 1)), "zorder": 2}
    for selected, style in ((~crosses, within), (crosses, across)):
        lines = []
        for edge in np.flatnonzero(selected):
            # From the lower end of a box to the upper end of another; straight next to others.
            points = np.repeat(drawing.paths[edge][:, ::-1], 2, axis=0)
            points[::2, 1] -= height / 2
            points[1::2, 1] += height / 2
            lines.append(points[1:-1])
        axes.add_collection(LineCollection(lines, **style))

    seconds = np.bincount(parts[details.assignment], details.op_compute_s)
    darkness = np.sqrt(seconds / (seconds.max() or 1.0))
    shades = _SHADES[0] + (_SHADES[1] - _SHADES[0]) * darkness
    text_width = 72 * 0.95 * _WIDTH * (width - 0.06) / columns
    for block, (head, *kinds) in enumerate(blocks.summaries(details, parts)):
        x, y = drawing.y[block], drawing.x[block]
        corner, style = (x - width / 2, y - height / 2), plots.device_style(device[block])
        tint = plots.tint(device[block], shades[block])
        outline: Any = {"edgecolor": style["facecolor"], "linewidth": 0.8, "zorder": 3}
        axes.add_patch(Rectangle(corner, width, height, facecolor=tint, **outline))
        axes.add_patch(Rectangle(corner, 0.06, height, zorder=4, linewidth=0, **style))
        time = units.duration(seconds[block])
        texts = (", ".join([head, *kinds[:count], time]) for count in (2, 1, 0))
        fitting = (t for t in texts if plots.shortened(t, _TEXT_SIZE, text_width) == t)
        text = next(fitting, plots.shortened(head, _TEXT_SIZE, text_width))
        middle: Any = {"ha": "center", "va": "center", "zorder": 5}
        axes.text(x + 0.03, y, text, fontsize=_TEXT_SIZE, **middle)
    return figure
