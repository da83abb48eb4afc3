"""Whether placing is worth it: the best that can be, beside the best without placing.

Before any search. What is without placing is the fastest of the single devices and of the
references (`devices.with_references`), measured where they are present, a few inferences each.
"""

import math
from typing import Any, NamedTuple

from placement.pipeline import loading, method_runs
from placement.pipeline import target as target_lib
from placement.reporting import units
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import MIN_SAMPLES, Candidate, Measure, Measurement
from placement.solvers import room as room_lib

FILE = "advice.json"
HOPELESS = 0.97  # of the fastest without placing: what can be at best is no gain worth a search
_MEASURE_S = 2.0
_BOUND_S = 5.0


class Advice(NamedTuple):
    """What an objective has to offer; JSON-able as a dictionary."""

    objective: str
    backend: str
    fastest: str  # without placing
    fastest_s: float
    measured: bool  # else predicted
    single_s: float  # the best single device, predicted
    bound_s: float  # no placement is below; -inf where nothing is known
    optimal: bool  # whether a placement at the bound is known to exist
    chain: float  # share of the best single device's time that its longest path takes

    @property
    def ratio(self) -> float:
        """What can be at best, over the fastest without placing; nan where either is not known."""
        known = math.isfinite(self.bound_s) and math.isfinite(self.fastest_s)
        return units.ratio(self.bound_s, self.fastest_s) if known else math.nan

    def to_json(self) -> dict[str, Any]:
        """Returns all of it, the ratio too."""
        return self._asdict() | {"ratio": self.ratio}

    def lines(self) -> list[str]:
        """Says what is to be gained, and whether to search for it."""
        if math.isnan(self.ratio):
            return [f"at best under {self.objective}: unknown", self.verdict()]
        least = "the optimum is" if self.optimal else "no placement is below"
        took = f"{units.duration(self.fastest_s)} {'measured' if self.measured else 'predicted'}"
        chain = "" if math.isnan(self.chain) else f"; {self.chain:.0%} of one device's is a chain"
        return [
            f"at best under {self.objective}: {least} {self.ratio:.2f} of `{self.fastest}`, the "
            f"fastest without placing ({took}){chain}",
            self.verdict(),
        ]

    def verdict(self) -> str:
        """Advises for or against a search."""
        if math.isnan(self.ratio):
            return "what a search may gain cannot be told before it"
        if self.ratio >= HOPELESS:
            return f"stop here: nothing below {HOPELESS} of `{self.fastest}` can exist"
        return f"a search may gain up to {1 - self.ratio:.0%}"


def find(
    target: target_lib.Target,
    problem: loading.SearchProblem,
    measurer: Measurer | None,
    backend: str,
) -> Advice:
    """Bounds what can be, and measures what is.

    Args:
      target: the model on devices.
      problem: with the costs of `backend`.
      measurer: of the devices, where they are present; None: all is predicted.
      backend: that measured placements run on.
    """
    # The minimum cut places every operation; searches place merged ones.
    placed = problem.full if problem.full.objective == "serial" else problem.coarse
    room = room_lib.find(placed, time_limit_s=_BOUND_S)
    found = {f"single:{target.names[room.single]}": room.single_s}
    if measurer is not None:
        found = _measured(target, measurer) or found
    fastest = min(found, key=found.__getitem__)
    return Advice(
        objective=problem.full.objective,
        backend=backend,
        fastest=fastest.removeprefix("reference:"),
        fastest_s=found[fastest],
        measured=measurer is not None,
        single_s=room.single_s,
        bound_s=room.bound_s,
        optimal=room.optimal,
        chain=room.chain,
    )


def _measured(target: target_lib.Target, measurer: Measurer) -> dict[str, float]:
    """Seconds of what needs no placement, by name, of all that runs."""
    candidates = {f"single:{d.name}": Candidate(None, (d,)) for d in target.present}
    for entry in method_runs.references(target.references):
        candidates[entry.method] = entry.candidates[0]
    outcomes = measurer.ask(Measure(list(candidates.values()), MIN_SAMPLES, _MEASURE_S))
    return {
        name: outcome.latency.median
        for name, outcome in zip(candidates, outcomes, strict=True)
        if isinstance(outcome, Measurement)
    }
