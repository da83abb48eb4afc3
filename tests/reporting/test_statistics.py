"""Against cases worked out by hand, and against what holds of any scores."""

import math

import numpy as np
import pytest

from placement.reporting import statistics


def _scores(*graphs):
    return [np.array(runs, float) for runs in graphs]


def test_the_interquartile_mean_is_of_the_middle_half_of_all_runs():
    assert statistics.interquartile_mean(_scores([8, 1, 6, 3, 4, 5, 2, 7])).value == 4.5
    # Of all graphs together: the greatest and the least of the four are left out.
    assert statistics.interquartile_mean(_scores([1, 2], [3, 100])).value == 2.5
    # A quarter of three runs is none.
    assert statistics.interquartile_mean(_scores([1], [2], [6])).value == 3.0


def test_graphs_may_have_different_numbers_of_runs():
    assert statistics.interquartile_mean(_scores([5], [1, 2, 3])).value == 2.5


def test_of_runs_that_found_nothing_the_mean_bears_a_quarter():
    assert statistics.interquartile_mean(_scores([1, 2, 3, math.inf])).value == 2.5
    assert statistics.interquartile_mean(_scores([1, 2, math.inf, math.inf])).value == math.inf


def test_the_interquartile_mean_of_a_constant_is_certain():
    assert statistics.interquartile_mean(_scores([1.5] * 5, [1.5] * 3)) == (1.5, 1.5, 1.5)


def test_fewer_than_five_runs_of_every_graph_have_no_interval():
    few, enough = _scores([1, 2, 3, 4], [2]), _scores([1, 2, 3, 4, 5], [2])
    for mean in (statistics.interquartile_mean, statistics.geometric_mean):
        assert np.isnan(mean(few)[1:]).all()
        assert np.isfinite(mean(enough)[1:]).all()
    interval = statistics.probability_of_improvement(few, few)
    assert interval.value == 0.5
    assert np.isnan(interval[1:]).all()
    assert np.isfinite(statistics.probability_of_improvement(few, enough)[1:]).all()


def test_the_geometric_mean_weighs_graphs_equally():
    assert statistics.geometric_mean(_scores([2, 8], [16])).value == pytest.approx(8)


def test_the_geometric_mean_resamples_graphs_too():
    """Runs of a graph do not differ, but the graphs do."""
    interval = statistics.geometric_mean(_scores([1] * 5, [4] * 5))
    assert interval.value == pytest.approx(2)
    assert (interval.low, interval.high) == (1, 4)


def test_runs_are_resampled_within_their_graph():
    """Graphs differ and runs of a graph do not: nothing is uncertain."""
    assert statistics.interquartile_mean(_scores([1] * 5, [9] * 5)) == (5.0, 5.0, 5.0)


def test_intervals_are_the_same_every_time():
    scores = _scores(np.random.default_rng(1).normal(size=8))
    found = statistics.interquartile_mean(scores)
    assert found.low < found.value < found.high
    assert statistics.interquartile_mean(scores) == found


def test_intervals_cover_what_runs_are_drawn_around():
    """On graphs that are equally hard, around which runs are spread alike."""
    rng, covered, drawn = np.random.default_rng(0), 0, 100
    for _ in range(drawn):
        found = statistics.interquartile_mean(list(rng.normal(1.0, 0.1, size=(4, 10))))
        covered += found.low <= 1.0 <= found.high
    assert 0.85 * drawn <= covered < drawn


def test_intervals_of_a_probability_cover_it():
    """Of equal methods it is a half."""
    rng, covered, drawn = np.random.default_rng(0), 0, 100
    for _ in range(drawn):
        ours, theirs = rng.normal(size=(2, 4, 10))
        found = statistics.probability_of_improvement(list(ours), list(theirs))
        covered += found.low <= 0.5 <= found.high
    assert 0.85 * drawn <= covered < drawn


def test_the_probability_of_improvement_is_the_share_of_pairs_with_the_lower_score():
    # 1 < 2, 1 < 3 and 2 < 3, and half of 2 = 2: 3.5 of 4; on the other graph 0 of 1.
    found = statistics.probability_of_improvement(_scores([1, 2], [5]), _scores([2, 3], [4]))
    assert found.value == pytest.approx((3.5 / 4 + 0) / 2)


def test_what_found_nothing_ties_with_its_like_and_loses_to_all_else():
    ours, theirs = _scores([math.inf, 1]), _scores([math.inf, math.inf])
    assert statistics.probability_of_improvement(ours, theirs).value == 0.75


def test_probabilities_of_either_improving_on_the_other_sum_to_one():
    rng = np.random.default_rng(0)
    ours, theirs = ([rng.integers(4, size=n) for n in sizes] for sizes in ((3, 5), (4, 1)))
    one = statistics.probability_of_improvement(ours, theirs)
    other = statistics.probability_of_improvement(theirs, ours)
    assert one.value + other.value == pytest.approx(1)
    assert one.low <= one.value <= one.high
    assert statistics.probability_of_improvement(ours, ours).value == 0.5


def test_a_method_that_is_always_better_improves_for_certain():
    found = statistics.probability_of_improvement(_scores([1, 2, 3, 1, 2]), _scores([4, 5]))
    assert found == (1.0, 1.0, 1.0)


def test_scores_of_other_graphs_are_no_pair():
    with pytest.raises(ValueError, match="shorter"):
        statistics.probability_of_improvement(_scores([1], [2]), _scores([1]))


def test_a_profile_is_the_share_of_runs_up_to_a_threshold_a_mean_over_graphs():
    profile = statistics.performance_profile(
        _scores([1, 1.5, math.inf, 2], [1.5]), np.array([0.5, 1, 1.5, 2])
    )
    np.testing.assert_allclose(profile, [0, (1 / 4 + 0) / 2, (2 / 4 + 1) / 2, (3 / 4 + 1) / 2])
