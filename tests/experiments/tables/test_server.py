"""The described server has the fitted numbers, and the page quotes the fit's output."""

from pathlib import Path

import pytest

from experiments.tables import server
from placement.costs import roofline

PAGE = Path(__file__).resolve().parents[3] / "docs" / "DEVICES.md"


@pytest.fixture(scope="module")
def graphs():
    return server.build_training_graphs()


@pytest.fixture(scope="module")
def fits(graphs):
    return {kind: server.fit(kind, graphs) for kind in server.PUBLISHED_S}


@pytest.mark.parametrize("kind", list(server.PUBLISHED_S))
def test_the_server_has_the_numbers_that_are_fitted(kind, fits):
    fitted, spec = fits[kind], roofline.SPECS[kind]
    assert spec.launch_s == pytest.approx(fitted.launch_s, rel=0.01)
    (rate,) = set(spec.flop_per_s.values())
    assert rate / server.PEAK_FLOP_PER_S[kind] == pytest.approx(fitted.fraction, rel=0.01)


def test_the_page_has_what_the_fit_prints(graphs, fits, monkeypatch, capsys):
    monkeypatch.setattr(server, "build_training_graphs", lambda: graphs)
    monkeypatch.setattr(server, "fit", lambda kind, _: fits[kind])
    server.main()
    assert capsys.readouterr().out in PAGE.read_text("utf-8")
