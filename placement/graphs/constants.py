"""Constants: devices do not send them to each other, because each device has copies.

HETERO and the concurrent executor give every part of a model its own copies of the constants that
it reads, and of what is computed from constants alone, such as the Convert of a float16 weight
(`runtime.execution.hetero`, `runtime.execution.split`). No tensor crosses for these, and no reader
waits for another. So a graph has no edge from a constant to a reader that is not co-located with
it. It keeps such pairs in `OpGraph.copy_sources` and the fields after it.

Every device with a reader holds the constant in its memory. The device of the constant itself
counts it among the weights of the operation. Any other device counts it once, however many readers
it has (`simulators.ConstantCopies`).
"""

import dataclasses

import numpy as np

from placement.graphs import dag
from placement.graphs.op_types import NEVER_CONSTANT
from placement.types import OpGraph


def list_reads(graph: OpGraph) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ends of all edges and copies, senders and receivers, int32 [E + R] each.

    Of a merged graph it returns the edges alone: an operation that holds a constant can come after
    one that reads it.
    """
    if graph.member_types:
        return graph.senders, graph.receivers
    senders = np.concatenate([graph.senders, graph.copy_sources])
    return senders, np.concatenate([graph.receivers, graph.copy_readers])


def find_constants(graph: OpGraph) -> tuple[np.ndarray, np.ndarray]:
    """Finds the operations that depend on Constants only.

    Returns:
      bool [N], whether each operation is a Constant or depends on Constants only, and float64 [N],
      the bytes that the model stores for it.
    """
    is_source = np.array([op_type == "Constant" for op_type in graph.op_types])
    is_never_constant = np.array([op_type in NEVER_CONSTANT for op_type in graph.op_types])
    reads = list_reads(graph)
    has_inputs = np.bincount(reads[1], minlength=graph.num_ops) > 0
    senders, receivers = dag.quotient(*reads, np.arange(graph.num_ops))
    edges = dag.sort_edges(dag.sort_nodes(graph.num_ops, *reads), receivers)
    edges = edges[~is_source[receivers[edges]]]
    # Lists, because indexing arrays one element at a time is slow.
    varies: list[bool] = (~is_source & (is_never_constant | ~has_inputs)).tolist()
    for sender, receiver in zip(senders[edges].tolist(), receivers[edges].tolist(), strict=True):
        if varies[sender]:
            varies[receiver] = True
    is_constant = ~np.array(varies)
    edges = edges[is_constant[receivers[edges]]]
    stored_bytes: list[float] = graph.weight_bytes.astype(np.float64).tolist()
    for sender, receiver in zip(senders[edges].tolist(), receivers[edges].tolist(), strict=True):
        stored_bytes[receiver] += stored_bytes[sender]
    return is_constant, np.array(stored_bytes)


def copy_to_readers(graph: OpGraph) -> OpGraph:
    """Replaces the edges from constants to readers that are not co-located with them by copies.

    A copy has the bytes that the model stores for the tensor, or those of the tensor if these are
    fewer. A graph without such edges is returned as it is.

    Args:
      graph: a graph with its constants as operations, of inference: training changes weights.
    """
    is_constant, stored_bytes = find_constants(graph)
    is_copied = is_constant[graph.senders] & (
        graph.colocation[graph.senders] != graph.colocation[graph.receivers]
    )
    if not is_copied.any():
        return graph
    edges = np.flatnonzero(is_copied)
    pairs = np.stack([graph.tensors[edges], graph.receivers[edges]])
    edges = edges[np.unique(pairs, axis=1, return_index=True)[1]]  # of each pair the first
    num_bytes = np.minimum(stored_bytes[graph.senders[edges]], graph.edge_bytes[edges])
    copies = {
        "copy_sources": graph.senders[edges],
        "copy_readers": graph.receivers[edges],
        "copy_bytes": num_bytes.astype(np.int64),
        "copy_constants": graph.tensors[edges],
    }
    fields = ("senders", "receivers", "edge_bytes", "tensors")
    remaining = {field: getattr(graph, field)[~is_copied] for field in fields}
    for array in (*copies.values(), *remaining.values()):
        array.setflags(write=False)
    return dataclasses.replace(graph, **remaining, **copies)
