"""The raw runs of the audit: one row for each point of each search, as compressed CSV.

A run is one search of a method on a problem of the suite with a seed. Its rows are the points of
its curve (`curves.Point`), in the order of time.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from experiments.audit.curves import Point
from placement import files
from placement.errors import UserError

STORED = Path(__file__).parent / "runs.csv.gz"
COLD = -1  # see `Run`
_REMEDY = "make it with 'python -m experiments.audit run', then 'store'"
_HEADER = (
    *("problem", "method", "seed", "budget", "parameters", "compile_s"),
    *("seconds", "evaluations", "best_s"),
)


class Run(NamedTuple):
    """One search."""

    problem: str  # of `placement.suite`
    method: str
    seed: int
    budget: int  # of evaluations; 0: limited by time instead; COLD: likewise, and not compiled
    num_parameters: int  # of a learned method's policy; else 0
    # See `curves.measure_compilation`. The seconds of `points` do not contain it. It is 0 in a run
    # that is COLD, which shows what a search finds while it still compiles.
    compile_s: float
    points: tuple[Point, ...]


def read(path: Path) -> list[Run]:
    """Reads runs from a file, compressed if its name ends in .gz.

    Raises:
      UserError: the file is missing or is no table of runs.
    """
    content = files.read_bytes(path, remedy=_REMEDY)
    points: dict[tuple[str, str, int, int, int, float], list[Point]] = {}
    try:
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        header, *rows = csv.reader(io.StringIO(text))
        if tuple(header) != _HEADER:
            raise ValueError(f"its columns are {', '.join(header)}, not {', '.join(_HEADER)}")
        for problem, method, seed, budget, parameters, compile_s, *point in rows:
            key = problem, method, int(seed), int(budget), int(parameters), float(compile_s)
            seconds, evaluations, best_s = point
            curve = points.setdefault(key, [])
            curve.append(Point(float(seconds), int(evaluations), float(best_s)))
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise UserError(f"{str(path)!r} is no table of runs: {error}; {_REMEDY}") from error
    return [Run(*key, tuple(curve)) for key, curve in points.items()]


def append(runs: Iterable[Run], path: Path) -> None:
    """Appends runs to a file that is not compressed."""
    text = _format(runs)
    with path.open("a", encoding="utf-8", newline="") as file:
        if not file.tell():
            file.write(",".join(_HEADER) + "\n")
        file.write(text)


def store(runs: Iterable[Run], path: Path) -> None:
    """Writes runs as a compressed file; equal runs make equal bytes."""
    text = ",".join(_HEADER) + "\n" + _format(runs)
    files.write_bytes(path, gzip.compress(text.encode(), mtime=0))


def _format(runs: Iterable[Run]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for run in runs:
        for point in run.points:
            writer.writerow(
                [
                    *(run.problem, run.method, run.seed, run.budget, run.num_parameters),
                    *(f"{run.compile_s:.3f}", f"{point.seconds:.3f}", point.evaluations),
                    f"{point.best_s:.7g}",
                ]
            )
    return buffer.getvalue()
