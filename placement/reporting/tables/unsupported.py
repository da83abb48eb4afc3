"""Operations that devices cannot run, in Markdown: counts for each device, then the reasons.

The records are those of `placement.runtime.models.support.UnsupportedOp`.
"""

from collections import Counter
from collections.abc import Sequence

from placement.reporting.tables import grids

TITLE = "Operations that a device cannot run"
_COLUMNS = ("device", "operations", "type", "inputs", "reason")
_NUM_NAMES = 10  # names of operations in a cell


def markdown(records: Sequence[dict[str, str]]) -> str:
    """Returns a sentence with the counts, and a row for each device, type, inputs and reason."""
    counts = Counter(record["device"] for record in records)
    names: dict[tuple[str, ...], list[str]] = {}
    for record in records:
        key = tuple(record[field] for field in ("device", "op_type", "inputs", "reason"))
        names.setdefault(key, []).append(f"`{record['name']}`")
    rows = []
    for (device, op_type, inputs, reason), listed in names.items():
        omitted = [f"{len(listed) - _NUM_NAMES} more"] if len(listed) > _NUM_NAMES else []
        rows.append((device, ", ".join([*listed[:_NUM_NAMES], *omitted]), op_type, inputs, reason))
    summary = "Operations that cannot run: " + ", ".join(
        f"{count} on {device}" for device, count in counts.items()
    )
    return f"{summary}.\n\n{grids.markdown(_COLUMNS, rows, numeric=(False,) * len(_COLUMNS))}"
