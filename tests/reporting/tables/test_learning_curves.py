import math

import pytest

from placement.reporting.tables import learning_curves


def _search(method, seed, means_s, bests_s, *, samples=10):
    """The log of a search: `samples` evaluations a step."""
    return [
        {
            "method": method,
            "seed": seed,
            "step": step,
            "evaluations": samples * step,
            "mean_s": mean_s,
            "best_s": best_s,
        }
        for step, (mean_s, best_s) in enumerate(zip(means_s, bests_s, strict=True), 1)
    ]


# `slow` learns more in an evaluation. Both have 20 evaluations.
SLOW = _search("slow", 0, [0.4, 0.2], [0.004, 0.001])
FAST = _search("fast", 0, [0.4] * 8, [0.004, 0.003] + [0.002] * 6)
SINGLE_S = {"a": 0.004, "b": 0.002}


def _found(**records):
    return learning_curves.summarise(records, SINGLE_S)


def test_first_and_last_updates_are_paired_by_seed():
    flat = [0.002] * 20
    first = _search("hsdag", 0, [0.4, 0.5, *[0.3] * 16, 0.1, 0.3], flat)
    second = _search("hsdag", 1, [0.8, *[0.7] * 17, 0.2, 0.2], flat)
    again = [
        {**record, "seed": record["seed"] + 2 * i} for record in first + second for i in (1, 2)
    ]
    learned = _found(a=first + second + again).learned["a"]["hsdag"]
    assert learned.seeds == 6
    assert learned.first_s.mean == pytest.approx(0.6)
    assert learned.last_s.mean == pytest.approx(0.2)  # of the last two of twenty records
    # Improvements of 1/2 and 3/4, three times each; t(0.975, 5) * standard error.
    assert learned.improvement.mean == pytest.approx(0.625)
    assert learned.improvement.half_width == pytest.approx(2.57058 * 0.125 / math.sqrt(5), rel=1e-4)
    assert learned.evaluations == 200


def test_records_may_come_in_any_order_and_one_is_enough():
    learned = _found(a=SLOW[::-1]).learned["a"]["slow"]
    assert learned.improvement.mean == pytest.approx(0.5)
    assert math.isnan(learned.improvement.half_width)
    assert _found(a=SLOW[:1]).learned["a"]["slow"].improvement.mean == 0.0


def test_equal_budgets_are_the_smallest_that_a_search_ended_with():
    found = _found(a=SLOW + FAST)
    assert found.budgets["a"] == 20
    slow, fast = found.learned["a"]["slow"], found.learned["a"]["fast"]
    assert slow.best_s.mean == 0.001
    assert fast.best_s.mean == 0.003
    shorter = _search("fast", 1, [0.4], [0.004])  # another seed, which ended early
    assert _found(a=SLOW + FAST + shorter).budgets["a"] == 10


def test_before_its_first_record_a_search_knows_the_best_single_device():
    late = _search("late", 0, [0.1], [0.001], samples=1000)
    assert _found(a=FAST + late).learned["a"]["late"].best_s.mean == 0.004


def test_methods_compare_by_evaluations_alone():
    found = _found(a=SLOW + FAST)
    line = learning_curves.verdict(found)
    assert "at equal evaluations, the lowest geometric mean over 1 graph of" in line
    assert line.endswith("is 0.250, of `slow`; `fast` has 0.750.")
    assert "wall" not in learning_curves.markdown(found)


def test_the_verdict_is_by_the_geometric_mean_over_graphs():
    # Ratios 0.25 and 1 against 0.6 and 0.6: geometric means 0.5 and 0.6, arithmetic 0.625 and 0.6.
    uneven = [_search("uneven", 0, [1.0], [best_s]) for best_s in (0.001, 0.002)]
    even = [_search("even", 0, [1.0], [best_s]) for best_s in (0.0024, 0.0012)]
    found = _found(a=uneven[0] + even[0], b=uneven[1] + even[1])
    assert learning_curves.verdict(found).endswith(
        "over 2 graphs of the ratio to the best single device is 0.500, of `uneven`; "
        "`even` has 0.600."
    )


def test_a_tie_is_named_and_so_is_no_improvement():
    names = ("hsdag", "placeto", "colocrl")
    tied = [r for m in names for seed in range(5) for r in _search(m, seed, [0.1], [0.004])]
    found = _found(a=tied)
    line = learning_curves.verdict(found)
    assert "1.000, of a tie of `hsdag`, `placeto` and `colocrl`." in line
    assert line.endswith("None is faster than the best single device.")
    assert learning_curves.markdown(found).count("| **1.000** (4.000 ± 0.000) |\n") == 3


def test_what_cannot_be_ranked_is_named():
    everywhere = _search("hsdag", 0, [0.1], [0.001])
    failed = _search("placeto", 0, [None], [None])
    found = _found(a=everywhere + failed, b=everywhere, c=everywhere)
    assert math.isnan(found.single_s["c"])
    line = learning_curves.verdict(found)
    assert "over 2 graphs" in line
    assert "Not ranked, without a number on some graph: `placeto`." in line
    assert "Not counted, no single device runs: `c`." in line
    text = learning_curves.markdown(found)
    assert "| a, ms | placeto | 1 | - | - | - | 10 | - (-) |" in text
    assert "| - (1.000) |" in text  # no unit on `c`
    only_failed = learning_curves.summarise({"a": failed}, SINGLE_S)
    assert "no learned method has a ratio" in learning_curves.verdict(only_failed)
    assert "- (-)" in learning_curves.markdown(only_failed)


def test_graphs_without_searches_are_left_out():
    assert learning_curves.summarise({"a": []}, SINGLE_S).learned == {}


def test_tables_show_intervals_and_the_best_in_bold():
    bests_s = (0.001, 0.0015, 0.002, 0.0025, 0.003)
    seeds = [
        record
        for seed, best_s in enumerate(bests_s)
        for record in _search("hsdag", seed, [0.4, 0.2], [0.004, best_s])
    ]
    found = _found(a=seeds + _search("placeto", 0, [0.4] * 2, [0.004] * 2))
    text = learning_curves.markdown(found)
    lines = text.splitlines()
    assert lines[2].startswith("| graph | method | seeds | first update | last updates |")
    assert lines[4] == (
        "| a, ms | hsdag | 5 | 400.000 ± 0.000 | 200.000 ± 0.000 | 50.0% ± 0.0% | 20 "
        "| **0.500** (2.000 ± 0.982) |"
    )
    assert "| 0.0% | 20 | 1.000 (4.000) |" in lines[5]
    assert "Equal evaluations: a 20." in lines
    assert "of `hsdag`; `placeto` has 1.000." in text


def test_a_step_that_the_budget_cut_short_is_no_update():
    steps = _search("hsdag", 0, [0.4, 0.2, math.inf], [0.002] * 3)
    complete = [record | {"loss": 0.0} for record in steps[:2]]
    learned = _found(a=[*complete, steps[2]]).learned["a"]["hsdag"]
    assert learned.improvement.mean == pytest.approx(0.5)
    assert learned.evaluations == 30
