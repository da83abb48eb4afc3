"""Statistics of few runs on several graphs, after Agarwal et al. (NeurIPS 2021, rliable).

"Deep Reinforcement Learning at the Edge of the Statistical Precipice": interquartile means,
stratified bootstrap intervals and probabilities of improvement, defined as there with graphs in
place of tasks. Departure: scores here are costs, such as a latency over the best known one. Lower
is better, so an improvement is a lower score. Graphs may have different numbers of runs, because a
deterministic method has one.

Scores are a sequence with one array float64 [K] for the K runs of each graph. A run without a
feasible placement has the score inf.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from placement.reporting import units

Scores = Sequence[np.ndarray]

MIN_RUNS = 5  # of some graph: fewer make no interval, because it would be far too narrow
_RESAMPLES = 2_000


class Interval(NamedTuple):
    """A statistic with its 95% interval."""

    value: float
    low: float  # low and high are nan where no graph has `MIN_RUNS` runs to resample
    high: float

    def write(self, decimals: int = 3) -> str:
        """Returns the text of `units.with_interval`."""
        return units.with_interval(*self, lambda number: f"{number:.{decimals}f}")


def interquartile_mean(scores: Scores) -> Interval:
    """Computes the mean of the middle half of all runs on all graphs, with its interval.

    A quarter of the runs, rounded down, is left out on either side.
    """
    value = float(_middle_mean(np.concatenate(scores)))
    rng = np.random.default_rng(0)
    resamples = [runs[rng.integers(len(runs), size=(_RESAMPLES, len(runs)))] for runs in scores]
    return _interval(value, _middle_mean(np.concatenate(resamples, axis=1)), scores)


def geometric_mean(scores: Scores) -> Interval:
    """Computes the geometric mean over graphs of the geometric means over runs, with its interval.

    Departure from the paper: the bootstrap draws graphs, then runs of each graph, so the interval
    covers other graphs of the same kind, too. Every graph counts the same.
    """
    logs = [np.log(runs) for runs in scores]
    value = float(np.exp(np.mean([runs.mean() for runs in logs])))
    rng, num_graphs = np.random.default_rng(0), len(logs)
    drawn_shape = _RESAMPLES, num_graphs
    means = np.stack(  # [G, R, G]: of each graph, where it is drawn in each place
        [
            runs[rng.integers(len(runs), size=(*drawn_shape, len(runs)))].mean(axis=-1)
            for runs in logs
        ]
    )
    graphs = rng.integers(num_graphs, size=drawn_shape)
    drawn = np.take_along_axis(means, graphs[None], axis=0)[0]  # [R, G]
    return _interval(value, np.exp(drawn.mean(axis=1)), scores)


def probability_of_improvement(ours: Scores, theirs: Scores) -> Interval:
    """Computes the probability that a run of ours beats one of theirs, averaged over graphs.

    On a graph it is the share of pairs of runs in which ours has the lower score, ties counting
    half: Mann and Whitney's U over the number of pairs. Both have the same graphs in one order.
    """
    rng = np.random.default_rng(0)
    values, resampled = [], []
    for x, y in zip(ours, theirs, strict=True):
        wins = (x[:, None] < y) + 0.5 * (x[:, None] == y)  # [K, L]
        values.append(wins.mean())
        # The mean over a resample's pairs depends only on the count of each run: [R, K], [R, L].
        x_counts, y_counts = (rng.multinomial(n, np.full(n, 1 / n), _RESAMPLES) for n in wins.shape)
        resampled.append(np.einsum("rk,kl,rl->r", x_counts, wins, y_counts) / wins.size)
    return _interval(float(np.mean(values)), np.mean(resampled, axis=0), [*ours, *theirs])


class Estimate(NamedTuple):
    """A mean over seeds."""

    mean: float  # not finite where a seed's number is not
    half_width: float  # half the width of the 95% interval; nan for fewer than `MIN_RUNS` seeds

    def write(self, unit: units.Unit) -> str:
        """Returns '1.500 ± 0.020', without the unit's name; the mean alone without an interval."""
        text = unit.write(self.mean)
        return text if math.isnan(self.half_width) else f"{text} ± {unit.write(self.half_width)}"


def estimate(values: Sequence[float] | np.ndarray) -> Estimate:
    """Returns the mean of [K] values and half the width of its 95% interval, by Student's t."""
    half_width = math.nan
    if len(values) >= MIN_RUNS and np.isfinite(values).all():
        standard_error = np.std(values, ddof=1) / math.sqrt(len(values))
        half_width = float(special.stdtrit(len(values) - 1, 0.975) * standard_error)
    return Estimate(float(np.mean(values)), half_width)


def _middle_mean(runs: np.ndarray) -> np.ndarray:
    """Averages the middle half along the last axis."""
    count = runs.shape[-1]
    left_out = count // 4  # on either side
    return np.sort(runs, axis=-1)[..., left_out : count - left_out].mean(axis=-1)


def _interval(value: float, resampled: np.ndarray, scores: Scores) -> Interval:
    """Returns the 95% interval of a resampled statistic, whose values may be inf."""
    if all(len(runs) < MIN_RUNS for runs in scores):
        return Interval(value, np.nan, np.nan)
    tail = (1 - 0.95) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail], method="inverted_cdf")
    return Interval(value, float(low), float(high))
