import json
import math

import pytest

from placement.reporting import runs
from placement.reporting.tables import aggregates, comparison


def _rows(graph, method, *latencies_s):
    return [
        {
            **{"graph": graph, "seed": seed, "method": method, "predicted_s": latency_s},
            **{"measured_s": None, "search_s": 1.0},
        }
        for seed, latency_s in enumerate(latencies_s)
    ]


# `a` has room, `b` has none.
ROWS = [
    *_rows("a", "single:cpu", 3.0, 3.0),
    *_rows("a", "single:gpu", 2.0, 2.0),
    *_rows("a", "hsdag", *[1.0, 1.2] * 3),
    *_rows("a", "placeto", 1.5, 1.5),
    *_rows("a", "heft", 1.25),
    *_rows("b", "single:gpu", 1.0, 1.0),
    *_rows("b", "hsdag", *[0.98, 1.0] * 3),
    *_rows("b", "placeto", 1.0, 1.0),
    *_rows("b", "heft", 1.96),
]
PAIRED = ("hsdag", "placeto", "heft")


def _aggregate(rows, paired=PAIRED):
    return aggregates.aggregate(comparison.compare(rows, {"hsdag", "placeto"}), paired)


def _cells(text, start):
    """A row of the first table that has one which starts so."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_graphs_room_is_the_best_known_latency_over_the_best_single_device():
    found = _aggregate(ROWS)
    assert found.rooms == {"a": (1.0, "hsdag", 2.0), "b": (0.98, "hsdag", 1.0)}
    assert [room.ratio for room in found.rooms.values()] == [0.5, 0.98]
    assert [(scope.title, scope.graphs) for scope in found.scopes] == [
        *(("graphs with room", ("a",)), ("all graphs", ("a", "b")))
    ]
    text = aggregates.markdown(found)
    assert _cells(text, "a, s") == ["a, s", "2.000", "1.000", "0.500", "hsdag"]
    assert "at most 0.97: 1 of 2. Without room: `b`." in text


@pytest.mark.parametrize(("best_s", "titles"), [(0.97, "graphs with room"), (0.98, "all graphs")])
def test_where_all_graphs_or_none_have_room_they_are_looked_at_once(best_s, titles):
    rows = [*_rows("a", "single:gpu", 1.0), *_rows("a", "hsdag", best_s)]
    assert [scope.title for scope in _aggregate(rows).scopes] == [titles]


def test_means_are_of_latencies_over_the_best_known_one_of_their_graph():
    with_room, of_all = _aggregate(ROWS).scopes
    assert list(with_room.means) == ["hsdag", "heft", "placeto", comparison.SINGLE]
    assert with_room.means["hsdag"].value == pytest.approx(1.1)  # of 1.0 and 1.2
    assert with_room.means["heft"][0] == 1.25
    # The middle half of 1.0 and 1.2, and 1.0 and 1.0204, three times each.
    assert of_all.means["hsdag"].value == pytest.approx((1.0 + 1 / 0.98) / 2, abs=1e-5)
    text = aggregates.markdown(_aggregate(ROWS))
    _, _, text = text.partition("### Methods over all runs")
    assert _cells(text, "method") == ["method", "graphs with room (1)", "all graphs (2)"]
    assert _cells(text, "hsdag")[1] == "**1.100 [1.000, 1.200]**"
    assert _cells(text, "heft") == ["heft", "1.250", "1.625"]


def test_scores_that_differ_by_rounding_tie():
    rows = [*_rows("a", "single:gpu", 1.0, 1.0), *_rows("a", "hsdag", 0.5, 0.5 * (1 + 1e-7))]
    (scope,) = _aggregate([*rows, *_rows("a", "placeto", 0.5, 0.5)]).scopes
    assert scope.improvement["placeto"]["hsdag"].value == 0.5


def test_methods_are_set_against_each_other_where_one_has_several_runs():
    with_room, of_all = _aggregate(ROWS).scopes
    assert set(with_room.improvement) == set(PAIRED)
    assert with_room.improvement["hsdag"]["placeto"] == (1.0, 1.0, 1.0)
    # On `b` one run ties with both of the other and the other run is better: 0.75.
    assert of_all.improvement["hsdag"]["placeto"].value == pytest.approx((1 + 0.75) / 2)
    assert comparison.SINGLE not in of_all.improvement
    text = aggregates.markdown(_aggregate(ROWS))
    _, _, text = text.partition("### Probability of improvement, graphs with room")
    assert _cells(text, "over") == ["over", *PAIRED]
    assert _cells(text, "hsdag") == ["hsdag", "", *["**1.00 [1.00, 1.00]**"] * 2]
    assert _cells(text, "placeto")[1] == "0.00 [0.00, 0.00]"


def test_a_method_without_a_run_on_a_graph_is_left_out_there_and_named():
    with_room, of_all = _aggregate([*ROWS, *_rows("a", "lns", 1.15)]).scopes
    assert "lns" in with_room.means
    assert of_all.left_out == ("lns",)
    text = aggregates.markdown(_aggregate([*ROWS, *_rows("a", "lns", 1.15)]))
    assert "Left out of all graphs, without a run on some of them: `lns`." in text
    assert "| lns | 1.150 | - |" in text


def test_a_graph_on_which_nothing_runs_is_named_and_not_counted():
    nothing = [*_rows("c", "single:gpu", None, None), *_rows("c", "hsdag", math.inf, None)]
    found = _aggregate([*ROWS, *nothing])
    assert [scope.graphs for scope in found.scopes] == [("a",), ("a", "b")]
    assert "Nothing runs on: `c`." in aggregates.markdown(found)
    only = _aggregate(nothing)
    assert only.scopes == ()
    assert "0 of 1." in aggregates.markdown(only)


def test_a_graph_that_fits_on_no_single_device_has_room():
    rows = [*_rows("a", "single:gpu", None), *_rows("a", "hsdag", 1.0)]
    assert [scope.title for scope in _aggregate(rows).scopes] == ["graphs with room"]


def test_of_one_run_on_one_graph_there_is_no_interval_and_nothing_to_set_against_another():
    one = [row for row in ROWS if row["graph"] == "a" and row["seed"] == 0]
    (scope,) = _aggregate(one).scopes
    assert scope.improvement == {}
    text = aggregates.markdown(_aggregate(one))
    assert "| placeto | 1.500 |" in text
    assert "No probabilities" in text
    assert "[" not in text.partition("A score is")[0]


def test_json_holds_what_the_tables_say(tmp_path):
    runs.write_json(tmp_path / "data.json", aggregates.data(_aggregate(ROWS)))
    told = json.loads((tmp_path / "data.json").read_text())
    assert told["graphs"]["b"] == {
        **{"best_s": 0.98, "method": "hsdag", "single_s": 1.0, "room": 0.98, "with_room": False}
    }
    scope = told["scopes"]["graphs with room"]
    assert scope["graphs"] == ["a"]
    assert scope["interquartile_mean"]["heft"] == {"value": 1.25, "low": None, "high": None}
    improvement = scope["probability_of_improvement"]["hsdag"]["placeto"]
    assert improvement == {"value": 1.0, "low": 1.0, "high": 1.0}
