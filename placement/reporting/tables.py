"""Tables of a summary, as `summary.json` holds it: for the terminal, for Markdown, as a report.

A table has one unit of latency, chosen by the magnitude of its numbers. A number that is missing,
null, NaN or infinite prints as a dash: a row that failed shows why in its status, and no number
stands in for one that was not obtained. Rows marked `reference` (devices outside the placement)
come last, behind a separator.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

Row = Mapping[str, Any]
Summary = Mapping[str, Any]

NONE = "-"
_STATUS_WIDTH = 70
_HOST_NOTE = (
    "Devices labelled `host` are cores of one processor, each opened as an OpenVINO device of its "
    "own: these numbers exercise the real measurement boundary and are no claim about GPUs."
)


class Unit(NamedTuple):
    """How the latencies of one table are written."""

    name: str  # 's', 'ms' or 'us'
    per_s: float  # how many of the unit are a second
    decimals: int

    def write(self, seconds: Any) -> str:
        """The latency in this unit without its name, or a dash."""
        value = number(seconds)
        return NONE if value is None else f"{value * self.per_s:.{self.decimals}f}"


class Column(NamedTuple):
    """A column of a table: both renderings, for terminals and Markdown, are made from these."""

    header: str
    cell: Callable[[Row], str]
    numeric: bool = True


def rich_table(summary: Summary) -> Table:
    """The table for a terminal of 80 columns or more.

    Args:
        summary: What `summary.json` holds, before or after its journey through JSON.

    Returns:
        The table; the best row is bold, reference rows stand below a line.
    """
    rows = summary["rows"]
    columns = _columns(rows)
    table = Table(
        title=Text(_title(summary)),
        caption=Text(_terminal_note(summary)),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for column in columns:
        justify: Any = "right" if column.numeric else "left"
        table.add_column(Text(column.header), justify=justify, overflow="fold")
    best = best_rows(summary)
    own, references = split(rows)
    for row in own:
        cells = [Text(column.cell(row)) for column in columns]
        table.add_row(*cells, style="bold" if any(row is one for one in best) else None)
    if references:
        table.add_section()
    for row in references:
        table.add_row(*(Text(column.cell(row)) for column in columns), style="dim")
    return table


def markdown_table(summary: Summary) -> str:
    """The same table in Markdown, without a final newline."""
    rows = summary["rows"]
    columns = _columns(rows)
    lines = [
        _markdown_row(column.header.replace("\n", " ") for column in columns),
        _markdown_row("---:" if column.numeric else "---" for column in columns),
    ]
    best = best_rows(summary)
    own, references = split(rows)
    for row in own:
        mark = "**" if any(row is one for one in best) else ""
        lines.append(_markdown_row(_marked(column.cell(row), mark) for column in columns))
    if references:
        lines.append(_markdown_row(["*for reference:*"] + [""] * (len(columns) - 1)))
    for row in references:
        lines.append(_markdown_row(_escaped(column.cell(row)) for column in columns))
    return "\n".join(lines)


def compare_markdown(summary: Summary) -> str:
    """One Markdown table a graph, each under the graph's name."""
    names = list(dict.fromkeys(row.get("graph", summary["graph"]["name"]) for row in summary["rows"]))
    if len(names) == 1:
        return markdown_table(summary)
    parts = []
    for name in names:
        rows = [row for row in summary["rows"] if row["graph"] == name]
        best = min(_candidates(rows), key=_rank)["method"] if _candidates(rows) else ""
        parts.append(f"### {name}\n\n" + markdown_table({**summary, "rows": rows, "best": best}))
    return "\n\n".join(parts)
