import json
import math

import pytest

from placement.reporting import runs
from placement.reporting.tables import comparison
from tests.reporting import rows


def make_rows(graph, method, *latencies_s):
    return [
        rows.make_row(method, latency_s, graph=graph, seed=seed)
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


def aggregate(compared):
    return comparison.aggregate(comparison.compare(compared, {"hsdag", "placeto"}), PAIRED)


def find_cells(text, start):
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def get_scope(result):
    ((title, scope),) = result["scopes"].items()
    return title, scope


def test_room_selects_graphs():
    result = aggregate(ROWS)
    assert result["graphs"] == {
        "a": dict(best_s=1.0, method="hsdag", single_s=2.0, room=0.5, with_room=True),
        "b": dict(best_s=0.98, method="hsdag", single_s=1.0, room=0.98, with_room=False),
    }
    title, scope = get_scope(result)
    assert (title, scope["graphs"]) == ("graphs with room", ["a"])
    assert "best single device: 1 of 2. Without room: `b`." in comparison.write_statistics(result)
    title, scope = get_scope(aggregate([row for row in ROWS if row["graph"] == "b"]))
    assert (title, scope["graphs"]) == ("all graphs", ["b"])
    unfit = aggregate([*make_rows("a", "single:gpu", None), *make_rows("a", "hsdag", 1.0)])
    assert get_scope(unfit)[0] == "graphs with room"


def test_means_are_over_best_known(tmp_path):
    runs.write_json(tmp_path / "data.json", aggregate(ROWS))  # as the report reads it
    result = json.loads((tmp_path / "data.json").read_text())
    means = get_scope(result)[1]["means"]
    assert list(means) == ["hsdag", "heft", "placeto", comparison.SINGLE]
    assert means["hsdag"]["value"] == pytest.approx(math.sqrt(1.2))  # of 1.0 and 1.2
    assert means["heft"] == {"value": pytest.approx(1.25), "low": None, "high": None}
    text = comparison.write_statistics(result)
    assert find_cells(text, "method")[:2] == ["method", "graphs with room (1)"]
    assert find_cells(text, "hsdag")[1:] == [
        *("1.095 [0.986, 1.216]", ""),
        *("**0.730 [0.658, 0.811]**", "**0.876 [0.789, 0.973]**"),
    ]
    assert find_cells(text, "placeto")[2] == "1.369 [1.233, 1.521]"
    assert "say nothing about other graphs" in text


def test_incomplete_methods_are_left_out():
    only_a = [row | {"graph": "c"} for row in ROWS if row["graph"] == "a"]
    result = aggregate([*ROWS, *only_a, *make_rows("a", "lns", 1.15)])
    _, scope = get_scope(result)
    assert (scope["graphs"], scope["left_out"]) == (["a", "c"], ["lns"])
    assert "Left out, without a run on some of them: `lns`." in comparison.write_statistics(result)


def test_ties_and_unsolved_graphs():
    nearly = [*make_rows("a", "single:gpu", 1.0, 1.0), *make_rows("a", "hsdag", 0.5, 0.5 + 5e-8)]
    _, scope = get_scope(aggregate([*nearly, *make_rows("a", "placeto", 0.5, 0.5)]))
    assert scope["ratios"]["placeto"]["hsdag"]["value"] == 1
    nothing = [*make_rows("c", "single:gpu", None, None), *make_rows("c", "hsdag", math.inf, None)]
    assert "Nothing runs on: `c`." in comparison.write_statistics(aggregate([*ROWS, *nothing]))
    only = aggregate(nothing)
    assert only["scopes"] == {}
    assert "device: 0 of 1." in comparison.write_statistics(only)


def test_one_run_has_no_interval():
    result = aggregate([row for row in ROWS if row["graph"] == "a" and row["seed"] == 0])
    assert "[" not in comparison.write_statistics(result).partition("A score is")[0]
