"""The measurements and the decision of a deployment, as a terminal table and as deploy.md.

The record is the content of deploy.json.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.table import Table

from placement.reporting import printable, units
from placement.reporting.tables import divisions, grids
from placement.reporting.wrapped_text import WrappedText

Record = Mapping[str, Any]

_COLUMNS = (
    "",
    "measured ms [low, high]",
    "vs best single [low, high]",
    "output error [up to]",
    "status",
)
_NUMERIC = (False, True, True, True, False)


def rich_table(record: Record) -> Table:
    """Returns the table for a terminal; the deployed row is bold."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column, numeric in zip(_COLUMNS, _NUMERIC, strict=True):
        header = WrappedText(column, terminal_text=column.replace(" [", "\n["))
        table.add_column(header, justify="right" if numeric else "left", no_wrap=numeric)
    for row in record["rows"]:
        style = "bold" if row["name"] == record["deployed"] else None
        table.add_row(*map(WrappedText, _cells(row)), style=style)
    return table


def markdown(record: Record) -> str:
    """Returns the text of deploy.md."""
    record = printable.markdown(record) | {"usage": record["usage"]}
    checks = [f"- {name}: {result}" for name, result in record["checks"].items()]
    rows = []
    for row in record["rows"]:
        text = grids.BOLD_MARKDOWN if row["name"] == record["deployed"] else "{}"
        rows.append([text.format(cell) for cell in _cells(row)])
    files = [f"- `{name}`: {description}" for name, description in record["files"].items()]
    parts = [
        f"# Deployment of {record['graph']}",
        f"**{record['decision']}**",
        grids.markdown(_COLUMNS, rows, numeric=_NUMERIC),
        "Medians and their 95% intervals, of interleaved inferences; ratios are paired, below 1 is "
        "faster. An output error is the largest difference from the plain f32 CPU over the spread "
        "of its output; the tolerance follows the least precise device that computed.",
        *(
            (f"## {divisions.TITLE}", divisions.markdown(record["divisions"]))
            if record["divisions"]
            else ()
        ),
        "## Checked on this machine",
        "\n".join(checks),
        "## Files",
        "\n".join(files),
        "## To run it",
        f"```python\n{record['usage']}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _cells(row: Record) -> list[str]:
    error = "-"
    if units.number(row["output_error"]) is not None:
        error = f"{row['output_error']:.2g} [{row['tolerance']:g}]"
    return [
        row["name"],
        _interval(row["measured_s"], lambda seconds: f"{1e3 * seconds:.4g}"),
        _interval(row["ratio"], lambda ratio: f"{ratio:.3f}"),
        error,
        row["status"],
    ]


def _interval(interval: Record | None, write: Callable[[float], str]) -> str:
    if interval is None:
        return "-"
    median, low, high = (write(interval[key]) for key in ("median", "low", "high"))
    return f"{median} [{low}, {high}]"
