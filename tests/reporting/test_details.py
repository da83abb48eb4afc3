import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.errors import UserError
from placement.reporting import details
from placement.reporting.details import Timeline
from placement.types import Span
from tests.reporting import drawn

_SPANS = st.lists(
    st.builds(
        lambda device, start, length: Span(device, (0,), start / 8, (start + length) / 8),
        st.integers(0, 2),
        st.integers(0, 30),
        st.integers(1, 10),
    ),
    min_size=1,
    max_size=25,
)


def _equal(one, other):
    if dataclasses.is_dataclass(one):
        fields = dataclasses.fields(one)
        return all(_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


@pytest.mark.parametrize("data", [drawn.diamond(), drawn.diamond(measured=False), drawn.large(60)])
def test_details_are_read_as_written(tmp_path, data):
    path = tmp_path / "details.json"
    details.write(path, data)
    assert _equal(details.read(path), data)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "details.json"
    assert details.read(path) is None
    path.write_text('{"method": "lns"}')
    with pytest.raises(UserError, match=r"details\.json' cannot be read: .*; place the model"):
        details.read(path)


@given(_SPANS)
def test_lanes_are_few(spans):
    lanes = Timeline(tuple(spans), "").lanes()
    for device in range(3):
        own = [(lane, s) for lane, s in zip(lanes, spans, strict=True) if s.device == device]
        most = max(
            (sum(s.start_s <= t.start_s < s.finish_s for _, s in own) for _, t in own), default=0
        )
        assert {lane for lane, _ in own} == set(range(most))
        for lane, one in own:
            for other_lane, other in own:
                if one is not other and lane == other_lane:
                    assert one.finish_s <= other.start_s or other.finish_s <= one.start_s


@given(_SPANS)
def test_busy_time_counts_overlaps_once(spans):
    steps = np.arange(50) / 8
    expected = [
        sum(any(s.device == d and s.start_s <= t < s.finish_s for s in spans) for t in steps) / 8
        for d in range(3)
    ]
    np.testing.assert_allclose(Timeline(tuple(spans), "").busy_s(3), expected)
