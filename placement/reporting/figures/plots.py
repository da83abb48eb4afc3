"""Shared parts of all figures: style, legends, files.

A figure is a pure function of a run's files; equal data give equal files. matplotlib is an optional
extra, imported only when a figure is drawn.

The colours are Okabe and Ito's, which colour-blind readers can distinguish (https://jfly.uni-koeln.de/color/);
hatches distinguish devices in grey print.
"""

import io
from collections.abc import Iterable
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


class NothingToDrawError(Exception):
    """A figure cannot be drawn; the message says why, in one line."""


def save(figure: "Figure", directory: Path, name: str) -> str:
    """Writes NAME.png and NAME.svg; equal figures make equal files. Returns the SVG.

    Raises:
      OSError: a file cannot be written; the error names it.
    """
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a dollar sign in a name starts no formula
    content = b""
    for suffix, metadata in SUFFIXES.items():
        image = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "placement", "svg.fonttype": "none"}):
            figure.savefig(image, dpi=150, format=suffix, metadata=metadata)
        content = image.getvalue()
        files.write_bytes(directory / f"{name}.{suffix}", content)
    return content.decode()


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


def tint(device: int, share: float) -> tuple[float, ...]:
    """Returns the share of a device's colour, mixed with white."""
    from matplotlib.colors import to_rgb

    return tuple(1 - share * (1 - channel) for channel in to_rgb(COLOURS[device % len(COLOURS)]))


def legend_below(figure: "Figure", styles: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Draws the legend of lines and markers below the axes: a label and a style of each."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **style, label=label) for label, style in styles]
    figure.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False)


def shortened(text: str, size: float, width: float) -> str:
    """Returns the text, or its beginning where a font of this size makes it too wide.

    A character is taken to be 0.62 times as wide as high, in points: a cautious mean.
    """
    most = int(width / (0.62 * size))
    return text if len(text) <= most else f"{text[: max(0, most - 1)]}…"
