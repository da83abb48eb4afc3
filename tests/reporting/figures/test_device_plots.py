import dataclasses

import numpy as np
import pytest

from placement.reporting.details import Timeline
from placement.reporting.figures import device_plots, plots
from placement.reporting.figures.plots import NothingToDrawError
from placement.types import Span
from tests.reporting import drawn, looks

pytest.importorskip("matplotlib")


def _bars(axes):
    """Left, right and top of every span that is drawn."""
    paths = [path for found in axes.collections for path in found.get_paths()]
    corners = [path.vertices[:4] for path in paths]
    return sorted((*c[:, 0][[0, 1]].round(6).tolist(), float(c[:, 1].min())) for c in corners)


def test_predicted_and_measured_share_an_axis():
    figure = device_plots.timeline(drawn.diamond())
    predicted, measured = figure.axes
    assert predicted.get_xlim() == measured.get_xlim()
    assert [bar[:2] for bar in _bars(predicted)] == [(0, 1), (1, 4), (1.5, 3.5), (4, 8)]
    assert [bar[1] for bar in _bars(measured)] == pytest.approx([1.1, 4.4, 3.85, 8.8])
    titles = [axes.get_title("left") for axes in figure.axes]
    assert titles == [
        "predicted (simulated); latency 8 ms",
        "measured, the median of 9 inferences; latency 8.8 ms",
    ]
    ends = [sorted({float(line.get_xdata()[0]) for line in axes.lines}) for axes in figure.axes]
    assert ends == [[8.0], pytest.approx([8.0, 8.8])]
    assert looks.legend(figure) == ["latency", "predicted"]
    looks.assert_legible(figure)


def test_spans_that_overlap_are_in_lanes_and_idle_time_is_told():
    predicted, measured = device_plots.timeline(drawn.diamond()).axes
    rows = {top for _, _, top in _bars(predicted)}
    assert len(rows) == 2
    assert len({top for _, _, top in _bars(measured)}) == 3  # op0 ends after op2 has begun
    assert [text.get_text() for text in predicted.texts if "busy" in text.get_text()] == [
        "100% busy",
        "25% busy",
    ]
    assert len(predicted.patches) == 2  # a grey row for each device, on which idle time shows


def test_where_nothing_takes_time_nothing_is_busy():
    told = drawn.diamond()
    spans = tuple(Span(device, (device,), 0.0, 0.0) for device in (0, 1))
    still = dataclasses.replace(told, predicted=Timeline(spans, "simulated"))
    texts = [text.get_text() for text in device_plots.timeline(still).axes[0].texts]
    assert [text for text in texts if "busy" in text] == ["0% busy", "0% busy"]


def test_spans_are_named_where_there_is_room():
    figure = device_plots.timeline(drawn.diamond())
    named = [[t for t in looks_of(axes) if t.startswith("op")] for axes in figure.axes]
    assert named == [["op0", "op1", "op2", "op3"]] * 2
    crowded = device_plots.timeline(drawn.large(1_000))
    assert len(looks_of(crowded.axes[0])) < 50
    looks.assert_legible(crowded)


def looks_of(axes):
    return sorted(text.get_text() for text in axes.texts)


def test_without_measured_times_there_is_one_panel_and_the_title_says_so():
    figure = device_plots.timeline(drawn.diamond(measured=False))
    assert len(figure.axes) == 1
    assert figure.get_suptitle().endswith("nothing was measured")
    looks.assert_legible(figure)


def test_many_lanes_fit_a_page():
    spans = tuple(Span(0, (0,), 0.0, float(i + 1)) for i in range(200))
    details = dataclasses.replace(drawn.diamond(), predicted=Timeline(spans, "simulated"))
    figure = device_plots.timeline(details)
    assert figure.get_figheight() < 13
    assert len(_bars(figure.axes[0])) == 200
    looks.assert_legible(figure)


def test_no_schedule_is_a_mistake():
    details = dataclasses.replace(drawn.diamond(measured=False), predicted=Timeline((), "none"))
    with pytest.raises(NothingToDrawError, match="no schedule"):
        device_plots.timeline(details)


def test_every_span_of_a_thousand_is_drawn():
    details = drawn.large(1_000)
    (axes,) = device_plots.timeline(details).axes
    bars = _bars(axes)
    assert len(bars) == len(details.predicted.spans)
    spans_ms = np.array([(s.start_s, s.finish_s) for s in details.predicted.spans]) * 1e3
    np.testing.assert_allclose([bar[:2] for bar in bars], np.sort(spans_ms, axis=0), atol=1e-5)


def test_an_svg_of_very_many_spans_stays_small(tmp_path):
    spans = tuple(Span(0, (0,), float(i), i + 0.5) for i in range(6_000))
    details = dataclasses.replace(drawn.diamond(), predicted=Timeline(spans, "simulated"))
    plots.save(device_plots.timeline(details), tmp_path, "timeline", ("png", "svg", "pdf"))
    assert (tmp_path / "timeline.svg").stat().st_size < 300_000


def _widths(axes):
    return [patch.get_width() for patch in axes.patches]


def test_transfers_follow_computing_and_memory_has_its_capacity():
    figure = device_plots.loads(drawn.diamond())
    time, memory = figure.axes
    assert _widths(time) == pytest.approx([8, 0, 2, 1])  # ms: of each device, compute and transfer
    assert [patch.get_x() for patch in time.patches] == pytest.approx([0, 8, 0, 2])
    assert _widths(memory) == [80, 20]
    assert [line.get_xdata().tolist() for line in memory.lines] == [[64, 64]]  # the other: no limit
    assert looks.words(figure) == ["8 ms", "3 ms", "80 bytes", "20 bytes of 64 bytes"]
    assert looks.legend(figure) == ["computes", "receives and sends", "capacity"]
    looks.assert_legible(figure)


def test_what_is_not_there_is_left_out():
    details = drawn.diamond()
    weightless = dataclasses.replace(details, memory_bytes=np.zeros(4), transfer_load_s=np.zeros(2))
    figure = device_plots.loads(weightless)
    assert len(figure.axes) == 1
    assert looks.legend(figure) == ["computes"]
    with pytest.raises(NothingToDrawError, match="no device"):
        device_plots.loads(dataclasses.replace(weightless, compute_load_s=np.zeros(2)))


def test_a_capacity_far_beyond_the_loads_is_told_and_not_drawn():
    details = drawn.large(200, 8)
    roomy = dataclasses.replace(details, capacity_bytes=np.full(8, 1e12))
    figure = device_plots.loads(roomy)
    assert not figure.axes[1].lines
    assert sum(text.endswith(" of 1e+03 GB") for text in looks.words(figure)) == 8
    looks.assert_legible(figure)
