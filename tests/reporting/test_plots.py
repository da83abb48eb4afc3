import sys

import pytest

from placement.reporting import plots

pytest.importorskip("matplotlib")

_PNG = b"\x89PNG\r\n\x1a\n"


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


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved, to look at what is on them."""
    figures = []
    save = plots._save
    monkeypatch.setattr(plots, "_save", lambda *args: (figures.append(args[0]), save(*args)))
    return figures


def test_plot_latencies_has_a_bar_a_measured_row_and_hatches_references(tmp_path, drawn):
    rows = [
        _row("single:CPU", 2e-3, 2.2e-3),
        _row("hsdag", 1e-3, 1.1e-3),
        _row("milp", 0.5e-3, status="failed: compile: why"),
        _row("heft", None, status="infeasible"),
        _row("reference:CPU [all]", float("nan"), 0.8e-3, reference=True),
    ]
    plots.plot_latencies(_summary(rows), tmp_path / "latencies.png")
    assert (tmp_path / "latencies.png").read_bytes().startswith(_PNG)
    (axes,) = drawn[0].axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([2.2, 1.1, 0.8])
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [False, False, True]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["single:CPU", "hsdag", "milp", "CPU [all]"]
    assert "(ms)" in axes.get_xlabel()
    assert "not measured" in [text.get_text() for text in axes.texts]


def test_plot_latencies_shows_predictions_where_nothing_was_measured(tmp_path, drawn):
    rows = [_row("single:CPU", 2.0), _row("hsdag", 1.0)]
    plots.plot_latencies(_summary(rows), tmp_path / "latencies.png")
    (axes,) = drawn[0].axes
    assert [bar.get_width() for bar in axes.patches] == [2.0, 1.0]
    assert axes.get_xlabel() == "predicted latency (s)"


def test_plot_search_draws_best_and_mean_of_each_search_with_one_legend_entry(tmp_path, drawn):
    metrics = [
        {"method": "hsdag", "seed": seed, "evaluations": 8 * step, "best_s": 1 / step, "mean_s": 2}
        for seed in (0, 1)
        for step in (1, 2, 3)
    ]
    metrics[1] |= {"mean_s": None}
    plots.plot_search(metrics, tmp_path / "search.png")
    assert (tmp_path / "search.png").read_bytes().startswith(_PNG)
    (axes,) = drawn[0].axes
    assert len(axes.lines) == 4
    assert list(axes.lines[0].get_xdata()) == [8, 16, 24]
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["hsdag: best", "hsdag: mean"]


def test_nothing_to_draw_is_a_mistake(tmp_path):
    with pytest.raises(ValueError, match="no metrics"):
        plots.plot_search([], tmp_path / "search.png")
    with pytest.raises(ValueError, match="no row"):
        plots.plot_latencies(_summary([_row("heft", None)]), tmp_path / "latencies.png")


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"pip install 'placement\[plots\]'"):
        plots.plot_latencies(_summary([_row("hsdag", 1.0)]), tmp_path / "latencies.png")
    assert not (tmp_path / "latencies.png").exists()
