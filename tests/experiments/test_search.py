"""How often a search reports."""

import time

import pytest

from experiments import search


@pytest.mark.parametrize(
    ("step_s", "expected"),
    [(0.0, 16), (1e-6, 16), (0.01, 16), (0.125, 8), (0.5, 2), (1.0, 1), (60.0, 1)],
)
def test_a_report_comes_about_every_second(monkeypatch, step_s, expected):
    """However long it goes on: the pace must not run away from the steps that are taken."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pace = search._pace()
    assert pace() == 1  # compiles
    now[0] += 20.0
    assert pace() == 1  # is timed
    taken = 1
    for _ in range(2000):
        now[0] += taken * step_s
        taken = pace()
        assert taken == expected
