"""The measurements and the decision of a deployment, as a table and as deploy.md.

The record is the content of the manifest.
"""

from collections.abc import Mapping
from typing import Any

from placement.reporting import printable, summaries, units
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
        measured_s, interval = row["measured_s"], row["versus_interval"]
        latency = ratio = error = units.NONE
        if measured_s is not None:
            ms = [f"{1e3 * measured_s[key]:.4g}" for key in ("median", "low", "high")]
            latency = f"{ms[0]} [{ms[1]}, {ms[2]}]"
        if interval is not None:
            median = row["versus_best_single_device"]
            ratio = f"{median:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"
        if units.number(row["output_error"]) is not None:
            error = f"{row['output_error']:.2g} [{row['tolerance']:g}]"
        label = summaries.label(row)
        cells = [label, latency, ratio, error, row["status"]]
        table.add_row(*(map(grids.bold, cells) if label == record["deployed"] else cells))
    return table


def markdown(record: Record, folder: str) -> str:
    """Returns the text of deploy.md, for a record that is deployed in a folder."""
    record = printable.markdown(record)
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
    parts += [
        "## Checked on this machine",
        "\n".join(f"- {name}: {result}" for name, result in record["checks"].items()),
        "## To run it",
        "```python\nimport placement\n\n"
        f"with placement.load({folder!r}) as net:\n"
        "    outputs = net.infer(inputs)  # a list of arrays, or a dict of them by name\n```",
    ]
    return "\n\n".join(parts) + "\n"
