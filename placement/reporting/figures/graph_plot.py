"""The figure of a placement on its graph: a page in landscape, to be read in print.

The graph of the blocks (`placement.reporting.figures.blocks`) is drawn in layers from left to
right. A deep graph is broken into rows, like the lines of a text: an edge that leaves a row on the
right enters the next row on the left, at the same height. All lengths are in points.
"""

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from placement.graphs import dag
from placement.reporting import units
from placement.reporting.details import Details
from placement.reporting.figures import blocks, layout, plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BLOCK_COUNTS = (100, 70, 50)  # the first whose blocks have room for text is drawn
_MOST_ON_A_PAGE = 400
_WIDTH, _HEIGHT = 842.0, 595.0  # A4
_MARGIN = 20.0
_HEADER_LINES = 26.0, 16.0, 14.0  # heights of the title, the subtitle and a row of the legend
_TEXT_SIZE = 8.5  # of subtitle and legend
_BETWEEN_ROWS = 22.0
_STUB = 16.0  # left and right of a row, for edges that continue in another row
_LARGEST_STEP = (150.0, 60.0)  # from layer to layer, and from node to node in a layer
_BOX = (0.74, 0.8)  # the share of a step that a box takes
_DESIRED_BOX = (48.0, 26.0)  # holds a name and a time
_SIZES = (8.0, 7.0, plots.SMALLEST)
_SHADES = (0.12, 0.75)  # the share of the device's colour in a box, from fast to slow


class _Page(NamedTuple):
    """Positions on the page, in points from the upper left corner, y upwards."""

    columns: int  # layers a row
    step: tuple[float, float]  # from layer to layer, and from node to node in a layer
    starts: np.ndarray  # float64 [R]: the position of the layout's y = 0 in each row
    low: np.ndarray  # float64 [R]: the least y of the layout in each row
    high: np.ndarray  # float64 [R]: the greatest

    @property
    def box(self) -> tuple[float, float]:
        """Width and height of a block."""
        return self.step[0] * _BOX[0], self.step[1] * _BOX[1]

    @property
    def box_quality(self) -> float:
        """The share of the desired size that a box has; 1: all of it."""
        return min(self.box[0] / _DESIRED_BOX[0], self.box[1] / _DESIRED_BOX[1], 1.0)

    @property
    def ends(self) -> tuple[float, float]:
        """Left and right end of the rows."""
        half = self.columns * self.step[0] / 2 + _STUB
        return _WIDTH / 2 - half, _WIDTH / 2 + half

    def position(self, layer: float, y: float, row: int) -> tuple[float, float]:
        """Returns the position of a point of the layout that is drawn in a row."""
        middle = self.step[0] * (layer - row * self.columns + 0.5 - self.columns / 2)
        return _WIDTH / 2 + middle, float(self.starts[row] + y * self.step[1])


def placement(details: Details) -> "Figure":
    """Draws the graph in blocks, with the device of each, darker where it takes longer.

    Transfers between devices are bold and dashed. A block has a text where six points fit.

    Raises:
      NothingToDrawError: the devices alternate so often that a page cannot hold the blocks, or
        matplotlib is not installed.
    """
    figure = plots.new_figure(_WIDTH / 72, _HEIGHT / 72, arranged=False)
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Rectangle

    num_devices = len(details.devices)
    load_s = np.bincount(details.op_placement, details.op_compute_s, minlength=num_devices)
    counts = np.bincount(details.op_placement, minlength=num_devices)
    legend = [
        f"{label}: {count:,} operation{'' if count == 1 else 's'}, {share:.0%} of computing time"
        for label, count, share in zip(
            details.devices, counts, load_s / (load_s.sum() or 1.0), strict=True
        )
    ]
    title_height, subtitle_height, legend_height = _HEADER_LINES
    header = title_height + subtitle_height + _BETWEEN_ROWS + legend_height * num_devices
    for count in _BLOCK_COUNTS:
        parts = blocks.blocks(details, count)
        num_blocks = int(parts.max()) + 1
        if num_blocks > _MOST_ON_A_PAGE:
            raise plots.NothingToDrawError(
                f"the placement alternates between devices so often that its graph takes "
                f"{num_blocks} blocks to draw; a page holds {_MOST_ON_A_PAGE}"
            )
        senders, receivers = dag.quotient(details.coarse.senders, details.coarse.receivers, parts)
        drawing = layout.layered(num_blocks, senders, receivers)
        page = _make_page(drawing, header)
        if page.box_quality == 1:
            break
    device = np.zeros(num_blocks, np.int32)
    device[parts] = details.placement
    height = _MARGIN - page.position(0, page.low[-1] - 0.5, -1)[1]  # small graphs need less than A4
    figure.set_figheight(height / 72)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDTH), ylim=(-height, 0))
    axes.set_axis_off()

    title = f"{details.graph.name}: placed by {details.method} for {details.objective}"
    title = plots.shortened(title, 12, _WIDTH - 2 * _MARGIN)
    axes.text(_MARGIN, -title_height, title, fontsize=12)
    subtitle = (
        f"{details.graph.num_ops:,} operations in {num_blocks} blocks, darker where they take "
        f"longer; tensors that cross between devices: {details.num_crossings:,} (bold, dashed)"
    )
    y = -title_height - subtitle_height
    axes.text(_MARGIN, y, subtitle, fontsize=_TEXT_SIZE)
    for number, text in enumerate(legend):
        key_y = y - legend_height * (1 + number)
        axes.add_patch(Rectangle((_MARGIN, key_y - 1), 16, 8, **plots.device_style(number)))
        axes.text(_MARGIN + 21, key_y, text, fontsize=_TEXT_SIZE)

    crosses = device[senders] != device[receivers]
    within: Any = {"color": plots.GREY, "linewidth": 0.7, "zorder": 1}
    across: Any = {"color": plots.ALARM, "linewidth": 1.5, "linestyle": (0, (3, 1)), "zorder": 2}
    for selected, style in ((~crosses, within), (crosses, across)):
        paths = (drawing.paths[edge] for edge in np.flatnonzero(selected))
        axes.add_collection(
            LineCollection([line for path in paths for line in _lines(page, path)], **style)
        )

    seconds = np.bincount(parts[details.assignment], details.op_compute_s)
    darkness = np.sqrt(seconds / (seconds.max() or 1.0))
    shades = _SHADES[0] + (_SHADES[1] - _SHADES[0]) * darkness
    width, height = page.box
    strip = min(6.0, width / 4)  # the hatched edge of a box
    for block, texts in enumerate(blocks.summaries(details, parts)):
        row = int(drawing.x[block]) // page.columns
        x, y = page.position(drawing.x[block], drawing.y[block], row)
        corner = x - width / 2, y - height / 2
        style = plots.device_style(device[block])
        tint = plots.mixed(style["facecolor"], shades[block])
        outline: Any = {"edgecolor": style["facecolor"], "linewidth": 0.8, "zorder": 3}
        axes.add_patch(Rectangle(corner, width, height, facecolor=tint, **outline))
        axes.add_patch(Rectangle(corner, strip, height, zorder=4, linewidth=0, **style))
        texts.append(units.duration(seconds[block]))
        lines, size = _fitted(texts, width - strip - 4.0, height)
        axes.text(
            x + strip / 2,
            y,
            "\n".join(lines),
            fontsize=size,
            ha="center",
            va="center",
            linespacing=1.0,
            zorder=5,
        )

    for row in range(1, len(page.starts)):  # mark the end of each row and the start of the next
        for x, marked_row in ((page.ends[1], row - 1), (page.ends[0], row)):
            bottom = page.position(0, page.low[marked_row] - 0.5, marked_row)[1]
            top = page.position(0, page.high[marked_row] + 0.5, marked_row)[1]
            axes.plot([x, x], [bottom, top], color=plots.GREY, linewidth=0.8, linestyle=":")
        text = f"▸ row {row + 1}"
        axes.text(page.ends[0], top + 4, text, fontsize=plots.SMALLEST, color=plots.GREY)
    return figure


def _make_page(drawing: layout.Layout, header: float) -> _Page:
    """Chooses the number of rows in which boxes come closest to the desired size."""
    num_layers = int(drawing.x.max()) + 1
    nodes = np.stack([drawing.x, drawing.y], axis=1)
    points = np.concatenate([nodes, *map(_stepwise, drawing.paths)])
    pages = []
    for num_rows in range(1, min(num_layers, 12) + 1):
        columns = math.ceil(num_layers / num_rows)
        row = points[:, 0].astype(int) // columns
        # A line already has its new height where it leaves the previous row.
        enters = (points[:, 0] % columns == 0) & (row > 0)
        rows = np.append(row, row[enters] - 1)
        heights = np.append(points[:, 1], points[enters, 1])
        low, high = np.full(row.max() + 1, np.inf), np.full(row.max() + 1, -np.inf)
        np.minimum.at(low, rows, heights)
        np.maximum.at(high, rows, heights)
        available = _HEIGHT - header - _MARGIN - (len(low) - 1) * _BETWEEN_ROWS
        step = (
            min((_WIDTH - 2 * _MARGIN - 2 * _STUB) / columns, _LARGEST_STEP[0]),
            min(available / (high - low + 1).sum(), _LARGEST_STEP[1]),
        )
        row_heights = (high - low + 1) * step[1]
        bottoms = -header - np.cumsum(row_heights + _BETWEEN_ROWS) + _BETWEEN_ROWS
        pages.append(_Page(columns, step, bottoms - (low - 0.5) * step[1], low, high))
    return max(pages, key=lambda page: page.box_quality)


def _stepwise(path: np.ndarray) -> np.ndarray:
    """Returns the path with a point in every layer."""
    layers = np.arange(path[0, 0], path[-1, 0] + 1)
    return np.stack([layers, np.interp(layers, *path.T)], axis=1)


def _lines(page: _Page, path: np.ndarray) -> Iterator[list[tuple[float, float]]]:
    """Yields the path's lines in each row: level next to boxes, slanting between layers."""
    half = page.box[0] / page.step[0] / 2
    points = _stepwise(path).tolist()
    row, line = int(points[0][0]) // page.columns, list[tuple[float, float]]()
    for number, (layer, y) in enumerate(points):
        if int(layer) // page.columns > row:
            yield [*line, (page.ends[1], page.position(layer, y, row)[1])]
            row += 1
            line = [(page.ends[0], page.position(layer, y, row)[1])]
        if number > 0:
            line.append(page.position(layer - half, y, row))
        if number < len(points) - 1:
            line.append(page.position(layer + half, y, row))
    yield line


def _fitted(texts: list[str], width: float, height: float) -> tuple[list[str], float]:
    """Selects the texts of a block that fit its box, in points; returns lines and font size.

    The most important text comes first, the time last. Names break after their separators.
    """
    head, kind, *_, time = texts
    for selected in (texts, [head, kind, time], [head, time], [kind, time], [head], [time]):
        for size in _SIZES:
            lines: list[str] = []
            for text in selected:
                lines.append("")
                for token in re.findall(r"[^/_.:]*[/_.:]*", text):
                    if lines[-1] and plots.text_width(lines[-1] + token, size) > width:
                        lines.append(token)
                    else:
                        lines[-1] += token
            widest = max(plots.text_width(line, size) for line in lines)
            if widest <= width and len(lines) * size * 1.22 <= height:
                return lines, size
    return [], _SIZES[-1]
