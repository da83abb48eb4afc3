"""Verdicts on the papers' conclusions for invented runs, and the published figures."""

import json
import math

import numpy as np
import pytest

from experiments.tables import papers
from placement import zoo
from placement.reporting.tables import comparison


def test_fieller_intervals_have_their_coverage():
    """About 95% of 1,000 intervals contain the ratio of the true means."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        ours, theirs = rng.normal(3, 0.3, 10), rng.normal(4, 0.4, 10)
        interval = papers.compute_ratio(ours, theirs)
        inside += interval.low <= 0.75 <= interval.high
        assert interval.low < interval.value < interval.high
    assert 0.94 <= inside / 1000 <= 0.975


def test_verdicts_follow_the_interval():
    for ours, theirs, is_lower, verdict in (
        ((1.0, 1.1, 0.9), (2.0,), True, "holds"),
        ((1.0, 1.1, 0.9), (2.0,), False, "does not"),
        ((1.9, 2.2, 2.0), (2.0,), True, "inconclusive"),
        ((3.0, 3.1, 2.9), (2.0, 2.1, 1.9), True, "does not"),
        ((2.0,), (2.0,), False, "holds"),
        ((2.0,), (math.inf,), True, "holds"),
        ((math.inf, 1.0), (2.0,), True, "does not"),
    ):
        assert papers.judge(papers.compute_ratio(ours, theirs), is_lower) == verdict


@pytest.mark.parametrize("path", sorted(papers.PUBLISHED.glob("*.json")), ids=lambda p: p.stem)
def test_published_figures_name_their_source(path):
    source = json.loads(path.read_text("utf-8"))
    assert any(str(year) in source["title"] for year in range(2017, 2030))
    assert source["table"]
    assert source["differs"]
    for row in source["rows"]:
        graphs = {graph.split(":")[0] for graph in row["graphs"]}
        assert source.get("same_costs") or graphs <= set(zoo.names())
        if "reduction" not in row or "values" not in row:
            continue
        reduction, values = row["reduction"], row["values"]
        known = [values[m] for m in reduction["against"] if values[m] not in (None, comparison.OOM)]
        # Values have two decimals, so either may be off by half a hundredth.
        low, high = ((min(known) + error) for error in (-0.005, 0.005))
        value = values[reduction["method"]]
        assert 100 * (1 - (value + 0.005) / low) <= reduction["percent"]
        assert reduction["percent"] <= 100 * (1 - (value - 0.005) / high)
