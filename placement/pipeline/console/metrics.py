"""The log of searches: records in metrics.jsonl, and the same numbers for TensorBoard.

A record has `method`, `seed`, `step`, `evaluations`, `elapsed_s` and `best_s`; records of learned
methods also have the numbers of `placement.learning.trainer.Report`. A search that starts again
replaces its records; one that continues from a checkpoint drops its records after it.
"""

import contextlib
import json
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from placement import files
from placement.pipeline.console import progress
from placement.reporting import runs, tensorboard
from placement.solvers.limits import NO_METRICS
from placement.types import Solution

FILE = "metrics.jsonl"
EVENTS = "tensorboard"
# Between two events, and between two records of a solver; the last of each is always written.
_EVENT_INTERVAL_S, _RECORD_INTERVAL_S = 1.0, 0.2
_NO_LATENCIES = np.empty(0)
# The fields of every record; those of some methods have more.
RECORD = {
    "method": str,
    "seed": int,
    "step": int,
    "evaluations": int,
    "elapsed_s": float,
    "best_s": files.OptionalField(files.NUMBER),
    "mean_s": files.OptionalField(files.NUMBER),
    "step_best_s": files.OptionalField(files.NUMBER),
}
_NOT_PLOTTED = ("method", "seed", "step", "evaluations")


def name_search(method: str, seed: int) -> str:
    """Returns the name of a search's files, such as 'hsdag_num_samples=4-seed-0'."""
    return re.sub(r"[^\w.=-]+", "_", method) + f"-seed-{seed}"


class Log:
    """The log of one search; a context manager."""

    def __init__(
        self, workdir: Path, method: str, seed: int, *, step: int = 0, evaluations: int = 0
    ):
        """Opens the log and drops this search's records after the step that it starts from.

        `step` is the last one of the checkpoint that the search continues from, else 0;
        `evaluations` is their number up to that step.
        """
        self._path = workdir / FILE
        self._search = {"method": method, "seed": seed}
        records = read_metrics(workdir)
        kept_records = [
            r for r in records if r["step"] <= step or not self._search.items() <= r.items()
        ]
        if len(kept_records) < len(records):
            text = "".join(json.dumps(record) + "\n" for record in kept_records)
            runs.write_text(self._path, text)
        self._directory = workdir / EVENTS / name_search(method, seed)
        if step == 0:
            files.remove_files(self._directory, ["events.out.tfevents.*"])
        self._events: tensorboard.Events | None = None  # made by the first event
        self._first_evaluation, self._last_event_s = evaluations, -math.inf
        self._unwritten: tuple[dict[str, Any], np.ndarray] | None = None

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # An error of the block matters more than one of the last event.
        with contextlib.suppress(*() if kind is None else (OSError,)):
            self._write_event()

    def add(
        self, record: Mapping[str, Any], elapsed_s: float, latencies_s: np.ndarray = _NO_LATENCIES
    ) -> None:
        """Logs a step.

        Args:
          record: `step`, `evaluations`, `best_s` and other numbers.
          elapsed_s: seconds of the search so far.
          latencies_s: float [k], finite: of the placements that the step evaluated.
        """
        timed = self._search | {"elapsed_s": round(elapsed_s, 4)} | dict(record)
        runs.append_jsonl(self._path, timed)
        self._unwritten = timed, latencies_s
        if time.monotonic() - self._last_event_s >= _EVENT_INTERVAL_S:
            self._write_event()

    def _write_event(self) -> None:
        if self._unwritten is None:
            return
        record, latencies_s = self._unwritten
        if self._events is None:
            self._events = tensorboard.Events(
                self._directory, first_evaluation=self._first_evaluation
            )
        method = record["method"]
        values: dict[str, float | np.ndarray] = {f"{method}/latency_s": latencies_s}
        values |= {f"{method}/{k}": float(v) for k, v in record.items() if k not in _NOT_PLOTTED}
        self._events.add(record["evaluations"], values)
        self._unwritten, self._last_event_s = None, time.monotonic()


class SolverMetrics:
    """Shows and logs the progress of a solver (`placement.solvers.limits`), at a limited rate."""

    def __init__(self, log: Log, phase: progress.Phase):
        self._log, self._phase = log, phase
        self._start_s = time.monotonic()
        self._last_record_s, self._num_steps, self._best_s = -math.inf, 0, math.inf

    def observe(
        self,
        evaluations: int,
        best_s: float,
        placement: np.ndarray | None = None,
        numbers: Mapping[str, float] = NO_METRICS,
    ) -> None:
        """Records the progress; any thread may call it, but only one at a time."""
        del placement
        time_s = time.monotonic()
        self._phase.update(evaluations, best_s)
        self._num_steps, self._best_s = self._num_steps + 1, best_s
        if time_s - self._last_record_s >= _RECORD_INTERVAL_S:
            self._last_record_s = time_s
            record = {"step": self._num_steps, "evaluations": evaluations, "best_s": best_s}
            self._log.add(record | dict(numbers), time_s - self._start_s)

    def finish(self, solution: Solution) -> None:
        """Shows the result, and logs it if the solver has reported any progress."""
        value_s = min(solution.value_s, self._best_s)
        self._phase.update(solution.evaluations, value_s)
        if self._num_steps:
            self._last_record_s = -math.inf
            self.observe(solution.evaluations, value_s)


def read_metrics(workdir: Path) -> list[dict[str, Any]]:
    """Reads the records of a run directory's searches; a UserError if the log cannot be read."""
    remedy = "remove it, and searches start a new log"
    return files.read_jsonl(workdir / FILE, RECORD, remedy=remedy)
