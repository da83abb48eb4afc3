"""All figures of a run, and what they have in common."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from placement.reporting.details import Timeline
from placement.reporting.figures import plots
from placement.reporting.figures.plots import NothingToDrawError
from placement.types import Span
from tests.reporting import drawn
from tests.reporting.rows import make_row

text_lib = pytest.importorskip("matplotlib.text")

METRICS = [
    {"method": "hsdag", "seed": seed, "evaluations": 8 * step, "best_s": 1 / step, "mean_s": 2}
    for seed in (0, 1)
    for step in (1, 2, 3)
]


def assert_legible(figure):
    """All texts lie in the figure, apart from each other, in six points or more."""
    figure.draw_without_rendering()
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        texts += [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            low, high = sorted(axis.get_view_interval())
            ticks = axis.get_major_ticks()
            texts += [t.label1 for t in ticks if t.get_visible() and low <= t.get_loc() <= high]
    texts = [text for text in texts if text.get_text() and text.get_visible()]
    boxes = [text_lib.Text.get_window_extent(text) for text in texts]
    whole = figure.bbox.padded(1.0)
    for text, box in zip(texts, boxes, strict=True):
        assert text.get_fontsize() >= 6, text.get_text()
        assert whole.contains(*box.min), f"{text.get_text()!r} leaves the figure"
        assert whole.contains(*box.max), f"{text.get_text()!r} leaves the figure"
    for (one, box), (other, other_box) in itertools.combinations(zip(texts, boxes, strict=True), 2):
        overlap = box.padded(-1.0).overlaps(other_box)
        assert not overlap, f"{one.get_text()!r} overlaps {other.get_text()!r}"


def get_texts(texts):
    return [text.get_text() for text in texts]


def get_legend(figure):
    return get_texts(figure.legends[0].get_texts())


def test_equal_figures_make_equal_files(tmp_path):
    svgs = [plots.save(plots.search(METRICS), tmp_path, name) for name in ("one", "other")]
    assert svgs[0] == svgs[1] == (tmp_path / "one.svg").read_text()
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "other.png").read_bytes()
    assert "hsdag: best" in svgs[0]  # text stays text


def get_bars(axes):
    """Returns left, right and top of every span that is drawn."""
    paths = [path for collection in axes.collections for path in collection.get_paths()]
    corners = [path.vertices[:4] for path in paths]
    return sorted(
        (float(c[:, 0].min().round(6)), float(c[:, 0].max().round(6)), float(c[:, 1].min()))
        for c in corners
    )


def test_timeline_compares_predicted_and_measured():
    figure = plots.timeline(drawn.diamond())
    predicted, measured = figure.axes
    assert [bar[:2] for bar in get_bars(predicted)] == [(0, 1), (1, 4), (1.5, 3.5), (4, 8)]
    assert [bar[1] for bar in get_bars(measured)] == pytest.approx([1.1, 4.4, 3.85, 8.8])
    assert [axes.get_title("left") for axes in figure.axes] == [
        *("predicted (simulated)", "measured, the median of 9 inferences"),
    ]
    # Two rows; a further lane where op0 ends after op2 has begun.
    assert [len({top for *_, top in get_bars(axes)}) for axes in figure.axes] == [2, 3]
    texts = ["100% busy", "25% busy", "op0", "op1", "op2", "op3"]
    assert sorted(get_texts(predicted.texts)) == texts
    assert_legible(figure)


def test_timeline_needs_no_measurement(tmp_path):
    details = drawn.large(1_000)
    figure = plots.timeline(details)
    assert figure.get_suptitle().endswith("nothing was measured")
    assert len(get_bars(figure.axes[0])) == len(details.predicted.spans)
    assert_legible(figure)
    with pytest.raises(NothingToDrawError, match="no schedule"):
        plots.timeline(dataclasses.replace(details, predicted=Timeline((), "none")))
    spans = tuple(Span(0, (0,), float(i), i + 0.5) for i in range(6_000))
    details = dataclasses.replace(drawn.diamond(), predicted=Timeline(spans, "simulated"))
    assert len(plots.save(plots.timeline(details), tmp_path, "timeline")) < 300_000


def test_search_draws_learning_curves():
    metrics = [dict(record) for record in METRICS]
    metrics[1]["mean_s"] = None
    for record, step_best_s in zip(metrics, (3, 1, 2, 1, 1, 1), strict=True):
        record["step_best_s"] = step_best_s
    metrics[-1]["best_s"] = 0.25
    rows = [
        make_row("single:CPU", 1.02, bound_s=0.3),
        make_row("single:NPU", None),
        make_row("hsdag", 0.4, bound_s=0.3),
        make_row("heft", 0.5, bound_s=0.2),
        make_row("random", 0.9),
    ]
    figure = plots.search(metrics, rows)
    (axes,) = figure.axes
    best, own_best, mean = (line.get_ydata() for line in axes.lines[:3])
    assert list(axes.lines[0].get_xdata()) == [8, 16, 24]
    assert list(best) == pytest.approx([1000, 500, (1000 / 3 + 250) / 2])
    assert list(own_best) == pytest.approx([2000, 1000, 1000])  # of both seeds, 3 and 1 at first
    assert np.isnan(mean).tolist() == [False, True, False]
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((250, 1000))
    assert sorted(get_legend(figure)) == [
        "best single device, predicted: 1020.0",
        "heft: 500.0",
        "hsdag: best",
        "hsdag: mean",
        "hsdag: own best",
        "proven bound of predictions: 300.0",
    ]
    assert axes.get_yscale() == "linear"
    assert_legible(figure)
    over_decades = plots.search(METRICS[:3], [make_row("single:CPU", 100.0)])
    assert over_decades.axes[0].get_yscale() == "log"
    assert_legible(over_decades)
    with pytest.raises(NothingToDrawError, match="no metrics"):
        plots.search([])


def test_methods_are_means_over_seeds():
    rows = []
    for graph in "ab":
        for seed, ratio in enumerate((0.75, 0.8, 0.85, 0.9, 0.95)):
            milp = None if graph == "b" else 0.7
            values = {"random": 9.0, "hsdag": ratio, "single:CPU": 1.0, "milp": milp}
            for method, value in values.items():
                rows.append(make_row(method, value, ratio=value, graph=graph, seed=seed))
    figure = plots.methods(rows)
    first, second = figure.axes
    names = ["hsdag", "single:CPU", "random", "milp"]  # milp has no ratio on b
    assert get_texts(first.get_yticklabels()) == names
    # Student's t of five seeds: 2.776 * 0.0791 / sqrt(5)
    assert first.texts[0].get_text() == "0.850 [0.752, 0.948]"
    bold = get_texts(text for text in first.texts if text.get_weight() == "bold")
    assert bold == ["0.700 [0.700, 0.700]"]
    assert second.texts[3].get_text() == "-"
    points = {line.get_marker(): line.get_xdata()[0] for line in first.lines}
    assert points[">"] == 2.0  # random, beyond the edge
    kinds = ["placement, predicted", "without placing, predicted"]
    assert get_legend(figure) == ["best single device", *kinds]
    bounded = [row | {"bound_s": 0.5} for row in rows]
    assert "proven bound" in get_legend(plots.methods(bounded))
    measured = make_row("lns", 0.9, 0.9, 0.9, graph="a", seed=0)
    measured_graph = [measured, *(row for row in bounded if row["graph"] == "a")]
    assert "proven bound" not in get_legend(plots.methods(measured_graph))
    assert_legible(figure)
    with pytest.raises(NothingToDrawError, match="no method has a ratio"):
        plots.methods([make_row("hsdag", math.nan)])
