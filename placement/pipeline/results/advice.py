"""Advice before any search: the best possible latency next to the fastest without placing.

The fastest without placing is one of the single devices, which the profile has timed, or of the
references (`devices.resolve_with_references`), which run a few inferences where they are present.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from placement import methods, solvers
from placement.graphs import dag
from placement.pipeline import target as target_lib
from placement.pipeline.context import Context
from placement.pipeline.results import rows
from placement.pipeline.settings import Settings
from placement.problem import Problem
from placement.reporting import runs, units
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Measure, Measurement
from placement.types import Status

FILE = "advice.json"
HOPELESS = 0.97  # the best possible over the fastest without placing: no gain worth a search
_MEASURE_S, _MEASURE_ROUNDS = 2.0, 3  # of the references, whose medians need no interval
_BOUND_S = 5.0


class Advice(NamedTuple):
    """The possible gain under one objective; the fields are those of advice.json."""

    objective: str
    backend: str
    fastest: str  # without placing
    fastest_s: float
    measured: bool  # else predicted
    bound_s: float  # no placement is below; -inf where nothing is known
    optimal: bool  # whether there is a placement at the bound; known under `serial` alone
    # The longest path on the best single device over its time: 1 if all work is sequential, nan
    # without a single device.
    chain: float

    @property
    def ratio(self) -> float:
        """The best possible over the fastest without placing; nan where either is not known."""
        is_known = math.isfinite(self.bound_s) and math.isfinite(self.fastest_s)
        return units.ratio(self.bound_s, self.fastest_s) if is_known else math.nan

    @property
    def _fastest_name(self) -> str:
        name = self.fastest.removeprefix("single:")
        return name if name == self.fastest else f"{name} alone"

    def to_json(self) -> dict[str, Any]:
        """Returns all fields, the ratio and the advice in words."""
        return self._asdict() | {"ratio": self.ratio, "advice": self.lines()}

    @property
    def is_hopeless(self) -> bool:
        """Whether no placement can be clearly faster than the fastest without placing."""
        return self.ratio >= HOPELESS

    def lines(self) -> list[str]:
        """Says what a search may gain, and whether to search."""
        if math.isnan(self.ratio):
            return [self.recommendation()]
        best = "The fastest placement takes" if self.optimal else "No placement takes less than"
        source = "measured" if self.measured else "predicted"
        text = (
            f"{best} {units.duration(self.bound_s)} (simulated, objective {self.objective}). "
            f"Without placing, {self._fastest_name} takes {units.duration(self.fastest_s)} "
            f"({source})."
        )
        if not math.isnan(self.chain):
            text += f" {self.chain:.0%} of the work is one chain and cannot be shared."
        return [text, self.recommendation()]

    def recommendation(self) -> str:
        """Advises for or against a search."""
        if math.isnan(self.ratio):
            return "Only a search can tell what it gains: no bound is known."
        if self.is_hopeless:
            return (
                f"Stop here: no placement can be clearly faster than {self._fastest_name}. "
                "Use that, or add a device."
            )
        return f"A search may gain up to {1 - self.ratio:.0%}."


def measure_references(
    target: target_lib.Target, measurer: Measurer | None, settings: Settings
) -> dict[str, float]:
    """Returns the seconds of each reference, by the name of its row; {} if none is measured."""
    candidates = {row.method: row.candidates[0] for row in rows.references(target.references)}
    if measurer is None or settings.evaluate == "simulate" or not candidates:
        return {}
    seconds = min(_MEASURE_S, settings.measure_s)
    outcomes = measurer.ask(Measure(list(candidates.values()), _MEASURE_ROUNDS, seconds))
    return {
        name: outcome.latency.median
        for name, outcome in zip(candidates, outcomes, strict=True)
        if isinstance(outcome, Measurement)
    }


def estimate(
    target: target_lib.Target,
    problem: Problem,
    references_s: Mapping[str, float],
    settings: Settings,
) -> Advice:
    """Bounds all placements, and compares with the devices and measured references alone.

    Under `serial` the bound is a minimum cut, which is exact for two devices; under the other
    objectives it is that of `solvers.lower_bound`, for any order of a device's operations.
    """
    placements = methods.single_device_placements(problem)
    singles_s = [problem.value_s(placement) for placement in placements]
    single, chain = int(np.argmin(singles_s)), math.nan
    if math.isfinite(singles_s[single]):
        op_s = np.asarray(problem.costs.compute_s, np.float64)[:, single]
        longest_s = dag.longest_paths(problem.graph.senders, problem.graph.receivers, op_s)
        chain = float(longest_s.max() / op_s.sum()) if op_s.any() else 1.0
    bound_limit_s = min(_BOUND_S, settings.time_limit_s)
    if problem.objective == "serial":
        solution = methods.solve(problem, "graph_cut", time_limit_s=bound_limit_s)
        bound_s, optimal = solution.bound_s, solution.status == Status.OPTIMAL
    else:
        bound_s = solvers.lower_bound(problem, time_limit_s=bound_limit_s, any_order=True)
        optimal = False
    latency_s = {f"single:{target.names[single]}": singles_s[single]}
    compared = {row.method for row in rows.references(target.references)}
    latency_s |= {name: references_s[name] for name in compared & references_s.keys()}
    fastest = min(latency_s, key=latency_s.__getitem__)
    return Advice(
        objective=problem.objective,
        backend=settings.backend if target.present else "",
        fastest=fastest.removeprefix("reference:"),
        fastest_s=latency_s[fastest],
        measured=fastest in references_s,
        bound_s=bound_s,
        optimal=optimal,
        chain=chain,
    )


def select(
    context: Context, methods: tuple[str, ...], baselines: Collection[str]
) -> tuple[str, ...]:
    """Says what a search may gain at best; returns the methods that are worth running."""
    settings, display = context.settings, context.display
    with display.phase("estimating the possible gain"):
        references_s = measure_references(context.target, context.measurer, settings)
        advised = estimate(context.target, context.problem, references_s, settings)
    for line in advised.lines():
        display.say(line)
    runs.write_json(context.workdir / FILE, advised.to_json())
    searches = [method for method in methods if method not in baselines]
    if not (advised.is_hopeless and searches):
        return methods
    if settings.search_anyway:
        display.say(f"{searches[0]} runs anyway, because search_anyway is set.")
        return methods
    display.say(f"{searches[0]} is not run. To run it anyway, set search_anyway=True")
    return tuple(method for method in methods if method in baselines)
