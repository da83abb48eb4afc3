"""Shared parts of all figures: style, labels, files.

A figure is a pure function of a run's files. It is saved as PNG and SVG, and that of a comparison
also as PDF; equal data give equal files. matplotlib is an optional extra, imported only when a
figure is drawn.

The colours are Okabe and Ito's, which colour-blind readers can distinguish (https://jfly.uni-koeln.de/color/);
hatches distinguish devices in grey print.
"""

import io
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placement import files
from placement.errors import missing_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "++++")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
ALARM = "#d55e00"  # emphasises
GREY, PALE = "#767676", "#ececec"
SMALLEST = 6.0  # points: the smallest readable text in print
# By suffix of a figure's file: what differs from run to run is left out.
_METADATA = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
BOUND: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.5}


class NothingToDrawError(Exception):
    """A figure cannot be drawn; the message says why, in one line."""


def save(figure: "Figure", directory: Path, name: str, suffixes: Iterable[str]) -> None:
    """Writes NAME.png, NAME.svg and NAME.pdf; equal figures make equal files.

    Raises:
      OSError: a file cannot be written; the error names it.
    """
    import matplotlib

    _take_literally(figure)
    for suffix in suffixes:
        image = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "placement", "svg.fonttype": "none"}):
            figure.savefig(image, dpi=150, format=suffix, metadata=_METADATA[suffix])
        files.write_bytes(directory / f"{name}.{suffix}", image.getvalue())


def arrange(figure: "Figure") -> None:
    """Fixes the positions of everything drawn so far."""
    _take_literally(figure)
    figure.draw_without_rendering()


def _take_literally(figure: "Figure") -> None:
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


def luminance(colour: tuple[float, float, float]) -> float:
    """Returns the luminance of a colour, from 0 to 1 (ITU-R BT.709)."""
    return float(np.dot((0.2126, 0.7152, 0.0722), colour))


def scale_axis(axes: Any, axis_name: str, values: Iterable[float]) -> None:
    """Makes the 'x' or 'y' axis logarithmic if positive values span more than a factor of ten.

    It then has several labelled ticks in a decade.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    finite = [value for value in values if value > 0 and math.isfinite(value)]
    if not finite or max(finite) <= 10 * min(finite):
        return
    axes.set(**{f"{axis_name}scale": "log"})
    axis = getattr(axes, f"{axis_name}axis")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def line_key(label: str, style: Mapping[str, Any]) -> Any:
    """Makes a legend's entry of a line or marker."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **style, label=label)
