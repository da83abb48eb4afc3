"""Against cases worked out by hand, and against what holds of any scores."""

import math

import numpy as np
import pytest

from placement.reporting import statistics


def scores(*graphs):
    return [np.array(runs, float) for runs in graphs]


def test_interquartile_mean_drops_outer_quarters():
    assert statistics.interquartile_mean(scores([8, 1, 6, 3, 4, 5, 2, 7])).value == 4.5
    # Of all graphs together: the greatest and the least of the four are left out.
    assert statistics.interquartile_mean(scores([1, 2], [3, 100])).value == 2.5
    # A quarter of three runs is none.
    assert statistics.interquartile_mean(scores([1], [2], [6])).value == 3.0
    assert statistics.interquartile_mean(scores([1, 2, 3, math.inf])).value == 2.5
    assert statistics.interquartile_mean(scores([1, 2, math.inf, math.inf])).value == math.inf


def test_few_runs_have_no_interval():
    few, enough = scores([1, 2, 3, 4], [2]), scores([1, 2, 3, 4, 5], [2])
    for mean in (statistics.interquartile_mean, statistics.geometric_mean):
        assert np.isnan(mean(few)[1:]).all()
        assert np.isfinite(mean(enough)[1:]).all()
    interval = statistics.probability_of_improvement(few, few)
    assert interval.value == 0.5
    assert np.isnan(interval[1:]).all()
    assert np.isfinite(statistics.probability_of_improvement(few, enough)[1:]).all()


def test_means_resample_runs_or_graphs():
    """Runs of a graph do not differ, but the graphs do; graphs weigh equally."""
    assert statistics.interquartile_mean(scores([1] * 5, [9] * 5)) == (5.0, 5.0, 5.0)
    assert statistics.geometric_mean(scores([2, 8], [16])).value == pytest.approx(8)
    assert statistics.geometric_mean(scores([1] * 5, [4] * 5)) == (pytest.approx(2), 1, 4)


def test_intervals_cover_the_truth():
    """On graphs that are equally hard, of equal methods."""
    rng, covered, drawn = np.random.default_rng(0), np.zeros(2), 100
    for _ in range(drawn):
        ours, theirs = (list(scores) for scores in rng.normal(1.0, 0.1, size=(2, 4, 10)))
        mean = statistics.interquartile_mean(ours)
        probability = statistics.probability_of_improvement(ours, theirs)
        covered += mean.low <= 1.0 <= mean.high, probability.low <= 0.5 <= probability.high
    assert np.all((0.85 * drawn <= covered) & (covered < drawn))


def test_improvement_counts_pairs():
    # 1 < 2, 1 < 3 and 2 < 3, and half of 2 = 2: 3.5 of 4; on the other graph 0 of 1.
    found = statistics.probability_of_improvement(scores([1, 2], [5]), scores([2, 3], [4]))
    assert found.value == pytest.approx((3.5 / 4 + 0) / 2)
    ours, theirs = scores([math.inf, 1]), scores([math.inf, math.inf])
    assert statistics.probability_of_improvement(ours, theirs).value == 0.75
