import math

import pytest

from placement.reporting.tables import learning_curves


def make_search(method, seed, means_s, bests_s, *, samples=10):
    """Returns the log of a search: `samples` evaluations a step."""
    return [
        {
            **{"method": method, "seed": seed, "step": step, "evaluations": samples * step},
            **{"mean_s": mean_s, "best_s": best_s},
        }
        for step, (mean_s, best_s) in enumerate(zip(means_s, bests_s, strict=True), 1)
    ]


# `slow` learns more in an evaluation. Both have 20 evaluations.
SLOW = make_search("slow", 0, [0.4, 0.2], [0.004, 0.001])
FAST = make_search("fast", 0, [0.4] * 8, [0.004, 0.003] + [0.002] * 6)


def summarise(*records):
    return learning_curves.summarise({"a": records}, {"a": 0.004})


def test_updates_are_paired_by_seed():
    flat = [0.002] * 20
    first = make_search("hsdag", 0, [0.4, 0.5, *[0.3] * 16, 0.1, 0.3], flat)
    second = make_search("hsdag", 1, [0.8, *[0.7] * 17, 0.2, 0.2], flat)
    again = [{**row, "seed": row["seed"] + 2 * i} for row in first + second for i in (1, 2)]
    learned = summarise(*first, *second, *again).learned["a"]["hsdag"]
    assert learned.seeds == 6
    assert learned.first_s.mean == pytest.approx(0.6)
    assert learned.last_s.mean == pytest.approx(0.2)  # of the last two of twenty records
    # Improvements of 1/2 and 3/4, three times each; t(0.975, 5) * standard error.
    assert learned.improvement.mean == pytest.approx(0.625)
    assert learned.improvement.half_width == pytest.approx(2.57058 * 0.125 / math.sqrt(5), rel=1e-4)
    assert learned.evaluations == 200


def test_records_may_be_few():
    assert summarise(*SLOW[::-1]).learned["a"]["slow"].improvement.mean == pytest.approx(0.5)
    assert summarise(SLOW[0]).learned["a"]["slow"].improvement.mean == 0.0
    assert summarise().learned == {}


def test_bests_are_at_equal_evaluations():
    curves = summarise(*SLOW, *FAST)
    assert curves.budgets["a"] == 20
    bests_s = {method: learned.best_s.mean for method, learned in curves.learned["a"].items()}
    assert bests_s == {"slow": 0.001, "fast": 0.003}
    shorter = make_search("fast", 1, [0.4], [0.004])  # another seed, which ended early
    assert summarise(*SLOW, *FAST, *shorter).budgets["a"] == 10
    late = make_search("late", 0, [0.1], [0.001], samples=1000)  # knows the best single device
    assert summarise(*FAST, *late).learned["a"]["late"].best_s.mean == 0.004


def test_table_shows_intervals_and_best():
    seeds = []
    for seed, best_s in enumerate((0.001, 0.0015, 0.002, 0.0025, 0.003)):
        seeds += make_search("hsdag", seed, [0.4, 0.2], [0.004, best_s])
    placeto = make_search("placeto", 0, [0.4] * 2, [0.004] * 2)
    lines = learning_curves.markdown(summarise(*seeds, *placeto)).splitlines()
    assert lines[2].startswith("| graph | method | seeds | first update | last updates |")
    assert lines[4] == (
        "| a, ms | hsdag | 5 | 400.000 ± 0.000 | 200.000 ± 0.000 | 50.0% ± 0.0% | 20 "
        "| **0.500** (2.000 ± 0.982) |"
    )
    assert "| 0.0% | 20 | 1.000 (4.000) |" in lines[5]
    assert "Equal evaluations: a 20." in lines


def test_cut_step_is_no_update():
    steps = make_search("hsdag", 0, [0.4, 0.2, math.inf], [0.002] * 3)
    complete = [record | {"loss": 0.0} for record in steps[:2]]
    learned = summarise(*complete, steps[2]).learned["a"]["hsdag"]
    assert learned.improvement.mean == pytest.approx(0.5)
    assert learned.evaluations == 30
