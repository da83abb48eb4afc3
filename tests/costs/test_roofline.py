import csv
import gzip
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from placement import zoo
from placement.costs import roofline
from placement.errors import UserError
from placement.graphs import opgraph
from placement.runtime.models import extract, frontend
from placement.types import OpGraph
from tests import helpers

PAGE = Path(__file__).resolve().parents[2] / "docs" / "DEVICES.md"

# The CPU sustains 564.48 GFLOP/s in products and 81.92 GB/s, and launches in 1 us.
CPU_LAUNCH_S = 1e-6


def _graph(op_types: str, edges: list[tuple[int, int, int]], **fields: object) -> OpGraph:
    """Operations by type, as 'Parameter Add', and edges (sender, receiver, bytes)."""
    senders, receivers, edge_bytes = np.array(edges, int).reshape(-1, 3).T
    types = op_types.split()
    return opgraph.make_graph(
        name="tiny",
        op_names=[f"op{i}" for i in range(len(types))],
        op_types=types,
        senders=senders,
        receivers=receivers,
        edge_bytes=edge_bytes,
        **fields,
    )


def _seconds(graph: OpGraph, kind: str = "cpu") -> list[float]:
    return roofline.cost_model(graph, (kind,)).compute_s[:, 0].tolist()


def _close(values: object) -> object:
    return pytest.approx(values, rel=1e-6)


# Names.


def test_repeated_kinds_are_numbered():
    spec = " roofline: gpu, npu ,gpu,igpu,cpu,cpu"
    assert roofline.parse_devices(spec) == ("gpu0", "npu", "gpu1", "igpu", "cpu0", "cpu1")
    with pytest.raises(UserError, match=r"unknown kind 'tpu' .*valid: cpu, igpu, gpu, npu"):
        roofline.parse_devices("roofline:cpu,tpu")


# Operations.


def test_memory_bound():
    graph = _graph(
        "Parameter Add Result", [(0, 1, 40_960_000), (1, 2, 40_960_000)], flops=[0, 1e6, 0]
    )
    assert _seconds(graph, "cpu") == _close([0, CPU_LAUNCH_S + 1e-3, 0])
    assert _seconds(graph, "gpu") == _close([0, 5e-6 + 40.96e6 / 364.8e9, 0])


def test_tensors_count_once():
    twice = [(0, 1, 4_096_000), (0, 1, 4_096_000)]
    graph = _graph("Parameter Multiply Relu Relu", [*twice, (1, 2, 8192), (1, 3, 8192)])
    # 4,096,000 read and 8192 written: 50.1 us; each Relu reads 8192 and writes a scalar of 4.
    relu_s = CPU_LAUNCH_S + 8196 / 81.92e9
    assert _seconds(graph) == _close([0, CPU_LAUNCH_S + 50.1e-6, relu_s, relu_s])


def test_weights_move_as_stored():
    # 819,200 bytes of float16, converted to twice as many, against the same without constants.
    full = _graph(
        "Parameter Constant Convert MatMul",
        [(0, 3, 8192), (1, 2, 819_200), (2, 3, 1_638_400)],
        weight_bytes=[0, 819_200, 0, 0],
    )
    kept = _graph("Parameter MatMul", [(0, 1, 8192)], weight_bytes=[0, 819_200])
    cpu_s, gpu_s = (819_200 + 8196) / 81.92e9, (819_200 + 4098) / 364.8e9
    for kind, seconds in (("cpu", CPU_LAUNCH_S + cpu_s), ("gpu", 5e-6 + gpu_s)):
        assert _seconds(full, kind) == _close([0, 0, 0, seconds])
        assert _seconds(kept, kind) == _close([0, seconds])


def test_gather_reads_little():
    table = {"weight_bytes": [0, 81_920_000, 0, 0]}
    edges = [(0, 2, 1024), (1, 2, 81_920_000), (2, 3, 4096)]
    seconds = _seconds(_graph("Parameter Constant Gather Result", edges, **table))
    assert seconds == _close([0, 0, CPU_LAUNCH_S + (1024 + 4096 + 4096) / 81.92e9, 0])
    assert _seconds(_graph("Parameter Constant Add Result", edges, **table))[2] > 1e-3
    kept = _graph(
        "Parameter Gather Result", [(0, 1, 1024), (1, 2, 4096)], weight_bytes=[0, 81_920_000, 0]
    )
    assert _seconds(kept) == _close(seconds[:1] + seconds[2:])


def test_free_operations():
    for free in sorted(roofline.FREE_TYPES):
        graph = _graph(f"Parameter {free} Relu", [(0, 1, 8000), (1, 2, 8000)], flops=[9, 9, 9])
        seconds = roofline.cost_model(graph, tuple(roofline.SPECS)).compute_s
        assert (seconds[:2] == 0).all(), free
        # What follows is not, unless all that it reads is a constant.
        assert ((seconds[2] > 0) == (free != "Constant")).all(), free


@pytest.mark.parametrize(
    ("op_type", "rate"),
    [
        ("Convolution", "convolution"),
        ("LSTMSequenceGrad", "matmul"),
        ("GroupConvolution", "depthwise"),
        ("NobodyKnowsThis", "vector"),
    ],
)
def test_rates_of_types(op_type, rate):
    graph = _graph(f"Parameter {op_type}", [(0, 1, 8)], flops=[0, 1e12])
    for kind, spec in roofline.SPECS.items():
        seconds = spec.launch_s + 1e12 / spec.flop_per_s[rate]
        assert _seconds(graph, kind) == _close([0, seconds])


# Devices and links.


def test_links_pass_through_host():
    names = roofline.parse_devices("roofline:cpu,gpu,gpu,npu")
    costs = roofline.cost_model(helpers.chain(2), names)
    gpu, npu = 1 / 12.6032e9, 1 / 40.96e9
    np.testing.assert_allclose(
        costs.transfer_latency_s,
        1e-6 * np.array([[0, 20, 20, 50], [20, 0, 40, 70], [20, 40, 0, 70], [50, 70, 70, 0]]),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        costs.transfer_s_per_byte,
        [
            [0, gpu, gpu, npu],
            [gpu, 0, 2 * gpu, gpu + npu],
            [gpu, 2 * gpu, 0, gpu + npu],
            [npu, gpu + npu, gpu + npu, 0],
        ],
        rtol=1e-6,
    )


def test_memory_and_accelerators():
    graph = helpers.random_dag(np.random.default_rng(0), 12)
    names = roofline.parse_devices("roofline:gpu,cpu,npu,cpu,gpu")
    costs = roofline.cost_model(graph, names)
    assert costs.accelerator.tolist() == [0, -1, 1, -1, 2]
    gpu, npu = 12 * 2**30, 16 * 2**30
    assert costs.capacity_bytes.tolist() == [gpu, np.inf, npu, np.inf, gpu]
    assert costs.memory_bytes.tolist() == graph.weight_bytes.tolist()
    assert costs.compute_s.shape == (12, 5)


# Networks, and the page that describes the devices.


def _network(name: str, constants: bool) -> OpGraph:
    model = frontend.prepare(zoo.build(name, weights=False))
    return extract.op_graph(model, name=name, constants=constants).graph


@pytest.mark.parametrize("model", ["resnet50", "bert_base"])
def test_networks_match_page(model):
    _, *rows = _table("kind", "resnet50 ms")
    kinds = tuple(row["kind"] for row in rows)
    assert set(kinds) == set(roofline.SPECS)
    for constants in (True, False):
        costs = roofline.cost_model(_network(model, constants), kinds)
        total_ms = 1e3 * costs.compute_s.sum(axis=0, dtype=np.float64)
        assert total_ms == pytest.approx([float(row[f"{model} ms"]) for row in rows], abs=0.006)


def test_specifications_match_page():
    rows = _table("kind", "precision")[1:]
    assert [row["kind"] for row in rows] == list(roofline.SPECS)
    for row in rows:
        spec = roofline.SPECS[row["kind"]]
        assert (spec.precision, spec.host) == (row["precision"], row["link us"] == "-")
        page = {
            **{op_class: spec.flop_per_s[op_class] / 1e9 for op_class in spec.flop_per_s},
            "memory GB/s": spec.bytes_per_s / 1e9,
            "speedup": spec.activation_speedup,
            "launch us": 1e6 * spec.launch_s,
            "capacity GiB": spec.capacity_bytes / 2**30,
            "link us": 1e6 * spec.link_latency_s,
            "link GB/s": spec.link_bytes_per_s / 1e9,
        }
        for column, value in page.items():
            text = row[column].replace("-", "0" if column == "link us" else "inf")
            assert float(text) == pytest.approx(value, rel=1e-5), (row["kind"], column)


def _published_networks() -> dict[str, tuple[OpGraph, np.ndarray]]:
    """Returns the launched operations of networks, as a graph without order, and their counts."""
    types = {"convolution": "Convolution", "depthwise": "GroupConvolution", "matmul": "MatMul"}
    rows = defaultdict(list)
    with gzip.open(Path(__file__).with_name("published_networks.csv.gz"), "rt") as file:
        for row in csv.DictReader(file):
            rows[row["network"]].append(row)
    networks = {}
    for name, ops in rows.items():
        numbers = [
            [int(op[key]) for op in ops] for key in ("flops", "weight_bytes", "activation_bytes")
        ]
        flops, weight_bytes, activation_bytes = numbers
        graph = _graph(
            " ".join(["Parameter", *(types.get(op["class"], "Relu") for op in ops)]),
            # The scalar that an operation without readers writes has 4 bytes.
            [(0, i + 1, size - 4) for i, size in enumerate(activation_bytes)],
            flops=[0, *flops],
            weight_bytes=[0, *weight_bytes],
            tensors=np.arange(len(ops)),
        )
        networks[name] = graph, np.array([0, *(int(op["operations"]) for op in ops)])
    return networks


# 10^9 multiply-adds and 10^6 parameters, as their authors publish them.
SIZES = {
    "resnet18": (1.82, 11.69),
    "vgg13": (11.31, 133.05),
    "efficientnet_b0": (0.39, 5.29),
    "mobilenetv2_100": (0.30, 3.50),
    "yolov8x": (128.9, 68.2),
    "yolo26x": (97.0, 55.7),
}


def test_published_networks_are_complete():
    for name, (multiply_adds, parameters) in SIZES.items():
        graph, counts = _published_networks()[name]
        is_product = [op_type != "Relu" for op_type in graph.op_types]
        assert counts @ (graph.flops * is_product) / 2e9 == pytest.approx(multiply_adds, rel=0.02)
        assert counts @ graph.weight_bytes / 2e6 == pytest.approx(parameters, rel=0.02)


def test_predictions_match_published_latencies():
    networks, medians = _published_networks(), []
    for processor in ("155h", "358h"):
        header, *rows = _table("network", "source", "rows", f"laptop_{processor}_cpu")
        kinds = list(header)[3:]
        errors = {"fit": defaultdict(list), "test": defaultdict(list)}
        for row in rows:
            graph, counts = networks[row["network"]]
            predicted_ms = 1e3 * counts @ roofline.cost_model(graph, kinds).compute_s
            cells = [row[kind].split("/") for kind in kinds]
            published_ms = np.array([float(cell[0].replace("-", "nan")) for cell in cells])
            for cell, value in zip(cells, predicted_ms, strict=True):
                assert cell == ["-"] or float(cell[1]) == pytest.approx(value, rel=0.005)
            ratios = predicted_ms / published_ms
            for key, error in {
                **dict(zip(("CPU", "iGPU", "NPU"), ratios, strict=True)),
                "CPU:iGPU": ratios[0] / ratios[1],
                "CPU:NPU": ratios[0] / ratios[2],
                "iGPU:NPU": ratios[1] / ratios[2],
            }.items():
                errors[row["rows"]][key].append(abs(error - 1))
        for which, by_column in errors.items():
            texts = {key: f"{np.nanmedian(values):.0%}" for key, values in by_column.items()}
            medians.append({"processor": processor, "rows": which, **texts})
    assert medians == _table("processor", "rows")[1:]
    assert all(float(text.rstrip("%")) <= 25 for text in list(medians[1].values())[2:])


def _table(*first: str) -> list[dict[str, str]]:
    """The page's table whose header begins so: header and rows, by column."""
    for block in re.findall(r"(?:^\|.*\n)+", PAGE.read_text("utf-8"), re.MULTILINE):
        cells = [[c.strip() for c in line.strip("|").split("|")] for line in block.splitlines()]
        if tuple(cells[0][: len(first)]) == first:
            return [dict(zip(cells[0], row, strict=True)) for row in (cells[0], *cells[2:])]
    raise AssertionError(f"{PAGE} has no table that begins with {first}")
