import re
from typing import Any

import numpy as np
import pytest

from placement.costs import workloads
from placement.costs.workloads import Workload

# Costs of the authors' files: float32 holds the first exactly, the second not.
EXACT, INEXACT = 0.000476837158203125, 0.000488


def _node(id_: int, **fields: Any) -> dict[str, Any]:
    """A node that costs 10 times its id on a CPU core and its id on an accelerator."""
    return {"id": id_, "cpuLatency": 10 * id_, "fpgaLatency": float(id_)} | fields


def _edge(source: int, dest: int, cost: float = 1.0, **fields: Any) -> dict[str, Any]:
    return {"sourceId": source, "destId": dest, "cost": cost} | fields


def _file(
    nodes: list[dict[str, Any]], edges: list[dict[str, Any]], fpgas: int = 2, cpus: int = 1
) -> dict[str, Any]:
    return {
        "maxFPGAs": fpgas,
        "maxCPUs": cpus,
        "maxSizePerFPGA": 100.0,
        "nodes": nodes,
        "edges": edges,
    }


def _chain(**limits: int) -> dict[str, Any]:
    """1 -> 2 -> 3, every field given."""
    nodes = [
        _node(
            id_,
            name=f"layer{id_}",
            supportedOnFpga=id_ != 2,
            isBackwardNode=id_ == 3,
            colorClass=(7, 8, 7)[id_ - 1],
            size=1024.0 * id_,
            layerId=id_,
        )
        for id_ in (1, 2, 3)
    ]
    edges = [_edge(1, 2, EXACT, size=16.0), _edge(2, 3, INEXACT, size=8)]
    return _file(nodes, edges, **limits)


def _read(data: Any, objective: str = "max_load", **options: Any) -> Workload:
    return workloads.from_json(data, name="w", objective=objective, **options)


def _set(path: str, value: Any) -> Any:
    """The chain with one field changed, such as 'nodes.1.size'; without it if `value` is ...."""
    data = _chain()
    *parents, field = path.split(".")
    record: Any = data
    for key in parents:
        record = record[int(key) if key.isdigit() else key]
    key = int(field) if field.isdigit() else field
    if value is ...:
        del record[key]
    else:
        record[key] = value
    return data


def test_graph():
    graph = _read(_chain()).graph
    assert graph.name == "w"
    assert graph.op_names == ("layer1", "layer2", "layer3")
    assert graph.op_types == ("Workload", "Workload", "WorkloadBackward")
    assert graph.backward.tolist() == [False, False, True]
    assert (graph.senders.tolist(), graph.receivers.tolist()) == ([0, 1], [1, 2])
    assert graph.edge_bytes.tolist() == [16, 8]
    assert graph.weight_bytes.tolist() == [1024, 2048, 3072]
    assert graph.colocation.tolist() == [0, 1, 0]
    assert graph.flops.tolist() == [0, 0, 0]
    assert graph.output_shapes == ((), (), ())


def test_costs():
    workload = _read(_chain(fpgas=2, cpus=2))
    costs = workload.costs
    assert workload.devices == ("acc0", "acc1", "cpu0", "cpu1")
    np.testing.assert_array_equal(
        costs.compute_s, [[1, 1, 10, 10], [np.inf, np.inf, 20, 20], [3, 3, 30, 30]]
    )
    assert costs.transfer_fixed_s.tolist() == [EXACT, np.float32(INEXACT)]
    assert costs.fusion_loss_s.tolist() == [0, 0]
    assert costs.memory_bytes.tolist() == [1024, 2048, 3072]
    assert costs.capacity_bytes.tolist() == [100, 100, np.inf, np.inf]
    assert costs.accelerator.tolist() == [0, 1, -1, -1]
    for link in (costs.transfer_latency_s, costs.transfer_s_per_byte):
        np.testing.assert_array_equal(link, np.zeros((4, 4)))


@pytest.mark.parametrize(
    ("fpgas", "cpus", "objective", "parts", "devices", "accelerator"),
    [
        (1, 2, "max_load", 1, "acc0 cpu0 cpu1", [0, -1, -1]),
        (2, 8, "subgraph", 2, "acc0.0 acc0.1 acc1.0 acc1.1 cpu", [0, 0, 1, 1, -1]),
    ],
)
def test_devices(fpgas, cpus, objective, parts, devices, accelerator):
    data = _file([_node(1), _node(2)], [_edge(1, 2)], fpgas, cpus)
    workload = _read(data, objective, parts=parts)
    assert workload.devices == tuple(devices.split())
    assert workload.costs.accelerator.tolist() == accelerator
    on_host = np.array(accelerator) < 0
    np.testing.assert_array_equal(
        workload.costs.compute_s, [np.where(on_host, 10, 1), np.where(on_host, 20, 2)]
    )
    np.testing.assert_array_equal(
        workload.costs.capacity_bytes, np.where(on_host, np.inf, 100).astype(np.float32)
    )


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["a", "a", "a.1"], ["a.1.1", "a.2", "a.1.3"]),
        (["b", None, "node2"], ["b", "node2.2", "node2.3"]),
    ],
)
def test_names_are_made_unique(given, read):
    nodes = [_node(id_, name=name) for id_, name in enumerate(given, start=1)]
    assert _read(_file(nodes, [])).graph.op_names == tuple(read)


def test_tensors_of_one_source():
    nodes = [_node(id_) for id_ in (1, 2, 3, 4)]
    edges = [_edge(1, 2, 1.0, size=10), _edge(1, 3, 2.0, size=30), _edge(1, 4, 1, size=20)]
    workload = _read(_file(nodes, edges))
    assert workload.graph.tensors.tolist() == [0, 1, 0]
    assert workload.graph.edge_bytes.tolist() == [20, 30, 20]
    assert workload.costs.transfer_fixed_s.tolist() == [1, 2, 1]


_NUMBER = "pass a number from 0 to 1e+18"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([1, 2], "workload 'w' is [1, 2], not an object"),
        (_set("maxFPGAs", -1), f"workload 'w': maxFPGAs is -1; {_NUMBER}"),
        (_set("maxSizePerFPGA", ...), "workload 'w' has no 'maxSizePerFPGA'"),
        (
            _set("nodes.2.fpgaLatency", float("nan")),
            "workload 'w'.nodes[2].fpgaLatency is nan, not a number",
        ),
        (
            _set("nodes.2.size", 10**400),
            f"workload 'w', nodes[2]: size is {'1' + '0' * 17}...{'0' * 19}; {_NUMBER}",
        ),
        (_set("edges.1.sourceId", 99), "workload 'w', edges[1]: sourceId is 99, which is not a "),
        (_chain(fpgas=0, cpus=0), "workload 'w' has no device: maxFPGAs and maxCPUs are 0; raise "),
        (_chain(fpgas=10**7, cpus=1), "workload 'w' has 10000001 devices: maxFPGAs is 10000000"),
        (_chain(cpus=0), "workload 'w', nodes[1]: supportedOnFpga is false, but maxCPUs is 0, "),
        (_set("edges.1.destId", 1), "graph 'w' has a cycle through 'layer1', 'layer2'; "),
    ],
)
def test_malformed_files_are_refused(data, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as caught:
        _read(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("objective", "parts"), [("max_load", 2), ("subgraph", 0)])
def test_wrong_parts_are_refused(objective, parts):
    message = f"workload 'w': parts is {parts} with objective '{objective}'; pass 1, or 1 and more"
    with pytest.raises(ValueError, match=message):
        _read(_chain(), objective, parts=parts)
