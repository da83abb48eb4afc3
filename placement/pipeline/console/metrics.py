"""What searches log: records in metrics.jsonl, and the same for TensorBoard.

A record has `method`, `seed`, `step`, `evaluations`, `elapsed_s` and `best_s`; those of learned
methods have what `placement.learning.trainer.Report` says beside. A search that is run again logs
anew; one that goes on from a checkpoint drops what it logged after that.
"""

import contextlib
import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from placement import files
from placement.pipeline.console import progress
from placement.reporting import runs, tensorboard
from placement.solvers.limits import NO_NUMBERS
from placement.types import Solution

FILE = "metrics.jsonl"
EVENTS = "tensorboard"
# Of a search's time. Whatever is beyond it is not written for TensorBoard, which draws a few
# hundred points of a curve anyway.
_SHARE = 0.01
_FLUSHED_S = 2.0
_SOLVER_S = 0.2  # between two records of a solver
_NONE = np.empty(0)
# What every record has. Of some methods' there is more.
RECORD = {
    "method": str,
    "seed": int,
    "step": int,
    "evaluations": int,
    "elapsed_s": float,
    "best_s": files.Maybe(files.NUMBER),
    "mean_s": files.Maybe(files.NUMBER),
}
_ABOUT = ("method", "seed", "step", "evaluations")  # no metrics of their own


class Log:
    """The log of one search; a context manager."""

    def __init__(
        self, workdir: Path, method: str, seed: int, *, step: int = 0, evaluations: int = 0
    ):
        """Drops what was logged of this search after a step: it is about to happen again.

        Args:
          workdir: the run directory.
          method: its name, with its arguments.
          seed: of the search.
          step: from which it goes on.
          evaluations: made until then.
        """
        self._path = workdir / FILE
        self._search = {"method": method, "seed": seed}
        _forget(workdir, self._search, step)
        directory = workdir / EVENTS / (re.sub(r"[^\w.=-]+", "_", method) + f"-seed-{seed}")
        if step == 0:
            files.remove_files(directory, ["events.out.tfevents.*"])
        self._events = tensorboard.Events(directory, first_evaluation=evaluations)
        self._left_out: tuple[dict[str, Any], np.ndarray] | None = None
        self._spent_s, self._began_s = 0.0, time.monotonic()
        self._flushed_s = self._began_s

    def __enter__(self) -> "Log":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            if self._left_out is not None:
                self._write_event(*self._left_out)
            self._events.close()
            return
        with contextlib.suppress(OSError):  # what went wrong before it matters more
            self._events.close()

    def add(
        self, record: Mapping[str, Any], elapsed_s: float, latencies_s: np.ndarray = _NONE
    ) -> None:
        """Logs a step.

        Args:
          record: `step`, `evaluations`, `best_s` and other numbers.
          elapsed_s: seconds of the search until then.
          latencies_s: float [k], finite, of the placements that the step evaluated.

        Raises:
          OSError: it cannot be written; the error names the file.
        """
        timed = self._search | {"elapsed_s": round(elapsed_s, 4)} | dict(record)
        runs.append_jsonl(self._path, timed)
        began_s = time.monotonic()
        self._left_out = timed, latencies_s
        if self._spent_s <= _SHARE * (began_s - self._began_s):
            self._write_event(*self._left_out)
            self._spent_s += time.monotonic() - began_s

    def _write_event(self, record: Mapping[str, Any], latencies_s: np.ndarray) -> None:
        method = record["method"]
        numbers = {f"{method}/{k}": float(v) for k, v in record.items() if k not in _ABOUT}
        histograms = {f"{method}/latency_s": latencies_s}
        self._events.add(record["evaluations"], numbers, histograms)
        self._left_out = None
        if time.monotonic() - self._flushed_s > _FLUSHED_S:
            self._events.flush()
            self._flushed_s = time.monotonic()


class SolverMetrics:
    """Shows and logs what a solver tells (`placement.solvers.limits`): some records a second."""

    def __init__(self, log: Log, phase: progress.Phase):
        self._log, self._phase = log, phase
        self._began_s = time.monotonic()
        self._logged_s = -math.inf
        self._evaluations, self._best_s = 0, math.inf
        self._step = 0
        self._waiting: tuple[dict[str, Any], float] | None = None

    def observe(
        self, evaluations: int, best_s: float, numbers: Mapping[str, float] = NO_NUMBERS
    ) -> None:
        """Takes how far the search is, in any thread but one at a time."""
        now_s = time.monotonic()
        self._evaluations, self._best_s = evaluations, best_s
        self._step += 1
        self._phase.update(evaluations, best_s)
        record = {"step": self._step, "evaluations": evaluations, "best_s": best_s}
        self._waiting = record | dict(numbers), now_s - self._began_s
        if now_s - self._logged_s >= _SOLVER_S:
            self._logged_s = now_s
            self._write()

    def finish(self, solution: Solution) -> None:
        """Logs the end, of a solver that told anything, and shows it of any."""
        evaluations, value_s = solution.evaluations, min(solution.value_s, self._best_s)
        if self._step == 0:
            self._phase.update(evaluations, value_s)
        elif (evaluations, value_s) != (self._evaluations, self._best_s):
            self.observe(evaluations, value_s)
        self._write()

    def _write(self) -> None:
        if self._waiting is not None:
            self._log.add(*self._waiting)
            self._waiting = None


def read(workdir: Path) -> list[dict[str, Any]]:
    """Reads what the searches of a run directory have logged.

    Raises:
      UserError: the log cannot be read.
    """
    remedy = "remove it, and searches log anew"
    return files.read_jsonl(workdir / FILE, RECORD, remedy=remedy)


def _forget(workdir: Path, search: Mapping[str, Any], step: int) -> None:
    records = read(workdir)
    kept = [r for r in records if r["step"] <= step or not search.items() <= r.items()]
    if len(kept) < len(records):
        runs.write_text(workdir / FILE, "".join(json.dumps(record) + "\n" for record in kept))
