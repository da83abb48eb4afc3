import pytest

from placement.reporting.figures import labels, plots
from tests.reporting import looks

pytest.importorskip("matplotlib")


def test_width_is_what_matplotlib_draws():
    figure = plots.new_figure(8.0, 1.0)
    figure.set_dpi(600)  # so that pixels do not matter
    text = figure.text(0, 0, "Mixed_7c/branch3x3dbl_2 il 12.5 ms", fontsize=8)
    drawn = text.get_window_extent().width * 72 / 600
    assert labels.width(text.get_text(), 8) == pytest.approx(drawn, rel=0.03)
    assert labels.width("", 8) == 0


def test_shortened_text_ends_in_an_ellipsis_and_fits():
    assert labels.shortened("conv1", 8, 100) == "conv1"
    short = labels.shortened("a name that is too long", 8, 50)
    assert short.endswith("…")
    assert "a name that is too long".startswith(short[:-1])
    assert 40 < labels.width(short, 8) <= 50
    assert labels.shortened("conv1", 8, 2) == ""


def test_labels_beside_the_axes_keep_the_order_of_their_points():
    figure = plots.new_figure(6.0, 4.0)
    axes = figure.subplots()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    heights = [0.5, 0.51, 0.49, 0.9]
    labels.label_margin(axes, [(1.0, y) for y in heights], [f"at {y}" for y in heights])
    looks.assert_legible(figure)
    upwards = sorted(axes.texts, key=lambda text: looks.box(text).y0)
    assert [text.get_text() for text in upwards] == ["at 0.49", "at 0.5", "at 0.51", "at 0.9"]
