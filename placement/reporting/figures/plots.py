"""Shared parts of all figures: style, widths of texts, legends, files.

A figure is a pure function of a run's files; equal data give equal files. matplotlib is an optional
extra, imported only when a figure is drawn.

The colours are Okabe and Ito's, which colour-blind readers can distinguish (https://jfly.uni-koeln.de/color/);
hatches distinguish devices in grey print.
"""

import functools
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placement import files
from placement.errors import missing_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "++++")
ALARM = "#d55e00"  # emphasises
GREY, PALE = "#767676", "#ececec"
SMALLEST = 6.0  # points: the smallest readable text in print
BOUND: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.5}
# The suffixes of a figure's files, with the metadata that would differ from run to run.
SUFFIXES: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}}
_LEGEND_SIZE = 10.0


class NothingToDrawError(Exception):
    """A figure cannot be drawn; the message says why, in one line."""


def save(figure: "Figure", directory: Path, name: str) -> None:
    """Writes NAME.png and NAME.svg; equal figures make equal files.

    Raises:
      OSError: a file cannot be written; the error names it.
    """
    import matplotlib

    take_literally(figure)
    for suffix, metadata in SUFFIXES.items():
        image = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "placement", "svg.fonttype": "none"}):
            figure.savefig(image, dpi=150, format=suffix, metadata=metadata)
        files.write_bytes(directory / f"{name}.{suffix}", image.getvalue())


def take_literally(figure: "Figure") -> None:
    """Shows dollar signs in names literally, not as formulas."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)


def new_figure(width: float, height: float, *, arranged: bool = True) -> "Figure":
    """Makes an empty figure, sizes in inches; if `arranged`, matplotlib makes space for labels.

    Raises:
      NothingToDrawError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NothingToDrawError(missing_extra("matplotlib", "plots")) from error
    # Without pyplot there is no global state, no display and nothing to close.
    return Figure(figsize=(width, height), layout="constrained" if arranged else None)


def device_style(device: int) -> dict[str, Any]:
    """Returns the style of a device's patches; devices beyond the colours differ by hatches."""
    hatch = HATCHES[device % len(HATCHES)]
    return {"facecolor": COLOURS[device % len(COLOURS)], "edgecolor": "white", "hatch": hatch}


def mixed(colour: str, share: float) -> tuple[float, float, float]:
    """Returns a tint: the share of the colour, mixed with white."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1 - share * (1 - channel) for channel in to_rgb(colour))
    return red, green, blue


def legend_below(figure: "Figure", handles: Sequence[Any]) -> None:
    """Draws the legend below the axes, in as many columns as fit."""
    if not handles:
        return
    available = (figure.get_figwidth() * 72 - _LEGEND_SIZE) / _LEGEND_SIZE  # in font sizes
    widest = max(text_width(handle.get_label(), 1.0) for handle in handles) + 5.0  # with the symbol
    columns = max(1, min(4, len(handles), int(available / widest)))
    figure.legend(
        handles=handles,
        loc="outside lower left",
        ncols=columns,
        fontsize=_LEGEND_SIZE,
        frameon=False,
    )


def line_key(label: str, style: dict[str, Any]) -> Any:
    """Makes a legend's entry of a line or marker."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **style, label=label)


def text_width(text: str, size: float) -> float:
    """Returns the width of a line of text at a font size, in points."""
    return size * sum(map(_advance, text))


def shortened(text: str, size: float, max_width: float) -> str:
    """Returns the text, or its beginning and an ellipsis where it is wider than `max_width`."""
    if text_width(text, size) <= max_width:
        return text
    ends = range(len(text) - 1, 0, -1)
    fitting = (end for end in ends if text_width(f"{text[:end]}…", size) <= max_width)
    end = next(fitting, None)
    return "" if end is None else f"{text[:end]}…"


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
