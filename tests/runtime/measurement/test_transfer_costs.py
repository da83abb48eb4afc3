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
        self.shapes, self.num_timelines = [], 0

    def ask(self, request):
        if isinstance(request, TransferShapes):
            return self.shapes, 1e-10
        self.num_timelines += 1
        clock_s, times, before = 0.0, [], None
        for number, part in enumerate(request.segments):
            changes = before is not None and part.device != before
            begin_s = clock_s + LATENCY_S * changes
            clock_s = begin_s + 1e-3 + WAIT_S * (changes and number % 2)
            times.append((begin_s, clock_s))
            before = part.device
        return np.array([times])


def measure(measurer):
    graph = helpers.chain(6)
    groups = [(name,) for name in graph.op_names]
    return transfer_costs.measure(measurer, graph, groups, np.ones((6, 2), bool))


def test_transfers_are_fitted_to_reads():
    measurer = ChainMeasurer()
    _, (fit,) = measure(measurer)
    assert measurer.num_timelines == 3  # each device alone, and the pair
    assert len(fit.seconds) == 5
    assert np.sort(fit.seconds)[-1] == pytest.approx(LATENCY_S + WAIT_S)


def test_large_models_run_chains_alone(monkeypatch):
    monkeypatch.setattr(transfer_costs, "_MAX_PARTS", 5)
    measurer = ChainMeasurer()
    measurer.shapes = [(1, 1024), (1, 4096)]
    costs, (fit,) = measure(measurer)
    assert costs.groups == ()
    assert measurer.num_timelines == 2 * 3
    assert set(fit.num_bytes) == {4 * 1024, 4 * 4096}
