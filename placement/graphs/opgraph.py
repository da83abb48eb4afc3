"""Builds and validates an `OpGraph`, the one gate through which every graph enters.

What lies behind the gate (simulators, policies, solvers) trusts its graphs: JAX clamps an index
out of range and drops others in silence, a cycle stalls a schedule, and a tensor with two sizes
has no transfer cost. So each of these is an `InvalidGraphError` here, with a line that says what
was given, what is valid and how to mend it.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from placement.graphs import dag
from placement.types import OpGraph

_SHOWN = 4  # how many culprits an error names
_EDGE_ARRAYS = ("senders", "receivers", "edge_bytes", "tensors")
_OP_ARRAYS = ("flops", "weight_bytes", "colocation", "backward")


class InvalidGraphError(ValueError):
    """Arrays that are no graph. Whoever read them from a user's file tells so (`UserError`)."""


def make(
    *,
    name: str,
    op_names: Sequence[str],
    op_types: Sequence[str],
    senders: ArrayLike,
    receivers: ArrayLike,
    edge_bytes: ArrayLike,
    output_shapes: Sequence[Sequence[int]] | None = None,
    flops: ArrayLike | None = None,
    weight_bytes: ArrayLike | None = None,
    colocation: ArrayLike | None = None,
    tensors: ArrayLike | None = None,
    backward: ArrayLike | None = None,
    member_types: Sequence[Sequence[str]] = (),
) -> OpGraph:
    """Builds a valid graph whose arrays are read-only copies of what was given.

    Args:
      name: of the graph, for reports.
      op_names: N unique strings.
      op_types: N strings.
      senders: integers [E], each below N.
      receivers: integers [E], each below N.
      edge_bytes: integers [E].
      output_shapes: N tuples of ints; by default every shape is ().
      flops: numbers [N], by default zero.
      weight_bytes: integers [N], by default zero.
      colocation: integers [N], by default all different: nothing is co-located.
      tensors: integers [E], by default the sender: every operation has one output.
      backward: booleans [N], by default all false: an inference graph.
      member_types: N tuples of strings, by default none: nothing was merged.

    Raises:
      InvalidGraphError: see `validate`; also for a number that is not whole where one must be.
    """
    num_ops = len(op_names)
    shapes = [()] * num_ops if output_shapes is None else output_shapes
    graph = OpGraph(
        name=name,
        op_names=tuple(op_names),
        op_types=tuple(op_types),
        senders=_whole(senders, np.int32, "senders"),
        receivers=_whole(receivers, np.int32, "receivers"),
        edge_bytes=_whole(edge_bytes, np.int64, "edge_bytes"),
        tensors=_whole(senders if tensors is None else tensors, np.int32, "tensors"),
        output_shapes=tuple(tuple(map(int, shape)) for shape in shapes),
        flops=_read_only(np.array(np.zeros(num_ops) if flops is None else flops, np.float64)),
        weight_bytes=_whole(
            np.zeros(num_ops) if weight_bytes is None else weight_bytes, np.int64, "weight_bytes"
        ),
        colocation=_whole(
            np.arange(num_ops) if colocation is None else colocation, np.int32, "colocation"
        ),
        backward=_read_only(np.array(np.zeros(num_ops) if backward is None else backward, bool)),
        member_types=tuple(map(tuple, member_types)),
    )
    validate(graph)
    return graph


def validate(graph: OpGraph) -> None:
    """Checks everything that the rest of the package relies on.

    Raises:
      InvalidGraphError: no operations, wrong lengths, duplicate names, indices out of range, self
        loops, negative or not finite sizes, a tensor with several senders or sizes, or a cycle.
    """
    _check_lengths(graph)
    _check_names(graph)
    _check_indices(graph)
    _check_sizes(graph)
    _check_tensors(graph)
    _check_cycles(graph)


def representatives(graph: OpGraph) -> np.ndarray:
    """Returns int32 [N]: the first operation co-located with each, itself where it is alone."""
    _, first, number = np.unique(graph.colocation, return_index=True, return_inverse=True)
    return first[number].astype(np.int32)


def _check_lengths(graph: OpGraph) -> None:
    if not graph.op_names:
        raise InvalidGraphError(f"graph {graph.name!r} has no operations; give at least one")
    for field in (*_EDGE_ARRAYS, *_OP_ARRAYS):
        shape = getattr(graph, field).shape
        if len(shape) != 1:
            raise InvalidGraphError(
                f"graph {graph.name!r}: {field} has shape {shape}; give a flat array"
            )
    for field in ("op_types", "output_shapes", *_OP_ARRAYS):
        _check_length(graph, field, "op_names")
    for field in _EDGE_ARRAYS:
        _check_length(graph, field, "senders")
    if graph.member_types:
        _check_length(graph, "member_types", "op_names")


def _check_length(graph: OpGraph, field: str, like: str) -> None:
    given, expected = len(getattr(graph, field)), len(getattr(graph, like))
    if given != expected:
        raise InvalidGraphError(
            f"graph {graph.name!r}: {field} has {given} entries, but {like} has {expected}; "
            f"give one entry in {field} for each in {like}"
        )


def _check_names(graph: OpGraph) -> None:
    if len(set(graph.op_names)) == graph.num_ops:
        return
    names, counts = np.unique(np.array(graph.op_names), return_counts=True)
    raise InvalidGraphError(
        f"graph {graph.name!r}: several operations are named {_shown(names[counts > 1])}; "
        "names must be unique: rename all but one"
    )


def _check_indices(graph: OpGraph) -> None:
    for field in ("senders", "receivers"):
        values = getattr(graph, field)
        wrong = np.flatnonzero((values < 0) | (values >= graph.num_ops))
        if len(wrong):
            raise InvalidGraphError(
                f"graph {graph.name!r}: {field}[{wrong[0]}] is {values[wrong[0]]}, which is no "
                f"operation; indices go from 0 to {graph.num_ops - 1}: correct or drop the edge"
            )
    loops = np.unique(graph.senders[graph.senders == graph.receivers])
    if len(loops):
        raise InvalidGraphError(
            f"graph {graph.name!r}: {_shown(graph.op_names[op] for op in loops)} feeds itself; "
            "an edge must join two different operations: drop the self loop"
        )


def _check_sizes(graph: OpGraph) -> None:
    for field in ("edge_bytes", "flops", "weight_bytes"):
        values = getattr(graph, field)
        wrong = np.flatnonzero(~((values >= 0) & np.isfinite(values)))
        if len(wrong):
            raise InvalidGraphError(
                f"graph {graph.name!r}: {field}[{wrong[0]}] is {values[wrong[0]]}; sizes must be "
                "finite and not negative: give 0 where a size is unknown"
            )
    for op, shape in zip(graph.op_names, graph.output_shapes, strict=True):
        if min(shape, default=0) < 0:
            raise InvalidGraphError(
                f"graph {graph.name!r}: operation {op!r} has output shape {shape}; dimensions must "
                "not be negative: fix the model's dynamic dimensions first"
            )


def _check_tensors(graph: OpGraph) -> None:
    _, first, number = np.unique(graph.tensors, return_index=True, return_inverse=True)
    for field, what in (("senders", "senders"), ("edge_bytes", "sizes")):
        values = getattr(graph, field)
        wrong = np.flatnonzero(values != values[first][number])
        if len(wrong):
            edge, other = wrong[0], first[number[wrong[0]]]
            raise InvalidGraphError(
                f"graph {graph.name!r}: edges {other} and {edge} carry tensor "
                f"{graph.tensors[edge]} with different {what} ({values[other]} and {values[edge]});"
                " one tensor has one sender and one size: number the tensors apart"
            )


def _check_cycles(graph: OpGraph) -> None:
    order = dag.sort_nodes(graph.num_ops, graph.senders, graph.receivers)
    if len(order) == graph.num_ops:
        return
    parts = dag.strong_components(graph.num_ops, graph.senders, graph.receivers)
    sizes = np.bincount(parts)
    cycle = np.flatnonzero(parts == np.argmax(sizes > 1))
    raise InvalidGraphError(
        f"graph {graph.name!r} has a cycle through {_shown(graph.op_names[op] for op in cycle)}; "
        "a computation graph must be acyclic: unroll the loop or make it one operation"
    )


def _shown(names: Iterable[str]) -> str:
    quoted = [repr(str(name)) for name in names]
    more = len(quoted) - _SHOWN
    return ", ".join(quoted[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _whole(values: ArrayLike, dtype: DTypeLike, field: str) -> np.ndarray:
    given = np.asarray(values)
    with np.errstate(invalid="ignore"):
        array = np.array(given, dtype)
    if not np.array_equal(array, given):
        wrong = given[array != given].flat[0]
        raise InvalidGraphError(f"{field} holds {wrong}; give whole numbers that fit {array.dtype}")
    return _read_only(array)


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
