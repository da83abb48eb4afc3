"""The loop that corrects the costs of a profile by measuring the best few placements.

A round searches the simulator, measures the placements that it finds (the first also HEFT's and
single devices), and fits the costs to all measured placements (`placement.costs.correction`). The
next round searches with these costs. The loop ends after three rounds, or earlier if the searches
find nothing new, or, unless it is thorough, if profiled or corrected predictions are accurate.

Predictions are too low by a few per cent where placements use several devices: a cut also costs
time on the device that sends, which no objective counts, and devices of one processor share its
memory. So the errors are those of such placements, if there are two.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placement import methods
from placement.costs import correction
from placement.errors import UserError
from placement.pipeline import loading, saved_costs
from placement.pipeline.context import Context
from placement.pipeline.target import Target
from placement.problem import Problem
from placement.reporting import runs
from placement.solvers.limits import SearchLimits
from placement.types import CostModel, Evaluate, Solution, Status

_ROUNDS = 3
_SEARCHES = 3  # of a thorough round, with different seeds
_ACCURATE = 0.05  # mean relative error of predictions, profiled or corrected, that is good enough
_SEARCH_BUDGET = 80_000
_SEARCH_SHARE = 0.05  # of the remaining time, for each search


class Correction(NamedTuple):
    """M measured placements, and the costs that explain their latencies."""

    placements: np.ndarray  # int32 [M, K], fastest first
    latency_s: np.ndarray  # float64 [M]
    costs: CostModel  # of all operations
    # A `correction.Fit` for profile.json; the factors are 1 if they predict no better. None with
    # one placement.
    record: dict[str, Any] | None

    def describe(self) -> str:
        """Says how far predictions are off."""
        if self.record is None:
            return "only one placement was measured, so the costs stay as profiled"
        factors, before, after = self.record.values()
        text = f"{len(self.latency_s)} measured placements: predictions are off by {before:.1%} on "
        if set(factors) == {1.0}:
            return text + "average; a correction predicts no better, so the costs stay as profiled"
        return text + f"average; with corrected costs {after:.1%}"


def correct(
    target: Target,
    problem: Problem,
    evaluate: Evaluate,
    seed: int,
    limits: SearchLimits,
    *,
    thorough: bool,
) -> Correction | None:
    """Measures placements and corrects the costs; None if no placement was measured.

    Args:
      target: with the profiled costs of all operations.
      problem: that of the target.
      evaluate: measures placements; inf for a placement that did not run.
      seed: of the searches.
      limits: their evaluations are measured placements. A round that has begun is completed.
      thorough: False searches once in each round, ends when predictions are accurate, and measures
        nothing if no placement is predicted to be faster than every single device. Of the single
        devices it measures the first; the others take as much longer as in the profile.
    """
    from placement.search import multistart

    net, costs = target.net, target.costs
    assert costs is not None
    num_decisions, num_devices = problem.num_decisions, len(problem.devices)
    singles = [p for p in methods.single_device_placements(problem) if problem.value_s(p) < np.inf]
    if not singles:  # no device holds the whole model
        filled = methods.solve(problem, "fill_in_order")
        singles = [filled.placement] if filled.placement is not None else []
    placements, latency_s = np.empty((0, num_decisions), np.int32), np.empty(0)
    unmeasured = [] if thorough else singles[1:]
    factors = [1.0] * correction.num_factors(num_devices)
    searched = problem
    fit: correction.Fit | None = None

    def reprice(factors: Iterable[float]) -> Problem:
        corrected = correction.apply(net.graph, costs, factors)
        repriced = loading.make_problem(net, corrected, problem.devices, problem.objective)
        # Placements are measured in the profile's order of priority.
        return repriced._replace(order=problem.priority_order)

    def predict(factors: Iterable[float]) -> np.ndarray:
        rows = np.array([*placements, *unmeasured])
        # Always as many rows, to compile once.
        resized = np.resize(rows, (len(singles) + 1 + _ROUNDS * _SEARCHES, num_decisions))
        return np.asarray(reprice(factors).evaluate(resized))[: len(rows)]

    for number in range(_ROUNDS):
        measured_keys = {placement.tobytes() for placement in (*singles, *placements)}
        proposed: dict[bytes, np.ndarray] = {}
        for search_seed in range(seed, seed + (_SEARCHES if thorough else 1)):
            search_s = _SEARCH_SHARE * limits.remaining_s()
            search_limits = SearchLimits(
                search_s, _SEARCH_BUDGET, stop=limits.is_stopped, starts=limits.starts
            )
            result = multistart.search(searched, search_seed, search_limits)
            if result.placement is not None:
                placement = np.asarray(result.placement, np.int32)
                proposed[placement.tobytes()] = placement
            if result.status == Status.OPTIMAL:
                break
        new = [placement for key, placement in proposed.items() if key not in measured_keys]
        if number == 0 and (new or thorough):
            if problem.objective == "makespan":
                heft = methods.solve(problem, "heft").placement
                if heft is not None and heft.tobytes() not in measured_keys | proposed.keys():
                    new.append(heft)
            new = [*(singles if thorough else singles[:1]), *new]
        new = new[: max(0, limits.budget - len(placements))]
        if not new or (number > 0 and limits.is_over()):
            break
        num_known = len(placements)
        placements = np.concatenate([placements, np.array(new)])
        # The new measurements may change the latencies of earlier ones.
        latency_s = np.asarray(evaluate(placements), np.float64)
        ran = np.isfinite(latency_s)
        placements, latency_s = placements[ran], latency_s[ran]
        if len(placements):
            limits.report(len(placements), float(latency_s.min()), placements[latency_s.argmin()])
        if len(placements) < 2:
            break
        scale = latency_s[0] / problem.value_s(placements[0])  # of what the first device takes
        known_s = np.append(latency_s, [scale * problem.value_s(p) for p in unmeasured])
        is_judged = np.array([np.ptp(p) > 0 for p in (*placements, *unmeasured)])
        if is_judged.sum() < 2:
            is_judged[:] = True
        errors = np.abs(predict(factors) / known_s - 1)[num_known:][is_judged[num_known:]]
        fit = correction.fit(predict, known_s, num_devices, is_judged)
        if not thorough and min(errors.mean(), fit.error_after) < _ACCURATE:
            break
        factors = fit.factors
        searched = reprice(factors)
    if not len(placements):
        return None
    order = latency_s.argsort(kind="stable")
    placements, latency_s = placements[order], latency_s[order]
    if fit is None:
        return Correction(placements, latency_s, costs, None)
    if fit.error_after >= fit.error_before:
        fit = fit._replace(factors=[1.0] * len(factors))
    corrected = correction.apply(net.graph, costs, fit.factors)
    return Correction(placements, latency_s, corrected, fit._asdict())


def correct_costs(context: Context) -> Context:
    """Returns the context with costs that a few measured placements have corrected.

    The correction is kept in profile.json; costs that are corrected already stay, and so do those
    of a run that measures nothing, or everything.
    """
    settings, target, problem = context.settings, context.target, context.problem
    if context.measurer is None or settings.evaluate != "simulate+verify":
        return context
    path = Path(settings.costs) if settings.costs else context.workdir / saved_costs.FILE
    saved = saved_costs.read(path)
    evaluate = loading.make_measured_evaluate(
        settings, target.net, problem, context.measurer, context.workdir
    )
    if "correction" in saved or evaluate is None:
        return context
    limits = SearchLimits(settings.time_limit_s, settings.budget, stop=context.stop.is_set)
    with context.display.phase("correcting the costs by measured placements"):
        result = correct(target, problem, evaluate, settings.seed, limits, thorough=False)
    if result is None or result.record is None or context.stop.is_set():
        return context
    context.display.say(result.describe())
    if not settings.costs:
        runs.write_json(path, saved | {"correction": result.record})
    target = target._replace(costs=result.costs)
    return context._replace(target=target, problem=target.problem(problem.objective))


def search(context: Context, limits: SearchLimits) -> Solution:
    """Searches in rounds of measurements; the result is the fastest measured placement."""
    target, problem, seed = context.target, context.problem, context.settings.seed
    assert context.measured is not None
    result = correct(target, problem, context.measured, seed, limits, thorough=True)
    if result is None:
        raise UserError("no placement could be measured; set a longer time_limit_s")
    context.display.say(result.describe())
    return Solution(
        result.placements[0],
        value_s=float(result.latency_s[0]),
        status=Status.INTERRUPTED if context.stop.is_set() else Status.FINISHED,
        search_s=limits.elapsed_s(),
        evaluations=len(result.placements),
    )
