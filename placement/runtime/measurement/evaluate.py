"""`Evaluate` on real devices: placements to seconds, no placement measured twice.

Latencies of different times cannot be compared, because the machine drifts by more than placements
differ. The ratio to a baseline measured in the same rounds can. So the cache stores ratios, and the
seconds of a placement are its ratio times one latency of the baseline, the first in the cache.
Ratios to different baselines are different records.
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

_MIN_COMPILE_S = 15.0  # least limit on compiling the new placements of a call

# The schemas of a candidate that was timed, and of one that failed.
RECORD_SCHEMA = (
    {"key": str, "ratio": float, "latency_s": float},
    {"key": str, "stage": str, "cause": str},
)


class MeasurementCache:
    """Outcomes of candidates, in memory and in an append-only file of JSON lines."""

    def __init__(self, path: str | os.PathLike[str] | None = None):
        """Reads the file if it exists, without an unfinished last line that a crash may leave.

        Raises:
          UserError: the file cannot be read.
        """
        self._path = None if path is None else Path(path)
        self._records: dict[str, dict[str, Any]] = {}
        remedy = "remove it, and placements are measured again"
        for record in (
            files.read_jsonl(self._path, RECORD_SCHEMA, remedy=remedy) if self._path else ()
        ):
            self._records.setdefault(record["key"], record)

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: str) -> dict[str, Any] | None:
        """Returns a key's record: 'ratio' and 'latency_s', or a failure's 'stage' and 'cause'."""
        return self._records.get(key)

    def add(self, key: str, outcome: Measurement | Failure) -> None:
        """Stores an outcome, unless the key is known.

        Raises:
          OSError: the file cannot be written; the error names it.
        """
        record: dict[str, Any] = {"key": key}
        if isinstance(outcome, Failure):
            record |= {"stage": outcome.stage, "cause": outcome.cause}
        else:
            record |= {"ratio": outcome.ratio.median, "latency_s": outcome.latency.median}
        self._records.setdefault(key, record)
        if self._path is not None:
            files.append_line(self._path, json.dumps(record).encode())


class MeasuredEvaluate:
    """An `Evaluate` that measures: int32 [B, N] -> float32 seconds [B], inf for a failure.

    Device indices are positions in `measurer.devices`. A placement that is repeated or already in
    the cache is not measured again. `measurements` counts measured candidates, without the
    baseline. The module's docstring defines the seconds.
    """

    def __init__(
        self,
        measurer: Measurer,
        baseline: np.ndarray,
        candidate: Callable[[np.ndarray], Candidate],
        cache: MeasurementCache,
        *,
        min_rounds: int = 2 * MIN_SAMPLES,
        time_limit_s: float = 0.5,
        compile_s: float = math.inf,
    ):
        """Prepares measurements; the first call starts them.

        Args:
          measurer: measures the model; stays open while this object is in use.
          baseline: int32 [N], the placement that all are compared with, such as everything on the
            first device.
          candidate: maps a placement int32 [N] to the candidate to measure.
          cache: shared by all measurements of this model.
          min_rounds: fewest inferences of each new placement.
          time_limit_s: timing for each new placement; `min_rounds` may take longer.
          compile_s: time for compiling the new placements of a call, at least 15 s. Placements for
            which no time is left cost inf and are not added to the cache.
        """
        self.num_measurements = 0
        self._measurer = measurer
        self._num_ops = len(baseline)
        self._candidate = candidate
        self._cache = cache
        self._min_rounds = min_rounds
        self._time_limit_s = time_limit_s
        self._compile_s = max(compile_s, _MIN_COMPILE_S)
        self._baseline = candidate(baseline)
        self._key_suffix = "@" + cache_key(measurer, self._baseline)

    def __call__(self, placements: Array) -> np.ndarray:
        """Returns the seconds of placements [B, N], float32 [B].

        Raises:
          ChildProcessError: the baseline cannot be measured.
          OSError: the cache cannot be written.
        """
        placements = np.asarray(placements)
        assert placements.ndim == 2
        assert placements.shape[1] == self._num_ops
        requested = [
            (self._key(candidate), candidate) for candidate in map(self._candidate, placements)
        ]
        baseline_key = self._key(self._baseline)
        new = {
            k: candidate
            for k, candidate in requested
            if self._cache.get(k) is None and k != baseline_key
        }
        if new or self._cache.get(baseline_key) is None:
            keys = (baseline_key, *new)
            request = Measure(
                [self._baseline, *new.values()],
                min_rounds=self._min_rounds,
                time_limit_s=self._time_limit_s * len(new),
                compile_s=self._compile_s,
            )
            for outcomes in self._measurer.measure_chunks(request):
                self.num_measurements += len(outcomes.keys() - {0})
                if isinstance(outcomes[0], Failure):
                    raise ChildProcessError(f"the baseline cannot be measured: {outcomes[0].cause}")
                for index, outcome in outcomes.items():
                    if isinstance(outcome, Failure) and outcome.stage == TIME_LIMIT:
                        continue
                    # Only the baseline's first latency counts, see the module's docstring.
                    if index or self._cache.get(baseline_key) is None:
                        self._cache.add(keys[index], outcome)
        baseline = self._cache.get(baseline_key)
        assert baseline is not None
        seconds = []
        for key, _ in requested:
            record = self._cache.get(key)
            if record is None or "ratio" not in record:  # no time was left for it, or it failed
                seconds.append(math.inf)
            else:
                seconds.append(record["ratio"] * baseline["latency_s"])
        return np.array(seconds, np.float32)

    def _key(self, candidate: Candidate) -> str:
        return cache_key(self._measurer, candidate) + self._key_suffix


def cache_key(measurer: Measurer, candidate: Candidate) -> str:
    """Returns the SHA-256 of a measurement's dependencies: model, machine, devices, placement."""
    devices = [[device.name, dict(device.properties)] for device in candidate.devices]
    affinity = None if candidate.affinity is None else dict(candidate.affinity)
    content: list[object] = [measurer.fingerprint, devices, affinity]
    if candidate.segments is not None:
        content += [candidate.segments, candidate.num_requests]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
