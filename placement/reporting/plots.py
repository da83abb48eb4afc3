"""Figures of a run. matplotlib is an extra, imported only when a figure is drawn."""

import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from placement.reporting import runs, tables

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_BEST, _OTHER = "#0072b2", "#b8c4ce"
_REFERENCE: dict[str, Any] = {"facecolor": "white", "edgecolor": "#555555", "hatch": "////"}
_DIAMOND: dict[str, Any] = {
    "marker": "D",
    "color": "white",
    "markeredgecolor": "black",
    "markersize": 5,
    "linestyle": "none",
}
_BAR_HEIGHT = 0.6


def plot_search(metrics: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Draws the best and the mean latency of a search over its evaluations.

    Args:
        metrics: Records of `metrics.jsonl`: `evaluations`, `best_s`, `mean_s`, and optionally
            `method` and `seed`; each method has a colour, each seed a line. Null leaves a gap.
        path: The image to write; its suffix names the format.

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
    figure, axes = _new_figure(7.0, 4.0)
    for (method, _), records in searches.items():
        colour = _COLOURS[methods.index(method) % len(_COLOURS)]
        counts = [record["evaluations"] for record in records]
        best, mean = (
            [_in_unit(record.get(key), unit) for record in records] for key in ("best_s", "mean_s")
        )
        axes.step(counts, best, color=colour, linewidth=2.0, where="post", label=f"{method}: best")
        axes.plot(counts, mean, color=colour, linewidth=1.0, alpha=0.45, label=f"{method}: mean")
    axes.set_title("Search: best and mean latency of the placements tried", loc="left")
    axes.set_xlabel("placements evaluated")
    axes.set_ylabel(f"latency as the search evaluates it ({unit.name})")
    axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # one a label
    axes.legend(handles.values(), handles.keys(), frameon=False)
    _save(figure, axes, path)


def plot_latencies(summary: tables.Summary, path: str | os.PathLike[str]) -> None:
    """Draws the latency of every row that has one: bars, with intervals where measured.

    Bars are measured latencies, with the predicted ones as diamonds; where nothing was measured,
    bars are predicted ones. Reference rows, outside the placement, are hatched.

    Args:
        summary: What `summary.json` holds.
        path: The image to write; its suffix names the format.

    Raises:
        ValueError: No row has a latency, or matplotlib is not installed.
    """
    rows = [row for part in tables.split(summary["rows"]) for row in part if _has_latency(row)]
    if not rows:
        raise ValueError("no row of the summary has a latency to plot")
    unit = tables.unit(rows)
    figure, axes = _new_figure(7.5, 1.4 + 0.38 * len(rows))
    measured = any(tables.median_s(row) is not None for row in rows)
    best = tables.best_rows(summary)
    for place, row in enumerate(rows):
        _draw_bar(axes, place, row, unit, measured=measured, best=row in best)
    axes.set_yticks(range(len(rows)), [_row_label(row, rows) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.margins(x=0.2)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{'measured' if measured else 'predicted'} latency ({unit.name})")
    figure.suptitle(tables.title(summary), x=0.01, ha="left", fontsize="medium")
    _legend(axes, rows, measured=measured, best=bool(best))
    axes.tick_params(axis="y", length=0)
    _save(figure, axes, path)


def _new_figure(width: float, height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("matplotlib is missing: pip install 'placement[plots]'") from error
    # Without pyplot there is no global state, no display and nothing to close.
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _draw_bar(
    axes: Any, place: int, row: tables.Row, unit: tables.Unit, *, measured: bool, best: bool
) -> None:
    predicted = _in_unit(row.get("predicted_s"), unit)
    bar = _in_unit(tables.median_s(row), unit) if measured else predicted
    style = _REFERENCE if row.get("reference") else {"color": _BEST if best else _OTHER}
    end, text = bar, f"{bar:.{unit.decimals}f}"
    if math.isnan(bar):
        end, text = predicted, "not measured"
    else:
        axes.barh(place, bar, height=_BAR_HEIGHT, **style)
    if measured and not math.isnan(bar):
        low, high = (_in_unit(row["measured_s"].get(key), unit) for key in ("low", "high"))
        error = [[bar - low], [high - bar]]
        axes.errorbar(bar, place, xerr=error, color="black", capsize=3, linewidth=1)
        end = max(bar, high)
    if measured:  # at the bar's lower edge, clear of the interval
        axes.plot(predicted, place + _BAR_HEIGHT / 2, **_DIAMOND)
    axes.annotate(text, (end, place), (6, 0), textcoords="offset points", va="center")


def _legend(axes: Any, rows: Sequence[tables.Row], *, measured: bool, best: bool) -> None:
    """Explains what the picture uses, below it, where no bar can be."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=_BEST, label="best")] if best else []
    if any(row.get("reference") for row in rows):
        handles.append(Patch(**_REFERENCE, label="outside the placement"))
    if measured:
        interval: dict[str, Any] = {"marker": "|", "color": "black", "linewidth": 1}
        handles.append(Line2D([], [], **interval, label="95% interval"))
        handles.append(Line2D([], [], **_DIAMOND, label="predicted"))
    if handles:
        axes.figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False)


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


def _in_unit(seconds: Any, unit: tables.Unit) -> float:
    value = tables.number(seconds)
    return math.nan if value is None else value * unit.per_s


def _save(figure: Any, axes: Any, path: str | os.PathLike[str]) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    image = io.BytesIO()
    figure.savefig(image, dpi=150, format=Path(path).suffix[1:] or None)
    runs.write_bytes(path, image.getvalue())
