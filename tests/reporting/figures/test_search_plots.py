import math
import sys

import pytest

from placement.reporting.figures import search_plots
from placement.reporting.figures.plots import NothingToDrawError
from tests.reporting import looks

pytest.importorskip("matplotlib")


def _row(method, predicted_s, median=None, **extra):
    measured = median and {"median": median, "low": 0.9 * median, "high": 1.1 * median, "n": 9}
    return {
        "method": method,
        "predicted_s": predicted_s,
        "measured_s": measured,
        "versus_best_single_device": median or predicted_s,
        "status": "finished",
        **extra,
    }


def _summary(rows):
    graph = {"name": "chain", "num_ops": 4, "num_edges": 3}
    return {"graph": graph, "objective": "serial", "rows": rows, "best": "hsdag"}


def test_latencies_have_a_bar_a_measured_row_and_hatch_references():
    rows = [
        _row("single:CPU", 2e-3, 2.2e-3),
        _row("hsdag", 1e-3, 1.1e-3, bound_s=0.4e-3),
        _row("milp", 0.5e-3, status="failed: compile: why"),
        _row("heft", None, status="infeasible"),
        _row("reference:CPU [all]", float("nan"), 0.8e-3, reference=True, bound_s=0.4e-3),
    ]
    figure = search_plots.latencies(_summary(rows))
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([2.2, 1.1, 0.8])
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [False, False, True]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["single:CPU", "hsdag", "milp", "CPU [all]"]
    assert "(ms)" in axes.get_xlabel()
    assert "not measured" in looks.words(figure)
    bounds = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]
    assert [x for x in bounds if not math.isnan(x)] == [0.4]  # a reference has none
    assert "proven bound of predictions" in looks.legend(figure)
    looks.assert_legible(figure)


def test_latencies_are_predictions_where_nothing_was_measured():
    figure = search_plots.latencies(_summary([_row("single:CPU", 2.0), _row("hsdag", 1.0)]))
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [2.0, 1.0]
    assert axes.get_xlabel() == "predicted latency (s)"


def test_bars_that_would_dwarf_all_others_are_cut():
    figure = search_plots.latencies(_summary([_row("random", 100.0), _row("hsdag", 1.0)]))
    assert [bar.get_width() for bar in figure.axes[0].patches] == [8.0, 1.0]
    assert looks.words(figure) == ["» 100.000", "1.000"]
    looks.assert_legible(figure)


def _metrics():
    return [
        {"method": "hsdag", "seed": seed, "evaluations": 8 * step, "best_s": 1 / step, "mean_s": 2}
        for seed in (0, 1)
        for step in (1, 2, 3)
    ]


def test_search_draws_best_and_mean_of_each_search_with_one_legend_entry():
    metrics = _metrics()
    metrics[1] |= {"mean_s": None}
    figure = search_plots.search(metrics)
    (axes,) = figure.axes
    assert len(axes.lines) == 4
    assert list(axes.lines[0].get_xdata()) == [8, 16, 24]
    assert looks.legend(figure) == ["hsdag: best", "hsdag: mean"]
    looks.assert_legible(figure)


def test_a_search_without_means_has_one_line():
    metrics = [{key: r[key] for key in r if key != "mean_s"} for r in _metrics()[:3]]
    assert looks.legend(search_plots.search(metrics)) == ["hsdag: best"]


def test_search_names_single_devices_and_the_bound_beside_it():
    rows = [
        _row("single:CPU", 1.02, bound_s=0.3),
        _row("single:GPU.0", 1.0, bound_s=0.3),
        _row("single:GPU.1", 1.0, bound_s=0.3),
        _row("single:NPU", None),
        _row("hsdag", 0.4, bound_s=0.3),
        _row("reference:CPU", 0.2, reference=True),
    ]
    figure = search_plots.search(_metrics(), rows)
    named = ["CPU: 1020.0", "GPU.0, GPU.1: 1000.0", "proven bound: 300.0"]  # ms
    assert sorted(looks.words(figure)) == named
    heights = {line.get_ydata()[0] for line in figure.axes[0].lines[4:]}
    assert heights == {1020.0, 1000.0, 300.0}
    widest = max(figure.axes[0].lines[4:-1], key=lambda line: line.get_linewidth())
    assert widest.get_ydata()[0] == 1000.0  # the best one is emphasised
    assert figure.axes[0].get_yscale() == "linear"
    looks.assert_legible(figure)


def test_a_search_begins_with_the_single_devices_and_has_its_own_bound():
    """A row of `hetero` places every operation, and has a lower bound than what is searched."""
    records = [
        {"method": "search", "seed": 0, "evaluations": n, "best_s": 0.65} for n in (999, 1544)
    ]
    rows = [
        _row("single:A", 0.87, bound_s=0.64),
        _row("single:B", 0.83, bound_s=0.64),
        _row("hetero", 0.87, bound_s=0.53),
        _row("search", 0.65, bound_s=0.64),
    ]
    figure = search_plots.search(records, rows)
    (axes,) = figure.axes
    assert list(axes.lines[0].get_xdata()) == [2, 999, 1544]
    assert list(axes.lines[0].get_ydata()) == pytest.approx([830, 650, 650])
    assert axes.get_xlim()[0] == 0
    assert "proven bound: 640.0" in looks.words(figure)
    looks.assert_legible(figure)


def test_a_search_far_from_the_single_devices_is_drawn_in_logarithms():
    figure = search_plots.search(_metrics(), [_row("single:CPU", 100.0, bound_s=0.01)])
    assert figure.axes[0].get_yscale() == "log"
    looks.assert_legible(figure)


def test_nothing_to_draw_is_a_mistake():
    with pytest.raises(NothingToDrawError, match="no metrics"):
        search_plots.search([])
    with pytest.raises(NothingToDrawError, match="no row"):
        search_plots.latencies(_summary([_row("heft", None)]))


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(NothingToDrawError, match=r"pip install -e '\.\[plots\]'"):
        search_plots.latencies(_summary([_row("hsdag", 1.0)]))
