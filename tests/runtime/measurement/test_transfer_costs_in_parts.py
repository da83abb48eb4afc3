"""Costs of parts on devices that cannot hold the model, on the real CPU plug-in."""

import dataclasses

import numpy as np

from placement.runtime import devices
from placement.runtime.execution.split import Segment, split_model
from placement.runtime.execution.submodels import Submodels
from placement.runtime.measurement import local, transfer_costs
from placement.runtime.measurement.request import Timeline
from placement.runtime.models import extract
from tests.runtime import small

_LENGTH = 12
_MATRIX_BYTES = 256 * 256 * 4  # of each of the products
_LIMIT_BYTES = round(0.9 * _LENGTH * _MATRIX_BYTES)
HOST = tuple(
    dataclasses.replace(device, capacity_bytes=_LIMIT_BYTES)
    for device in devices.resolve("host:f32,f32")
)


def test_small_devices_run_parts(monkeypatch):
    monkeypatch.setattr(transfer_costs, "_measure_chains", lambda *_: 1e-10)  # without weights
    model = small.residual(length=_LENGTH)
    graph = extract.op_graph(model, name="residual", constants=False).graph
    groups = [[name] for name in graph.op_names]
    timelines = []
    with local.LocalMeasurer(model, HOST) as measurer:
        ask = measurer.ask

        def record(request):
            if isinstance(request, Timeline) and request.shape is None:
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
    submodels = Submodels(devices.open_core(HOST), model)
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
