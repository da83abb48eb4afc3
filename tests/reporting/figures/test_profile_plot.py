import numpy as np
import pytest

from placement.reporting.figures import profile_plot
from placement.reporting.figures.plots import NothingToDrawError
from placement.reporting.tables import aggregates, comparison
from tests.reporting import looks

pytest.importorskip("matplotlib")


def _aggregates(**latencies_s):
    """Of two graphs, on one of which no method is faster than the single device."""
    rows = []
    for graph, least in (("a", 1.0), ("b", 4.0)):
        for method, runs_s in {"single:gpu": (4.0, 4.0), **latencies_s}.items():
            rows += [
                {
                    **{"graph": graph, "seed": seed, "method": method, "search_s": 0.0},
                    **{"predicted_s": max(run_s, least), "measured_s": None},
                }
                for seed, run_s in enumerate(runs_s)
            ]
    return aggregates.aggregate(comparison.compare(rows, {"hsdag"}), ())


def _lines(axes):
    return {line.get_label(): line for line in axes.lines}


def test_a_line_is_the_share_of_runs_up_to_each_score_in_a_panel_by_kind_and_scope():
    found = _aggregates(hsdag=(1.0, 1.5), heft=(1.2,))
    figure = profile_plot.profiles(found, {"hsdag"})
    titles = [axes.get_title("left") for axes in figure.axes]
    assert titles == [
        *("learned, graphs with room", "others, graphs with room"),
        *("learned, all graphs", "others, all graphs"),
    ]
    learned, others, of_all, _ = figure.axes
    assert list(_lines(learned)) == ["hsdag"]
    assert set(_lines(others)) == {"heft", comparison.SINGLE}
    scores, shares = _lines(learned)["hsdag"].get_data()
    np.testing.assert_allclose(np.interp([1.0, 1.4, 1.6], scores, shares), [0.5, 0.5, 1.0])
    scores, shares = _lines(of_all)["hsdag"].get_data()
    assert shares[0] == 0.75  # on `b` every run is the best known
    assert _lines(others)[comparison.SINGLE].get_ydata()[-1] == 0.0  # at 4, outside
    looks.assert_legible(figure)


def test_each_method_has_a_line_of_its_own_style_in_the_legend():
    named = {f"hsdag:variant=paper,num_samples={i}": (1.0 + i / 20, 2.0) for i in range(24)}
    figure = profile_plot.profiles(_aggregates(**named), set(named))
    assert set(looks.legend(figure)) == {*named, comparison.SINGLE}
    styles = {(key.get_color(), key.get_linestyle()) for key in figure.legends[0].get_lines()}
    assert len(styles) >= 24
    looks.assert_legible(figure)


def test_without_a_latency_there_is_nothing_to_draw():
    nothing = aggregates.Aggregates({}, ())
    with pytest.raises(NothingToDrawError, match="no method"):
        profile_plot.profiles(nothing, ())
