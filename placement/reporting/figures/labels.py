"""Text in figures: how wide it is, and where there is room for it. Lengths are in points."""

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
_LEGEND, _MOST_COLUMNS = 10.0, 4
_KEY = 5.0  # sizes of text that a legend's entry takes beside its words
_REACHES = (2.0, 8.0, 18.0, 32.0, 50.0, 75.0)  # from a point to its label
_WAYS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))


def width(text: str, size: float) -> float:
    """Returns how wide a line of text is at a size."""
    return size * sum(map(_advance, text))


def shortened(text: str, size: float, most: float) -> str:
    """Returns the text where it takes at most `most` points, else its beginning and an ellipsis."""
    if width(text, size) <= most:
        return text
    for end in range(len(text) - 1, 0, -1):
        if width(f"{text[:end]}…", size) <= most:
            return f"{text[:end]}…"
    return ""


def legend_below(figure: "Figure", handles: Sequence[Any]) -> None:
    """Explains what a picture uses, below it, where no data can be; in columns that fit."""
    if not handles:
        return
    room = (figure.get_figwidth() * 72 - _LEGEND) / _LEGEND  # in sizes of the text
    widths = [width(handle.get_label(), 1.0) for handle in handles]
    for columns in range(_MOST_COLUMNS, 0, -1):
        parts = [part for part in np.array_split(widths, columns) if len(part)]
        if sum(part.max() + _KEY for part in parts) <= room:
            break
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=columns,
        fontsize=_LEGEND,
        frameon=False,
    )


def beside(axes: Any, points: Sequence[tuple[float, float]], texts: Sequence[str]) -> None:
    """Labels points right of the axes, one below the other, with lines that lead to the points.

    Args:
      axes: its limits and scales are final.
      points: where the labels would stand if there were room, in data coordinates.
      texts: as many; lines that are longer than the figure is wide are the caller's mistake.
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


def near(axes: Any, points: np.ndarray, texts: Sequence[str], radii: np.ndarray) -> None:
    """Labels points where neither another label nor a point is, as near as there is room.

    Args:
      axes: everything else is drawn.
      points: float64 [K, 2], in data coordinates.
      texts: K.
      radii: float64 [K]: how large the points are.
    """
    figure = axes.figure
    plots.arrange(figure)  # after which it is known where points are
    scale = 72 / figure.dpi
    spots = axes.transData.transform(points) * scale
    frame = axes.get_window_extent().extents.reshape(2, 2) * scale
    taken = [np.array([spot - r, spot + r]) for spot, r in zip(spots, radii, strict=True)]
    for spot, text, radius, point in zip(spots, texts, radii, points, strict=True):
        extent = np.array([width(text, _SIZE), _LINE])
        boxes = [
            _box_beside(spot, extent, radius + reach, way) for reach in _REACHES for way in _WAYS
        ]
        free = (box for box in boxes if _within(box, frame) and not _touches(box, taken))
        box = next(free, boxes[0])
        taken.append(box)
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


def _box_beside(
    spot: np.ndarray, extent: np.ndarray, reach: float, way: tuple[float, float]
) -> np.ndarray:
    """Returns the lower left and upper right corner of a text on that side of the spot."""
    middle = spot + np.array(way) * (reach + extent / 2)
    return np.array([middle - extent / 2, middle + extent / 2])


def _within(box: np.ndarray, frame: np.ndarray) -> bool:
    return bool(np.all(box[0] >= frame[0]) and np.all(box[1] <= frame[1]))


def _touches(box: np.ndarray, others: Sequence[np.ndarray]) -> bool:
    return any(np.all(box[0] < other[1]) and np.all(other[0] < box[1]) for other in others)


@functools.cache
def _advance(character: str) -> float:
    """Returns how far a character moves the next one, in sizes."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    renderer, font = RendererAgg(1, 1, 72), FontProperties(size=100)
    one, eleven = (
        renderer.get_text_width_height_descent(character * count, font, False)[0]
        for count in (1, 11)
    )
    return (eleven - one) / 1000
