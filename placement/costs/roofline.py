"""Costs of described hardware, so that experiments run the same on a machine without devices.

The roofline model: an operation takes as long as the slower of computing and moving,

    compute_s = launch_s + max(flops / flop_per_s[class], moved_bytes / bytes_per_s),

    moved_bytes = weights + (activations read + activations written) * element_bytes / 4,

where each tensor counts once, in the model's bytes. Weights count as the model stores them, however
they are converted before they are read, so that the view with constants and the one without cost
the same (but the latter books a shared constant on its first reader only). Activations are taken to
be float32 in the model, as they are in OpenVINO's compressed models, and are halved on a device
that infers in f16. An operation that picks (`_PICKING`) reads no more of an input than it writes.
Tensors cross between devices as the model has them.

Nothing is fused and no tensor stays in a cache: plug-ins do better on element-wise operations,
which they append to the convolution or product before. Every operation is supported everywhere.

`docs/DEVICES.md` derives every number in `SPECS` and says which are published and which assumed.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from placement import arguments
from placement.errors import UserError
from placement.graphs import dag
from placement.graphs.op_types import NEVER_CONSTANT
from placement.types import CostModel, OpGraph, TensorBytes

PREFIX = "roofline:"


class DeviceSpec(NamedTuple):
    """What a device sustains, which is less than its peak."""

    kind: str
    summary: str  # the hardware, in one line
    host: bool  # computes from host memory, where tensors are handed over
    precision: str  # of inference: a key of `ELEMENT_BYTES`
    flop_per_s: Mapping[str, float]  # by class of operations (`_CLASS`), at this precision
    bytes_per_s: float  # of its memory
    launch_s: float  # of one operation
    capacity_bytes: float  # of its memory; inf for a host
    link_latency_s: float  # of one tensor on its way to or from host memory
    link_bytes_per_s: float


ELEMENT_BYTES = {"f32": 4, "f16": 2}
_CLASSES = ("matmul", "convolution", "depthwise", "vector")

SPECS: dict[str, DeviceSpec] = {
    spec.kind: spec
    for spec in (
        DeviceSpec(
            kind="cpu",
            summary="Intel Core Ultra 5 245K: its 6 P-cores, DDR5-6400 in two channels",
            host=True,
            precision="f32",
            flop_per_s={
                "matmul": 0.7 * 806.4e9,
                "convolution": 0.7 * 806.4e9,
                "depthwise": 0.2 * 806.4e9,
                "vector": 0.25 * 806.4e9,
            },
            bytes_per_s=0.8 * 102.4e9,
            launch_s=1e-6,
            capacity_bytes=math.inf,
            link_latency_s=0.0,
            link_bytes_per_s=math.inf,
        ),
        DeviceSpec(
            kind="igpu",
            summary="the processor's Xe-LPG graphics: 4 Xe-cores without XMX",
            host=False,
            precision="f16",
            flop_per_s={
                "matmul": 0.6 * 3891.2e9,
                "convolution": 0.6 * 3891.2e9,
                "depthwise": 0.2 * 3891.2e9,
                "vector": 0.25 * 3891.2e9,
            },
            bytes_per_s=0.8 * 102.4e9,
            launch_s=5e-6,
            capacity_bytes=16 * 2.0**30,
            link_latency_s=10e-6,
            link_bytes_per_s=0.4 * 102.4e9,
        ),
        DeviceSpec(
            kind="gpu",
            summary="Intel Arc B580: 12 GB GDDR6, PCIe 4.0 x8",
            host=False,
            precision="f16",
            flop_per_s={
                "matmul": 0.25 * 116_500e9,
                "convolution": 0.25 * 116_500e9,
                "depthwise": 0.2 * 27_340e9,
                "vector": 0.25 * 27_340e9,
            },
            bytes_per_s=0.8 * 456e9,
            launch_s=5e-6,
            capacity_bytes=12 * 2.0**30,
            link_latency_s=20e-6,
            link_bytes_per_s=0.8 * 15.754e9,
        ),
        DeviceSpec(
            kind="npu",
            summary="the processor's NPU, of the generation of NPU 3720",
            host=False,
            precision="f16",
            flop_per_s={
                "matmul": 0.5 * 6500e9,
                "convolution": 0.5 * 6500e9,
                "depthwise": 0.1 * 6500e9,
                "vector": 0.25 * 101.6e9,
            },
            bytes_per_s=0.4 * 102.4e9,
            launch_s=2e-6,
            capacity_bytes=16 * 2.0**30,
            link_latency_s=50e-6,
            link_bytes_per_s=0.4 * 102.4e9,
        ),
        DeviceSpec(
            kind="desktop_cpu",
            summary="Intel Core Ultra 9 285K: 8 P-cores and 16 E-cores, DDR5-6400 in two channels",
            host=True,
            precision="f32",
            flop_per_s={
                "matmul": 0.7 * 2585.6e9,
                "convolution": 0.7 * 2585.6e9,
                "depthwise": 0.2 * 2585.6e9,
                "vector": 0.25 * 2585.6e9,
            },
            bytes_per_s=0.8 * 102.4e9,
            launch_s=2e-6,
            capacity_bytes=math.inf,
            link_latency_s=0.0,
            link_bytes_per_s=math.inf,
        ),
        # Of the two below the fraction of the peak and the launch are fitted to published run times
        # of training steps, see `experiments.reproduction.server`.
        DeviceSpec(
            kind="server_cpu",
            summary="a server of 2018: Intel Xeon E5-2699 v3 (Haswell), 18 cores, TensorFlow 1",
            host=True,
            precision="f32",
            flop_per_s=dict.fromkeys(_CLASSES, 0.181 * 1324.8e9),
            bytes_per_s=0.8 * 68.256e9,
            launch_s=367e-6,
            capacity_bytes=math.inf,
            link_latency_s=0.0,
            link_bytes_per_s=math.inf,
        ),
        DeviceSpec(
            kind="server_gpu",
            summary="the server's accelerators: halves of NVIDIA Tesla K80, 12 GB, PCIe 3.0 x16",
            host=False,
            precision="f32",
            flop_per_s=dict.fromkeys(_CLASSES, 0.236 * 4370e9),
            bytes_per_s=0.8 * 240e9,
            launch_s=121e-6,
            capacity_bytes=12 * 15 / 16 * 2.0**30,
            link_latency_s=20e-6,
            link_bytes_per_s=0.8 * 15.754e9,
        ),
    )
}

# Every type that is not listed, known or not, is 'vector'.
_CLASS: dict[str, str] = {
    **dict.fromkeys(
        (
            *("MatMul", "FullyConnected", "Einsum", "ScaledDotProductAttention"),
            *("LSTMCell", "LSTMSequence", "GRUCell", "GRUSequence", "RNNCell", "RNNSequence"),
        ),
        "matmul",
    ),
    **dict.fromkeys(
        (
            *("Convolution", "ConvolutionBackpropData", "ConvolutionBackpropFilter"),
            *("BinaryConvolution", "DeformableConvolution"),
        ),
        "convolution",
    ),
    **dict.fromkeys(
        (
            *("GroupConvolution", "GroupConvolutionBackpropData"),
            "GroupConvolutionBackpropFilter",
        ),
        "depthwise",
    ),
}

# The model's ends, and operations that give the same bytes another shape: neither launched nor
# moved. Neither is what is computed from constants alone, which compilation does once.
FREE_TYPES = frozenset(
    {"Parameter", "Constant", "Variable", "Result", "Reshape", "Squeeze", "Unsqueeze", "ShapeOf"}
)
_PICKING = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "StridedSlice"})
_MODEL_ELEMENT_BYTES = 4


class _Demand(NamedTuple):
    """What the operations of a graph ask of any device."""

    runs: np.ndarray  # bool [N]: launched for every request
    weight_bytes: np.ndarray  # float64 [N]: constants that it reads, as stored
    activation_bytes: np.ndarray  # float64 [N]: other tensors that it reads or writes


def devices(spec: str) -> tuple[str, ...]:
    """Returns the names of described devices, in the order of a placement's indices.

    Args:
      spec: such as 'roofline:cpu,gpu,gpu', which gives ('cpu', 'gpu0', 'gpu1'): kinds that occur
        several times are numbered.

    Raises:
      UserError: no prefix, no kinds, or a kind that is not in `SPECS`.
    """
    valid = f"valid kinds: {', '.join(SPECS)}; give for example '{PREFIX}cpu,gpu'"
    if not spec.strip().startswith(PREFIX):
        raise UserError(f"devices {spec!r} do not start with '{PREFIX}'; {valid}")
    kinds = [kind.strip() for kind in spec.strip().removeprefix(PREFIX).split(",")]
    if not any(kinds):
        raise UserError(f"devices {spec!r} name no kind; {valid}")
    for kind in kinds:
        arguments.check("kind", kind, SPECS, within=f"devices {spec!r}")
    counts = Counter(kinds)
    return tuple(
        kind if counts[kind] == 1 else f"{kind}{kinds[:i].count(kind)}"
        for i, kind in enumerate(kinds)
    )


def cost_model(graph: OpGraph, names: tuple[str, ...]) -> CostModel:
    """Computes what a graph costs on described devices.

    A tensor crosses between two accelerators by way of host memory, one transfer after the other:
    latencies add up, and so do the seconds a byte. Two hosts share their memory, so that nothing
    crosses between them. An operation occupies what its weights occupy; tensors what they have in
    the model, as long as they are alive.

    Args:
      graph: N operations.
      names: D devices, as `devices` names them.

    Raises:
      UserError: a name is of no kind.
    """
    specs = [_spec(name) for name in names]
    apart = 1 - np.eye(len(specs))
    latency_s = np.array([spec.link_latency_s for spec in specs])
    s_per_byte = np.array([1 / spec.link_bytes_per_s for spec in specs])
    hosts = np.array([spec.host for spec in specs])
    return CostModel(
        compute_s=compute_s(graph, specs).astype(np.float32),
        transfer_latency_s=(apart * np.add.outer(latency_s, latency_s)).astype(np.float32),
        transfer_s_per_byte=(apart * np.add.outer(s_per_byte, s_per_byte)).astype(np.float32),
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
        memory_bytes=graph.weight_bytes.astype(np.float32),
        capacity_bytes=np.array([spec.capacity_bytes for spec in specs], np.float32),
        accelerator=np.where(hosts, -1, np.cumsum(~hosts) - 1).astype(np.int32),
        tensor_bytes=_tensor_bytes(graph),
    )


def _tensor_bytes(graph: OpGraph) -> TensorBytes:
    """Where they are stored, weights and what comes of constants occupy what operations do."""
    stored = _constants(graph)[0] | np.array([kind == "Variable" for kind in graph.op_types])
    copied = graph.edge_bytes.astype(np.float32)
    return TensorBytes(np.where(stored[graph.senders], np.float32(0), copied), copied)


def compute_s(graph: OpGraph, specs: Sequence[DeviceSpec]) -> np.ndarray:
    """Computes seconds, float64 [N, D], of every operation on every described device."""
    demand = _demand(graph)
    # Of a cell, say, and its gradient ('LSTMCellGrad', `placement.graphs.gradients`).
    classes = [_CLASS.get(op_type.removesuffix("Grad"), "vector") for op_type in graph.op_types]
    return np.stack([_compute_s(graph, demand, classes, spec) for spec in specs], axis=1)


def _spec(name: str) -> DeviceSpec:
    kind = name.rstrip("0123456789")
    if kind not in SPECS:
        raise UserError(
            f"device {name!r} is not described; give names of the kinds {', '.join(SPECS)}, "
            "numbered or not"
        )
    return SPECS[kind]


def _compute_s(graph: OpGraph, demand: _Demand, classes: list[str], spec: DeviceSpec) -> np.ndarray:
    """Computes seconds [N] of every operation on one device."""
    flop_per_s = np.array([spec.flop_per_s[each] for each in classes])
    scale = ELEMENT_BYTES[spec.precision] / _MODEL_ELEMENT_BYTES
    moved_bytes = demand.weight_bytes + scale * demand.activation_bytes
    busy_s = np.maximum(graph.flops / flop_per_s, moved_bytes / spec.bytes_per_s)
    return np.where(demand.runs, spec.launch_s + busy_s, 0.0)


def _demand(graph: OpGraph) -> _Demand:
    num_ops = graph.num_ops
    constant, stored_bytes = _constants(graph)
    written = _written_bytes(graph)
    # One edge for each tensor that an operation reads.
    pairs = np.stack([graph.receivers, graph.tensors])
    edges = np.unique(pairs, axis=1, return_index=True)[1]
    senders, readers = graph.senders[edges], graph.receivers[edges]
    of_constant = constant[senders]
    sizes = graph.edge_bytes[edges].astype(np.float64)
    sizes[of_constant] = np.minimum(sizes, stored_bytes[senders])[of_constant]
    picking = np.array([op_type in _PICKING for op_type in graph.op_types])
    most = np.where(picking, written, np.inf)
    sizes = np.minimum(sizes, most[readers])
    own = np.minimum(graph.weight_bytes, most)
    weights = own + np.bincount(readers, np.where(of_constant, sizes, 0), num_ops)
    read = np.bincount(readers, np.where(of_constant, 0, sizes), num_ops)
    free = np.array([op_type in FREE_TYPES for op_type in graph.op_types])
    return _Demand(~(free | constant), weights, read + written)


def _constants(graph: OpGraph) -> tuple[np.ndarray, np.ndarray]:
    """Returns bool [N], what comes of Constants alone, and float64 [N], the bytes stored for it."""
    given = np.array([op_type == "Constant" for op_type in graph.op_types])
    never = np.array([op_type in NEVER_CONSTANT for op_type in graph.op_types])
    reads = np.bincount(graph.receivers, minlength=graph.num_ops) > 0
    each = np.arange(graph.num_ops)
    senders, receivers = dag.quotient(graph.senders, graph.receivers, each)
    edges = dag.sort_edges(dag.topological_order(graph), receivers)
    edges = edges[~given[receivers[edges]]]
    varies: list[bool] = (~given & (never | ~reads)).tolist()
    for sender, receiver in zip(senders[edges].tolist(), receivers[edges].tolist(), strict=True):
        if varies[sender]:
            varies[receiver] = True
    constant = ~np.array(varies)
    edges = edges[constant[receivers[edges]]]
    stored_bytes: list[float] = graph.weight_bytes.astype(np.float64).tolist()
    for sender, receiver in zip(senders[edges].tolist(), receivers[edges].tolist(), strict=True):
        stored_bytes[receiver] += stored_bytes[sender]
    return constant, np.array(stored_bytes)


def _written_bytes(graph: OpGraph) -> np.ndarray:
    """Sums float64 [N]: the tensors that are read; of an operation that nobody reads its first."""
    first = np.unique(graph.tensors, return_index=True)[1]
    written = np.bincount(graph.senders[first], graph.edge_bytes[first], graph.num_ops)
    unread = np.bincount(graph.senders, minlength=graph.num_ops) == 0
    sizes = [_MODEL_ELEMENT_BYTES * math.prod(shape) for shape in graph.output_shapes]
    return np.where(unread, sizes, written)
