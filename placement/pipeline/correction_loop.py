"""The loop that corrects the costs of a profile by measuring the best few placements.

A round searches the simulator, measures the placements that it finds, and fits the costs to all
measured placements (`placement.costs.correction`). The next round searches with these costs. The
first round also measures the single devices. The loop ends after three rounds, or earlier if the
searches find nothing new, or, unless it is thorough, if the placements of a round take as long as
predicted.
"""

from typing import Any, NamedTuple

import numpy as np

from placement import methods
from placement.costs import correction, tables
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
    costs: CostModel  # of all operations; the profile's if a correction predicts no better
    # The part of profile.json that `saved_costs` applies: the factors (zero for the profile's
    # costs), and the mean relative errors of predictions. That after the correction is of a fit to
    # the other placements. None with one placement.
    record: dict[str, Any] | None

    def describe(self) -> str:
        """Says how far predictions are off."""
        record = self.record
        if record is None:
            return "only one placement was measured, so the costs stay as profiled"
        text = f"{len(self.latency_s)} measured placements: predictions are off by "
        text += f"{record['error_before']:.1%} on average; "
        if not any(record["factors"]):
            return f"{text}a correction predicts no better, so the costs stay as profiled"
        return f"{text}with corrected costs {record['error_after']:.1%}"


def correct(
    net: loading.Network,
    problem: loading.SearchProblem,
    evaluate: Evaluate,
    seed: int,
    limits: SearchLimits,
    *,
    thorough: bool,
) -> Correction | None:
    """Measures placements and corrects the costs of a problem.

    Args:
      net: the network of the problem.
      problem: at profiled costs.
      evaluate: measures coarse placements; inf for a placement that did not run.
      seed: of the searches.
      limits: their evaluations are measured placements. A round that has begun is completed.
      thorough: False ends when predictions are accurate, and measures nothing if no placement is
        predicted to be faster than every single device.

    Returns:
      None if no placement was measured.
    """
    full, coarse = problem.full, problem.coarse
    kinds = correction.classify_ops(full.graph, full.costs)
    singles = [
        single
        for single in methods.single_device_placements(coarse)
        if np.isfinite(coarse.value_s(single))
    ]
    if not singles:  # no device holds the whole model
        filled = methods.solve(coarse, "fill_in_order")
        singles = [filled.placement] if filled.placement is not None else []
    num_rows = len(singles) + _ROUNDS * _SEARCHES
    placements, latency_s = np.empty((0, coarse.graph.num_ops), np.int32), np.empty(0)
    factors = np.zeros(correction.num_factors(len(coarse.devices)))
    repriced, fitted = coarse, None

    def reprice(factors: np.ndarray) -> Instance:
        costs = correction.apply(full.costs, kinds, factors)
        if coarse is not full:
            costs = tables.coarse_costs(costs, problem.assignment, net.coarsening.edges)
        # Placements are measured in the profile's order of priority.
        return coarse._replace(costs=costs, order=coarse.priority_order)

    def predict(factors: np.ndarray) -> np.ndarray:
        rows = np.resize(placements, (num_rows, coarse.graph.num_ops))  # compiles once
        return np.asarray(reprice(factors).evaluate(rows))[: len(placements)]

    for number in range(_ROUNDS):
        found = []
        for search_seed in range(seed, seed + _SEARCHES):
            search_s = _SEARCH_SHARE * limits.remaining_s()
            search_limits = SearchLimits(search_s, _SEARCH_BUDGET, stop=limits.is_stopped)
            result = multistart.search(repriced, search_seed, search_limits)
            if result.placement is not None:
                found.append(np.asarray(result.placement, np.int32))
            if result.status == Status.OPTIMAL:
                break
        known = {placement.tobytes() for placement in (*singles, *placements)}
        new = list({p.tobytes(): p for p in found if p.tobytes() not in known}.values())
        if number == 0 and (new or thorough):
            new = [*singles, *new]
        new = new[: max(0, limits.budget - len(placements))]
        if not new or (number > 0 and limits.is_over()):
            break
        seconds = np.asarray(evaluate(np.array(new)), np.float64)
        ran = np.isfinite(seconds)
        placements = np.concatenate([placements, np.array(new)[ran]])
        latency_s = np.concatenate([latency_s, seconds[ran]])
        if not len(placements):
            return None
        best = int(latency_s.argmin())
        limits.report(len(placements), float(latency_s[best]), placements[best])
        if len(placements) == 1:
            return Correction(placements, latency_s, full.costs, None)
        errors = np.abs(predict(factors) / latency_s - 1)[len(latency_s) - ran.sum() :]
        fitted = correction.fit(predict, latency_s, len(coarse.devices))
        if not thorough and errors.mean() < _ACCURATE:
            break
        factors = fitted.factors
        repriced = reprice(factors)
    if fitted is None:
        return None
    before, after = float(fitted.errors_before.mean()), float(fitted.errors_after.mean())
    factors = fitted.factors if after < before else np.zeros_like(fitted.factors)
    costs = correction.apply(full.costs, kinds, factors) if after < before else full.costs
    record = {"factors": factors.tolist(), "error_before": before, "error_after": after}
    order = latency_s.argsort(kind="stable")
    return Correction(placements[order], latency_s[order], costs, record)
