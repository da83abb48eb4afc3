"""The cost of transfers, on devices whose times are known, and on the real CPU plug-in."""

import dataclasses

import numpy as np
import pytest

from placement.runtime import devices
from placement.runtime.devices import Device
from placement.runtime.execution.split import Segment, split_model
from placement.runtime.execution.submodels import Submodels
from placement.runtime.measurement import local, transfer_costs
from placement.runtime.measurement.request import CopyTime, Timeline, Transfers
from placement.runtime.models import extract
from tests import helpers
from tests.runtime import small

LATENCY_S, WAIT_S = 1e-4, 8e-4


class ChainMeasurer:
    """Runs chains: a part takes 1 ms, odd ones WAIT_S longer if the part before ran elsewhere."""

    def __init__(self):
        self.devices = tuple(
            Device(f"CPU_{i}", ("simulated",), "f32", 1, None, {}, True) for i in range(2)
        )
        self.computed_ops = frozenset(f"op{i}" for i in range(6))
        self.num_timelines = 0

    def ask(self, request):
        if isinstance(request, CopyTime):
            return 1e-10
        if isinstance(request, Transfers):
            return {(0, 1): [(4096.0, LATENCY_S)]}
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


def test_large_models_run_no_parts(monkeypatch):
    monkeypatch.setattr(transfer_costs, "_MAX_PARTS", 5)
    measurer = ChainMeasurer()
    costs, (fit,) = measure(measurer)
    assert costs.groups == ()
    assert measurer.num_timelines == 0
    assert costs.transfers.latency_s[0, 1] == fit.latency_s > 0


_LENGTH = 12
_MATRIX_BYTES = 256 * 256 * 4  # of each of the products
_LIMIT_BYTES = round(0.9 * _LENGTH * _MATRIX_BYTES)
HOST = tuple(
    dataclasses.replace(device, capacity_bytes=_LIMIT_BYTES)
    for device in devices.resolve("host:f32,f32")
)


def test_small_devices_run_parts(monkeypatch):
    model = small.residual(length=_LENGTH)
    graph = extract.op_graph(model, name="residual", constants=False).graph
    groups = [[name] for name in graph.op_names]
    timelines = []
    with local.LocalMeasurer(model, HOST) as measurer:
        ask = measurer.ask

        def record(request):
            if isinstance(request, Timeline):
                timelines.append(request)
            return ask(request)

        monkeypatch.setattr(measurer, "ask", record)
        supported = np.ones((graph.num_ops, 2), bool)
        costs, (transfer,) = transfer_costs.measure(measurer, graph, groups, supported)
    assert (costs.alone_s > 0).all()  # every operation on both devices
    assert len(costs.groups) == 2 * _LENGTH
    # A quarter of a limit is 2.7 matrices: two products in a run.
    assert len(timelines) == 2 * (_LENGTH // 2) + 1
    for request in timelines:
        for device in HOST:
            placed = [op for s in request.segments if s.device == device.name for op in s.ops]
            assert sum("product" in op for op in placed) * _MATRIX_BYTES <= _LIMIT_BYTES / 4
    assert len(transfer.num_bytes) > 1


def test_cache_respects_memory_limits():
    model = small.residual(length=_LENGTH)
    # A quarter of the limit is 2.4 matrices.
    limited = dataclasses.replace(HOST[0], capacity_bytes=round(9.6 * _MATRIX_BYTES))
    unlimited = dataclasses.replace(HOST[1], capacity_bytes=None)
    submodels = Submodels(small.open_core(HOST), model)
    names = ["x", *(f"{kind}_{i}" for i in range(_LENGTH) for kind in ("product", "sum"))]
    held_bytes = []
    for number in range(_LENGTH):  # one more product on the limited device
        product = names.index(f"product_{number}")
        segments = (
            Segment(unlimited.name, tuple(names[:product])),
            Segment(limited.name, (names[product],)),
            Segment(unlimited.name, tuple(names[product + 1 :])),
        )
        submodels.compile(split_model(model, segments).parts, (limited, unlimited))
        cached = submodels._cache.items()
        held_bytes.append(sum(size for key, (_, size) in cached if key[0] == limited.name))
    assert held_bytes == [min(count, 2) * _MATRIX_BYTES for count in range(1, _LENGTH + 1)]
