"""Placements of models with variables that HETERO runs correctly.

A part is a connected set of operations on one device. If a part depends on itself through another
device, HETERO splits it, and could then read a variable in another submodel than the one that
writes it (`placement.runtime.execution.hetero`). Such a placement is refused. The only remedy is to
move the operations between the halves of the part, so that the cycle of parts lies on one device.
"""

import numpy as np

from placement.graphs import dag
from placement.instance import Instance
from placement.types import OpGraph

_WRITES_VARIABLE = "Assign"


def remove_cycles(
    graph: OpGraph, assignment: np.ndarray, coarse: Instance, placement: np.ndarray
) -> np.ndarray:
    """Returns the nearest placement in which no part with a variable depends on itself.

    All parts on a cycle with such a part move to the device that computes them fastest. Moved
    operations can join other parts and close new cycles, so this repeats until there is none. Each
    repetition leaves fewer parts.

    Args:
      graph: the N operations of a model.
      assignment: int32 [N], the coarse operation of each operation.
      coarse: the problem of the M coarse operations.
      placement: int32 [M].

    Returns:
      int32 [M]; the argument itself if nothing moves, or if no device supports all operations of a
      cycle.
    """
    writers = np.flatnonzero(np.array(graph.op_types) == _WRITES_VARIABLE)
    if not len(writers):
        return placement
    compute_s = np.asarray(coarse.costs.compute_s, np.float64)
    result = placement
    while True:
        parts = dag.connected_parts(graph, result[assignment])
        num_parts = int(parts.max()) + 1
        cycles = dag.strong_components(
            num_parts, *dag.quotient(graph.senders, graph.receivers, parts)
        )
        sizes = np.bincount(cycles)
        cyclic = [cycle for cycle in np.unique(cycles[parts[writers]]) if sizes[cycle] > 1]
        if not cyclic:
            return result
        members = np.unique(assignment[cycles[parts] == cyclic[0]])  # coarse operations
        total_s = compute_s[members].sum(axis=0)  # [D]
        if not np.isfinite(total_s).any():
            return placement
        result = result.copy()
        result[members] = total_s.argmin()
