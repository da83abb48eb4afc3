"""Remaining time and budget of a search, and the reports to its observer."""

import time

import numpy as np
import pytest

from placement.solvers.limits import SearchLimits


def test_shares_report_to_the_whole(monkeypatch):
    now, told = [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    whole = SearchLimits(60.0, 1000, lambda *step: told.append(step[:3]))
    now[0] += 20.0
    part = whole.take_share(0.1, 300)
    assert (part.remaining_s(), part.budget) == (pytest.approx(4.0), 300)
    assert whole.take_share(0.5, 5000).budget == 1000
    fast, slow = np.zeros(2, int), np.ones(2, int)
    part.report(7, 0.5, fast)
    part.report(8, 0.7, slow)
    whole.report(9, 0.6, slow)
    later = whole.take_share(0.1, 300, evaluations=9)
    later.report(2, 0.6, slow)
    assert told == [(7, 0.5, fast), (8, 0.5, fast), (9, 0.5, fast), (11, 0.5, fast)]
    now[0] += 5.0
    assert part.is_over()
    assert not whole.is_over()


def test_excluded_seconds_move_the_end(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    limits = SearchLimits(2.0, 1000)
    now[0] += 10.0
    limits.extend(9.0)
    assert (limits.remaining_s(), limits.elapsed_s()) == (pytest.approx(1.0), 10.0)
