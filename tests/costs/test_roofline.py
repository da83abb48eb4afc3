import re
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
KINDS = ("cpu", "igpu", "gpu", "npu", "desktop_cpu")

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
        seconds = roofline.cost_model(graph, KINDS).compute_s
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
    header, *rows = _table("model")
    page = next(row for row in rows if row["model"] == model)
    for constants in (True, False):
        costs = roofline.cost_model(_network(model, constants), KINDS)
        total_ms = 1e3 * costs.compute_s.sum(axis=0, dtype=np.float64)
        assert total_ms == pytest.approx([float(page[kind]) for kind in KINDS], abs=0.006)
    assert tuple(header)[1:] == KINDS


def test_rates_match_page():
    rows = _table("kind", "class")[1:]
    pairs = [(row["kind"], row["class"]) for row in rows]
    assert sorted(pairs) == sorted(
        (k, c) for k, spec in roofline.SPECS.items() for c in spec.flop_per_s
    )
    for row in rows:
        sustained = float(row["sustained GFLOP/s"])
        assert float(row["peak GFLOP/s"]) * float(row["fraction"]) == _close(sustained)
        in_code = roofline.SPECS[row["kind"]].flop_per_s[row["class"]]
        assert in_code == _close(1e9 * sustained)


def test_specifications_match_page():
    rows = _table("kind", "host")[1:]
    assert [row["kind"] for row in rows] == list(roofline.SPECS)
    for row in rows:
        spec = roofline.SPECS[row["kind"]]
        for peak, fraction, sustained in (
            ("memory GB/s", "fraction", "sustained GB/s"),
            ("link GB/s", "fraction 2", "sustained GB/s 2"),
        ):
            product = _number(row[peak]) * _number(row[fraction])
            assert product == _close(_number(row[sustained]))
        assert (spec.kind, spec.precision) == (row["kind"], row["precision"])
        assert spec.host == (row["host"] == "yes")
        assert spec.bytes_per_s == _close(1e9 * _number(row["sustained GB/s"]))
        assert spec.launch_s == _close(1e-6 * _number(row["launch us"]))
        assert spec.capacity_bytes == _close(2**30 * _number(row["capacity GiB"]))
        assert spec.link_latency_s == _close(1e-6 * _number(row["link us"]))
        assert spec.link_bytes_per_s == _close(1e9 * _number(row["sustained GB/s 2"]))


def _number(cell: str) -> float:
    return np.inf if cell == "unlimited" else float(cell)


def _table(*first: str) -> list[dict[str, str]]:
    """The page's table whose header begins so: header and rows, by column.

    A second column of the same name has ' 2' appended.
    """
    for block in re.findall(r"(?:^\|.*\n)+", PAGE.read_text("utf-8"), re.MULTILINE):
        cells = [[c.strip() for c in line.strip("|").split("|")] for line in block.splitlines()]
        if tuple(cells[0][: len(first)]) == first:
            seen = cells[0]
            names = [f"{c} 2" if c in seen[:i] else c for i, c in enumerate(seen)]
            return [dict(zip(names, row, strict=True)) for row in (cells[0], *cells[2:])]
    raise AssertionError(f"{PAGE} has no table that begins with {first}")
