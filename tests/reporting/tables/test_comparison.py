import csv
import io
import math

import pytest

from placement.reporting.tables import comparison
from tests.reporting import rows


def make_row(graph, seed, method, predicted_s, median_s=None, **extra):
    return rows.make_row(method, predicted_s, median_s, 1.0, graph=graph, seed=seed, **extra)


ROWS = [
    make_row("a", 0, "single:cpu", 0.004),
    make_row("a", 0, "single:gpu", 0.002),
    make_row("a", 0, "hsdag", 0.001),
    make_row("a", 0, "reference:CPU", 0.0001, reference=True),
    make_row("a", 1, "single:cpu", 0.004),
    make_row("a", 1, "single:gpu", 0.002),
    make_row("a", 1, "hsdag", 0.002),
    make_row("b", 0, "single:cpu", 3.0),
    make_row("b", 0, "hsdag", 4.0),
    make_row("b", 0, "random", math.inf),
]


def test_cell_is_mean_over_seeds():
    result = comparison.compare(ROWS, {"hsdag"})
    assert tuple(result.cells) == ("a", "b")
    assert result.methods == ("best single device", "hsdag", "random")
    cell = result.cells["a"]["hsdag"]
    assert cell.latency_s.mean == pytest.approx(0.0015)
    assert cell.runs_s == (0.001, 0.002)
    assert result.cells["a"]["best single device"].latency_s.mean == pytest.approx(0.002)
    assert math.isnan(cell.latency_s.half_width)  # of two seeds
    five = [make_row("a", seed, "hsdag", 0.001 * (1 + seed)) for seed in range(5)]
    latency_s = comparison.compare(five, {"hsdag"}).cells["a"]["hsdag"].latency_s
    half_width_s = 2.77645 * 0.001 * math.sqrt(2.5 / 5)  # t(0.975, 4) * standard error
    assert latency_s.half_width == pytest.approx(half_width_s, rel=1e-4)


def test_reduction_compares_learned_and_other():
    result = comparison.compare(ROWS, {"hsdag"})
    assert result.best == {"a": "hsdag", "b": "best single device"}
    assert result.reduction == {"a": pytest.approx(0.25), "b": pytest.approx(-1 / 3)}
    assert math.isnan(comparison.compare(ROWS, {"none"}).reduction["a"])
    # Measured latencies count first.
    measured = [make_row("a", 0, "single:gpu", 0.002, 0.003), make_row("a", 0, "hsdag", 1e-3, 4e-3)]
    assert comparison.compare(measured, {"hsdag"}).best["a"] == "best single device"


def test_own_best_has_a_column():
    drawn = [make_row("a", seed, "hsdag", 1.0, own_best_s=2.0 + seed) for seed in (0, 1)]
    compared = comparison.compare([*drawn, make_row("a", 0, "heft", 1.0)], {"hsdag"})
    header, _, line = comparison.grid(compared).markdown().splitlines()
    assert header == "| graph | hsdag | heft | hsdag: own best | reduction |"
    assert line == "| a, s | 1.000 | 1.000 | 2.500 | 0.0% |"


def test_five_seeds_mark_the_best():
    later = [{**row, "seed": row["seed"] + 2 * i} for row in ROWS for i in range(3)]
    compared = comparison.compare([row for row in later if row["graph"] == "a"], {"hsdag"})
    line = comparison.grid(compared).markdown().splitlines()[2]
    assert line.startswith("| a, ms | 2.000 ± 0.000 | **1.500 ±")
    assert comparison.grid(comparison.compare(ROWS, {"hsdag"})).markdown().splitlines() == [
        "| graph | best single device | hsdag | random | reduction |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| a, ms | 2.000 | 1.500 | - | 25.0% |",  # two seeds: nothing in bold
        "| b, s | 3.000 | 4.000 | - | -33.3% |",
    ]


def test_csv_has_every_row():
    written = list(csv.DictReader(io.StringIO(comparison.to_csv(ROWS))))
    assert [row["method"] for row in written] == [row["method"] for row in ROWS]
    assert float(written[2]["predicted_s"]) == 0.001
    assert written[-1]["predicted_s"] == written[0]["measured_s"] == written[0]["bound_s"] == ""
