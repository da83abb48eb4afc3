"""A search on devices: few measurements, chosen by what all of them say of the costs.

The simulator is wrong by some percent, and measuring takes seconds. So measured placements correct
the costs (`placement.costs.calibrate`), and what remains unsure about these says what to measure
next, by Thompson sampling (Thompson 1933; Russo et al. 2018). In each round

1. costs are drawn from the posterior, a few times;
2. under each draw the simulator is searched, from the placement measured that is best there;
3. of the placements found, some that were never measured are, beside the fastest measured so far;
4. all measurements together make the posterior of the next round.

It ends when the fastest measured is unlikely to be beaten. What a draw's placement p takes is
predicted(p) (1 + error z), with z of a standard normal distribution and the error that predictions
of measured placements have. So it takes less than 1 - g of a measured latency t with probability

    Phi( ((1 - g) t / predicted(p) - 1) / error )

and zero if it has been measured itself. The mean over the draws is what has to be small.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import numpy as np
from scipy.special import ndtr

from placement.analysis import latency_terms
from placement.costs import calibrate
from placement.costs.calibrate import TermsAt
from placement.instance import Instance
from placement.search import population
from placement.solvers.limits import SearchLimits
from placement.types import Solution, Status

MOST = 50  # placements measured
_DRAWS = 8  # of a round
_AT_ONCE = 4  # measured in a round, at most
_EVALUATIONS = 16_384  # in the simulator, of each draw
_SHARE = 0.01  # of the time, for each draw
_GAIN = 0.005  # what is worth another round
_UNLIKELY = 0.05  # that a draw's placement has this gain: then it is not worth one
_ROUNDS = 5  # of fitting the coefficients

# New placements int32 [B, N], and the fastest int32 [K, N] to be measured beside them: seconds
# float [B + K]; inf of one that cannot run.
Measure = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Known(NamedTuple):
    """The M placements measured, and what their latencies consist of."""

    placement: np.ndarray  # int32 [M, N]
    latency_s: np.ndarray  # float64 [M]; inf where it did not run
    terms: tuple[TermsAt, ...]

    def fastest(self) -> np.ndarray:
        """The number of the incumbent and that of the fastest single device, int [1 or 2]."""
        alone = (self.placement == self.placement[:, :1]).all(axis=1)
        of_alone_s = np.where(alone, self.latency_s, np.inf)
        return np.unique([self.latency_s.argmin(), of_alone_s.argmin()])


class Proposal(NamedTuple):
    """What a round would measure: P placements, distinct and not yet measured, as drawn."""

    placement: np.ndarray  # int32 [P, N]
    terms: tuple[TermsAt, ...]
    probability: float  # that the placement of a draw is worth it


class Found(NamedTuple):
    """The outcome of a search on devices."""

    placement: np.ndarray  # int32 [M, N]: all that were measured, the fastest first
    latency_s: np.ndarray  # float64 [M]
    status: Status  # FINISHED or TIME_LIMIT


def find(
    problem: Instance, first: np.ndarray, measure: Measure, seed: int, limits: SearchLimits
) -> Found:
    """Searches on devices from single devices and what a search in the simulator found.

    Args:
      problem: N operations, of an objective of `analysis.latency_terms`, at costs as profiled.
      first: int32 [N], from which it starts.
      measure: called once a round; its errors end the search.
      seed: of all randomness.
      limits: until which it searches; the budget counts placements measured, of which `MOST` are
        the most. It is told of these, too.

    Returns:
      All placements that were measured; `first` alone, with inf, where there was no time for any.
    """
    if limits.over():
        return Found(first[None], np.array([np.inf]), Status.TIME_LIMIT)
    rng, kind = np.random.default_rng(seed), calibrate.kinds(problem.graph, problem.costs)
    most = min(MOST, limits.budget)
    starts = _starts(problem, first)
    known = Known(starts[:0], np.empty(0), ())
    proposal = Proposal(starts, tuple(latency_terms.prepare(problem, p, kind) for p in starts), 1.0)
    status = Status.FINISHED
    while proposal.probability > _UNLIKELY and len(known.terms) < most:
        if limits.over():
            status = Status.TIME_LIMIT
            break
        known = _measured(known, proposal, measure)
        best = int(known.latency_s.argmin())
        limits.tell(len(known.terms), float(known.latency_s[best]), known.placement[best])
        proposal = _first_of(
            propose(problem, kind, believe(problem, kind, known), known, rng, limits),
            min(_AT_ONCE, most - len(known.terms)),
        )
    order = known.latency_s.argsort(kind="stable")
    return Found(known.placement[order], known.latency_s[order], status)


def believe(problem: Instance, kind: np.ndarray, known: Known) -> calibrate.Posterior:
    """Computes what the measured placements that ran say of the costs.

    Args:
      problem: N operations, at costs as profiled.
      kind: int [N], of operations (`calibrate.kinds`).
      known: what was measured.
    """
    ran = np.isfinite(known.latency_s)
    of_ran = [of for of, able in zip(known.terms, ran, strict=True) if able]
    return calibrate.fit(
        problem.costs,
        of_ran,
        known.latency_s[ran],
        rounds=_ROUNDS,
        kind=kind,
        error=None,
    )


def propose(
    problem: Instance,
    kind: np.ndarray,
    posterior: calibrate.Posterior,
    known: Known,
    rng: np.random.Generator,
    limits: SearchLimits,
) -> Proposal:
    """Searches under costs drawn from a posterior for what to measure next.

    Args:
      problem: N operations, at costs as profiled.
      kind: int [N], of operations (`calibrate.kinds`).
      posterior: of these costs.
      known: what was measured.
      rng: consumed.
      limits: of the whole search, of which a draw has a small part.
    """
    worth_s = (1 - _GAIN) * known.latency_s.min()
    seen = {placement.tobytes() for placement in known.placement}
    new: dict[bytes, tuple[np.ndarray, TermsAt]] = {}
    probabilities = []
    for _ in range(_DRAWS):
        if limits.over():
            break
        calibration = posterior.draw(rng)
        costs = calibrate.apply(problem.costs, calibration, kind)
        found = _searched(problem._replace(costs=costs), known, rng, limits)
        number = found.tobytes()
        if number in seen:
            probabilities.append(0.0)
            continue
        if number not in new:
            new[number] = found, latency_terms.prepare(problem, found, kind)
        predicted_s = calibrate.predicted_s(new[number][1](costs), calibration)
        probabilities.append(float(ndtr((worth_s / predicted_s - 1) / posterior.error)))
    return Proposal(
        np.array([placement for placement, _ in new.values()], np.int32),
        tuple(of for _, of in new.values()),
        float(np.mean(probabilities or 1.0)),
    )


def _starts(problem: Instance, first: np.ndarray) -> np.ndarray:
    """The single devices that can run everything, and another placement: distinct, int32 [M, N]."""
    allowed = np.isfinite(np.asarray(problem.costs.compute_s)).all(axis=0)
    rows = [np.full(problem.graph.num_ops, d) for d in np.flatnonzero(allowed)]
    return np.array(list(dict.fromkeys(tuple(row.tolist()) for row in [*rows, first])), np.int32)


def _first_of(proposal: Proposal, count: int) -> Proposal:
    return proposal._replace(placement=proposal.placement[:count], terms=proposal.terms[:count])


def _measured(known: Known, proposal: Proposal, measure: Measure) -> Known:
    """With what is proposed, and the fastest measured anew beside it."""
    again = known.fastest() if len(known.terms) else np.empty(0, int)
    count = len(proposal.terms)
    seconds = np.asarray(measure(proposal.placement, known.placement[again]), np.float64)
    chex.assert_shape(seconds, (count + len(again),))
    latency_s = known.latency_s.copy()
    latency_s[again] = seconds[count:]
    return Known(
        np.concatenate([known.placement, proposal.placement]),
        np.concatenate([latency_s, seconds[:count]]),
        (*known.terms, *proposal.terms),
    )


def _searched(
    drawn: Instance, known: Known, rng: np.random.Generator, limits: SearchLimits
) -> np.ndarray:
    """The best placement int32 [N] under drawn costs that a short search finds."""
    # As many as there can be: the simulator compiles once.
    rows = np.resize(known.placement, (MOST, drawn.graph.num_ops))
    start = known.placement[int(np.argmin(drawn.evaluate(rows))) % len(known.terms)]
    within = SearchLimits(_SHARE * limits.left_s(), _EVALUATIONS, stop=limits.stopped)
    seed = int(rng.integers(np.iinfo(np.int32).max))
    result = population.find(drawn, seed, within, Solution(start))
    return start if result.placement is None else np.asarray(result.placement, np.int32)
