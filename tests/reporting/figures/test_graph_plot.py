import dataclasses

import numpy as np
import pytest

from placement.reporting.figures import blocks, device_plots, graph_plot, plots
from placement.reporting.figures.plots import NothingToDrawError
from tests import helpers
from tests.reporting import drawn, looks

pytest.importorskip("matplotlib")


def _boxes(figure):
    """The blocks' rectangles, without the hatched strips and the legend's keys."""
    return [patch for patch in figure.axes[0].patches if patch.get_zorder() == 3]


def _strips(figure):
    return [patch for patch in figure.axes[0].patches if patch.get_zorder() == 4]


def test_a_small_graph_is_drawn_operation_by_operation():
    figure = graph_plot.placement(drawn.diamond())
    boxes, strips = _boxes(figure), _strips(figure)
    assert len(boxes) == len(strips) == 4
    device = [strip.get_facecolor()[:3] for strip in strips]
    first, second = (pytest.approx(plots.mixed(plots.COLOURS[i], 1.0)) for i in (0, 1))
    assert device == [first, second, first, first]
    assert [bool(strip.get_hatch()) for strip in strips] == [False, True, False, False]
    told = looks.words(figure)
    assert "op1\nMatMul\n2 ms" in told
    assert "diamond: placed by lns for makespan" in told
    assert "CPU [f32, 1 thread, host]: 3 operations, 80% of computing time" in told
    assert "GPU.0 [f16]: 1 operation, 20% of computing time" in told
    assert any("cross between devices: 2 " in text for text in told)
    looks.assert_legible(figure)


def test_crossings_are_bold_and_dashed_and_longer_blocks_darker():
    figure = graph_plot.placement(drawn.diamond())
    within, across = figure.axes[0].collections
    assert len(within.get_segments()) == len(across.get_segments()) == 2
    assert across.get_linewidth()[0] > 2 * within.get_linewidth()[0]
    assert across.get_linestyle()[0][1] is not None
    assert within.get_linestyle()[0][1] is None
    brightness = [plots.luminance(box.get_facecolor()[:3]) for box in _boxes(figure)]
    assert brightness[0] > brightness[2] > brightness[3]  # 1, 3 and 4 ms on one device


@pytest.mark.parametrize("num_devices", [1, 3])
def test_a_thousand_operations_fit_a_page_in_readable_blocks(num_devices):
    details = drawn.large(1_000, num_devices)
    figure = graph_plot.placement(details)
    boxes = _boxes(figure)
    assert 20 <= len(boxes) <= 100
    assert np.all(figure.get_size_inches() <= np.array([11.7, 8.3]))
    extents = [box.get_window_extent() for box in boxes]
    apart = (not a.overlaps(b) for i, a in enumerate(extents) for b in extents[:i])
    assert all(apart)
    assert all(figure.bbox.contains(*corner) for e in extents for corner in (e.min, e.max))
    looks.assert_legible(figure)
    named = [
        text for text in looks.words(figure) if " ops\n" in text or text.endswith((" ms", " us"))
    ]
    assert len(named) >= 0.9 * len(boxes)


def test_texts_stay_in_their_boxes():
    figure = graph_plot.placement(drawn.large(1_000))
    axes = figure.axes[0]
    texts = [text for text in axes.texts if text.get_zorder() == 5 and text.get_text()]
    boxes = [box.get_window_extent().padded(1.0) for box in _boxes(figure)]
    for text in texts:
        x, y = looks.box(text).get_points().mean(axis=0)
        (around,) = (box for box in boxes if box.contains(x, y))
        extent = looks.box(text)
        assert around.contains(*extent.min), text.get_text()
        assert around.contains(*extent.max), text.get_text()


def _chain(placement):
    graph = helpers.chain(len(placement))
    assignment = np.arange(graph.num_ops, dtype=np.int32)
    return dataclasses.replace(
        drawn.large(40, 2),
        graph=graph,
        coarse=graph,
        assignment=assignment,
        placement=np.array(placement, np.int32),
        compute_s=np.full((graph.num_ops, 2), 1e-3),
        memory_bytes=np.ones(graph.num_ops),
    )


def test_deep_graphs_go_on_in_the_next_row():
    figure = graph_plot.placement(_chain([0] * 40))
    heights = {round(box.get_y(), 3) for box in _boxes(figure)}
    marks = [text for text in looks.words(figure) if "row " in text]
    assert len(heights) > 1
    assert len(marks) == 2 * (len(heights) - 1)
    (within, _) = figure.axes[0].collections
    assert len(within.get_segments()) == 39 + len(heights) - 1  # an edge that breaks is two lines
    width = figure.axes[0].get_xlim()[1]
    ends = np.concatenate(within.get_segments())[:, 0]
    assert ends.min() >= 0
    assert ends.max() <= width
    looks.assert_legible(figure)


def test_dollars_in_names_are_no_formulas(tmp_path):
    details = drawn.diamond()
    names = (r"a$\nothing$", "b$", "$c$", "d")
    graph = dataclasses.replace(details.graph, name="$net$", op_names=names)
    details = dataclasses.replace(details, graph=graph, coarse=graph)
    plots.save(graph_plot.placement(details), tmp_path, "placement", ("png", "svg", "pdf"))
    plots.save(device_plots.timeline(details), tmp_path, "timeline", ("png", "svg", "pdf"))
    assert "$c$" in (tmp_path / "placement.svg").read_text()
    assert r"a$\nothing$" in (tmp_path / "timeline.svg").read_text()


def test_blocks_that_no_page_holds_are_refused():
    details = _chain([0, 1] * 250)
    assert blocks.blocks(details, 100).max() == 499
    with pytest.raises(NothingToDrawError, match="takes 500 blocks to draw; a page holds 400"):
        graph_plot.placement(details)
