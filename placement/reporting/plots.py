"""Figures of a search and of latencies, and what all figures share: style, labels, files.

A figure is a pure function of what a run wrote, and is saved twice: as pixels, and as an SVG that
equal data make equal. matplotlib is an extra, imported only when a figure is drawn.

Colours are Okabe and Ito's, which the colour-blind tell apart (https://jfly.uni-koeln.de/color/);
hatches tell devices apart in grey print.
"""

import functools
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.reporting import layout, runs, tables

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
_BEST, _OTHER = COLOURS[0], "#b8c4ce"
_REFERENCE: dict[str, Any] = {"facecolor": "white", "edgecolor": "#555555", "hatch": "////"}
_DIAMOND: dict[str, Any] = {
    "marker": "D",
    "color": "white",
    "markeredgecolor": "black",
    "markersize": 5,
    "linestyle": "none",
}
_BAR_HEIGHT = 0.6
_LONGEST_BAR = 8.0  # times the shortest one; those beyond are cut
_DECADE = 10.0  # a span of values that asks for a logarithmic axis


def save(figure: "Figure", directory: Path, name: str) -> None:
    """Writes NAME.png and NAME.svg; equal figures make equal files.

    Raises:
        OSError: They cannot be written; the error names the file.
    """
    import matplotlib

    for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        image = io.BytesIO()
        with matplotlib.rc_context(_SAME_EVERY_TIME):
            figure.savefig(image, dpi=_DPI, format=suffix, metadata=metadata)
        runs.write_bytes(directory / f"{name}.{suffix}", image.getvalue())


def new_figure(width: float, height: float, *, arranged: bool = True) -> "Figure":
    """An empty figure.

    Args:
        width: In inches.
        height: In inches.
        arranged: Whether matplotlib makes room for labels.

    Raises:
        ValueError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("matplotlib is missing: pip install 'placement[plots]'") from error
    # Without pyplot there is no global state, no display and nothing to close.
    return Figure(figsize=(width, height), layout="constrained" if arranged else None)


def device_style(device: int) -> dict[str, Any]:
    """How patches of a device look; more devices than colours take further hatches."""
    hatch = HATCHES[device % len(HATCHES)]
    return {"facecolor": COLOURS[device % len(COLOURS)], "edgecolor": "white", "hatch": hatch}


def in_unit(seconds: Any, unit: tables.Unit) -> float:
    """The latency in the unit; nan where there is none."""
    value = tables.number(seconds)
    return math.nan if value is None else value * unit.per_s


def text_width(text: str, size: float) -> float:
    """Points that a line of text takes at a size in points."""
    return size * sum(map(_advance, text))


def shortened(text: str, size: float, width: float) -> str:
    """The text where it takes at most `width` points, else its beginning and an ellipsis."""
    if text_width(text, size) <= width:
        return text
    for end in range(len(text) - 1, 0, -1):
        if text_width(f"{text[:end]}…", size) <= width:
            return f"{text[:end]}…"
    return ""


def label_beside(axes: Any, points: Sequence[tuple[float, float]], texts: Sequence[str]) -> None:
    """Labels points right of the axes, one below the other, with lines that lead to the points.

    Args:
        axes: Its limits and scales are final.
        points: Where the labels would stand if there were room, in data coordinates.
        texts: As many; lines that are longer than the figure is wide are the caller's mistake.
    """
    height = axes.get_position().height * axes.figure.get_figheight() * 72
    line = 11 / height  # of 8 points, in parts of the axes
    spots = axes.transAxes.inverted().transform(axes.transData.transform(points))
    order = np.argsort(spots[:, 1], kind="stable")
    places = layout.spread(spots[order, 1], np.full(len(points) - 1, line))
    for index, place in zip(order, places, strict=True):
        axes.annotate(
            texts[index],
            points[index],
            (1.03, place),
            textcoords="axes fraction",
            va="center",
            fontsize=8,
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkB": 0},
            annotation_clip=False,
        )


def mixed(colour: str, share: float) -> tuple[float, float, float]:
    """The colour with white: a tint."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1 - share * (1 - channel) for channel in to_rgb(colour))
    return red, green, blue


def luminance(colour: tuple[float, float, float]) -> float:
    """How bright a colour prints in grey, from 0 to 1 (ITU-R BT.709)."""
    return float(np.dot((0.2126, 0.7152, 0.0722), colour))


def duration(seconds: float) -> str:
    """Three digits and the unit that suits them: '1.25 ms'."""
    for name, per_s in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * per_s >= 1 or name == "us":
            break
    return f"{seconds * per_s:.3g} {name}"


def logarithmic(axes: Any, which: str) -> None:
    """A scale of the 'x' or 'y' axis whose ticks are written out, several of them in a decade."""
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


def search(metrics: Sequence[Mapping[str, Any]], rows: Sequence[tables.Row] = ()) -> "Figure":
    """The best and the mean latency of searches over their evaluations.

    Args:
        metrics: Records of `metrics.jsonl`: `evaluations`, `best_s`, and optionally `mean_s`,
            `method` and `seed`; each method has a colour, each seed a line. Null leaves a gap.
        rows: Of the summary: single devices and the proven bound become lines to compare with.

    Raises:
        ValueError: There are no records, or matplotlib is not installed.
    """
    if not metrics:
        raise ValueError("the search left no metrics to plot")
    searches: dict[tuple[str, Any], list[Mapping[str, Any]]] = {}
    for record in metrics:
        key = (str(record.get("method", "search")), record.get("seed"))
        searches.setdefault(key, []).append(record)
    unit = tables.unit([{"predicted_s": record.get("best_s")} for record in metrics])
    methods = list(dict.fromkeys(method for method, _ in searches))
    figure = new_figure(7.5, 4.2)
    axes = figure.subplots()
    for (method, _), records in searches.items():
        colour = COLOURS[methods.index(method) % len(COLOURS)]
        counts = [record["evaluations"] for record in records]
        best, mean = (
            [in_unit(record.get(key), unit) for record in records] for key in ("best_s", "mean_s")
        )
        axes.step(counts, best, color=colour, linewidth=2.0, where="post", label=f"{method}: best")
        if not np.isnan(mean).all():
            axes.plot(counts, mean, color=colour, linewidth=1, alpha=0.5, label=f"{method}: mean")
    axes.set_title("Search: best and mean latency of the placements tried", loc="left")
    axes.set_xlabel("placements evaluated")
    axes.set_ylabel(f"latency as the search evaluates it ({unit.name})")
    axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # one a label
    legend_below(figure, list(handles.values()))
    _draw_references(axes, rows, unit)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def latencies(summary: tables.Summary) -> "Figure":
    """The latency of every row that has one: bars, with intervals where measured.

    Bars are measured latencies, with the predicted ones as diamonds; where nothing was measured,
    bars are predicted ones. Reference rows, outside the placement, are hatched. A dotted line is
    the proven bound of what is predicted. Bars more than eight times the shortest are cut there.

    Args:
        summary: What `summary.json` holds.

    Raises:
        ValueError: No row has a latency, or matplotlib is not installed.
    """
    rows = [row for part in tables.split(summary["rows"]) for row in part if _has_latency(row)]
    if not rows:
        raise ValueError("no row of the summary has a latency to plot")
    unit = tables.unit(rows)
    figure = new_figure(7.5, 1.4 + 0.38 * len(rows))
    axes = figure.subplots()
    measured = any(tables.median_s(row) is not None for row in rows)
    best = tables.best_rows(summary)
    longest = _LONGEST_BAR * min(_shown_s(row, measured) for row in rows) * unit.per_s
    for place, row in enumerate(rows):
        _draw_bar(axes, place, row, unit, measured=measured, best=row in best, longest=longest)
        bound = math.nan if row.get("reference") else in_unit(row.get("bound_s"), unit)
        axes.plot([bound, bound], [place - 0.5, place + 0.5], **BOUND)
    axes.set_yticks(range(len(rows)), [_row_label(row, rows) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.margins(x=0.2)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{'measured' if measured else 'predicted'} latency ({unit.name})")
    figure.suptitle(tables.title(summary), x=0.01, ha="left", fontsize="medium")
    legend_below(figure, _explained(rows, measured=measured, best=bool(best)))
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def legend_below(figure: "Figure", handles: Sequence[Any]) -> None:
    """Explains what the picture uses, below it, where no data can be."""
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False)


def _draw_references(axes: Any, rows: Sequence[tables.Row], unit: tables.Unit) -> None:
    """Lines of single devices and of the bound, labelled beside the axes; scales the axes."""
    own = tables.split(rows)[0]
    named = [(row["method"], in_unit(row["predicted_s"], unit)) for row in own]
    singles = [(m, value) for m, value in named if m.startswith("single:") and value > 0]
    best = min((value for _, value in singles), default=math.nan)
    bounds = [in_unit(row.get("bound_s"), unit) for row in own]
    bound = min((value for value in bounds if value > 0), default=math.nan)
    drawn: dict[float, list[str]] = {}  # what is equally fast shares a line
    for method, value in singles:
        drawn.setdefault(value, []).append(method.removeprefix("single:"))
    for value in drawn:
        emphasis = {"color": "black", "linewidth": 1.4} if value == best else {"color": GREY}
        axes.axhline(value, **{"linestyle": "--", "linewidth": 0.8, "zorder": 1} | emphasis)
    if not math.isnan(bound):
        axes.axhline(bound, **BOUND, zorder=1)
        drawn.setdefault(bound, []).insert(0, "proven bound")
    heights = [float(y) for line in axes.lines for y in line.get_ydata()]
    if spread_out(heights):
        logarithmic(axes, "y")
    if drawn:
        right = axes.get_xlim()[1]
        axes.set_xlim(right=right)
        texts = [f"{', '.join(names)}: {value:.{unit.decimals}f}" for value, names in drawn.items()]
        label_beside(axes, [(right, value) for value in drawn], texts)


def _draw_bar(
    axes: Any,
    place: int,
    row: tables.Row,
    unit: tables.Unit,
    *,
    measured: bool,
    best: bool,
    longest: float,
) -> None:
    predicted = in_unit(row.get("predicted_s"), unit)
    bar = in_unit(tables.median_s(row), unit) if measured else predicted
    style = _REFERENCE if row.get("reference") else {"color": _BEST if best else _OTHER}
    end, text = min(bar, longest), f"{bar:.{unit.decimals}f}"
    if math.isnan(bar):
        end, text = min(predicted, longest), "not measured"
    else:
        axes.barh(place, end, height=_BAR_HEIGHT, **style)
    if bar > longest:
        text = f"» {text}"  # the bar goes on
    elif measured and not math.isnan(bar):
        low, high = (in_unit(row["measured_s"].get(key), unit) for key in ("low", "high"))
        error = [[bar - low], [high - bar]]
        axes.errorbar(bar, place, xerr=error, color="black", capsize=3, linewidth=1)
        end = max(bar, high)
    if measured and predicted <= longest:  # at the bar's lower edge, clear of the interval
        axes.plot(predicted, place + _BAR_HEIGHT / 2, **_DIAMOND)
    axes.annotate(text, (end, place), (6, 0), textcoords="offset points", va="center")


def _explained(rows: Sequence[tables.Row], *, measured: bool, best: bool) -> list[Any]:
    """Legend entries of the bars."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=_BEST, label="best")] if best else []
    if any(row.get("reference") for row in rows):
        handles.append(Patch(**_REFERENCE, label="outside the placement"))
    if measured:
        interval: dict[str, Any] = {"marker": "|", "color": "black", "linewidth": 1}
        handles.append(Line2D([], [], **interval, label="95% interval"))
        handles.append(Line2D([], [], **_DIAMOND, label="predicted"))
    if any(tables.number(row.get("bound_s")) for row in tables.split(rows)[0]):
        of = " of predictions" if measured else ""
        handles.append(Line2D([], [], **BOUND, label=f"proven bound{of}"))
    return handles


def _row_label(row: tables.Row, rows: Sequence[tables.Row]) -> str:
    """The method, with the graph and the seed where rows differ in them."""
    parts = [
        f"{key} {row[key]}" if key == "seed" else str(row[key])
        for key in ("graph", "seed")
        if key in row and any(other.get(key) != row[key] for other in rows)
    ]
    method = row["method"].removeprefix("reference:")
    return method if not parts else f"{method} ({', '.join(parts)})"


def _has_latency(row: tables.Row) -> bool:
    return tables.median_s(row) is not None or tables.number(row.get("predicted_s")) is not None


def _shown_s(row: tables.Row, measured: bool) -> float:
    """Of the row's bar, inf without one."""
    shown = tables.median_s(row) if measured else tables.number(row.get("predicted_s"))
    return math.inf if shown is None else shown


@functools.cache
def _advance(character: str) -> float:
    """How far a character moves the next one, in sizes."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    renderer, font = RendererAgg(1, 1, 72), FontProperties(size=100)
    one, eleven = (
        renderer.get_text_width_height_descent(character * count, font, False)[0]
        for count in (1, 11)
    )
    return (eleven - one) / 1000
