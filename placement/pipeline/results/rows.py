"""Rows of the results table: the one place that turns a method's solution into one."""

import itertools
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from placement import methods
from placement.pipeline import loading
from placement.pipeline.context import Context
from placement.reporting import units
from placement.runtime import devices as devices_lib
from placement.runtime.execution import mixed_precision
from placement.runtime.measurement.request import Candidate, Failure, Measurement
from placement.solvers import base
from placement.types import OUT_OF_MEMORY, Solution, Status

_MOVED = "operations moved to keep variables together"


class Row(NamedTuple):
    """One row: the solution of a method, and B placements of it that devices can run.

    The row describes the first placement. `solution.elite`, int32 [B, K], has all of them.
    """

    method: str
    solution: Solution  # its placement and value are those of the first placement
    candidates: tuple[Candidate, ...]  # B, the placements as devices run them
    predicted_s: tuple[float, ...]  # B
    is_reference: bool = False  # runs on a device that placements cannot use
    outcome: Measurement | Failure | None = None  # None: not measured
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
            "own_best_s": units.number(solution.own_best_s),
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
        if math.isfinite(row.solution.value_s):  # else the placement is missing
            key = row.solution.value_s, row.candidates[0]
            same = next(r for r in rows if (r.solution.value_s, r.candidates[0]) == key)
            if same is not row:
                record["same_as"] = same.method
        if with_errors and isinstance(row.outcome, Measurement):
            record["output_error"] = row.outcome.output_error
    return records


def single_devices(context: Context) -> list[Row]:
    """Returns the rows that every table begins with: everything on each device."""
    placements = methods.single_device_placements(context.problem)
    return [
        make(context, f"single:{name}", Solution(placement, evaluations=1))
        for name, placement in zip(context.target.names, placements, strict=True)
    ]


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


def make(context: Context, method: str, solution: Solution) -> Row:
    """Makes the row of a solution: each placement with its value in the simulator, ready to run.

    Uses the solution's elite, or its placement alone. The last placements are left out where
    preparing the others takes longer than a search may.
    """
    assert solution.placement is not None
    net, problem = context.target.net, context.problem.with_order(solution.order)
    placements = solution.placement[None] if solution.elite is None else solution.elite
    placements = np.asarray(placements, np.int32)
    present, backend = context.target.present, context.settings.backend
    needs_acyclic_variables = (
        backend == "hetero"
        and len(present) > 1
        and mixed_precision.find_coarse_device(present) is None
        and not math.isinf(solution.value_s)
    )
    if needs_acyclic_variables:
        first = placements[0]
        placements = loading.remove_variable_cycles(net, problem, placements)
        if not np.array_equal(placements[0], first):
            # A proof of the search was about another placement.
            is_proof = solution.status == Status.OPTIMAL
            status = Status.FINISHED if is_proof else solution.status
            solution = solution._replace(status=status, reason=solution.reason or _MOVED)
    candidates: list[Candidate] = []
    deadline_s = time.monotonic() + context.settings.time_limit_s
    for placement in placements:
        if candidates and time.monotonic() > deadline_s:
            break
        candidates.append(loading.make_candidate(net, problem, placement, present, backend))
    placements = placements[: len(candidates)]
    predicted_s = tuple(float(value) for value in problem.evaluate(placements))
    if math.isinf(solution.value_s):  # the method found none; the placement is only for show
        predicted_s = (math.inf,) * len(placements)
    elif not all(map(math.isfinite, predicted_s)):
        fits = [not problem.exceeds_memory(placement) for placement in placements]
        if any(fits):
            placements = placements[fits]
            candidates = list(itertools.compress(candidates, fits))
            predicted_s = tuple(itertools.compress(predicted_s, fits))
        else:
            solution = solution._replace(status=Status.FAILED, reason=OUT_OF_MEMORY)
    if solution.reason == OUT_OF_MEMORY:
        capacity_bytes = np.asarray(problem.costs.capacity_bytes, np.float64)
        excess = ", ".join(
            f"{name} needs {units.size(used)} of {units.size(capacity)}"
            for name, used, capacity in zip(
                problem.devices, problem.peak_bytes(placements[0]), capacity_bytes, strict=True
            )
            if used > capacity * (1 - base.ROUNDING)
        )
        solution = solution._replace(reason=f"{OUT_OF_MEMORY}: {excess}")
    solution = solution._replace(placement=placements[0], value_s=predicted_s[0], elite=placements)
    return Row(method, solution, tuple(candidates), predicted_s)
