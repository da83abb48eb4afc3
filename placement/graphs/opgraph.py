"""Construction and validation of an `OpGraph`; every graph of the package is built here.

Simulators, policies and solvers rely on valid graphs. JAX silently clamps or drops indices out of
range, a cycle never finishes a schedule, and a tensor with two sizes has no transfer cost. Each of
these is an `InvalidGraphError` here. Its one line names the problem, the valid values and a remedy.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from placement.graphs import dag
from placement.types import OpGraph

_MAX_NAMES = 4  # in an error message
_EDGE_FIELDS = ("senders", "receivers", "edge_bytes", "tensors")
_COPY_FIELDS = ("copy_sources", "copy_readers", "copy_bytes", "copy_constants")
_OP_FIELDS = ("flops", "weight_bytes", "colocation", "backward")
_DTYPES = {"flops": np.float64, "backward": bool}  # other arrays have whole numbers


class InvalidGraphError(ValueError):
    """An error in the arrays of a graph; `files.convert` turns it into a `UserError`."""


class OptionalFields(TypedDict, total=False):
    """The fields of a graph that have a default."""

    output_shapes: Sequence[Sequence[int]]  # N tuples of ints; by default every shape is ()
    flops: ArrayLike  # numbers [N], by default zero
    weight_bytes: ArrayLike  # integers [N], by default zero
    colocation: ArrayLike  # integers [N]; by default no operations are co-located
    tensors: ArrayLike  # integers [E], by default the sender: every operation has one output
    backward: ArrayLike  # booleans [N]; by default it is an inference graph
    copy_sources: ArrayLike  # integers [R], each below N; by default there are no copies
    copy_readers: ArrayLike  # integers [R], each below N
    copy_bytes: ArrayLike  # integers [R]
    copy_constants: ArrayLike  # integers [R]
    member_types: Sequence[Sequence[str]]  # N tuples; by default no operations were merged


def make_graph(
    *,
    name: str,
    op_names: Sequence[str],
    op_types: Sequence[str],
    senders: ArrayLike,
    receivers: ArrayLike,
    edge_bytes: ArrayLike,
    **optional: Unpack[OptionalFields],
) -> OpGraph:
    """Builds a valid graph; its arrays are read-only copies of the arguments.

    Args:
      name: of the graph, for reports.
      op_names: N unique strings.
      op_types: N strings.
      senders: integers [E], each below N.
      receivers: integers [E], each below N.
      edge_bytes: integers [E].
      **optional: see `OptionalFields`.

    Raises:
      InvalidGraphError: see `validate`; also for a fraction where an integer is expected.
    """
    num_ops = len(op_names)
    zeros = np.zeros(num_ops)
    fields: dict[str, Any] = {
        "senders": senders,
        "receivers": receivers,
        "edge_bytes": edge_bytes,
        "tensors": senders,
        "output_shapes": [()] * num_ops,
        "flops": zeros,
        "weight_bytes": zeros,
        "colocation": np.arange(num_ops),
        "backward": zeros,
        **dict.fromkeys(_COPY_FIELDS, ()),
        "member_types": (),
        **optional,
    }
    converted: dict[str, Any] = {}
    for field, values in fields.items():
        if field == "output_shapes":
            converted[field] = tuple(tuple(map(int, shape)) for shape in values)
        elif field == "member_types":
            converted[field] = tuple(map(tuple, values))
        elif field in _DTYPES:
            converted[field] = np.array(values, _DTYPES[field])
        else:
            original = np.asarray(values)
            with np.errstate(invalid="ignore"):
                array = np.array(original, np.int64 if field.endswith("_bytes") else np.int32)
            if not np.array_equal(array, original):
                wrong = original[array != original].flat[0]
                raise InvalidGraphError(
                    f"{field} holds {wrong}; pass whole numbers that fit {array.dtype}"
                )
            converted[field] = array
    graph = OpGraph(name=name, op_names=tuple(op_names), op_types=tuple(op_types), **converted)
    for field in (*_EDGE_FIELDS, *_COPY_FIELDS, *_OP_FIELDS):
        getattr(graph, field).flags.writeable = False
    validate(graph)
    return graph


def validate(graph: OpGraph) -> None:
    """Checks the properties of a graph that the rest of the package relies on.

    Raises:
      InvalidGraphError: no operations, wrong lengths, duplicate names, indices out of range, self
        loops, negative or not finite sizes, a tensor with several senders or sizes, or a cycle.
    """
    prefix = f"graph {graph.name!r}"
    if not graph.op_names:
        raise InvalidGraphError(f"{prefix} has no operations; pass at least one")
    for field in (*_EDGE_FIELDS, *_COPY_FIELDS, *_OP_FIELDS):
        shape = getattr(graph, field).shape
        if len(shape) != 1:
            raise InvalidGraphError(f"{prefix}: {field} has shape {shape}; pass a flat array")
    member_types = ("member_types",) if graph.member_types else ()
    for reference, fields in (
        ("op_names", ("op_types", "output_shapes", *_OP_FIELDS)),
        ("senders", _EDGE_FIELDS),
        ("copy_sources", _COPY_FIELDS),
        ("op_names", member_types),
    ):
        expected = len(getattr(graph, reference))
        for field in fields:
            length = len(getattr(graph, field))
            if length != expected:
                raise InvalidGraphError(
                    f"{prefix}: {field} has {length} entries, but {reference} has {expected}; "
                    f"pass one entry in {field} for each in {reference}"
                )

    if len(set(graph.op_names)) < graph.num_ops:
        names, counts = np.unique(np.array(graph.op_names), return_counts=True)
        raise InvalidGraphError(
            f"{prefix}: several operations are named {_quote(names[counts > 1])}; "
            "names must be unique: rename all but one"
        )

    for field in ("senders", "receivers", "copy_sources", "copy_readers"):
        values = getattr(graph, field)
        wrong = np.flatnonzero((values < 0) | (values >= graph.num_ops))
        if len(wrong):
            raise InvalidGraphError(
                f"{prefix}: {field}[{wrong[0]}] is {values[wrong[0]]}, which is not an operation; "
                f"indices go from 0 to {graph.num_ops - 1}: correct or drop the edge"
            )
    loops = np.unique(graph.senders[graph.senders == graph.receivers])
    if len(loops):
        raise InvalidGraphError(
            f"{prefix}: {_quote(graph.op_names[op] for op in loops)} feeds itself; "
            "an edge must join two different operations: drop the self loop"
        )

    for field in ("edge_bytes", "copy_bytes", "flops", "weight_bytes"):
        values = getattr(graph, field)
        wrong = np.flatnonzero(~((values >= 0) & np.isfinite(values)))
        if len(wrong):
            raise InvalidGraphError(
                f"{prefix}: {field}[{wrong[0]}] is {values[wrong[0]]}; sizes must be "
                "finite and not negative: give 0 where a size is unknown"
            )
    for op, shape in zip(graph.op_names, graph.output_shapes, strict=True):
        if min(shape, default=0) < 0:
            raise InvalidGraphError(
                f"{prefix}: operation {op!r} has output shape {shape}; dimensions must "
                "not be negative: fix the model's dynamic dimensions first"
            )

    # Every edge must agree with the first one of its tensor.
    _, first_edge, number = np.unique(graph.tensors, return_index=True, return_inverse=True)
    for field, noun in (("senders", "senders"), ("edge_bytes", "sizes")):
        values = getattr(graph, field)
        wrong = np.flatnonzero(values != values[first_edge][number])
        if len(wrong):
            edge, first = wrong[0], first_edge[number[wrong[0]]]
            raise InvalidGraphError(
                f"{prefix}: edges {first} and {edge} carry tensor {graph.tensors[edge]} with "
                f"different {noun} ({values[first]} and {values[edge]}); "
                "one tensor has one sender and one size: give the tensors different numbers"
            )

    # Of a cyclic graph only a part can be sorted; a component with two nodes has a cycle.
    ends = graph.senders, graph.receivers
    if len(dag.sort_nodes(graph.num_ops, *ends)) < graph.num_ops:
        components = dag.components("strong", graph.num_ops, *ends)
        cycle = np.flatnonzero(components == np.argmax(np.bincount(components) > 1))
        raise InvalidGraphError(
            f"{prefix} has a cycle through {_quote(graph.op_names[op] for op in cycle)}; "
            "a computation graph must be acyclic: unroll the loop or make it one operation"
        )


def _quote(names: Iterable[str]) -> str:
    quoted = [repr(str(name)) for name in names]
    num_omitted = len(quoted) - _MAX_NAMES
    suffix = f" and {num_omitted} more" if num_omitted > 0 else ""
    return ", ".join(quoted[:_MAX_NAMES]) + suffix
