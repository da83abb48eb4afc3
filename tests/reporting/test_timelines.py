import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.reporting import timelines
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


@given(_SPANS)
def test_spans_of_a_lane_do_not_overlap_and_lanes_are_as_few_as_can_be(spans):
    lanes = timelines.lanes(Timeline(tuple(spans), ""))
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


def test_spans_that_follow_one_another_but_for_rounding_share_a_lane():
    spans = (Span(0, (0,), 0.0, 0.1 + 0.2), Span(0, (1,), 0.3, 0.6))
    assert timelines.lanes(Timeline(spans, "")) == [0, 0]


@given(_SPANS)
def test_busy_is_the_time_in_which_any_span_runs(spans):
    steps = np.arange(50) / 8
    expected = [
        sum(any(s.device == d and s.start_s <= t < s.finish_s for s in spans) for t in steps) / 8
        for d in range(3)
    ]
    np.testing.assert_allclose(timelines.busy_s(spans, 3), expected)


def test_latency_is_when_the_last_span_ends():
    assert timelines.latency_s(drawn.diamond().predicted) == pytest.approx(8e-3)
    assert timelines.latency_s(Timeline((), "")) == 0


def test_a_span_is_named_after_its_first_and_last_operation():
    details = drawn.diamond()
    assert timelines.name(details, Span(0, (2,), 0, 1)) == "op2"
    assert timelines.name(details, Span(0, (0, 2, 3), 0, 1)) == "op0 … op3 (3)"


def test_a_heading_says_once_what_it_is():
    details = drawn.diamond()
    assert timelines.heading("predicted", details.predicted) == "predicted (simulated)"
    assert timelines.heading("measured", details.measured) == details.measured.source
    other = dataclasses.replace(details.predicted, source="predicted: by hand")
    assert timelines.heading("predicted", other) == "predicted: by hand"
