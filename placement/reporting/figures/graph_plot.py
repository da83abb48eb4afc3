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
from placement.reporting.figures import blocks, labels, layout, plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BLOCK_COUNTS = (100, 70, 50)  # the first whose blocks have room for text is drawn
_MOST_ON_A_PAGE = 400
_WIDTH, _HEIGHT = 842.0, 595.0  # A4
_MARGIN = 20.0
_TITLE, _SUBTITLE, _LEGEND_ROW = 26.0, 16.0, 14.0  # from line to line
_LEGEND_SIZE = 8.5
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
        return self.step[0] * _BOX[0], self.step[1] * _BOX[1]

    @property
    def height(self) -> float:
        """Height of the page; a small graph takes less than A4."""
        return _MARGIN - self.position(0, self.low[-1] - 0.5, -1)[1]

    def position(self, layer: float, y: float, row: int) -> tuple[float, float]:
        middle = self.step[0] * (layer - row * self.columns + 0.5 - self.columns / 2)
        return _WIDTH / 2 + middle, float(self.starts[row] + y * self.step[1])

    @property
    def edges(self) -> tuple[float, float]:
        """Left and right end of the rows."""
        half = self.columns * self.step[0] / 2 + _STUB
        return _WIDTH / 2 - half, _WIDTH / 2 + half


class _Drawing(NamedTuple):
    """K blocks and Q edges on a page."""

    parts: np.ndarray  # int32 [M]: the block of every coarse operation
    device: np.ndarray  # int32 [K]
    crosses: np.ndarray  # bool [Q]: whether the edge's ends are on different devices
    layout: layout.Layout
    page: _Page


class _Legend(NamedTuple):
    """The devices, in columns."""

    texts: list[str]
    columns: int
    step: float  # points from column to column

    @property
    def height(self) -> float:
        return _LEGEND_ROW * math.ceil(len(self.texts) / self.columns)


def placement(details: Details) -> "Figure":
    """Draws the graph in blocks, with the device of each, darker where it takes longer.

    Transfers between devices are bold and dashed. A block has a text where six points fit.

    Raises:
      NothingToDrawError: the devices alternate so often that a page cannot hold the blocks, or
        matplotlib is not installed.
    """
    figure = plots.new_figure(_WIDTH / 72, _HEIGHT / 72, arranged=False)
    legend = _legend(details)
    drawing = _drawing(details, _TITLE + _SUBTITLE + legend.height + _BETWEEN_ROWS)
    height = drawing.page.height
    figure.set_figheight(height / 72)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDTH), ylim=(-height, 0))
    axes.set_axis_off()
    _draw_header(axes, details, len(drawing.device), legend)
    _draw_edges(axes, drawing)
    _draw_blocks(axes, drawing, details)
    _mark_rows(axes, drawing.page)
    return figure


def _drawing(details: Details, header: float) -> _Drawing:
    """Lays out as many blocks as have room for text, else the fewest."""
    for count in _BLOCK_COUNTS:
        parts = blocks.blocks(details, count)
        num_blocks = int(parts.max()) + 1
        if num_blocks > _MOST_ON_A_PAGE:
            raise plots.NothingToDrawError(
                f"the placement alternates between devices so often that its graph takes "
                f"{num_blocks} blocks to draw; a page holds {_MOST_ON_A_PAGE}"
            )
        coarse = details.coarse
        senders, receivers = dag.quotient(coarse.senders, coarse.receivers, parts)
        layered = layout.layered(num_blocks, senders, receivers)
        page = _page(layered, header)
        if _box_quality(page) == 1:
            break
    device = np.zeros(num_blocks, np.int32)
    device[parts] = details.placement
    return _Drawing(parts, device, device[senders] != device[receivers], layered, page)


def _draw_header(axes: Any, details: Details, num_blocks: int, legend: _Legend) -> None:
    graph = details.graph
    title = f"{graph.name}: placed by {details.method} for {details.objective}"
    axes.text(_MARGIN, -_TITLE, labels.shortened(title, 12, _WIDTH - 2 * _MARGIN), fontsize=12)
    subtitle = (
        f"{graph.num_ops:,} operations in {num_blocks} blocks, darker where they take longer; "
        f"tensors that cross between devices: {details.num_crossings:,} (bold, dashed)"
    )
    axes.text(_MARGIN, -_TITLE - _SUBTITLE, subtitle, fontsize=_LEGEND_SIZE)
    for device, text in enumerate(legend.texts):
        x = _MARGIN + device % legend.columns * legend.step
        y = -_TITLE - _SUBTITLE - _LEGEND_ROW * (1 + device // legend.columns)
        axes.add_patch(_rectangle((x, y - 1), 16, 8, **plots.device_style(device)))
        axes.text(x + 21, y, text, fontsize=_LEGEND_SIZE)


def _legend(details: Details) -> _Legend:
    counts = np.bincount(details.op_placement, minlength=len(details.devices))
    shares = details.compute_load_s / (details.compute_load_s.sum() or 1.0)
    texts = [
        f"{label}: {count:,} operation{'' if count == 1 else 's'}, {share:.0%} of computing time"
        for label, count, share in zip(details.devices, counts, shares, strict=True)
    ]
    step = max(labels.width(text, _LEGEND_SIZE) for text in texts) + 36  # with the key
    return _Legend(texts, max(1, int((_WIDTH - 2 * _MARGIN) / step)), step)


def _page(layered: layout.Layout, header: float) -> _Page:
    """Chooses the number of rows in which boxes come closest to the desired size."""
    num_layers = int(layered.x.max()) + 1
    pages = []
    for num_rows in range(1, min(num_layers, 12) + 1):
        columns = math.ceil(num_layers / num_rows)
        low, high = _extents(layered, columns)
        available = _HEIGHT - header - _MARGIN - (len(low) - 1) * _BETWEEN_ROWS
        step = (
            min((_WIDTH - 2 * _MARGIN - 2 * _STUB) / columns, _LARGEST_STEP[0]),
            min(available / (high - low + 1).sum(), _LARGEST_STEP[1]),
        )
        heights = (high - low + 1) * step[1]
        bottoms = -header - np.cumsum(heights + _BETWEEN_ROWS) + _BETWEEN_ROWS
        pages.append(_Page(columns, step, bottoms - (low - 0.5) * step[1], low, high))
    return max(pages, key=_box_quality)


def _box_quality(page: _Page) -> float:
    """Returns the share of the desired size that a box has; 1: all of it."""
    return min(page.box[0] / _DESIRED_BOX[0], page.box[1] / _DESIRED_BOX[1], 1.0)


def _extents(layered: layout.Layout, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least and greatest y in each row, over its nodes and lines."""
    points = np.concatenate(
        [np.stack([layered.x, layered.y], axis=1), *map(_stepwise, layered.paths)]
    )
    row = points[:, 0].astype(int) // columns
    # A line already has its new height where it leaves the previous row.
    enters = (points[:, 0] % columns == 0) & (row > 0)
    rows = np.append(row, row[enters] - 1)
    heights = np.append(points[:, 1], points[enters, 1])
    low, high = np.full(row.max() + 1, np.inf), np.full(row.max() + 1, -np.inf)
    np.minimum.at(low, rows, heights)
    np.maximum.at(high, rows, heights)
    return low, high


def _stepwise(path: np.ndarray) -> np.ndarray:
    """Returns the path with a point in every layer."""
    layers = np.arange(path[0, 0], path[-1, 0] + 1)
    return np.stack([layers, np.interp(layers, *path.T)], axis=1)


def _draw_edges(axes: Any, drawing: _Drawing) -> None:
    from matplotlib.collections import LineCollection

    ordinary: Any = {"color": plots.GREY, "linewidth": 0.7, "zorder": 1}
    crossing: Any = {"color": plots.ALARM, "linewidth": 1.5, "linestyle": (0, (3, 1)), "zorder": 2}
    for selected, style in ((~drawing.crosses, ordinary), (drawing.crosses, crossing)):
        paths = (drawing.layout.paths[edge] for edge in np.flatnonzero(selected))
        lines = [line for path in paths for line in _lines(drawing.page, path)]
        axes.add_collection(LineCollection(lines, **style))


def _lines(page: _Page, path: np.ndarray) -> Iterator[list[tuple[float, float]]]:
    """Yields the path's lines in each row: level beside boxes, slanting between layers."""
    half = page.box[0] / page.step[0] / 2
    points = _stepwise(path).tolist()
    row, line = int(points[0][0]) // page.columns, list[tuple[float, float]]()
    for number, (layer, y) in enumerate(points):
        if int(layer) // page.columns > row:
            yield [*line, (page.edges[1], page.position(layer, y, row)[1])]
            row += 1
            line = [(page.edges[0], page.position(layer, y, row)[1])]
        if number > 0:
            line.append(page.position(layer - half, y, row))
        if number < len(points) - 1:
            line.append(page.position(layer + half, y, row))
    yield line


def _draw_blocks(axes: Any, drawing: _Drawing, details: Details) -> None:
    parts, layered, page = drawing.parts, drawing.layout, drawing.page
    seconds = np.bincount(parts[details.assignment], details.op_compute_s)
    darkness = np.sqrt(seconds / (seconds.max() or 1.0))
    shades = _SHADES[0] + (_SHADES[1] - _SHADES[0]) * darkness
    width, height = page.box
    strip = min(6.0, width / 4)  # the hatched edge of a box
    for block, texts in enumerate(blocks.summaries(details, parts)):
        row = int(layered.x[block]) // page.columns
        x, y = page.position(layered.x[block], layered.y[block], row)
        corner = x - width / 2, y - height / 2
        style = plots.device_style(drawing.device[block])
        tint = plots.mixed(style["facecolor"], shades[block])
        outline = {"edgecolor": style["facecolor"], "linewidth": 0.8}
        axes.add_patch(_rectangle(corner, width, height, facecolor=tint, zorder=3, **outline))
        axes.add_patch(_rectangle(corner, strip, height, zorder=4, linewidth=0, **style))
        texts.append(units.duration(seconds[block]))
        lines, size = _fitted(texts, width - strip - 4.0, height)
        axes.text(
            x + strip / 2,
            y,
            "\n".join(lines),
            fontsize=size,
            color="white" if plots.luminance(tint) < 0.3 else "black",
            ha="center",
            va="center",
            linespacing=1.0,
            zorder=5,
        )


def _fitted(texts: list[str], width: float, height: float) -> tuple[list[str], float]:
    """Selects the texts of a block that fit its box, in points; returns lines and font size.

    The most important text comes first, the time last.
    """
    head, kind, *_, time = texts
    for selected in (texts, [head, kind, time], [head, time], [kind, time], [head], [time]):
        for size in _SIZES:
            lines = [line for text in selected for line in _wrapped(text, size, width)]
            widest = max(labels.width(line, size) for line in lines)
            if widest <= width and len(lines) * size * 1.22 <= height:
                return lines, size
    return [], _SIZES[-1]


def _wrapped(text: str, size: float, width: float) -> list[str]:
    """Breaks a text into lines after the separators in names of operations."""
    lines = [""]
    for token in re.findall(r"[^/_.:]*[/_.:]*", text):
        if lines[-1] and labels.width(lines[-1] + token, size) > width:
            lines.append(token)
        else:
            lines[-1] += token
    return lines


def _mark_rows(axes: Any, page: _Page) -> None:
    """Marks the end of each row and the start of the next."""
    small: dict[str, Any] = {"fontsize": _SIZES[-1], "color": plots.GREY, "va": "top"}
    for row in range(1, len(page.starts)):
        left, right = page.edges
        below = page.position(0, page.low[row - 1] - 0.5, row - 1)[1]
        axes.text(right, below - 4, f"row {row + 1} ▸", ha="right", **small)
        above = page.position(0, page.high[row] + 0.5, row)[1]
        axes.text(left, above + 10, f"▸ row {row + 1}", **small)
        for x, marked_row in ((right, row - 1), (left, row)):
            ends = (
                page.position(0, page.low[marked_row] - 0.5, marked_row)[1],
                page.position(0, page.high[marked_row] + 0.5, marked_row)[1],
            )
            axes.plot([x, x], ends, color=plots.GREY, linewidth=0.8, linestyle=":")


def _rectangle(corner: tuple[float, float], width: float, height: float, **style: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(corner, width, height, **style)
