import xml.etree.ElementTree

import pytest

from placement.reporting.figures import plots, search_plots

pytest.importorskip("matplotlib")

_METRICS = [{"evaluations": step, "best_s": 1 / step} for step in (1, 2, 3)]


def test_a_figure_is_saved_as_pixels_and_as_text_that_stays_text(tmp_path):
    plots.save(search_plots.search(_METRICS), tmp_path, "search", ("png", "svg", "pdf"))
    assert (tmp_path / "search.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    root = xml.etree.ElementTree.parse(tmp_path / "search.svg").getroot()
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "placements evaluated" in texts
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"search.{suffix}" for suffix in ("pdf", "png", "svg")
    ]
    assert (tmp_path / "search.pdf").read_bytes().startswith(b"%PDF")


def test_a_search_that_tells_shares_has_a_panel_of_them():
    before = {"method": "search", "seed": 1, "evaluations": 0, "best_s": 2.0}
    told = [m | {"method": "search", "seed": 1, "share_a": 0.25, "share_b": 0.75} for m in _METRICS]
    assert len(search_plots.search(_METRICS).axes) == 1
    _, panel = search_plots.search([*_METRICS, before, *told]).axes
    assert panel.get_title(loc="left") == "search, seed 1: kinds of moves"
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in panel.collections]
    assert tops == [0.25, 1.0]


def test_equal_figures_make_equal_files(tmp_path):
    for name in ("one", "other"):
        plots.save(search_plots.search(_METRICS), tmp_path, name, ("png", "svg", "pdf"))
    for suffix in ("png", "svg", "pdf"):
        one, other = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in ("one", "other"))
        assert one == other


def test_a_tint_prints_lighter_the_less_colour_it_has():
    tints = [plots.luminance(plots.mixed(plots.COLOURS[0], share)) for share in (0.0, 0.5, 1.0)]
    assert tints == sorted(tints, reverse=True)
    assert tints[0] == pytest.approx(1.0)


def test_devices_differ_in_grey_print_too():
    styles = [plots.device_style(device) for device in range(12)]
    assert len({(style["facecolor"], style["hatch"]) for style in styles}) == 12
    assert len({style["hatch"] for style in styles[:6]}) == 6
