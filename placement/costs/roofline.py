"""Cost models of described hardware, which are the same on every machine.

The roofline model: an operation takes as long as the slower of computing and moving data,

    compute_s = launch_s + max(flops / flop_per_s[class], moved_bytes / bytes_per_s),

    moved_bytes = weights + (activations read, written) * element_bytes / 4 / activation_speedup,

where each tensor counts once, with its bytes in the model. Weights count as the model stores them,
however they are converted before they are read. So a graph with constants and the same graph
without them cost the same (but the latter counts a shared constant only for its first reader).
Activations are taken to be float32 in the model, as they are in OpenVINO's compressed models; a
device that infers in f16 moves half of their bytes. An operation that selects elements
(`_SELECTING_TYPES`) reads no more of an input than it writes. Tensors cross between devices with
their bytes in the model.

Departures from real plug-ins: nothing is fused and no tensor stays in a cache, whereas plug-ins
append element-wise operations to the convolution or product before them. Every device supports
every operation.

`docs/DEVICES.md` derives every number in `SPECS`, and says which are published and which assumed.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from placement import arguments
from placement.costs import tables
from placement.graphs import constants
from placement.types import CostModel, OpGraph

PREFIX = "roofline:"


class DeviceSpec(NamedTuple):
    """The rates that a device sustains, which are below its peak rates."""

    kind: str
    summary: str  # the hardware, in one line
    flop_per_s: Mapping[str, float]  # for each class of operations (`_CLASS`), at this precision
    bytes_per_s: float  # bandwidth of its memory
    launch_s: float  # time to launch one operation
    host: bool = False  # whether it computes from host memory, where tensors are handed over
    precision: str = "f16"  # the precision of inference, a key of `ELEMENT_BYTES`
    activation_speedup: float = 1.0  # over weights: caches and fused operations spare memory
    capacity_bytes: float = math.inf  # size of its memory; inf if it is that of the host
    link_latency_s: float = 0.0  # latency of one tensor on its way to or from host memory
    link_bytes_per_s: float = math.inf


ELEMENT_BYTES = {"f32": 4, "f16": 2}


def _rates(*flop_per_s: float) -> dict[str, float]:
    """Returns the rates of the classes of operations."""
    return dict(zip(("matmul", "convolution", "depthwise", "vector"), flop_per_s, strict=True))


SPECS: dict[str, DeviceSpec] = {
    spec.kind: spec
    for spec in (
        DeviceSpec(
            kind="cpu",
            summary="Intel Core Ultra 5 245K: its 6 P-cores, DDR5-6400 in two channels",
            host=True,
            precision="f32",
            flop_per_s=_rates(0.7 * 806.4e9, 0.7 * 806.4e9, 0.2 * 806.4e9, 0.25 * 806.4e9),
            bytes_per_s=0.8 * 102.4e9,
            launch_s=1e-6,
        ),
        DeviceSpec(
            kind="igpu",
            summary="assumed, for the suite's problems: graphics of 4 Xe-cores without XMX",
            flop_per_s=_rates(0.6 * 3891.2e9, 0.6 * 3891.2e9, 0.2 * 3891.2e9, 0.25 * 3891.2e9),
            bytes_per_s=0.8 * 102.4e9,
            launch_s=5e-6,
            capacity_bytes=16 * 2.0**30,
            link_latency_s=10e-6,
            link_bytes_per_s=0.4 * 102.4e9,
        ),
        DeviceSpec(
            kind="gpu",
            summary="Intel Arc B580: 12 GB GDDR6, PCIe 4.0 x8",
            flop_per_s=_rates(0.25 * 116_500e9, 0.25 * 116_500e9, 0.2 * 27_340e9, 0.25 * 27_340e9),
            bytes_per_s=0.8 * 456e9,
            launch_s=5e-6,
            capacity_bytes=12 * 2.0**30,
            link_latency_s=20e-6,
            link_bytes_per_s=0.8 * 15.754e9,
        ),
        DeviceSpec(
            kind="npu",
            summary="assumed, for the suite's problems: an NPU of 2 tiles",
            flop_per_s=_rates(0.5 * 6500e9, 0.5 * 6500e9, 0.1 * 6500e9, 0.25 * 101.6e9),
            bytes_per_s=0.4 * 102.4e9,
            launch_s=2e-6,
            capacity_bytes=16 * 2.0**30,
            link_latency_s=50e-6,
            link_bytes_per_s=0.4 * 102.4e9,
        ),
        # Fitted to published latencies of OpenVINO: every second row of each source, and the rate
        # of BERT, the only network of products (docs/DEVICES.md).
        DeviceSpec(
            kind="laptop_155h_cpu",
            summary="laptop with Intel Core Ultra 7 155H: its P-cores and E-cores, LPDDR5x-7467",
            flop_per_s=_rates(756e9, 473e9, 48.2e9, 48.2e9),
            bytes_per_s=0.8 * 119.5e9,
            launch_s=3.64e-6,
            host=True,
            precision="f32",
            activation_speedup=2.03,
        ),
        DeviceSpec(
            kind="laptop_155h_igpu",
            summary="its Arc graphics: 8 Xe-cores without XMX",
            flop_per_s=_rates(7350e9, 3470e9, 430e9, 430e9),
            bytes_per_s=0.8 * 119.5e9,
            launch_s=11.9e-6,
            link_latency_s=45e-6,
            link_bytes_per_s=0.4 * 119.5e9,
        ),
        DeviceSpec(
            kind="laptop_155h_npu",
            summary="its NPU: 2 tiles",
            flop_per_s=_rates(2680e9, 1800e9, 333e9, 333e9),
            bytes_per_s=0.63 * 119.5e9,
            launch_s=7.83e-6,
            link_latency_s=90e-6,
            link_bytes_per_s=0.4 * 119.5e9,
        ),
        # Fitted to three sizes of YOLO26, and ResNet-18 on the NPU. No product is published.
        DeviceSpec(
            kind="laptop_358h_cpu",
            summary="laptop with Intel Core Ultra X7 358H: its cores, LPDDR5x-9600",
            flop_per_s=_rates(1010e9, 1010e9, 400e9, 400e9),
            bytes_per_s=0.55 * 153.6e9,
            launch_s=9.97e-6,
            host=True,
            precision="f32",
        ),
        DeviceSpec(
            kind="laptop_358h_igpu",
            summary="its Arc graphics: 12 Xe-cores with XMX",
            flop_per_s=_rates(42_700e9, 42_700e9, 1500e9, 1500e9),
            bytes_per_s=0.8 * 153.6e9,
            launch_s=9.12e-6,
            activation_speedup=3.78,
            link_latency_s=45e-6,
            link_bytes_per_s=0.4 * 153.6e9,
        ),
        DeviceSpec(
            kind="laptop_358h_npu",
            summary="its NPU of 50 TOPS",
            flop_per_s=_rates(17_500e9, 17_500e9, 1000e9, 1000e9),
            bytes_per_s=0.63 * 153.6e9,
            launch_s=11.4e-6,
            activation_speedup=1.93,
            link_latency_s=90e-6,
            link_bytes_per_s=0.4 * 153.6e9,
        ),
        # For the next two, the fraction of the peak and the launch time are fitted to published run
        # times of training steps (docs/DEVICES.md).
        DeviceSpec(
            kind="server_cpu",
            summary="a server of 2018: Intel Xeon E5-2699 v3 (Haswell), 18 cores, TensorFlow 1",
            host=True,
            precision="f32",
            flop_per_s=_rates(*[0.181 * 1324.8e9] * 4),
            bytes_per_s=0.8 * 68.256e9,
            launch_s=367e-6,
        ),
        DeviceSpec(
            kind="server_gpu",
            summary="the server's accelerators: halves of NVIDIA Tesla K80, 12 GB, PCIe 3.0 x16",
            precision="f32",
            flop_per_s=_rates(*[0.236 * 4370e9] * 4),
            bytes_per_s=0.8 * 240e9,
            launch_s=121e-6,
            capacity_bytes=12 * 15 / 16 * 2.0**30,
            link_latency_s=20e-6,
            link_bytes_per_s=0.8 * 15.754e9,
        ),
    )
}

# Operation type -> class. Every other type is in the class 'vector'.
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
    **{f"GroupConvolution{name}": "depthwise" for name in ("", "BackpropData", "BackpropFilter")},
}

# The ends of the model, and operations that only give the same bytes another shape. They are not
# launched and move no data. The same holds for operations on constants alone, which run once, at
# compilation.
FREE_TYPES = frozenset(
    {"Parameter", "Constant", "Variable", "Result", "Reshape", "Squeeze", "Unsqueeze", "ShapeOf"}
)
_SELECTING_TYPES = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "StridedSlice"})
_MODEL_ELEMENT_BYTES = 4


def parse_devices(spec: str) -> tuple[str, ...]:
    """Returns the names of described devices, in the order of a placement's indices.

    Repeated kinds are numbered: 'roofline:cpu,gpu,gpu' gives ('cpu', 'gpu0', 'gpu1').

    Raises:
      UserError: a kind is not in `SPECS`.
    """
    kinds = [kind.strip() for kind in spec.strip().removeprefix(PREFIX).split(",")]
    for kind in kinds:
        arguments.check_choice("kind", kind, SPECS, context=f"devices {spec!r}")
    counts = Counter(kinds)
    return tuple(
        kind if counts[kind] == 1 else f"{kind}{kinds[:i].count(kind)}"
        for i, kind in enumerate(kinds)
    )


def cost_model(graph: OpGraph, names: tuple[str, ...]) -> CostModel:
    """Returns the cost model of a graph on described devices.

    A tensor goes from one accelerator to another through host memory, in two successive transfers:
    their latencies add up, and so do their seconds per byte. Hosts share their memory, so that
    nothing is transferred between them. An operation occupies the memory of its weights; a tensor
    occupies its bytes in the model as long as it is alive.

    Args:
      graph: N operations.
      names: D devices, named as `parse_devices` names them.

    Raises:
      UserError: a name is not that of a kind.
    """
    specs = []
    for name in names:
        kind = name.rstrip("0123456789")
        arguments.check_choice("kind", kind, SPECS)
        specs.append(SPECS[kind])
    off_diagonal = 1 - np.eye(len(specs))
    latency_s = np.array([spec.link_latency_s for spec in specs])
    s_per_byte = np.array([1 / spec.link_bytes_per_s for spec in specs])
    is_host = np.array([spec.host for spec in specs])
    return CostModel(
        compute_s=compute_s(graph, specs).astype(np.float32),
        transfer_latency_s=(off_diagonal * np.add.outer(latency_s, latency_s)).astype(np.float32),
        transfer_s_per_byte=(off_diagonal * np.add.outer(s_per_byte, s_per_byte)).astype(
            np.float32
        ),
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
        memory_bytes=graph.weight_bytes.astype(np.float32),
        capacity_bytes=np.array([spec.capacity_bytes for spec in specs], np.float32),
        accelerator=np.where(is_host, -1, np.cumsum(~is_host) - 1).astype(np.int32),
        tensor_bytes=tables.find_tensor_bytes(graph),
    )


def compute_s(graph: OpGraph, specs: Sequence[DeviceSpec]) -> np.ndarray:
    """Computes the seconds of every operation on every described device, float64 [N, D]."""
    num_ops = graph.num_ops
    is_constant, stored_bytes = constants.find_constants(graph)

    # Bytes written: the tensors that are read, or the first output of an operation without readers.
    first_edges = np.unique(graph.tensors, return_index=True)[1]
    written_bytes = np.bincount(graph.senders[first_edges], graph.edge_bytes[first_edges], num_ops)
    is_unread = np.bincount(graph.senders, minlength=num_ops) == 0
    output_bytes = [_MODEL_ELEMENT_BYTES * math.prod(shape) for shape in graph.output_shapes]
    written_bytes = np.where(is_unread, output_bytes, written_bytes)

    # Bytes read, from one edge for each pair of an operation and a tensor that it reads. What comes
    # from constants counts as weights, and no more of it than is stored.
    pairs = np.stack([graph.receivers, graph.tensors])
    edges = np.unique(pairs, axis=1, return_index=True)[1]
    senders, readers = graph.senders[edges], graph.receivers[edges]
    reads_constant = is_constant[senders]
    read_bytes = graph.edge_bytes[edges].astype(np.float64)
    read_bytes[reads_constant] = np.minimum(read_bytes, stored_bytes[senders])[reads_constant]
    is_selecting = np.array([op_type in _SELECTING_TYPES for op_type in graph.op_types])
    max_read_bytes = np.where(is_selecting, written_bytes, np.inf)
    read_bytes = np.minimum(read_bytes, max_read_bytes[readers])
    weight_bytes = np.minimum(graph.weight_bytes, max_read_bytes) + np.bincount(
        readers, np.where(reads_constant, read_bytes, 0), num_ops
    )
    copied_bytes = np.minimum(graph.copy_bytes, max_read_bytes[graph.copy_readers])
    weight_bytes += np.bincount(graph.copy_readers, copied_bytes, num_ops)
    activation_bytes = written_bytes + np.bincount(
        readers, np.where(reads_constant, 0, read_bytes), num_ops
    )

    is_free = np.array([op_type in FREE_TYPES for op_type in graph.op_types])
    is_launched = ~(is_free | is_constant)
    # A gradient such as 'LSTMCellGrad' (`placement.graphs.gradients`) is in its operation's class.
    classes = [_CLASS.get(op_type.removesuffix("Grad"), "vector") for op_type in graph.op_types]
    columns = []
    for spec in specs:
        flop_per_s = np.array([spec.flop_per_s[op_class] for op_class in classes])
        scale = ELEMENT_BYTES[spec.precision] / _MODEL_ELEMENT_BYTES / spec.activation_speedup
        moved_bytes = weight_bytes + scale * activation_bytes
        busy_s = np.maximum(graph.flops / flop_per_s, moved_bytes / spec.bytes_per_s)
        columns.append(np.where(is_launched, spec.launch_s + busy_s, 0.0))
    return np.stack(columns, axis=1)
