"""Text in figures: its width, and positions that are free for it. Lengths are in points."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.reporting.figures import layout, plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE, _LINE = 8.0, 11.0  # of the text beside points, and from line to line
_POINTER: Any = {
    "arrowstyle": "-",
    "color": plots.GREY,
    "linewidth": 0.5,
    "shrinkA": 0,
    "shrinkB": 0,
}
_LEGEND = 10.0  # font size
_REACHES = (2.0, 8.0, 18.0, 32.0, 50.0, 75.0)  # from a point to its label
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))


def width(text: str, size: float) -> float:
    """Returns the width of a line of text at a font size."""
    return size * sum(map(_advance, text))


def shortened(text: str, size: float, max_width: float) -> str:
    """Returns the text, or its beginning and an ellipsis where it is wider than `max_width`."""
    if width(text, size) <= max_width:
        return text
    for end in range(len(text) - 1, 0, -1):
        if width(f"{text[:end]}…", size) <= max_width:
            return f"{text[:end]}…"
    return ""


def legend_below(figure: "Figure", handles: Sequence[Any]) -> None:
    """Draws the legend below the axes, in as many columns as fit."""
    if not handles:
        return
    available = (figure.get_figwidth() * 72 - _LEGEND) / _LEGEND  # in font sizes
    widths = [width(handle.get_label(), 1.0) for handle in handles]
    for columns in range(4, 0, -1):
        parts = [part for part in np.array_split(widths, columns) if len(part)]
        if sum(part.max() + 5.0 for part in parts) <= available:  # with the symbols
            break
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=columns,
        fontsize=_LEGEND,
        frameon=False,
    )


def label_margin(axes: Any, points: Sequence[tuple[float, float]], texts: Sequence[str]) -> None:
    """Labels points to the right of the axes, one below the other, with lines to the points.

    Args:
      axes: axes with final limits and scales.
      points: the preferred positions of the labels, in data coordinates.
      texts: one for each point, at most as wide as the figure.
    """
    height = axes.get_position().height * axes.figure.get_figheight() * 72
    spots = axes.transAxes.inverted().transform(axes.transData.transform(points))
    order = np.argsort(spots[:, 1], kind="stable")
    places = layout.spread(spots[order, 1], np.full(len(points) - 1, _LINE / height))
    for index, place in zip(order, places, strict=True):
        axes.annotate(
            texts[index],
            points[index],
            (1.03, place),
            textcoords="axes fraction",
            va="center",
            fontsize=_SIZE,
            arrowprops=_POINTER,
            annotation_clip=False,
        )


def label_points(axes: Any, points: np.ndarray, texts: Sequence[str], radii: np.ndarray) -> None:
    """Labels points at the nearest positions that neither labels nor points cover.

    Args:
      axes: axes on which everything else is drawn already.
      points: float64 [K, 2], in data coordinates.
      texts: K.
      radii: float64 [K]: the points' sizes.
    """
    figure = axes.figure
    plots.arrange(figure)  # fixes the positions of points
    scale = 72 / figure.dpi
    spots = axes.transData.transform(points) * scale
    frame = axes.get_window_extent().extents.reshape(2, 2) * scale
    occupied = [np.array([spot - r, spot + r]) for spot, r in zip(spots, radii, strict=True)]
    for spot, text, radius, point in zip(spots, texts, radii, points, strict=True):
        extent = np.array([width(text, _SIZE), _LINE])
        boxes = [
            _text_box(spot, extent, radius + reach, side) for reach in _REACHES for side in _SIDES
        ]
        free = (
            box
            for box in boxes
            if np.all(box[0] >= frame[0])
            and np.all(box[1] <= frame[1])
            and not any(np.all(box[0] < b[1]) and np.all(b[0] < box[1]) for b in occupied)
        )
        box = next(free, boxes[0])
        occupied.append(box)
        away = np.abs(box.mean(axis=0) - spot) - extent / 2 - radius
        pointer = _POINTER | {"shrinkB": radius} if away.max() > _REACHES[1] / 2 else None
        note = axes.annotate(
            text,
            point,
            box.mean(axis=0) - spot,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=_SIZE,
            arrowprops=pointer,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            zorder=4 if pointer else 5,  # texts beside their points cover the lines to others
        )
        note.set_in_layout(False)  # else the axes shrink, and labels lie elsewhere than planned


def _text_box(
    spot: np.ndarray, extent: np.ndarray, reach: float, side: tuple[float, float]
) -> np.ndarray:
    """Returns the lower left and upper right corner of a text on one side of a point."""
    middle = spot + np.array(side) * (reach + extent / 2)
    return np.array([middle - extent / 2, middle + extent / 2])


@functools.cache
def _advance(character: str) -> float:
    """Returns the advance width of a character, in font sizes."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    renderer, font = RendererAgg(1, 1, 72), FontProperties(size=100)
    one, eleven = (
        renderer.get_text_width_height_descent(character * count, font, False)[0]
        for count in (1, 11)
    )
    return (eleven - one) / 1000
