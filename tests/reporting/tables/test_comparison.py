import csv
import io
import math

import pytest
from rich.console import Console

from placement.reporting.tables import comparison


def _row(graph, seed, method, predicted_s, median_s=None, **extra):
    measured = median_s and {"median": median_s, "low": median_s, "high": median_s, "n": 9}
    return {
        "graph": graph,
        "seed": seed,
        "method": method,
        "predicted_s": predicted_s,
        "measured_s": measured,
        "versus_best_single_device": 1.0,
        "bound_s": math.nan,
        "gap": None,
        "search_s": 2.0,
        "evaluations": 10,
        "measurements": 0,
        "status": "finished",
        **extra,
    }


ROWS = [
    _row("a", 0, "single:cpu", 0.004),
    _row("a", 0, "single:gpu", 0.002),
    _row("a", 0, "hsdag", 0.001),
    _row("a", 0, "reference:CPU", 0.0001, reference=True),
    _row("a", 1, "single:cpu", 0.004),
    _row("a", 1, "single:gpu", 0.002),
    _row("a", 1, "hsdag", 0.002),
    _row("b", 0, "single:cpu", 3.0),
    _row("b", 0, "hsdag", 4.0),
    _row("b", 0, "random", math.inf),
]


def test_a_cell_is_the_mean_over_seeds():
    found = comparison.compare(ROWS, {"hsdag"})
    assert found.graphs == ("a", "b")
    assert found.methods == ("best single device", "hsdag", "random")
    cell = found.cells["a"]["hsdag"]
    assert cell.latency_s.mean == pytest.approx(0.0015)
    assert cell.runs_s == (0.001, 0.002)
    assert found.cells["a"]["best single device"].latency_s.mean == pytest.approx(0.002)
    assert math.isnan(cell.latency_s.half_width)  # of two seeds


def test_five_seeds_have_an_interval():
    rows = [_row("a", seed, "hsdag", 0.001 * (1 + seed)) for seed in range(5)]
    latency_s = comparison.compare(rows, {"hsdag"}).cells["a"]["hsdag"].latency_s
    half_width_s = 2.77645 * 0.001 * math.sqrt(2.5 / 5)  # t(0.975, 4) * standard error
    assert latency_s.half_width == pytest.approx(half_width_s, rel=1e-4)


def test_the_best_and_the_reduction_say_who_wins_and_who_loses():
    found = comparison.compare(ROWS, {"hsdag"})
    assert found.best == {"a": "hsdag", "b": "best single device"}
    assert found.reduction["a"] == pytest.approx(0.25)
    assert found.reduction["b"] == pytest.approx(-1 / 3)
    assert math.isnan(comparison.compare(ROWS, {"none"}).reduction["a"])


def test_measured_latencies_count_where_a_graph_has_them():
    rows = [_row("a", 0, "single:gpu", 0.002, 0.003), _row("a", 0, "hsdag", 0.001, 0.004)]
    found = comparison.compare(rows, {"hsdag"})
    assert found.cells["a"]["hsdag"].latency_s.mean == pytest.approx(0.004)
    assert found.best["a"] == "best single device"


def test_tables_show_the_best_in_bold_and_a_dash_for_what_is_missing():
    later = [{**row, "seed": row["seed"] + 2 * i} for row in ROWS for i in range(3)]
    compared = comparison.compare([row for row in later if row["graph"] == "a"], {"hsdag"})
    line = comparison.markdown(compared).splitlines()[2]
    assert line.startswith("| a, ms | 2.000 ± 0.000 | **1.500 ±")
    lines = comparison.markdown(comparison.compare(ROWS, {"hsdag"})).splitlines()
    assert lines[0] == "| graph | best single device | hsdag | random | reduction |"
    assert lines[2] == "| a, ms | 2.000 | 1.500 | - | 25.0% |"  # two seeds: nothing in bold
    assert lines[3] == "| b, s | 3.000 | 4.000 | - | -33.3% |"


def _printed(found: comparison.Comparison, width: int = 80) -> list[list[str]]:
    text = io.StringIO()
    Console(file=text, width=width, force_terminal=True, color_system=None).print(
        comparison.rich_table(found, "title")
    )
    lines = [line.split() for line in text.getvalue().splitlines()]
    return [words for words in lines if words]


def test_in_a_terminal_the_longer_list_goes_down():
    few = comparison.compare([row for row in ROWS if row["graph"] == "b"], {"hsdag"})
    lines = _printed(few)
    assert lines[1] == ["graph", "b,", "s"]
    assert ["hsdag", "4.000"] in lines
    assert lines[-1] == ["reduction", "-33.3%"]
    many = [{**row, "graph": f"{row['graph']}{i}"} for row in ROWS for i in range(3)]
    assert _printed(comparison.compare(many, {"hsdag"}), 120)[1][:2] == ["graph", "best"]


def test_the_csv_has_every_row_and_an_empty_cell_for_what_is_missing():
    rows = list(csv.DictReader(io.StringIO(comparison.to_csv(ROWS))))
    assert [row["method"] for row in rows] == [row["method"] for row in ROWS]
    assert float(rows[2]["predicted_s"]) == 0.001
    assert rows[-1]["predicted_s"] == rows[0]["measured_s"] == rows[0]["bound_s"] == ""
