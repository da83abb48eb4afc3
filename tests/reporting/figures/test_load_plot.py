import dataclasses

import numpy as np
import pytest

from placement.reporting.figures import load_plot
from placement.reporting.figures.plots import NothingToDrawError
from tests.reporting import drawn, looks

pytest.importorskip("matplotlib")


def _widths(axes):
    return [patch.get_width() for patch in axes.patches]


def test_transfers_follow_computing_and_memory_has_its_capacity():
    figure = load_plot.loads(drawn.diamond())
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
    figure = load_plot.loads(weightless)
    assert len(figure.axes) == 1
    assert looks.legend(figure) == ["computes"]
    with pytest.raises(NothingToDrawError, match="no device"):
        load_plot.loads(dataclasses.replace(weightless, compute_load_s=np.zeros(2)))


def test_a_capacity_far_beyond_the_loads_is_told_and_not_drawn():
    details = drawn.large(200, 8)
    roomy = dataclasses.replace(details, capacity_bytes=np.full(8, 1e12))
    figure = load_plot.loads(roomy)
    assert not figure.axes[1].lines
    assert sum(text.endswith(" of 1e+03 GB") for text in looks.words(figure)) == 8
    looks.assert_legible(figure)
