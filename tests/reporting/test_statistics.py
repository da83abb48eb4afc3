"""Against cases worked out by hand, and by simulation of what intervals cover."""

import math

import numpy as np
import pytest

from placement.reporting import statistics

# Means 0 and variances of about 1; the last two are skewed and heavy-tailed.
DRAWS = {
    "normal": lambda rng, size: rng.normal(size=size),
    "exponential": lambda rng, size: rng.exponential(size=size) - 1,
    "t": lambda rng, size: rng.standard_t(3, size=size),
}


def scores(*graphs):
    return [np.array(runs, float) for runs in graphs]


def test_means_weigh_graphs_equally():
    assert statistics.geometric_mean(scores([2, 8], [16])).value == pytest.approx(8)
    assert statistics.geometric_mean(scores([2, math.inf], [16])).write() == "-"
    ratio = statistics.compare(scores([2, 8], [3]), scores([16], [3, 3]))
    assert ratio.interval.value == pytest.approx(0.5)


def test_few_graphs_cover_seeds_alone():
    few, enough = scores([1, 2, 3, 4], [2]), scores([1, 2, 3, 4, 5], [2])
    assert np.isnan(statistics.geometric_mean(few)[1:]).all()
    assert np.isnan(statistics.compare(few, few).p_value)
    # Only the first graph's seeds vary, and count half; t of four degrees of freedom is 2.776.
    mean, low, high = np.log(statistics.geometric_mean(enough))
    half_width = 2.776 * np.std(np.log(enough[0]), ddof=1) / math.sqrt(5) / 2
    assert [mean - low, high - mean] == pytest.approx([half_width] * 2, rel=1e-3)
    assert statistics.compare(enough, enough).p_value == 1
    same = scores(*[[2.0]] * statistics.MIN_GRAPHS)
    assert statistics.geometric_mean(same) == pytest.approx((2, 2, 2))
    assert statistics.compare(same, scores(*[[3]] * len(same))).p_value < 1e-9


def test_symmetric_graphs_make_students_interval():
    logs = np.array([-3, -2, -1, 1, 2, 3]) + 0.5
    ones, half_width = scores(*[[1]] * 6), 2.571 * np.std(logs, ddof=1) / math.sqrt(6)
    interval, _ = statistics.compare(list(np.exp(logs)[:, None]), ones)
    assert np.log(interval) == pytest.approx([0.5, 0.5 - half_width, 0.5 + half_width], rel=1e-3)
    # Moved until the interval touches 1, the difference is just as significant as its level says.
    edge, p_value = statistics.compare(list(np.exp(logs + half_width - 0.5)[:, None]), ones)
    assert edge.low == pytest.approx(1, rel=1e-3)
    assert p_value == pytest.approx(statistics.LEVEL, rel=1e-2)


def test_p_values_are_adjusted():
    adjusted = statistics.adjust([0.01, 0.04, math.nan, 0.03, 0.5])
    assert adjusted == pytest.approx([0.04, 0.09, math.nan, 0.09, 0.5], nan_ok=True)


@pytest.mark.nightly
@pytest.mark.parametrize("num_seeds", [1, 5])
@pytest.mark.parametrize("num_graphs", [6, 12, 16])
@pytest.mark.parametrize("name", DRAWS)
def test_intervals_cover_the_truth(name, num_graphs, num_seeds):
    """The mean over graphs that were not drawn is 1; graphs vary, and seeds within them."""
    rng, drawn = np.random.default_rng(0), 4_000
    differences = DRAWS[name](rng, (drawn, num_graphs, 1))
    logs = differences + 0.2 * rng.normal(size=(drawn, num_graphs, num_seeds))
    ones = scores(*[[1.0]] * num_graphs)
    covered = missed = 0
    for draw in logs:
        ratio = statistics.compare(list(np.exp(draw)), ones)
        covered += ratio.interval.low <= 1 <= ratio.interval.high
        missed += ratio.p_value < statistics.LEVEL
    # Within 1.6 standard errors of the simulation.
    assert 0.93 - 0.006 <= covered / drawn <= 0.98
    assert covered + missed == drawn
