"""The described server is what the fit gives, and the page says what the fit prints."""

from pathlib import Path

import pytest

from experiments.reproduction import server
from placement.costs import roofline

PAGE = Path(__file__).resolve().parents[3] / "docs" / "DEVICES.md"


@pytest.fixture(scope="module")
def graphs():
    return server.steps()


@pytest.fixture(scope="module")
def fits(graphs):
    return {kind: server.fit(kind, graphs) for kind in server.PUBLISHED_S}


@pytest.mark.parametrize("kind", list(server.PUBLISHED_S))
def test_the_server_has_the_numbers_that_are_fitted(kind, fits):
    found, spec = fits[kind], roofline.SPECS[kind]
    assert spec.launch_s == pytest.approx(found.launch_s, rel=0.01)
    (rate,) = set(spec.flop_per_s.values())
    assert rate / server.PEAK_FLOP_PER_S[kind] == pytest.approx(found.fraction, rel=0.01)


def test_the_page_has_what_the_fit_prints(graphs, fits, monkeypatch, capsys):
    monkeypatch.setattr(server, "steps", lambda: graphs)
    monkeypatch.setattr(server, "fit", lambda kind, _: fits[kind])
    server.main()
    assert capsys.readouterr().out in PAGE.read_text("utf-8")
