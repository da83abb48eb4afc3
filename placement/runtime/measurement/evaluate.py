"""`Evaluate` on real devices: placements to seconds, in races against the best placement so far.

Latencies of different times cannot be compared, because the machine drifts by more than placements
differ. The ratio of two placements in the same rounds can. So every call is a race (`request`):
new placements run together with the incumbent, the fastest placement so far, and with its closest
rival if that is almost as fast. So a placement that was fastest by chance is found out, and one
that is clearly slower is never measured again. A repeated measurement of a placement is averaged
with the earlier ones, weighted by their rounds.

The cache stores each placement's ratio to the first baseline, which is the product of its ratio to
the incumbent and the incumbent's. Seconds are ratios times one scale: that with which the incumbent
takes its own mean latency of all calls. Ratios to different first baselines are different records.
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
    TIME_LIMIT,
    Candidate,
    Failure,
    Measure,
    Measurement,
)
from placement.types import Array

# Fewest rounds of each stage of a race, and its time for each placement; rounds may take longer.
_STAGE_ROUNDS, _STAGE_S = 2, 0.05
_MIN_COMPILE_S = 15.0  # least limit on compiling the new placements of a call
_RIVAL_RATIO, _RIVAL_ROUNDS = 1.05, 24  # largest ratio to the incumbent, and rounds, of a rival

# The schemas of a candidate that was timed, and of one that failed.
RECORD_SCHEMA = (
    {"key": str, "ratio": float, "latency_s": float, "rounds": int},
    {"key": str, "stage": str, "cause": str},
)


class MeasurementCache:
    """Outcomes of candidates, in memory and in an append-only file of JSON lines."""

    def __init__(self, path: str | os.PathLike[str] | None = None):
        """Reads the file if it exists, without an unfinished last line that a crash may leave."""
        self._path = None if path is None else Path(path)
        remedy = "remove it, and placements are measured again"
        records = files.read_jsonl(self._path, RECORD_SCHEMA, remedy=remedy) if self._path else []
        self._records = {record["key"]: record for record in records}

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: str) -> dict[str, Any] | None:
        """Returns a key's last record, with the fields of `RECORD_SCHEMA`."""
        return self._records.get(key)

    def add(self, key: str, **fields: str | float) -> None:
        """Stores the record of a key, in place of an earlier one."""
        self._records[key] = record = {"key": key, **fields}
        if self._path is not None:
            files.append_line(self._path, json.dumps(record).encode())


class MeasuredEvaluate:
    """An `Evaluate` that measures: int32 [B, K] -> float32 seconds [B], inf for a failure.

    Device indices are positions in `measurer.devices`. `measurements` counts measured candidates,
    without the incumbent and its rival. The module's docstring defines the seconds, which change a
    little with every call: ask again for placements that are to be compared.
    """

    def __init__(
        self,
        measurer: Measurer,
        baseline: np.ndarray,
        candidate: Callable[[np.ndarray], Candidate],
        cache: MeasurementCache,
        *,
        compile_s: float = math.inf,
    ):
        """Prepares measurements; the first call starts them.

        Args:
          measurer: measures the model; stays open while this object is in use.
          baseline: int32 [K], the first incumbent, such as everything on the first device.
          candidate: maps a placement int32 [K] to the candidate to measure.
          cache: shared by all measurements of this model.
          compile_s: time for compiling the new placements of a call, at least 15 s. Placements for
            which no time is left cost inf and are not added to the cache.
        """
        self.num_measurements = 0
        self._measurer = measurer
        self._num_decisions = len(baseline)
        self._candidate = candidate
        self._cache = cache
        self._compile_s = max(compile_s, _MIN_COMPILE_S)
        first = candidate(baseline)
        self._key_suffix = "@" + cache_key(measurer, first)
        # Of the placements of all calls, the first incumbent first: making one takes long.
        self._keys = {baseline.astype(np.int32).tobytes(): self._key(first)}
        self._candidates = {self._key(first): first}

    def __call__(self, placements: Array) -> np.ndarray:
        """Returns the seconds of placements [B, K], float32 [B].

        Raises:
          ChildProcessError: the incumbent cannot be measured.
          OSError: the cache cannot be written.
        """
        placements = np.asarray(placements, np.int32)
        assert placements.ndim == 2
        assert placements.shape[1] == self._num_decisions
        for placement in placements:
            if placement.tobytes() not in self._keys:
                candidate = self._candidate(placement)
                self._keys[placement.tobytes()] = key = self._key(candidate)
                self._candidates[key] = candidate
        requested = [self._keys[placement.tobytes()] for placement in placements]
        ratios = self._ratios()
        incumbent = min(ratios, key=ratios.__getitem__)
        # Neither measured nor failed before.
        new = [key for key in dict.fromkeys(requested) if self._cache.get(key) is None]
        new = [key for key in new if key != incumbent]
        if new or self._cache.get(incumbent) is None:
            rivals = [
                key
                for key in sorted(ratios, key=ratios.__getitem__)[1:2]
                if ratios[key] < _RIVAL_RATIO * ratios[incumbent]
                and self._cache.get(key)["rounds"] < _RIVAL_ROUNDS  # type: ignore[index]
            ]
            keys = [incumbent, *rivals, *new]
            request = Measure(
                [self._candidates[key] for key in keys],
                min_rounds=_STAGE_ROUNDS,
                time_limit_s=_STAGE_S * len(keys),
                compile_s=self._compile_s,
                race=True,
            )
            for outcomes in self._measurer.measure_chunks(request):
                if isinstance(outcomes[0], Failure):
                    raise ChildProcessError(f"the baseline cannot be measured: {outcomes[0].cause}")
                for index, outcome in outcomes.items():
                    self.num_measurements += keys[index] in new
                    self._add(keys[index], outcome, ratios[incumbent])
        ratios = self._ratios()
        incumbent = min(ratios, key=ratios.__getitem__)
        record = self._cache.get(incumbent)
        assert record is not None
        scale_s = record["latency_s"] / record["ratio"]
        return np.array([scale_s * ratios.get(key, math.inf) for key in requested], np.float32)

    def _ratios(self) -> dict[str, float]:
        """Returns the known ratios by key, of the calls' placements; at first the baseline's."""
        records = {key: self._cache.get(key) for key in self._candidates}
        ratios = {key: r["ratio"] for key, r in records.items() if r is not None and "ratio" in r}
        return ratios or {next(iter(self._candidates)): 1.0}

    def _add(self, key: str, outcome: Measurement | Failure, incumbent_ratio: float) -> None:
        """Stores an outcome, averaged with an earlier one."""
        if isinstance(outcome, Failure):
            # A placement that ran before keeps its record.
            if outcome.stage != TIME_LIMIT and self._cache.get(key) is None:
                self._cache.add(key, stage=outcome.stage, cause=outcome.cause)
            return
        rounds, latency_s = outcome.latency.n, outcome.latency.median
        ratio = outcome.ratio.median * incumbent_ratio
        if earlier := self._cache.get(key):
            weight = rounds / (rounds + earlier["rounds"])
            ratio = earlier["ratio"] * (ratio / earlier["ratio"]) ** weight
            latency_s = earlier["latency_s"] * (latency_s / earlier["latency_s"]) ** weight
            rounds += earlier["rounds"]
        self._cache.add(key, ratio=ratio, latency_s=latency_s, rounds=rounds)

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
