"""Rows of the results table: the one place that turns a method's solution into one."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from placement.reporting import units
from placement.runtime import devices as devices_lib
from placement.runtime.measurement.request import Candidate, Failure, Measurement
from placement.solvers import base
from placement.types import OUT_OF_MEMORY, Solution, Status

Outcome = Measurement | Failure | None  # None: not measured


class Row(NamedTuple):
    """One row: the solution of a method, and B placements of it that devices can run.

    The row describes the first placement. `solution.elite`, int32 [B, K], has all of them.
    """

    method: str
    solution: Solution  # its placement and value are those of the first placement
    candidates: tuple[Candidate, ...]  # B, the placements as devices run them
    predicted_s: tuple[float, ...]  # B
    is_reference: bool = False  # runs on a device that placements cannot use
    outcome: Outcome = None
    measurements: int = 0  # placements measured for this row

    @property
    def placements(self) -> np.ndarray:
        """int32 [B, K], the most promising first."""
        assert self.solution.elite is not None
        return self.solution.elite

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the placement needs more memory than its devices have, so never runs."""
        return self.solution.reason.startswith(OUT_OF_MEMORY)

    @property
    def is_single(self) -> bool:
        """Whether everything is on one device because this row is that device."""
        return self.method.startswith("single:")

    def select(self, index: int) -> "Row":
        """Returns the row with one of its placements alone."""
        value_s, placement = self.predicted_s[index], self.placements[index]
        return self._replace(
            solution=self.solution._replace(
                placement=placement, value_s=value_s, elite=placement[None]
            ),
            candidates=self.candidates[index : index + 1],
            predicted_s=(value_s,),
        )

    def to_json(self, single_s: float) -> dict[str, Any]:
        """Returns the row as summary.json has it; `single_s`: as predicted, of the best device."""
        solution, outcome = self.solution, self.outcome
        status, measured_s, interval = solution.status_text, None, None
        is_proof = solution.status == Status.OPTIMAL
        if solution.scope == base.CONTIGUOUS or (solution.scope == base.GIVEN_ORDER and is_proof):
            status = f"{status}, {solution.scope}"
        is_comparable = math.isfinite(single_s) and math.isfinite(solution.value_s)
        versus_single = units.ratio(solution.value_s, single_s) if is_comparable else None
        if isinstance(outcome, Measurement):
            measured_s = outcome.latency._asdict()
            versus_single, ratio = None, outcome.ratio
            if math.isfinite(ratio.median):  # else no single device ran
                versus_single, interval = ratio.median, [ratio.low, ratio.high]
        if isinstance(outcome, Failure):
            status = Status.FAILED.describe(f"{outcome.stage}: {outcome.cause}")
            versus_single = None
        row = {
            "method": self.method,
            "predicted_s": solution.value_s,
            "own_best_s": solution.own_best_s,
            "measured_s": measured_s,
            "versus_best_single_device": versus_single,
            "versus_interval": interval,  # 95%, of the paired ratios' median
            "bound_s": solution.bound_s,
            "gap": units.ratio(solution.value_s, solution.bound_s) - 1.0,
            "search_s": solution.search_s,
            "compile_s": solution.compile_s,
            "evaluations": solution.evaluations,
            "measurements": self.measurements,
            "num_devices": len(np.unique(self.placements[0])),  # that the placement uses
            "status": status,
        }
        return row | ({"reference": True} if self.is_reference else {})


def to_json(rows: Sequence[Row], *, with_errors: bool = False) -> list[dict[str, Any]]:
    """Returns the rows of summary.json, if asked for with the output errors of those that ran."""
    single_s = min(row.solution.value_s for row in rows if row.is_single)
    records = [row.to_json(single_s) for row in rows]
    for row, record in zip(rows, records, strict=True):
        if with_errors and isinstance(row.outcome, Measurement):
            record["output_error"] = row.outcome.output_error
    return records


def references(devices: tuple[devices_lib.Device, ...]) -> list[Row]:
    """Returns rows of devices that placements cannot use but must beat, such as the whole CPU."""
    nowhere = np.empty((1, 0), np.int32)
    rows = []
    for device in devices:
        num_requests = None if devices_lib.is_throughput_reference(device) else 1
        candidate = Candidate(None, (device,), num_requests=num_requests)
        solution = Solution(nowhere[0], elite=nowhere)
        name = f"reference:{device.label}"
        rows.append(Row(name, solution, (candidate,), (math.nan,), is_reference=True))
    return rows
