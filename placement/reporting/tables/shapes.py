"""The latency of one inference with each of several input shapes, in Markdown and in sentences."""

import math

from placement.reporting import summaries, units
from placement.reporting import verdict as verdict_lib
from placement.reporting.summaries import Row, Summary
from placement.reporting.tables import grids

TITLE = "Latency by input shape"


def _compared_rows(summary: Summary) -> list[Row]:
    """Returns the measured rows to show: the verdict's winner, the best placement, a reference."""
    decided = verdict_lib.decide(summary["rows"])
    rows = [contender.row for contender in (decided.winner, decided.placement) if contender]
    rows += sorted(summaries.split_references(summary["rows"])[1], key=_seconds)[:1]
    return [row for i, row in enumerate(rows) if row.get("shapes_s") and row not in rows[:i]]


def _seconds(row: Row) -> float:
    seconds = summaries.median_s(row)
    return math.inf if seconds is None else seconds


def markdown(summary: Summary) -> str:
    """Returns a table with a row for each input shape, and its legend."""
    rows = _compared_rows(summary)
    lines = [
        [
            f"`{shape['input_shapes']}`",
            str(shape["weight"]),
            *(units.duration(row["shapes_s"][number]) for row in rows),
        ]
        for number, shape in enumerate(summary["shapes"])
    ]
    header = ("input shapes", "weight", *(summaries.label(row) for row in rows))
    legend = (
        "The model was placed for the weighted sum over these shapes. All other latencies are such "
        "sums; those of this table are of one inference."
    )
    numeric = (False, *[True] * (len(header) - 1))
    return f"{grids.markdown(header, lines, numeric=numeric)}\n\n{legend}"


def sentences(summary: Summary) -> list[str]:
    """Returns a sentence for each input shape; none without several shapes."""
    rows = _compared_rows(summary)
    return [
        f"{shape['weight']} x {shape['input_shapes']}: "
        + ", ".join(
            f"{summaries.label(row)} {units.duration(row['shapes_s'][number])}" for row in rows
        )
        for number, shape in enumerate(summary.get("shapes", ()))
        if rows
    ]
