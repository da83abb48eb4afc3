"""The cost of transfers, on devices whose times are known."""

import numpy as np
import pytest

from placement.runtime.devices import Device
from placement.runtime.measurement import transfer_costs
from placement.runtime.measurement.request import Contention, ContentionTimes, TransferShapes
from tests import helpers

LATENCY_S, WAIT_S = 1e-4, 8e-4


class ChainMeasurer:
    """Runs chains: a part takes 1 ms, odd ones WAIT_S longer if the part before ran elsewhere."""

    def __init__(self, *cores):
        self.devices = tuple(
            Device(f"CPU_{i}", f"CPU_{i} [simulated]", "f32", 1, None, {}, True, group)
            for i, group in enumerate(cores)
        )
        self.computed_ops = frozenset(f"op{i}" for i in range(6))
        self.shapes, self.num_timelines, self.limits_s = [], 0, []

    def ask(self, request):
        if isinstance(request, TransferShapes):
            return self.shapes, 1e-10
        if isinstance(request, Contention):
            none = tuple(np.empty((0, 0)) for _ in request.segments)
            return ContentionTimes(none, none)
        self.num_timelines += 1
        self.limits_s.append(request.limit_s)
        clock_s, times, before = 0.0, [], None
        for number, part in enumerate(request.segments):
            changes = before is not None and part.device != before
            begin_s = clock_s + LATENCY_S * changes
            clock_s = begin_s + 1e-3 + WAIT_S * (changes and number % 2)
            times.append((begin_s, clock_s))
            before = part.device
        return np.array([times] * request.inferences)


def measure(measurer, **options):
    graph = helpers.chain(6)
    groups = [(name,) for name in graph.op_names]
    return transfer_costs.measure(measurer, graph, groups, np.ones((6, 2), bool), **options)


def test_operations_that_read_slowly_have_a_cost_of_their_own_on_shared_cores():
    measurer = ChainMeasurer((0, 1), (0,))
    submodels, (fit,) = measure(measurer)
    assert measurer.num_timelines == 4  # each device alone, and both orders of the pair
    total_s = fit.latency_s + submodels.read_s
    # The first part reads from no other.
    np.testing.assert_allclose(total_s[1::2], LATENCY_S + WAIT_S, rtol=0.05)
    assert submodels.read_s[0] == 0
    assert submodels.read_s[1::2].min() > submodels.read_s[::2].max()
    assert (total_s[2::2] >= LATENCY_S).all()


def test_devices_that_share_no_cores_have_lines_alone():
    measurer = ChainMeasurer((), ())
    submodels, (fit,) = measure(measurer)
    assert measurer.num_timelines == 3
    assert submodels.read_s.tolist() == [0.0] * 6
    assert len(fit.seconds) == 5
    assert np.sort(fit.seconds)[-1] == pytest.approx(LATENCY_S + WAIT_S)


def test_without_time_only_the_first_chain_runs_and_it_has_a_limit():
    measurer = ChainMeasurer((0, 1), (0,))
    measurer.shapes = [(1, 1024), (1, 4096)]
    measure(measurer, limit_s=0.0)
    first, others = measurer.limits_s[:4], measurer.limits_s[4:]
    assert 0 < min(first) <= max(first) <= 10
    assert max(others) == 0
