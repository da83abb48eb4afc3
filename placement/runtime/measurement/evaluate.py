"""`Evaluate` on real devices: a search asks for seconds, and no placement is measured twice.

Times taken apart are not comparable: the machine drifts by more than placements differ. What is
comparable is the ratio to a baseline measured in the same rounds. So the cache holds ratios, and
the seconds of a placement are its ratio times one latency of the baseline, the first that the
cache saw. The baseline has every operation on the first device.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from placement import files
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import (
    MIN_SAMPLES,
    TIME_LIMIT,
    Candidate,
    Failure,
    Measure,
    Measurement,
)
from placement.types import Array

# That compiling the new placements of a call may take at least.
_COMPILE_S = 15.0

# Of one that was timed, and of one that failed.
RECORD = (
    {"key": str, "ratio": float, "latency_s": float, "wrong": files.Maybe(bool)},
    {"key": str, "stage": str, "cause": str},
)


class MeasurementCache:
    """What became of candidates, in memory and in a file of JSON lines that only ever grows.

    A candidate that was timed several times has a line for each, and the median of its ratios.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None):
        """Reads `path` if it exists; a line without an end, as a crash leaves it, is ignored.

        Raises:
          UserError: the file cannot be read.
        """
        self._path = None if path is None else Path(path)
        self._records: dict[str, dict[str, Any]] = {}
        self._ratios: dict[str, list[float]] = {}
        remedy = "remove it, and placements are measured anew"
        for record in files.read_jsonl(self._path, RECORD, remedy=remedy) if self._path else ():
            self._keep(record)

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: str) -> dict[str, Any] | None:
        """Returns a key's record: 'ratio' and 'latency_s', or 'stage' and 'cause' of a failure."""
        return self._records.get(key)

    def add(self, key: str, outcome: Measurement | Failure) -> None:
        """Keeps an outcome; of a key the first counts, but for the ratio."""
        record: dict[str, Any] = {"key": key}
        if isinstance(outcome, Failure):
            record |= {"stage": outcome.stage, "cause": outcome.cause}
        else:
            record |= {"ratio": outcome.ratio.median, "latency_s": outcome.latency.median}
            if not outcome.output_error <= outcome.tolerance:
                record["wrong"] = True
        self._keep(record)
        if self._path is not None:
            self._append(self._path, json.dumps(record))

    def _keep(self, record: dict[str, Any]) -> None:
        kept = self._records.setdefault(record["key"], record)
        if "ratio" in kept and "ratio" in record:
            ratios = self._ratios.setdefault(record["key"], [])
            ratios.append(record["ratio"])
            self._records[record["key"]] = kept | {"ratio": float(np.median(ratios))}

    def _append(self, path: Path, line: str) -> None:
        try:
            with files.open_regular(path, "ab+") as file:
                files.drop_unfinished_line(file)
                file.write(line.encode() + b"\n")
        except OSError as error:  # that of a full disk does not name the file
            raise OSError(error.errno, error.strerror, str(path)) from error


class MeasuredEvaluate:
    """An `Evaluate` that measures: int32 [B, N] -> float32 seconds [B], inf where it fails.

    Indices are those of `measurer.devices`. Placements that repeat, in a call or since the cache
    began, are measured once; `measurements` counts those that were. See the module's docstring for
    what the seconds are.
    """

    def __init__(
        self,
        measurer: Measurer,
        num_ops: int,
        candidate: Callable[[np.ndarray], Candidate],
        cache: MeasurementCache,
        *,
        min_rounds: int = 2 * MIN_SAMPLES,
        time_limit_s: float = 0.5,
        compile_s: float = math.inf,
        accept_wrong: bool = False,
    ):
        """Measures nothing yet.

        Args:
          measurer: open while this is in use.
          num_ops: N.
          candidate: what to measure of a placement int32 [N].
          cache: shared by everything that measures.
          min_rounds: inferences of each new placement at least.
          time_limit_s: of timing for each new placement, unless `min_rounds` need more.
          compile_s: of compiling the new placements of a call, or 15 s where that is longer. The
            seconds of those for which no time is left are inf, and the cache does not have them.
          accept_wrong: time placements with wrong outputs too; give such measurements a cache
            apart.
        """
        self.measurements = 0  # of candidates, the baseline not counted
        self._measurer = measurer
        self._num_ops = num_ops
        self._candidate = candidate
        self._cache = cache
        self._min_rounds = min_rounds
        self._time_limit_s = time_limit_s
        self._compile_s = max(compile_s, _COMPILE_S)
        self._accept_wrong = accept_wrong
        self._baseline = candidate(np.zeros(num_ops, np.int32))

    def __call__(self, placements: Array, beside: Array | None = None) -> np.ndarray:
        """Returns seconds float32 [B] of placements int32 [B, N]; inf of one that does not run.

        Args:
          placements: as in the class's description.
          beside: int32 [K, N], of which the seconds follow: measured once more beside what is
            new, if anything is.

        Raises:
          ChildProcessError: the baseline, all on the first device, cannot be measured.
          OSError: the cache cannot be written.
        """
        placements = np.asarray(placements)
        assert placements.ndim == 2
        assert placements.shape[1] == self._num_ops
        asked = [self._keyed(placement) for placement in placements]
        again = [self._keyed(placement) for placement in (() if beside is None else beside)]
        base = key(self._measurer, self._baseline)
        new = {k: candidate for k, candidate in asked if self._cache.get(k) is None and k != base}
        if new or self._cache.get(base) is None:
            self._measure(base, new | {k: candidate for k, candidate in again if k != base})
        return np.array([self._seconds(k, base) for k, _ in (*asked, *again)], np.float32)

    def outputs_wrong(self, placement: np.ndarray) -> bool:
        """Whether a placement int32 [N] that was timed computes else than the reference."""
        record = self._cache.get(key(self._measurer, self._candidate(placement)))
        return record is not None and record.get("wrong", False)

    def is_known(self, placement: np.ndarray) -> bool:
        """Whether a placement int32 [N] was timed or failed; false if there was no time for it."""
        return self._cache.get(key(self._measurer, self._candidate(placement))) is not None

    def _keyed(self, placement: np.ndarray) -> tuple[str, Candidate]:
        candidate = self._candidate(placement)
        return key(self._measurer, candidate), candidate

    def _measure(self, base: str, new: dict[str, Candidate]) -> None:
        keys = (base, *new)
        request = Measure(
            [self._baseline, *new.values()],
            min_rounds=self._min_rounds,
            time_limit_s=self._time_limit_s * len(new),
            compile_s=self._compile_s,
            accept_wrong=self._accept_wrong,
        )
        for part in self._measurer.parts(request):
            self.measurements += len(part.keys() - {0})
            if isinstance(part[0], Failure):
                raise ChildProcessError(f"the baseline cannot be measured: {part[0].cause}")
            for number, outcome in part.items():
                if isinstance(outcome, Failure) and outcome.stage == TIME_LIMIT:
                    continue
                if number or self._cache.get(base) is None:  # of its seconds the first count
                    self._cache.add(keys[number], outcome)

    def _seconds(self, k: str, base: str) -> float:
        record, baseline = self._cache.get(k), self._cache.get(base)
        assert baseline is not None
        if record is None:  # there was no time for it
            return math.inf
        return record["ratio"] * baseline["latency_s"] if "ratio" in record else math.inf


def key(measurer: Measurer, candidate: Candidate) -> str:
    """Hashes what a measurement depends on: model, machine, devices and placement (SHA-256)."""
    devices = [[device.name, dict(device.properties)] for device in candidate.devices]
    affinity = None if candidate.affinity is None else dict(candidate.affinity)
    what: list[object] = [measurer.fingerprint, devices, affinity]
    if candidate.segments is not None:
        what += [candidate.segments, candidate.num_requests]
    text = json.dumps(what, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
