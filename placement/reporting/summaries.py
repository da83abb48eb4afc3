"""The content of `summary.json`, as tables, figures and the verdict read it.

A row says how one method's placement of one graph does; a comparison's rows also carry their graph
and their seed. A *reference* row belongs to a device outside the placement, such as the whole CPU
where the placement's devices are its cores.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from placement.reporting import units

Row = Mapping[str, Any]
Summary = Mapping[str, Any]


def median_s(row: Row) -> float | None:
    """Returns the measured median latency of a row, or None."""
    return units.number((row.get("measured_s") or {}).get("median"))


def predicted_s(row: Row) -> float | None:
    """Returns the predicted latency of a row, or None."""
    return units.number(row.get("predicted_s"))


def unit(rows: Iterable[Row]) -> units.Unit:
    """Returns the unit of all latencies of the rows, predicted and measured ones."""
    return units.latency_unit(s for row in rows for s in (predicted_s(row), median_s(row)))


def split_references(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Returns the rows that are placements, and the reference rows."""
    rows = list(rows)
    placements = [row for row in rows if not row.get("reference")]
    return placements, [row for row in rows if row.get("reference")]


def group(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Groups rows by a key, in order of appearance."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def group_by_graph(rows: Iterable[Row]) -> list[list[Row]]:
    """Groups rows by graph; rows without a graph's name form one group."""
    return list(group(rows, lambda row: row.get("graph")).values())


def is_single(row: Row) -> bool:
    """Returns whether the row gives one device everything, as the method `single` does."""
    return row["method"].startswith("single:")


def label(row: Row) -> str:
    """Returns the method, or the device of a reference, as tables show it."""
    return row["method"].removeprefix("reference:")
