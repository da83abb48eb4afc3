"""Figures of a search, and of the latencies of all methods."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.reporting import summaries, units
from placement.reporting.figures import labels, plots
from placement.reporting.tables import results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BEST, _PLAIN = plots.COLOURS[0], "#b8c4ce"
_REFERENCE: dict[str, Any] = {"facecolor": "white", "edgecolor": "#555555", "hatch": "////"}
_DIAMOND: dict[str, Any] = {
    "marker": "D",
    "color": "white",
    "markeredgecolor": "black",
    "markersize": 5,
    "linestyle": "none",
}
_SHARE = "share_"  # prefix of the names of shares
_BAR_HEIGHT = 0.6


def search(metrics: Sequence[Mapping[str, Any]], rows: Sequence[summaries.Row] = ()) -> "Figure":
    """Draws the best and the mean latency of searches over their evaluations, and their shares.

    Args:
      metrics: records of `metrics.jsonl`: `evaluations`, `best_s`, and optionally `mean_s`,
          `method` and `seed`; each method has a colour, each seed a line. Null leaves a gap. A
          search whose records have keys that begin with 'share_', which add up to 1, has a panel
          below.
      rows: rows of the summary: single devices and the proven bound of the searches' placements
          become lines. A search starts with the single devices, before its first record.

    Raises:
      NothingToDrawError: the metrics are empty, or matplotlib is not installed.
    """
    if not metrics:
        raise plots.NothingToDrawError("the search left no metrics to plot")
    searches: dict[tuple[str, Any], list[Mapping[str, Any]]] = {}
    for record in metrics:
        key = (str(record.get("method", "search")), record.get("seed"))
        searches.setdefault(key, []).append(record)
    unit = units.latency_unit(record.get("best_s") for record in metrics)
    methods = list(dict.fromkeys(method for method, _ in searches))
    shared = {
        key: share_records
        for key, records in searches.items()
        if (share_records := [r for r in records if any(key.startswith(_SHARE) for key in r)])
    }
    heights = [4.2, *len(shared) * [1.8]]
    figure = plots.new_figure(7.5, sum(heights))
    axes, *panels = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
    singles = {  # the predicted latencies of the single devices, by name
        row["method"].removeprefix("single:"): value
        for row in rows
        if summaries.is_single(row) and (value := unit.convert(row["predicted_s"])) > 0
    }
    for (method, _), records in searches.items():
        colour = plots.COLOURS[methods.index(method) % len(plots.COLOURS)]
        counts = [record["evaluations"] for record in records]
        best, mean = (
            [unit.convert(record.get(key)) for record in records] for key in ("best_s", "mean_s")
        )
        start = min(singles.values(), default=math.nan)
        if counts[0] > len(singles) and best[0] <= start:
            counts, best, mean = [len(singles), *counts], [start, *best], [math.nan, *mean]
        axes.step(counts, best, color=colour, linewidth=2.0, where="post", label=f"{method}: best")
        if not np.isnan(mean).all():
            axes.plot(counts, mean, color=colour, linewidth=1, alpha=0.5, label=f"{method}: mean")
    axes.set_title("Search: latency of the placements tried", loc="left")
    for panel, (key, records) in zip(panels, shared.items(), strict=True):
        _draw_shares(panel, key, records)
    (axes, *panels)[-1].set_xlabel("placements evaluated")
    axes.set_ylabel(f"latency as the search evaluates it ({unit.name})")
    axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    handles = {
        label: handle
        for panel in (axes, *panels)
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    labels.legend_below(figure, list(handles.values()))
    axes.set_xlim(left=0)
    bounds = [unit.convert(row.get("bound_s")) for row in rows if row["method"] in methods]
    bound = min((value for value in bounds if value > 0), default=math.nan)
    _draw_references(axes, singles, bound, unit)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def latencies(summary: summaries.Summary) -> "Figure":
    """Draws the latencies of all rows as bars, with intervals where measured.

    Bars are measured latencies, and diamonds are predictions; where nothing was measured, bars are
    predictions. Reference rows, outside the placement, are hatched. A dotted line is the proven
    bound of the predictions. Bars of more than eight times the shortest are cut.

    Raises:
      NothingToDrawError: no row has a latency, or matplotlib is not installed.
    """
    rows = [
        row
        for part in summaries.split_references(summary["rows"])
        for row in part
        if summaries.median_s(row) is not None or summaries.predicted_s(row) is not None
    ]
    if not rows:
        raise plots.NothingToDrawError("no row of the summary has a latency to plot")
    unit = summaries.unit(rows)
    figure = plots.new_figure(7.5, 1.4 + 0.38 * len(rows))
    axes = figure.subplots()
    measured = any(summaries.median_s(row) is not None for row in rows)
    best = results.best_rows(summary)
    values_s = map(summaries.median_s if measured else summaries.predicted_s, rows)
    longest = 8 * unit.per_s * min(s for s in values_s if s is not None)
    for place, row in enumerate(rows):
        _draw_bar(axes, place, row, unit, measured=measured, best=row in best, longest=longest)
        bound = math.nan if row.get("reference") else unit.convert(row.get("bound_s"))
        axes.plot([bound, bound], [place - 0.5, place + 0.5], **plots.BOUND)
    # Methods, with the graph and the seed where rows differ in them.
    keys = [key for key in ("graph", "seed") if len({row.get(key) for row in rows}) > 1]
    texts = []
    for row in rows:
        parts = [f"seed {row[key]}" if key == "seed" else row[key] for key in keys if key in row]
        texts.append(summaries.label(row) + (f" ({', '.join(parts)})" if parts else ""))
    axes.set_yticks(range(len(rows)), texts)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.margins(x=0.2)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{'measured' if measured else 'predicted'} latency ({unit.name})")
    figure.suptitle(results.title(summary), x=0.01, ha="left", fontsize="medium")
    labels.legend_below(figure, _explained(rows, measured=measured, best=bool(best)))
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_shares(axes: Any, search: tuple[str, Any], records: Sequence[Mapping[str, Any]]) -> None:
    """Draws the shares of the kinds of moves of a search, over its evaluations."""
    keys = [key for key in records[0] if key.startswith(_SHARE)]
    counts = [record["evaluations"] for record in records]
    axes.stackplot(
        counts,
        [[record[key] for record in records] for key in keys],
        labels=[f"share of {key.removeprefix(_SHARE)}" for key in keys],
        colors=[plots.mixed(colour, 0.6) for colour in plots.COLOURS],
    )
    axes.set_title(f"{search[0]}, seed {search[1]}: kinds of moves", loc="left")
    axes.set_ylim(0, 1)
    axes.set_xlim(0, counts[-1])
    axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_references(
    axes: Any, singles: Mapping[str, float], bound: float, unit: units.Unit
) -> None:
    """Draws labelled lines for single devices and for the bound; scales the axes."""
    best = min(singles.values(), default=math.nan)
    lines: dict[float, list[str]] = {}  # devices that are equally fast share a line
    for name, value in singles.items():
        lines.setdefault(value, []).append(name)
    for value in lines:
        emphasis = {"color": "black", "linewidth": 1.4} if value == best else {"color": plots.GREY}
        axes.axhline(value, **{"linestyle": "--", "linewidth": 0.8, "zorder": 1} | emphasis)
    if not math.isnan(bound):
        axes.axhline(bound, **plots.BOUND, zorder=1)
        lines.setdefault(bound, []).insert(0, "proven bound")
    plots.scale_axis(axes, "y", (float(y) for line in axes.lines for y in line.get_ydata()))
    if lines:
        right = axes.get_xlim()[1]
        axes.set_xlim(right=right)
        texts = [f"{', '.join(names)}: {value:.{unit.decimals}f}" for value, names in lines.items()]
        labels.label_margin(axes, [(right, value) for value in lines], texts)


def _draw_bar(
    axes: Any,
    place: int,
    row: summaries.Row,
    unit: units.Unit,
    *,
    measured: bool,
    best: bool,
    longest: float,
) -> None:
    predicted = unit.convert(row.get("predicted_s"))
    bar = unit.convert(summaries.median_s(row)) if measured else predicted
    style = {"color": _BEST if best else _PLAIN}
    if row.get("reference"):
        style = _REFERENCE | ({"edgecolor": _BEST, "linewidth": 2} if best else {})
    end, text = min(bar, longest), f"{bar:.{unit.decimals}f}"
    if math.isnan(bar):
        end, text = min(predicted, longest), "not measured"
    else:
        axes.barh(place, end, height=_BAR_HEIGHT, **style)
    if bar > longest:
        text = f"» {text}"  # the bar is cut
    elif measured and not math.isnan(bar):
        low, high = (unit.convert(row["measured_s"].get(key)) for key in ("low", "high"))
        error = [[bar - low], [high - bar]]
        axes.errorbar(bar, place, xerr=error, color="black", capsize=3, linewidth=1)
        end = max(bar, high)
    if measured and predicted <= longest:  # at the bar's lower edge, clear of the interval
        axes.plot(predicted, place + _BAR_HEIGHT / 2, **_DIAMOND)
    axes.annotate(text, (end, place), (6, 0), textcoords="offset points", va="center")


def _explained(rows: Sequence[summaries.Row], *, measured: bool, best: bool) -> list[Any]:
    """Returns legend entries of the bars."""
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=_BEST, label="best")] if best else []
    if any(row.get("reference") for row in rows):
        handles.append(Patch(**_REFERENCE, label="outside the placement"))
    if measured:
        interval: dict[str, Any] = {"marker": "|", "color": "black", "linewidth": 1}
        handles.append(plots.line_key("95% interval", interval))
        handles.append(plots.line_key("predicted", _DIAMOND))
    if any(units.number(row.get("bound_s")) for row in summaries.split_references(rows)[0]):
        suffix = " of predictions" if measured else ""
        handles.append(plots.line_key(f"proven bound{suffix}", plots.BOUND))
    return handles
