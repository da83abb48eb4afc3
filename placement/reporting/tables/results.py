"""Tables of a summary, as `summary.json` holds it: for the terminal, for Markdown, as a report.

A table has one unit of latency, chosen by the magnitude of its numbers. What is missing, null, NaN
or infinite prints as a dash: a row that failed says why in its status, and no number stands in for
one that was not obtained. Rows marked `reference` (devices outside the placement) come last, behind
a separator.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from placement.reporting import units
from placement.reporting.tables import grids
from placement.reporting.words import Words

Row = Mapping[str, Any]
Summary = Mapping[str, Any]

_TEXT_WIDTH = 16  # columns of text in the terminal
_UNRANKED = (math.inf, math.inf)
_LONGEST_CAUSE = 200  # characters in the terminal; Markdown has the whole
LEGEND = (
    "Measured: the median and its 95% interval. Against the best single device: below 1 is faster; "
    "measured over measured where both were measured, else predicted over predicted."
)
HOST_NOTE = (
    "Devices labelled `host` are cores of one processor, each opened as an OpenVINO device of its "
    "own: the numbers exercise the real measurement boundary and are no claim about GPUs."
)


class Column(NamedTuple):
    """What a table says of every row."""

    header: str  # with the line breaks that a terminal needs
    cell: Callable[[Row], str]
    numeric: bool = True

    @property
    def title(self) -> str:
        """The header in one line."""
        return self.header.replace("-\n", "").replace("\n", " ")


def rich_table(summary: Summary) -> Table:
    """Makes the table for a terminal of 80 columns or more, and for a file.

    Args:
      summary: what `summary.json` holds, before or after its journey through JSON.

    Returns:
      The table: the best row of each graph is bold, reference rows stand below a line, and why
      rows failed stands below the table.
    """
    shown = columns(summary["rows"])
    table = Table(
        title=Text(title(summary)),
        caption=Text("\n".join(_notes(summary))),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    for column in shown:
        table.add_column(
            Words(column.title, on_terminal=column.header),
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
        )
    best = best_rows(summary)
    for graph in by_graph(summary["rows"]):
        for rows in split(graph):
            for row in rows:
                table.add_row(
                    *(_worded(column, row) for column in shown),
                    style="bold" if row in best else None,
                )
            table.add_section()
    return table


def _worded(column: Column, row: Row) -> Words:
    return Words(column.cell(_without_cause(row)), widest=None if column.numeric else _TEXT_WIDTH)


def markdown_table(summary: Summary) -> str:
    """Writes the table in Markdown, with whole causes of failures, no final newline."""
    shown = columns(summary["rows"])
    best = best_rows(summary)
    own, references = split(summary["rows"])
    lines = []
    for row in own:
        text = grids.BOLD_MARKDOWN if row in best else "{}"
        lines.append([text.format(_one_line(column.cell(row))) for column in shown])
    if references:
        lines.append(["*for reference:*", *[""] * (len(shown) - 1)])
    lines += [[_one_line(column.cell(row)) for column in shown] for row in references]
    header, numeric = zip(*((column.title, column.numeric) for column in shown), strict=True)
    return grids.markdown(header, lines, numeric=numeric)


def compare_markdown(summary: Summary) -> str:
    """Writes one Markdown table a graph, each under the graph's name if there are several."""
    graphs = by_graph(summary["rows"])
    if len(graphs) < 2:
        return markdown_table(summary)
    parts = []
    for rows in graphs:
        part = {**summary, "rows": rows, "best": (best(rows) or {"method": None})["method"]}
        parts.append(f"### {rows[0]['graph']}\n\n{markdown_table(part)}")
    return "\n\n".join(parts)


def report_markdown(summary: Summary) -> str:
    """Writes the whole report: what was run, the table, which row is best and by how much.

    Args:
      summary: what `summary.json` holds, before or after its journey through JSON, its texts made
        harmless by `printable.markdown`.

    Returns:
      Markdown that ends with a newline.
    """
    graph = summary["graph"]
    facts = [
        f"- operations: {graph['num_ops']}, edges: {graph['num_edges']}",
        "- devices: " + ", ".join(f"`{label}`" for label in summary["devices"]),
        f"- objective: `{summary['objective']}`",
        f"- seed: {summary['seed']}",
    ]
    if units.number(summary.get("wall_s")) is not None:
        facts.append(f"- time taken: {summary['wall_s']:.1f} s")
    parts = [
        f"# Placement of {graph['name']}",
        "\n".join(facts),
        "## Result",
        compare_markdown(summary),
        LEGEND,
        "\n".join(verdict(summary)),
        "`placement.json` beside this file gives the device of every operation, and says how it "
        "was obtained.",
    ]
    if has_host(summary):
        parts.append(HOST_NOTE)
    return "\n\n".join(parts) + "\n"


def title(summary: Summary) -> str:
    """Returns what the rows are about, in one line."""
    graph, count = summary["graph"], len(by_graph(summary["rows"]))
    sizes = f"{graph['name']}: {graph['num_ops']} operations, {graph['num_edges']} edges"
    return f"{sizes if count < 2 else f'{count} graphs'}; objective {summary['objective']}"


def median_s(row: Row) -> float | None:
    """Returns the measured median latency of a row, or None."""
    return units.number((row.get("measured_s") or {}).get("median"))


def unit(rows: Iterable[Row]) -> units.Unit:
    """Returns the unit of all latencies of the rows, predicted and measured ones."""
    return units.of_latencies(s for row in rows for s in (row.get("predicted_s"), median_s(row)))


def split(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Returns the rows that are placements, and the reference rows."""
    rows = list(rows)
    own = [row for row in rows if not row.get("reference")]
    return own, [row for row in rows if row.get("reference")]


def best_rows(summary: Summary) -> list[Row]:
    """Returns the best row of each graph, never a reference or a row without a number."""
    graphs = by_graph(summary["rows"])
    if len(graphs) == 1:
        graphs = [[row for row in _candidates(graphs[0]) if row["method"] == summary["best"]]]
    return [row for row in map(best, graphs) if row is not None]


def best(rows: Iterable[Row]) -> Row | None:
    """Returns the best row, the first of equals: the one rule by which rows are compared.

    That is the lowest ratio to the best single device, then the lowest latency, of the placements
    that ran; of the measured ones wherever anything was measured.
    """
    return min(_candidates(rows), key=_rank, default=None)


def is_single(row: Row) -> bool:
    """Whether the row is everything on one device."""
    return row["method"].startswith("single:")


def columns(rows: Iterable[Row]) -> list[Column]:
    """Returns the columns that some row has something to say in."""
    rows = list(rows)
    latency = unit(rows)
    columns = [
        Column(key, _as_it_is(key), numeric=key == "seed")
        for key in ("graph", "seed")
        if len(_distinct(rows, key)) > 1
    ]
    columns += [
        Column("method", _shown_method, numeric=False),
        Column(f"predic-\nted {latency.name}", lambda row: latency.write(row.get("predicted_s"))),
    ]
    if any(median_s(row) is not None for row in rows):
        columns.append(
            Column(f"measured {latency.name}\n[low, high]", lambda row: _measured(row, latency))
        )
    columns.append(
        Column("vs best\nsingle", lambda row: _fixed(row.get("versus_best_single_device"), 3))
    )
    if any(units.number(row.get("bound_s")) is not None for row in rows):
        columns.append(
            Column(f"bound\n{latency.name}", lambda row: latency.write(row.get("bound_s")))
        )
        columns.append(Column("gap\n%", lambda row: _percent(row.get("gap"))))
    return [
        *columns,
        Column("search\ns", lambda row: _fixed(row.get("search_s"), 2)),
        Column("evalu-\nations", _as_it_is("evaluations")),
        Column("status", _as_it_is("status"), numeric=False),
    ]


def _as_it_is(key: str) -> Callable[[Row], str]:
    return lambda row: str(row.get(key, units.NONE))


def _measured(row: Row, latency: units.Unit) -> str:
    if median_s(row) is None:
        return units.NONE
    low, high = (latency.write(row["measured_s"].get(key)) for key in ("low", "high"))
    return f"{latency.write(median_s(row))} [{low}, {high}]"


def _fixed(value: Any, decimals: int) -> str:
    known = units.number(value)
    return units.NONE if known is None else f"{known:.{decimals}f}"


def _percent(gap: Any) -> str:
    return units.NONE if units.number(gap) is None else f"{100 * gap:.1f}"


def _candidates(rows: Iterable[Row]) -> list[Row]:
    """Returns placements that ran, the measured ones wherever anything was measured."""
    own = [row for row in split(rows)[0] if _rank(row) < _UNRANKED and not _failed(row)]
    return [row for row in own if median_s(row) is not None] or own


def _rank(row: Row) -> tuple[float, float]:
    """Returns what rows are compared by: the ratio, paired where measured, then the latency."""
    ratio = units.number(row.get("versus_best_single_device"))
    latency = median_s(row) or units.number(row.get("predicted_s"))
    return (math.inf if ratio is None else ratio, math.inf if latency is None else latency)


def _clearly_faster(row: Row, other: Row) -> bool:
    """Whether the measured intervals of two rows leave no doubt."""
    high = units.number((row.get("measured_s") or {}).get("high"))
    low = units.number((other.get("measured_s") or {}).get("low"))
    return high is not None and low is not None and high < low


def _failed(row: Row) -> bool:
    return row["status"].startswith(("failed", "infeasible"))


def _distinct(rows: Iterable[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows if key in row))


def by_graph(rows: Iterable[Row]) -> list[list[Row]]:
    """Groups rows by graph, in order of appearance; rows without a graph's name are of one."""
    graphs: dict[Any, list[Row]] = {}
    for row in rows:
        graphs.setdefault(row.get("graph"), []).append(row)
    return list(graphs.values())


def _notes(summary: Summary) -> list[str]:
    lines = [line.replace("`", "") for line in verdict(summary)]
    for row in summary["rows"]:
        if _without_cause(row) != row:
            lines.append(f"{row['method']} {_one_line(row['status'])[:_LONGEST_CAUSE]}")
    if has_host(summary):
        lines.append("host: cores of one processor; no claim about GPUs.")
    return lines


def verdict(summary: Summary) -> list[str]:
    """Says how the best row compares with what a user has without placing; by graph.

    The first line of a graph is about the fastest that there is without placing, a device outside
    the placement if one is faster than the best single device, and says so where that is no slower
    than the best row. Names stand in backquotes.
    """
    best = best_rows(summary)
    if not best:
        return ["No placement has a usable latency, so none is best."]
    latency, lines = unit(summary["rows"]), []
    quantity = "time a request" if summary["objective"] == "max_load" else "latency"
    for row in best:
        references = split(summary["rows"])[1]
        same = [other for other in references if other.get("graph") == row.get("graph")]
        bar = min((r for r in same if _rank(r) < (1.0, 0.0)), key=_rank, default=None)
        told = [_judged(row, quantity)]
        if bar is not None and median_s(row) is not None:
            told = [_against(row, bar, quantity, latency), *told]
        where = f"{row['graph']}: " if len(best) > 1 else ""
        lines += [f"{where}{line}" for line in told]
    return lines


def _against(row: Row, bar: Row, quantity: str, latency: units.Unit) -> str:
    """Compares the best row with what is faster than the best single device, without placing."""
    name, ratio = _shown_method(bar), _rank(row)[0] / _rank(bar)[0]
    values = " and ".join(f"{latency.write(median_s(r))} {latency.name}" for r in (row, bar))
    if _clearly_faster(row, bar):
        return (
            f"`{row['method']}` is at {ratio:.3f} of `{name}`, the fastest without placing "
            f"(measured): {1 - ratio:.1%} lower {quantity}."
        )
    if _clearly_faster(bar, row):
        return (
            f"`{name}` is faster without placing: {1 / ratio:.3f} of the {quantity} of "
            f"`{row['method']}`, the best placement (measured)."
        )
    return (
        f"`{row['method']}`, the best placement, cannot be told from `{name}`, which places "
        f"nothing: {values} (measured)."
    )


def _judged(row: Row, quantity: str) -> str:
    ratio = units.number(row.get("versus_best_single_device"))
    kind = "predicted" if median_s(row) is None else "measured"
    if is_single(row):
        return f"Best is `{row['method']}` ({kind}): no placement is clearly faster."
    if ratio is None:
        return f"Best is `{row['method']}` ({kind}); no single device ran to compare it with."
    low, high = (units.number(bound) for bound in row.get("versus_interval") or (None, None))
    between = "" if low is None or high is None else f" [{low:.3f}, {high:.3f}]"
    return (
        f"Best is `{row['method']}`, at {ratio:.3f}{between} of the best single device ({kind}): "
        f"{abs(1 - ratio):.1%} {'lower' if ratio < 1 else 'higher'} {quantity}."
    )


def has_host(summary: Summary) -> bool:
    """Whether `HOST_NOTE` applies."""
    return any("host" in label for label in summary["devices"])


def _shown_method(row: Row) -> str:
    return row["method"].removeprefix("reference:")


def _without_cause(row: Row) -> Row:
    """Returns the row with a status such as 'failed: compile: why' cut to 'failed: compile'."""
    return {**row, "status": ":".join(row["status"].split(":")[:2])}


def _one_line(text: str) -> str:
    return " ".join(text.split())
