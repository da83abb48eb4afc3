"""The cost of transfers, on devices whose times are known."""

import numpy as np
import pytest

from placement.runtime.devices import Device
from placement.runtime.measurement import transfer_costs
from placement.runtime.measurement.request import TransferShapes
from tests import helpers

LATENCY_S, WAIT_S = 1e-4, 8e-4


class ChainMeasurer:
    """Runs chains: a part takes 1 ms, odd ones WAIT_S longer if the part before ran elsewhere."""

    def __init__(self):
        self.devices = tuple(
            Device(f"CPU_{i}", f"CPU_{i} [simulated]", "f32", 1, None, {}, True) for i in range(2)
        )
        self.computed_ops = frozenset(f"op{i}" for i in range(6))
        self.shapes, self.num_timelines, self.limits_s = [], 0, []

    def ask(self, request):
        if isinstance(request, TransferShapes):
            return self.shapes, 1e-10
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


def test_transfers_are_fitted_to_reads():
    measurer = ChainMeasurer()
    _, (fit,) = measure(measurer)
    assert measurer.num_timelines == 3  # each device alone, and the pair
    assert len(fit.seconds) == 5
    assert np.sort(fit.seconds)[-1] == pytest.approx(LATENCY_S + WAIT_S)


def test_short_limits_keep_one_chain():
    measurer = ChainMeasurer()
    measurer.shapes = [(1, 1024), (1, 4096)]
    measure(measurer, limit_s=0.0)
    first, others = measurer.limits_s[:3], measurer.limits_s[3:]
    assert 0 < min(first) <= max(first) <= 10
    assert max(others) == 0
