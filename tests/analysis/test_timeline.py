import itertools

import numpy as np
import pytest

from placement.analysis import segments, timeline
from tests import helpers
from tests.simulators import reference

SIZE = (9, 14, 11, 3)
OBJECTIVES = ("serial", "makespan", "subgraph")


def _problems(objective, **options):
    """A few of the simulators' random problems."""
    return itertools.islice(reference.random_problems(objective, SIZE, **options), 8)


def _finite(problem, placements):
    """The placements that can run, with their latencies."""
    latency_s = np.array(reference.latencies(problem, placements))
    ran = np.isfinite(latency_s)
    return placements[ran], latency_s[ran]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_last_span_ends_at_objective(objective):
    compared = 0
    for problem, placements in _problems(objective, shared=True):
        placements, latency_s = _finite(problem, placements)
        for placement, expected_s in zip(placements[:12], latency_s, strict=False):
            spans = timeline.predict(problem, placement)
            ends = max(span.finish_s for span in spans)
            assert ends == pytest.approx(expected_s, rel=1e-5)
            compared += 1
    assert compared > 30


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_spans_follow_their_inputs(objective):
    for problem, placements in _problems(objective):
        placements, _ = _finite(problem, placements)
        for placement in placements[:6]:
            spans = timeline.predict(problem, placement)
            where = {op: span for span in spans for op in span.ops}
            assert sorted(op for span in spans for op in span.ops) == list(range(SIZE[0]))
            assert all(placement[op] == span.device for op, span in where.items())
            if objective != "subgraph":  # a host runs any number of operations at a time
                for earlier, later in itertools.combinations(spans, 2):
                    is_apart = earlier.finish_s <= later.start_s * (1 + 1e-9)
                    assert earlier.device != later.device or is_apart
            for u, v in zip(problem.graph.senders, problem.graph.receivers, strict=True):
                before, after = where[int(u)], where[int(v)]
                if before is after:
                    assert objective == "subgraph" or before.ops.index(u) < before.ops.index(v)
                else:
                    assert before.finish_s <= after.start_s + 1e-5 * after.finish_s


def test_serial_spans_wait_for_transfers():
    # op1 on device 1, which takes 2; a transfer takes 100 + its bytes: 10 there, 30 back.
    problem = helpers.as_problem(helpers.diamond(), helpers.unit_costs(helpers.diamond()), "serial")
    spans = timeline.predict(problem, np.array([0, 1, 0, 0]))
    assert [(s.device, s.ops, s.start_s, s.finish_s) for s in spans] == [
        (0, (0, 2), 0.0, 2.0),
        (1, (1,), 112.0, 114.0),
        (0, (3,), 244.0, 245.0),
    ]


def test_segment_spans_end_as_predicted():
    for problem, placements in _problems("makespan"):
        placements, _ = _finite(problem, placements)
        for placement in placements[:4]:
            spans = timeline.predict_segments(problem, placement)
            ends = max(span.finish_s for span in spans)
            assert ends == pytest.approx(
                segments.schedule(problem, placement, segments.cut(problem, placement)).latency_s
            )
            assert sorted(op for span in spans for op in span.ops) == list(range(SIZE[0]))


def test_stream_spans_are_one_request():
    problem = helpers.as_problem(helpers.chain(4), helpers.unit_costs(helpers.chain(4)), "max_load")
    spans = timeline.predict(problem, np.array([0, 0, 1, 1]))
    assert [span.ops for span in spans] == [(op,) for op in problem.topological_order]
    alone = problem._replace(objective="makespan")
    assert spans == timeline.predict(alone, np.array([0, 0, 1, 1]))
