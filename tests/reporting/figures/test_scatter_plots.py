import numpy as np
import pytest

from placement.reporting.figures import scatter_plots
from placement.reporting.figures.plots import NothingToDrawError
from placement.reporting.figures.scatter_plots import Pair
from tests.reporting import looks

pytest.importorskip("matplotlib")


def _points(axes):
    return {
        line.get_label(): list(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in axes.lines
        if line.get_linestyle() == "None"
    }


def test_errors_are_told_and_kinds_told_apart():
    samples = [
        Pair("contiguous", 0.011, 0.010),
        Pair("contiguous", 0.020, 0.020),
        Pair("fine-grained", 0.024, 0.030),
        Pair("fine-grained", 0.032, 0.040),
        Pair("failed", 0.01, np.inf),
    ]
    figure = scatter_plots.errors(samples, "net")
    (axes,) = figure.axes
    told = "net\n4 placements, error: median 15.0%, 90th percentile 20.0%; Spearman 1.000"
    assert figure.get_suptitle() == told
    points = _points(axes)
    assert list(points) == ["contiguous", "fine-grained"]
    np.testing.assert_allclose(points["contiguous"], [(10, 11), (20, 20)])
    markers = {line.get_marker() for line in axes.lines if line.get_label() in points}
    assert len(markers) == 2
    assert axes.get_xlim() == axes.get_ylim()
    assert axes.get_xscale() == "linear"
    looks.assert_legible(figure)


def test_errors_over_decades_are_drawn_in_logarithms():
    figure = scatter_plots.errors([Pair("all", x, x) for x in (1e-4, 1e-3, 1e-1)], "net")
    assert {figure.axes[0].get_xscale(), figure.axes[0].get_yscale()} == {"log"}
    looks.assert_legible(figure)


def test_equal_predictions_have_no_rank_correlation():
    figure = scatter_plots.errors([Pair("all", 0.01, x) for x in (0.01, 0.02)], "net")
    assert "Spearman" not in figure.get_suptitle()


def test_pairs_are_of_rows_that_have_both_numbers():
    measured = {"median": 0.02, "low": 0.01, "high": 0.03, "n": 9}
    rows = [
        {"method": "heft", "predicted_s": 0.01, "measured_s": measured},
        {"method": "lns", "predicted_s": 0.01, "measured_s": None},
        {"method": "milp", "predicted_s": None, "measured_s": measured},
        {"method": "reference:CPU", "predicted_s": 1, "measured_s": measured, "reference": True},
    ]
    assert scatter_plots.pairs(rows) == [Pair("heft", 0.01, 0.02)]
    with pytest.raises(NothingToDrawError, match="fewer than two"):
        scatter_plots.errors(scatter_plots.pairs(rows), "net")


def _row(graph, seed, method, ratio, bound_s=0.5):
    row = {"graph": graph, "seed": seed, "method": method, "bound_s": bound_s}
    return row | {"predicted_s": ratio, "versus_best_single_device": ratio}


def _compared(graphs=("a", "b")):
    rows = []
    for graph in graphs:
        for seed, less in enumerate((0.75, 0.8, 0.85, 0.9, 0.95)):
            rows.append(_row(graph, seed, "single:CPU", 1.0))
            rows.append(_row(graph, seed, "single:GPU", 3.0))
            rows.append(_row(graph, seed, "random", 9.0))
            rows.append(_row(graph, seed, "hsdag", less))
            rows.append(_row(graph, seed, "milp", None if graph == "b" else 0.7))
    return rows


def test_ratios_are_means_over_seeds_sorted_by_method():
    figure = scatter_plots.ratios(_compared(), ["hsdag"])
    first, second = figure.axes
    assert [axes.get_title("left") for axes in figure.axes] == ["a", "b"]
    # The geometric mean decides, and milp has none.
    assert [text.get_text() for text in first.get_yticklabels()] == ["hsdag", "random", "milp"]
    # Student's t of five seeds: 2.776 * 0.0791 / sqrt(5)
    assert [text.get_text() for text in first.texts] == ["0.850 ± 0.098", "9.000", "0.700"]
    assert [text.get_text() for text in second.texts] == ["0.850 ± 0.098", "9.000", "-"]
    best = [text.get_text() for text in first.texts if text.get_weight() == "bold"]
    assert best == ["0.700"]
    verticals = [line.get_xdata()[0] for line in first.lines if len(line.get_ydata()) == 2]
    assert verticals == [1.0, 0.5]  # the best single device and the bound
    marks = {
        line.get_marker(): line.get_xdata()[0] for line in first.lines if len(line.get_xdata()) == 1
    }
    assert marks["o"] == pytest.approx(0.85)  # learned
    assert marks[">"] == 2.0  # random, beyond the edge
    looks.assert_legible(figure)


def test_ratios_of_many_graphs_and_methods_are_legible():
    rows = [
        _row(f"graph{g}", seed, f"method{m}", 0.5 + 0.05 * m + 0.01 * seed, 0.1)
        for g in range(5)
        for seed in range(3)
        for m in range(20)
    ]
    rows += [_row(f"graph{g}", 0, "single:CPU", 1.0, 0.1) for g in range(5)]
    figure = scatter_plots.ratios(rows, [])
    assert sum(bool(axes.get_title("left")) for axes in figure.axes) == 5
    looks.assert_legible(figure)


def test_ratios_without_single_devices_are_a_mistake():
    with pytest.raises(NothingToDrawError, match="no method has a ratio"):
        scatter_plots.ratios([_row("a", 0, "hsdag", None)], [])
