"""The loop that corrects the costs of a profile by measuring the best few placements.

A round searches the simulator, measures the placements that it finds (the first also the single
devices), and fits the costs to all measured placements (`placement.costs.correction`). The next
round searches with these costs. The loop ends after three rounds, or earlier if the searches find
nothing new, or, unless it is thorough, if predictions of a round are accurate.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from placement import methods
from placement.costs import correction
from placement.instance import Instance
from placement.pipeline import loading
from placement.search import multistart
from placement.solvers.limits import SearchLimits
from placement.types import CostModel, Evaluate, Status

_ROUNDS = 3
_SEARCHES = 3  # of a round, with different seeds
_ACCURATE = 0.05  # mean relative error of predictions that need no further round
_SEARCH_BUDGET = 16_384
_SEARCH_SHARE = 0.05  # of the remaining time, for each search


class Correction(NamedTuple):
    """M measured placements, and the costs that explain their latencies."""

    placements: np.ndarray  # int32 [M, N] of coarse operations, fastest first
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
    net: loading.Network,
    problem: loading.SearchProblem,
    evaluate: Evaluate,
    seed: int,
    limits: SearchLimits,
    *,
    thorough: bool,
) -> Correction | None:
    """Measures placements and corrects the costs; None if no placement was measured.

    Args:
      net: the network of the problem.
      problem: at profiled costs.
      evaluate: measures coarse placements; inf for a placement that did not run.
      seed: of the searches.
      limits: their evaluations are measured placements. A round that has begun is completed.
      thorough: False ends when predictions are accurate, and measures nothing if no placement is
        predicted to be faster than every single device.
    """
    full, coarse = problem.full, problem.coarse
    singles = [p for p in methods.single_device_placements(coarse) if coarse.value_s(p) < np.inf]
    placements, latency_s = np.empty((0, coarse.graph.num_ops), np.int32), np.empty(0)
    factors = [1.0] * correction.num_factors(len(coarse.devices))
    searched = coarse
    fit: correction.Fit | None = None

    def reprice(factors: Iterable[float]) -> Instance:
        costs = correction.apply(full.graph, full.costs, factors)
        repriced = loading.make_search_problem(net, costs, full.devices, full.objective).coarse
        # Placements are measured in the profile's order of priority.
        return repriced._replace(order=coarse.priority_order)

    def predict(factors: Iterable[float]) -> np.ndarray:
        # Always as many rows, to compile once.
        rows = np.resize(placements, (len(singles) + _ROUNDS * _SEARCHES, coarse.graph.num_ops))
        return np.asarray(reprice(factors).evaluate(rows))[: len(placements)]

    for number in range(_ROUNDS):
        known = {placement.tobytes() for placement in (*singles, *placements)}
        found: dict[bytes, np.ndarray] = {}
        for search_seed in range(seed, seed + _SEARCHES):
            search_s = _SEARCH_SHARE * limits.remaining_s()
            search_limits = SearchLimits(search_s, _SEARCH_BUDGET, stop=limits.is_stopped)
            result = multistart.search(searched, search_seed, search_limits)
            if result.placement is not None:
                placement = np.asarray(result.placement, np.int32)
                found[placement.tobytes()] = placement
            if result.status == Status.OPTIMAL:
                break
        new = [placement for key, placement in found.items() if key not in known]
        if number == 0 and (new or thorough):
            new = [*singles, *new]
        new = new[: max(0, limits.budget - len(placements))]
        if not new or (number > 0 and limits.is_over()):
            break
        seconds = np.asarray(evaluate(np.array(new)), np.float64)
        ran = np.isfinite(seconds)
        placements = np.concatenate([placements, np.array(new)[ran]])
        latency_s = np.concatenate([latency_s, seconds[ran]])
        if len(placements):
            limits.report(len(placements), float(latency_s.min()), placements[latency_s.argmin()])
        if len(placements) < 2:
            break
        errors = np.abs(predict(factors) / latency_s - 1)[len(latency_s) - ran.sum() :]
        fit = correction.fit(predict, latency_s, len(coarse.devices))
        if not thorough and errors.mean() < _ACCURATE:
            break
        factors = fit.factors
        searched = reprice(factors)
    if not len(placements):
        return None
    order = latency_s.argsort(kind="stable")
    placements, latency_s = placements[order], latency_s[order]
    if fit is None:
        return Correction(placements, latency_s, full.costs, None)
    if fit.error_after >= fit.error_before:
        fit = fit._replace(factors=[1.0] * len(factors))
    costs = correction.apply(full.graph, full.costs, fit.factors)
    return Correction(placements, latency_s, costs, fit._asdict())
