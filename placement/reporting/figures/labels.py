"""Text in figures: its width, and labels and legends that fit. Lengths are in points."""

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
