"""How tables of verdicts and of fronts are read from what their runs leave."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.reproduction.table_readers import Grid, read_json
from placement.pipeline.results import advice
from placement.pipeline.tasks import front
from placement.reporting import units


def verdicts(devices: Mapping[str, str], objectives: Sequence[str]) -> Callable[[Path], Grid]:
    """Returns the reader of `--task=advise`: what can be at best, by objective, a row a run.

    A cell is over the fastest without placing under the same objective.

    Args:
      devices: of each run, by the name of its work directory.
      objectives: a column each.
    """

    def read(folder: Path) -> Grid:
        rows = []
        for run, given in devices.items():
            told = read_json(folder / run / advice.FILE)
            ratios = {row["objective"]: row["ratio"] for row in told["rows"]}
            found = [_verdict(ratios.get(objective)) for objective in objectives]
            rows.append([told["graph"].partition(":")[0], f"`{given}`", *found])
        return ["graph", "devices", *objectives], rows

    return read


def _verdict(ratio: float | None) -> str:
    if ratio is None:  # not known
        return units.NONE
    return f"{ratio:.2f}, stop" if ratio >= advice.HOPELESS else f"{ratio:.2f}"


def fronts(runs: Sequence[str]) -> Callable[[Path], Grid]:
    """Returns the reader of `--task=front`: knees, and what is measured beside them."""
    header = ["graph", "placement", "latency ms", "a request ms", "MB"]
    header += ["measured latency ms", "measured a request ms"]

    def read(folder: Path) -> Grid:
        rows = []
        for run in runs:
            told = read_json(folder / run / front.FILE)
            points = {f"point {point['number']}": point for point in told["points"]}
            for measured in told["measured"]:
                point = points.get(measured["name"])
                predicted = [units.NONE] * 3 if point is None else _predicted(point)
                both = [_ms(measured, key) for key in ("latency", "stream")]
                rows.append([told["graph"], measured["name"], *predicted, *both])
        return header, rows

    return read


def _predicted(point: dict[str, Any]) -> list[str]:
    seconds = [f"{1e3 * point[axis]:.2f}" for axis in ("latency_s", "request_s")]
    return [*seconds, f"{point['memory_bytes'] / 1e6:.0f}"]


def _ms(measured: dict[str, Any], key: str) -> str:
    return f"{1e3 * measured[key]['median']:.2f}" if key in measured else units.NONE
