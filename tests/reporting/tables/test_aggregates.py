import json
import math

import pytest

from placement.reporting import runs
from placement.reporting.tables import aggregates, comparison


def make_rows(graph, method, *latencies_s):
    return [
        {
            **{"graph": graph, "seed": seed, "method": method, "predicted_s": latency_s},
            **{"measured_s": None, "search_s": 1.0},
        }
        for seed, latency_s in enumerate(latencies_s)
    ]


# `a` has room, `b` has none.
ROWS = [
    *make_rows("a", "single:cpu", 3.0, 3.0),
    *make_rows("a", "single:gpu", 2.0, 2.0),
    *make_rows("a", "hsdag", *[1.0, 1.2] * 3),
    *make_rows("a", "placeto", 1.5, 1.5),
    *make_rows("a", "heft", 1.25),
    *make_rows("b", "single:gpu", 1.0, 1.0),
    *make_rows("b", "hsdag", *[0.98, 1.0] * 3),
    *make_rows("b", "placeto", 1.0, 1.0),
    *make_rows("b", "heft", 1.96),
]
PAIRED = ("hsdag", "placeto", "heft")


def aggregate(rows):
    return aggregates.aggregate(comparison.compare(rows, {"hsdag", "placeto"}), PAIRED)


def find_cells(text, start):
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_room_selects_graphs():
    result = aggregate(ROWS)
    assert result.rooms == {"a": (1.0, "hsdag", 2.0), "b": (0.98, "hsdag", 1.0)}
    assert (result.title, result.graphs) == ("graphs with room", ("a",))
    text = aggregates.markdown(result)
    assert "best single device: 1 of 2. Without room: `b`." in text
    flat = aggregate([row for row in ROWS if row["graph"] == "b"])
    assert (flat.title, flat.graphs) == ("all graphs", ("b",))
    unfit = aggregate([*make_rows("a", "single:gpu", None), *make_rows("a", "hsdag", 1.0)])
    assert unfit.title == "graphs with room"


def test_means_are_over_best_known():
    result = aggregate(ROWS)
    assert list(result.means) == ["hsdag", "heft", "placeto", comparison.SINGLE]
    assert result.means["hsdag"].value == pytest.approx(1.1)  # of 1.0 and 1.2
    assert result.means["heft"][0] == 1.25
    text = aggregates.markdown(result)
    assert find_cells(text, "method")[:2] == ["method", "graphs with room (1)"]
    assert find_cells(text, "hsdag")[1:] == [
        *("**1.100 [1.000, 1.200]**", ""),
        *["**1.00 [1.00, 1.00]**"] * 2,
    ]
    assert find_cells(text, "placeto")[2] == "0.00 [0.00, 0.00]"


def test_rounding_ties():
    rows = [*make_rows("a", "single:gpu", 1.0, 1.0), *make_rows("a", "hsdag", 0.5, 0.5 + 5e-8)]
    result = aggregate([*rows, *make_rows("a", "placeto", 0.5, 0.5)])
    assert result.improvement["placeto"]["hsdag"].value == 0.5


def test_incomplete_methods_are_left_out():
    only_a = [row | {"graph": "c"} for row in ROWS if row["graph"] == "a"]
    result = aggregate([*ROWS, *only_a, *make_rows("a", "lns", 1.15)])
    assert result.graphs == ("a", "c")
    assert result.left_out == ("lns",)
    assert "Left out, without a run on some of them: `lns`." in aggregates.markdown(result)


def test_unsolved_graphs_are_named():
    nothing = [*make_rows("c", "single:gpu", None, None), *make_rows("c", "hsdag", math.inf, None)]
    assert "Nothing runs on: `c`." in aggregates.markdown(aggregate([*ROWS, *nothing]))
    only = aggregate(nothing)
    assert only.graphs == ()
    assert "device: 0 of 1." in aggregates.markdown(only)


def test_one_run_has_no_interval():
    result = aggregate([row for row in ROWS if row["graph"] == "a" and row["seed"] == 0])
    assert result.improvement == {}
    text = aggregates.markdown(result)
    assert "| placeto | 1.500 |" in text
    assert "[" not in text.partition("A score is")[0]


def test_json_holds_the_tables(tmp_path):
    runs.write_json(tmp_path / "data.json", aggregates.data(aggregate(ROWS)))
    data = json.loads((tmp_path / "data.json").read_text())
    assert data["graphs"]["b"] == {
        **{"best_s": 0.98, "method": "hsdag", "single_s": 1.0, "room": 0.98, "with_room": False}
    }
    scope = data["scopes"]["graphs with room"]
    assert scope["graphs"] == ["a"]
    assert scope["interquartile_mean"]["heft"] == {"value": 1.25, "low": None, "high": None}
    improvement = scope["probability_of_improvement"]["hsdag"]["placeto"]
    assert improvement == {"value": 1.0, "low": 1.0, "high": 1.0}
