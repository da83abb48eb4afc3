"""All figures of a run, and what they have in common."""

import dataclasses
import math

import numpy as np
import pytest

from placement.reporting.details import Timeline
from placement.reporting.figures import graph_plot, method_plot, plots, search_plot, timeline_plot
from placement.reporting.figures.plots import NothingToDrawError
from placement.types import Span
from tests import helpers
from tests.reporting import drawn, looks
from tests.reporting.rows import make_row

pytest.importorskip("matplotlib")

METRICS = [
    {"method": "hsdag", "seed": seed, "evaluations": 8 * step, "best_s": 1 / step, "mean_s": 2}
    for seed in (0, 1)
    for step in (1, 2, 3)
]


def test_equal_figures_make_equal_files(tmp_path):
    svgs = [plots.save(search_plot.search(METRICS), tmp_path, name) for name in ("one", "other")]
    assert svgs[0] == svgs[1] == (tmp_path / "one.svg").read_text()
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "other.png").read_bytes()
    assert "hsdag: best" in svgs[0]  # text stays text


def test_devices_differ_in_grey_print():
    styles = [plots.device_style(device) for device in range(12)]
    assert len({(style["facecolor"], style["hatch"]) for style in styles}) == 12
    assert len({style["hatch"] for style in styles[:6]}) == 6


def get_patches(figure, order):
    """Returns the blocks' rectangles (order 3) or their hatched edges (order 4)."""
    return [patch for patch in figure.axes[0].patches if patch.get_zorder() == order]


def test_graph_shows_each_operation():
    figure = graph_plot.placement(drawn.diamond())
    boxes, strips = get_patches(figure, 3), get_patches(figure, 4)
    assert len(boxes) == len(strips) == 4
    assert [bool(strip.get_hatch()) for strip in strips] == [False, True, False, False]
    assert "op1, MatMul, 2 ms" in looks.words(figure)
    assert looks.legend(figure) == [
        "CPU [f32, 1 thread, host]: 3 operations, 80% of computing time",
        "GPU.0 [f16]: 1 operation, 20% of computing time",
    ]
    within, across = figure.axes[0].collections
    assert len(within.get_segments()) == len(across.get_segments()) == 2
    assert across.get_linewidth()[0] > 2 * within.get_linewidth()[0]
    brightness = [sum(box.get_facecolor()[:3]) for box in boxes]
    assert brightness[0] > brightness[2] > brightness[3]  # 1, 3 and 4 ms on one device
    looks.assert_legible(figure)


@pytest.mark.parametrize("num_devices", [1, 3])
def test_large_graph_fits_a_page(num_devices):
    figure = graph_plot.placement(drawn.large(1_000, num_devices))
    boxes = get_patches(figure, 3)
    assert 10 <= len(boxes) <= 70
    assert figure.get_figheight() < 25
    looks.assert_legible(figure)
    extents = [box.get_window_extent() for box in boxes]
    assert all(not a.overlaps(b) for i, a in enumerate(extents) for b in extents[:i])
    texts = [t for t in figure.axes[0].texts if t.get_text()]
    assert len(texts) >= 0.9 * len(boxes)
    for text in texts:  # each stays in its box
        extent = looks.box(text)
        points = extent.get_points()
        assert any(all(box.padded(1.0).contains(*p) for p in points) for box in extents)


def test_alternating_placements_are_not_drawn():
    graph = helpers.chain(500)
    details = dataclasses.replace(
        drawn.large(40, 2),
        graph=graph,
        coarse=graph,
        assignment=np.arange(500, dtype=np.int32),
        placement=np.arange(500, dtype=np.int32) % 2,
        compute_s=np.full((500, 2), 1e-3),
        memory_bytes=np.ones(500),
    )
    with pytest.raises(NothingToDrawError, match="takes 500 blocks to draw; a figure holds 200"):
        graph_plot.placement(details)


def get_bars(axes):
    """Returns left, right and top of every span that is drawn."""
    paths = [path for collection in axes.collections for path in collection.get_paths()]
    corners = [path.vertices[:4] for path in paths]
    return sorted(
        (float(c[:, 0].min().round(6)), float(c[:, 0].max().round(6)), float(c[:, 1].min()))
        for c in corners
    )


def test_timeline_compares_predicted_and_measured():
    figure = timeline_plot.timeline(drawn.diamond())
    predicted, measured = figure.axes
    assert predicted.get_xlim() == measured.get_xlim()
    assert [bar[:2] for bar in get_bars(predicted)] == [(0, 1), (1, 4), (1.5, 3.5), (4, 8)]
    assert [bar[1] for bar in get_bars(measured)] == pytest.approx([1.1, 4.4, 3.85, 8.8])
    assert [axes.get_title("left") for axes in figure.axes] == [
        "predicted (simulated); latency 8 ms",
        "measured, the median of 9 inferences; latency 8.8 ms",
    ]
    ends = [sorted({float(line.get_xdata()[0]) for line in axes.lines}) for axes in figure.axes]
    assert ends == [[8.0], pytest.approx([8.0, 8.8])]
    assert looks.legend(figure) == ["latency", "predicted"]
    # Two rows; a further lane where op0 ends after op2 has begun.
    assert [len({top for *_, top in get_bars(axes)}) for axes in figure.axes] == [2, 3]
    texts = sorted(text.get_text() for text in predicted.texts)
    assert texts == ["100% busy", "25% busy", "op0", "op1", "op2", "op3"]
    looks.assert_legible(figure)


def test_timeline_needs_no_measurement(tmp_path):
    details = drawn.large(1_000)
    figure = timeline_plot.timeline(details)
    (axes,) = figure.axes
    assert figure.get_suptitle().endswith("nothing was measured")
    assert len(get_bars(axes)) == len(details.predicted.spans)
    looks.assert_legible(figure)
    nothing = dataclasses.replace(details, predicted=Timeline((), "none"))
    with pytest.raises(NothingToDrawError, match="no schedule"):
        timeline_plot.timeline(nothing)
    spans = tuple(Span(0, (0,), float(i), i + 0.5) for i in range(6_000))
    details = dataclasses.replace(drawn.diamond(), predicted=Timeline(spans, "simulated"))
    assert len(plots.save(timeline_plot.timeline(details), tmp_path, "timeline")) < 300_000


def test_search_draws_best_and_mean():
    metrics = [dict(record) for record in METRICS]
    metrics[1]["mean_s"] = None
    rows = [
        make_row("single:CPU", 1.02, bound_s=0.3),
        make_row("single:NPU", None),
        make_row("hsdag", 0.4, bound_s=0.3),
        make_row("hetero", 0.4, bound_s=0.2),  # places every operation, unlike the search
    ]
    figure = search_plot.search(metrics, rows)
    (axes,) = figure.axes
    assert len(axes.lines) == 6
    assert list(axes.lines[0].get_xdata()) == [1, 8, 16, 24]  # from the single device on
    assert list(axes.lines[0].get_ydata()) == pytest.approx([1020, 1000, 500, 1000 / 3])
    assert sorted(looks.legend(figure)) == [
        "best single device, predicted: 1020.0",
        "hsdag: best",
        "hsdag: mean",
        "proven bound of predictions: 300.0",
    ]
    assert axes.get_yscale() == "linear"
    looks.assert_legible(figure)


def test_search_may_span_decades():
    metrics = [{k: r[k] for k in r if k != "mean_s"} for r in METRICS[:3]]
    figure = search_plot.search(metrics, [make_row("single:CPU", 100.0)])
    assert figure.axes[0].get_yscale() == "log"
    assert "hsdag: mean" not in looks.legend(figure)
    looks.assert_legible(figure)
    with pytest.raises(NothingToDrawError, match="no metrics"):
        search_plot.search([])


def test_methods_are_ratios():
    rows = [
        make_row("single:CPU", 2e-3, 2e-3, 1.0),
        make_row("hsdag", 1e-3, 1e-3, 0.5, bound_s=0.5e-3, spread=0.1),
        make_row("milp", 0.5e-3, status="failed: compile: why"),
        make_row("reference:CPU [all]", None, 0.8e-3, 0.4, reference=True),
    ]
    figure = method_plot.methods(rows)
    (axes,) = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["CPU [all]", "hsdag", "single:CPU", "milp"]
    texts = ["0.400 [0.392, 0.408]", "0.500 [0.450, 0.550]", "1.000 [1.000, 1.000]", "-"]
    assert looks.words(figure) == texts
    assert [line.get_xdata()[0] for line in axes.lines[:2]] == [1.0, 0.25]  # and the bound
    assert {"measured", "predicted", "proven bound (predicted)"} <= set(looks.legend(figure))
    looks.assert_legible(figure)


def test_methods_are_means_over_seeds():
    rows = []
    for graph in "ab":
        for seed, ratio in enumerate((0.75, 0.8, 0.85, 0.9, 0.95)):
            for method, value in (("random", 9.0), ("hsdag", ratio), ("single:CPU", 1.0)):
                rows.append(make_row(method, value, ratio=value, graph=graph, seed=seed))
            milp = None if graph == "b" else 0.7
            rows.append(make_row("milp", milp, ratio=milp, graph=graph, seed=seed))
    figure = method_plot.methods(rows)
    first, second = figure.axes
    assert [axes.get_title("left") for axes in figure.axes] == ["a", "b"]
    names = [text.get_text() for text in first.get_yticklabels()]
    assert names == ["hsdag", "single:CPU", "random", "milp"]  # milp has no ratio on b
    # Student's t of five seeds: 2.776 * 0.0791 / sqrt(5)
    assert first.texts[0].get_text() == "0.850 [0.752, 0.948]"
    bold = [text.get_text() for text in first.texts if text.get_weight() == "bold"]
    assert bold == ["0.700 [0.700, 0.700]"]
    assert second.texts[3].get_text() == "-"
    points = {line.get_marker(): line.get_xdata()[0] for line in first.lines}
    assert points[">"] == 2.0  # random, beyond the edge
    looks.assert_legible(figure)
    with pytest.raises(NothingToDrawError, match="no method has a ratio"):
        method_plot.methods([make_row("hsdag", math.nan)])
