"""The measurements and the decision of a deployment, as a table and as deploy.md.

The record is the content of the manifest.
"""

from collections.abc import Mapping
from typing import Any

from placement.reporting import printable, summaries
from placement.reporting.tables import grids, results

Record = Mapping[str, Any]


def grid(record: Record) -> grids.Grid:
    """Makes the table; the deployed row is bold."""
    rows = record["rows"]
    deployed = [row for row in rows if summaries.label(row) == record["deployed"]]
    return results.table_of(rows, deployed)


def markdown(record: Record, folder: str) -> str:
    """Returns the text of deploy.md, for a record that is deployed in a folder."""
    record = printable.markdown(record)
    parts = [
        f"# Deployment of {record['graph']}",
        grids.bold(record["decision"]),
        grid(record).markdown(),
        "Medians and their 95% intervals, of interleaved inferences; ratios are paired, below 1 is "
        "faster. An output error is the largest difference from the plain f32 CPU over the spread "
        "of its output. In brackets: the tolerance, which follows the least precise device that "
        "computed.",
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
