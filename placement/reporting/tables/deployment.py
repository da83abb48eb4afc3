"""The measurements and the decision of a deployment, as a table and as deploy.md.

The record is the content of deploy.json.
"""

from collections.abc import Callable, Mapping
from typing import Any

from placement.reporting import printable, units
from placement.reporting.tables import grids, results

Record = Mapping[str, Any]


def grid(record: Record) -> grids.Grid:
    """Makes the table; the deployed row is bold."""
    table = grids.Grid(
        (
            "",
            "measured ms\n[low, high]",
            "vs best single\n[low, high]",
            "output error\n[up to]",
            "status",
        ),
        (False, True, True, True, False),
    )
    for row in record["rows"]:
        error = units.NONE
        if units.number(row["output_error"]) is not None:
            error = f"{row['output_error']:.2g} [{row['tolerance']:g}]"
        cells = [
            row["name"],
            _interval(row["measured_s"], lambda seconds: f"{1e3 * seconds:.4g}"),
            _interval(row["ratio"], lambda ratio: f"{ratio:.3f}"),
            error,
            row["status"],
        ]
        table.add_row(*(map(grids.bold, cells) if row["name"] == record["deployed"] else cells))
    return table


def markdown(record: Record) -> str:
    """Returns the text of deploy.md."""
    record = printable.markdown(record) | {"usage": record["usage"]}
    parts = [
        f"# Deployment of {record['graph']}",
        grids.bold(record["decision"]),
        grid(record).markdown(),
        "Medians and their 95% intervals, of interleaved inferences; ratios are paired, below 1 is "
        "faster. An output error is the largest difference from the plain f32 CPU over the spread "
        "of its output; the tolerance follows the least precise device that computed.",
    ]
    if record["divisions"]:
        parts += ["## Operations kept off a device", results.divisions(record["divisions"])]
    checks = [f"- {name}: {result}" for name, result in record["checks"].items()]
    files = [f"- `{name}`: {description}" for name, description in record["files"].items()]
    parts += ["## Checked on this machine", "\n".join(checks), "## Files", "\n".join(files)]
    parts += ["## To run it", f"```python\n{record['usage']}\n```"]
    return "\n\n".join(parts) + "\n"


def _interval(interval: Record | None, write: Callable[[float], str]) -> str:
    if interval is None:
        return units.NONE
    median, low, high = (write(interval[key]) for key in ("median", "low", "high"))
    return f"{median} [{low}, {high}]"
