"""A search by few measurements on devices: Thompson sampling of the costs.

The simulator is a few percent off, and a measurement takes seconds. So the measured placements
correct the costs (`placement.costs.calibrate`), and the remaining uncertainty about the costs
decides what to measure next (Thompson sampling: Thompson 1933; Russo et al. 2018). Each round

1. draws tables of costs from the posterior,
2. searches the simulator under each table, from the measured placement that is best under it,
3. measures some of the placements found, together with the fastest ones measured before,
4. computes the posterior of the next round from all measurements.

The search ends when the fastest measured placement is unlikely to be beaten. Under one table the
latency of a proposed placement p is predicted(p) * (1 + error * z). Here z is standard normal, and
the error is that of predictions of measured placements. The probability that p takes less than
1 - g of the least measured latency t is

    Phi( ((1 - g) t / predicted(p) - 1) / error ),

and zero if p has been measured itself. The mean over the tables must be small.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import numpy as np
from scipy.special import ndtr

from placement.analysis import latency_terms
from placement.costs import calibrate
from placement.costs.calibrate import ComputeTerms
from placement.instance import Instance
from placement.search import multistart
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

MAX_MEASUREMENTS = 50  # placements measured
_NUM_DRAWS = 8  # tables of costs in a round
_MAX_NEW = 4  # placements measured for the first time in a round
_SEARCH_BUDGET = 16_384  # simulations for each table
_SEARCH_SHARE = 0.01  # of the remaining time, for each table
_LEAST_GAIN = 0.005  # relative: a smaller gain is not worth another round
_LEAST_PROBABILITY = 0.05  # of this gain; below it the search ends
_FIT_ROUNDS = 5

# Measures new placements int32 [B, N], and the fastest int32 [K, N] again beside them; returns
# seconds float [B + K], inf for a placement that cannot run.
Measure = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Measurements(NamedTuple):
    """The M placements measured so far, and the terms of their latencies."""

    placement: np.ndarray  # int32 [M, N]
    latency_s: np.ndarray  # float64 [M]; inf where it did not run
    terms: tuple[ComputeTerms, ...]


class Proposal(NamedTuple):
    """P distinct placements that have not been measured, in the order of their draws."""

    placement: np.ndarray  # int32 [P, N]
    terms: tuple[ComputeTerms, ...]
    probability: float  # that the placement found under a table has the least gain


class MeasuredPlacements(NamedTuple):
    """Result of a search on devices."""

    placement: np.ndarray  # int32 [M, N]: all measured placements, fastest first
    latency_s: np.ndarray  # float64 [M]
    status: Status  # FINISHED or TIME_LIMIT


def search_devices(
    problem: Instance, first: np.ndarray, measure: Measure, seed: int, limits: SearchLimits
) -> MeasuredPlacements:
    """Searches on devices, starting from single devices and the result of a simulated search.

    Args:
      problem: N operations, of an objective of `analysis.latency_terms`, at profiled costs.
      first: int32 [N], the simulated search's result.
      measure: called once a round; its errors end the search.
      seed: of all randomness.
      limits: of the search; its evaluations are measured placements, at most `MAX_MEASUREMENTS`.

    Returns:
      All measured placements; `first` alone, with inf, if there was no time to measure any.
    """
    if limits.is_over():
        return MeasuredPlacements(first[None], np.array([np.inf]), Status.TIME_LIMIT)
    rng, op_kinds = (
        np.random.default_rng(seed),
        calibrate.classify_ops(problem.graph, problem.costs),
    )
    max_measured = min(MAX_MEASUREMENTS, limits.budget)
    can_run_all = np.isfinite(np.asarray(problem.costs.compute_s)).all(axis=0)
    singles = [np.full(problem.graph.num_ops, d) for d in np.flatnonzero(can_run_all)]
    singles = [single for single in singles if not problem.exceeds_memory(single)]
    distinct = dict.fromkeys(tuple(row.tolist()) for row in [*singles, first])
    starts = np.array(list(distinct), np.int32)
    terms = tuple(latency_terms.prepare(problem, start, op_kinds) for start in starts)
    measurements = Measurements(starts[:0], np.empty(0), ())
    proposal = Proposal(starts, terms, 1.0)
    status = Status.FINISHED
    while proposal.probability > _LEAST_PROBABILITY and len(measurements.terms) < max_measured:
        if limits.is_over():
            status = Status.TIME_LIMIT
            break
        measurements = _add_measured(measurements, proposal, measure)
        best = int(measurements.latency_s.argmin())
        best_s = float(measurements.latency_s[best])
        limits.report(len(measurements.terms), best_s, measurements.placement[best])
        ran = np.isfinite(measurements.latency_s)
        posterior = calibrate.fit_posterior(
            problem.costs,
            [measurements.terms[i] for i in np.flatnonzero(ran)],
            measurements.latency_s[ran],
            rounds=_FIT_ROUNDS,
            kind=op_kinds,
            error=None,
        )
        proposal = propose(problem, op_kinds, posterior, measurements, rng, limits)
        num_new = min(_MAX_NEW, max_measured - len(measurements.terms))
        proposal = proposal._replace(
            placement=proposal.placement[:num_new], terms=proposal.terms[:num_new]
        )
    order = measurements.latency_s.argsort(kind="stable")
    return MeasuredPlacements(measurements.placement[order], measurements.latency_s[order], status)


def propose(
    problem: Instance,
    op_kinds: np.ndarray,
    posterior: calibrate.Posterior,
    measurements: Measurements,
    rng: np.random.Generator,
    limits: SearchLimits,
) -> Proposal:
    """Searches under drawn tables of costs for the placements to measure next."""
    target_s = (1 - _LEAST_GAIN) * measurements.latency_s.min()
    measured_keys = {placement.tobytes() for placement in measurements.placement}
    # By the placement's bytes.
    new: dict[bytes, tuple[np.ndarray, ComputeTerms]] = {}
    probabilities = []
    for _ in range(_NUM_DRAWS):
        if limits.is_over():
            break
        calibration = posterior.draw(rng)
        costs = calibrate.apply_calibration(problem.costs, calibration, op_kinds)
        placement = _search(problem._replace(costs=costs), measurements, rng, limits)
        key = placement.tobytes()
        if key in measured_keys:
            probabilities.append(0.0)
            continue
        if key not in new:
            new[key] = placement, latency_terms.prepare(problem, placement, op_kinds)
        predicted_s = calibrate.predict_latency(new[key][1](costs), calibration)
        probabilities.append(float(ndtr((target_s / predicted_s - 1) / posterior.error)))
    return Proposal(
        np.array([placement for placement, _ in new.values()], np.int32),
        tuple(terms for _, terms in new.values()),
        float(np.mean(probabilities or 1.0)),
    )


def _add_measured(measurements: Measurements, proposal: Proposal, measure: Measure) -> Measurements:
    """Measures a proposal, and again the fastest placement and the fastest single device."""
    latency_s = measurements.latency_s.copy()
    repeated = np.empty(0, int)
    if len(measurements.terms):
        is_single = (measurements.placement == measurements.placement[:, :1]).all(axis=1)
        fastest_single = np.where(is_single, latency_s, np.inf).argmin()
        repeated = np.unique([latency_s.argmin(), fastest_single])
    num_new = len(proposal.terms)
    seconds = np.asarray(measure(proposal.placement, measurements.placement[repeated]), np.float64)
    chex.assert_shape(seconds, (num_new + len(repeated),))
    latency_s[repeated] = seconds[num_new:]
    return Measurements(
        np.concatenate([measurements.placement, proposal.placement]),
        np.concatenate([latency_s, seconds[:num_new]]),
        (*measurements.terms, *proposal.terms),
    )


def _search(
    drawn_problem: Instance,
    measurements: Measurements,
    rng: np.random.Generator,
    limits: SearchLimits,
) -> np.ndarray:
    """Returns the best placement int32 [N] of a short search under drawn costs."""
    # Padded to the largest number of measured placements: the simulator compiles once.
    rows = np.resize(measurements.placement, (MAX_MEASUREMENTS, drawn_problem.graph.num_ops))
    fastest = int(np.argmin(drawn_problem.evaluate(rows))) % len(measurements.terms)
    start = measurements.placement[fastest]
    seed = int(rng.integers(np.iinfo(np.int32).max))
    search_limits = SearchLimits(
        _SEARCH_SHARE * limits.remaining_s(), _SEARCH_BUDGET, stop=limits.is_stopped
    )
    result = multistart.search(drawn_problem, seed, search_limits, Solution(start))
    return start if result.placement is None else np.asarray(result.placement, np.int32)
