"""What all figures share: style, labels, files.

A figure is a pure function of what a run wrote, and is saved twice: as pixels, and as an SVG that
equal data make equal. matplotlib is an extra, imported only when a figure is drawn.

Colours are Okabe and Ito's, which the colour-blind tell apart (https://jfly.uni-koeln.de/color/);
hatches tell devices apart in grey print.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.errors import missing_extra
from placement.reporting import runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "++++")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
ALARM = "#d55e00"  # what matters among what has a colour
GREY, PALE = "#767676", "#ececec"
SMALLEST = 6.0  # points, of a text that is to be read in print
BOUND: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.5}
_DPI = 150
_SAME_EVERY_TIME: Any = {"svg.hashsalt": "placement", "svg.fonttype": "none"}
_DECADE = 10.0  # a span of values that asks for a logarithmic axis


class NothingToDrawError(Exception):
    """A figure that cannot be drawn, and why: one line for whoever misses it."""


def save(figure: "Figure", directory: Path, name: str) -> None:
    """Writes NAME.png and NAME.svg; equal figures make equal files.

    Raises:
      OSError: they cannot be written; the error names the file.
    """
    import matplotlib

    _take_literally(figure)
    for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        image = io.BytesIO()
        with matplotlib.rc_context(_SAME_EVERY_TIME):
            figure.savefig(image, dpi=_DPI, format=suffix, metadata=metadata)
        runs.write_bytes(directory / f"{name}.{suffix}", image.getvalue())


def arrange(figure: "Figure") -> None:
    """Finds where everything lies, to place further things by it."""
    _take_literally(figure)
    figure.draw_without_rendering()


def _take_literally(figure: "Figure") -> None:
    """Dollars in names of operations are no formulas."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)


def new_figure(width: float, height: float, *, arranged: bool = True) -> "Figure":
    """Makes an empty figure.

    Args:
      width: in inches.
      height: in inches.
      arranged: whether matplotlib makes room for labels.

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
    """Returns how patches of a device look; more devices than colours take further hatches."""
    hatch = HATCHES[device % len(HATCHES)]
    return {"facecolor": COLOURS[device % len(COLOURS)], "edgecolor": "white", "hatch": hatch}


def mixed(colour: str, share: float) -> tuple[float, float, float]:
    """Mixes the colour with white: a tint."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1 - share * (1 - channel) for channel in to_rgb(colour))
    return red, green, blue


def luminance(colour: tuple[float, float, float]) -> float:
    """Returns how bright a colour prints in grey, from 0 to 1 (ITU-R BT.709)."""
    return float(np.dot((0.2126, 0.7152, 0.0722), colour))


def logarithmic(axes: Any, which: str) -> None:
    """Makes the 'x' or 'y' axis logarithmic, with several ticks written out in a decade."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def spread_out(values: Sequence[float]) -> bool:
    """Whether positive values span so much that only a logarithmic axis shows them all."""
    known = [value for value in values if value > 0 and math.isfinite(value)]
    return bool(known) and max(known) > _DECADE * min(known)


def line_key(label: str, style: Mapping[str, Any]) -> Any:
    """Makes a legend's entry of a line or marker."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **style, label=label)
