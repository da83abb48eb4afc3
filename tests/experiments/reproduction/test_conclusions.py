"""Verdicts on the papers' conclusions for invented runs."""

import json
import math

import numpy as np
import pytest

from experiments.reproduction import conclusions


def test_a_ratio_has_the_interval_that_chance_gives_it():
    """About 95% of 1,000 intervals contain the ratio of the true means."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(1000):
        ours, theirs = rng.normal(3, 0.3, 10), rng.normal(4, 0.4, 10)
        interval = conclusions.compute_ratio(tuple(ours), tuple(theirs))
        inside += interval.low <= 0.75 <= interval.high
        assert interval.low < interval.value < interval.high
    assert 0.94 <= inside / 1000 <= 0.975


@pytest.mark.parametrize(
    ("ours", "theirs", "lower", "verdict"),
    [
        ((1.0, 1.1, 0.9), (2.0,), True, "holds"),
        ((1.0, 1.1, 0.9), (2.0,), False, "does not"),
        ((1.9, 2.2, 2.0), (2.0,), True, "inconclusive"),
        ((3.0, 3.1, 2.9), (2.0, 2.1, 1.9), True, "does not"),
        ((2.0,), (2.0,), False, "holds"),
        ((2.0,), (2.0,), True, "does not"),
        ((2.0,), (math.inf,), True, "holds"),
        ((math.inf, 1.0), (2.0,), True, "does not"),
    ],
)
def test_verdicts_say_on_which_side_of_one_the_interval_is(ours, theirs, lower, verdict):
    assert conclusions.judge(conclusions.compute_ratio(ours, theirs), lower) == verdict


def test_a_table_has_a_row_for_each_conclusion_and_network_that_was_run(tmp_path):
    graph = "rnnlm:training=1"
    seconds = {"hierarchical": (1.0, 1.1, 1.05), "scotch": (2.0,) * 3, "min_cut": (1.5,) * 3}
    seconds |= {"hsdag": (1.0, 1.0, 1.0), "placeto": (0.5, 0.6, 0.55)}
    rows = [
        {"graph": graph, "seed": seed, "method": method, "predicted_s": value, "search_s": 0.1}
        | {"measured_s": None, "status": "finished", "evaluations": 40 if value < 0.7 else 100}
        for method, values in seconds.items()
        for seed, value in enumerate(values)
    ]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "summary.json").write_text(json.dumps({"rows": rows}))
    (tmp_path / "a" / "config.json").write_text(json.dumps({"budget": 100}))
    header, table = conclusions.read(tmp_path, ("a",))
    assert header == ["conclusion", "network", "here", "figure"]
    assert [row[:3] for row in table] == [
        ["the Planner is below Scotch and MinCut", "RNNLM", "holds"],
        ["HSDAG is below Placeto", "RNNLM", "does not"],
    ]
    assert table[0][3].startswith("0.700 [")
    assert table[0][3].endswith("of `min_cut`")
    assert conclusions.describe(tmp_path, ("a",)) == [
        "Cases that hold: 1 of 2. Cases that do not hold: 1. Inconclusive: 0.",
        "The Planner is below Scotch and MinCut: it holds on RNNLM.",
        "HSDAG is below Placeto: it does not hold on RNNLM.",
        "The time limit ended these searches early (median evaluations in brackets): `placeto` on "
        "RNNLM (40).",
    ]
