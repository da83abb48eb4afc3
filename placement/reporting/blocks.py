"""Operations in blocks: few enough to draw, and each on one device, so that no crossing is lost.

Three steps, of which each splits what the one before left together:

1. *Stages.* The devices take turns, and each takes with it all that it can by then:

       stage(v) = the least t >= max over u -> v of stage(u) with t mod D = device(v)

   so that a stage is of one device, edges lead from a stage to the same or a later one, and two
   parts of a device are in one stage unless another device has to run between them.
2. *Bands.* Layers (`layout.layers`) are cut into bands of equal width. Within a stage no path leads
   from a band to an earlier one.
3. *Components.* What no edges join within a stage and band are blocks of their own. No path leads
   from one to another: it would pass through their stage and band only.

Sorted by stage, then by band, blocks are thus in topological order. The narrowest bands win that
leave few enough blocks; where even one band leaves too many, the components of a stage and band
stay together, side by side.
"""

import math
from collections import Counter

import numpy as np

from placement.graphs import dag
from placement.reporting import layout
from placement.reporting.details import Details
from placement.types import OpGraph

_WIDENING = 1.2  # from one width of bands that is tried to the next
_SHOWN_TYPES = 2


def blocks(details: Details, most: int) -> np.ndarray:
    """Groups the coarse operations into blocks for drawing.

    Args:
      details: M coarse operations.
      most: how many blocks are wanted at most.

    Returns:
      int32 [M]: the block of every coarse operation; a block is on one device, and the quotient
      graph is acyclic. `arange(M)` where M <= most, else numbered in topological order. Where the
      devices alternate so finely that there are more than `most` stages, those are the blocks.
    """
    coarse = details.coarse
    if coarse.num_ops <= most:
        return np.arange(coarse.num_ops, dtype=np.int32)
    stage = _stages(details)
    layer = layout.layers(coarse.num_ops, coarse.senders, coarse.receivers)
    if len(np.unique(stage)) >= most:
        return _numbered(stage)
    for apart in (True, False):  # the components of a band
        for width in _widths(int(layer.max()) + 1):
            band = layer // width
            joined = _components(coarse, stage, band) if apart else np.zeros_like(band)
            found = _numbered(stage, band, joined)
            if found.max() < most:
                return found
    return _numbered(stage)


def names(details: Details, parts: np.ndarray) -> tuple[str, ...]:
    """A short name for each block: its operation's, or how many it has and what takes longest.

    Args:
      details: M coarse operations, of which names count those that they stand for.
      parts: int32 [M]: the block of every coarse operation.
    """
    graph, chosen = details.graph, details.op_placement
    seconds = details.compute_s[np.arange(graph.num_ops), chosen]
    members: list[list[int]] = [[] for _ in range(int(parts.max()) + 1)]
    for op, block in enumerate(parts[details.assignment].tolist()):
        members[block].append(op)
    return tuple(_name(graph, ops, seconds) for ops in members)


def _name(graph: OpGraph, ops: list[int], seconds: np.ndarray) -> str:
    if len(ops) == 1:
        return graph.op_names[ops[0]]
    counts, spent_s = Counter[str](), Counter[str]()
    for op in ops:
        counts[graph.op_types[op]] += 1
        spent_s[graph.op_types[op]] += seconds[op]
    longest = [kind for kind, _ in spent_s.most_common(_SHOWN_TYPES)]
    texts = (f"{kind} x{counts[kind]}" if counts[kind] > 1 else kind for kind in longest)
    return f"{len(ops)} ops: {', '.join(texts)}"


def _stages(details: Details) -> np.ndarray:
    """int64 [M]."""
    coarse, num_devices = details.coarse, len(details.devices)
    starts, readers = dag.successors(coarse.num_ops, coarse.senders, coarse.receivers)
    device, stage = details.placement.tolist(), details.placement.tolist()
    for op in dag.topological_order(coarse).tolist():
        for reader in readers[starts[op] : starts[op + 1]].tolist():
            waits = (device[reader] - stage[op]) % num_devices
            stage[reader] = max(stage[reader], stage[op] + waits)
    return np.array(stage)


def _widths(num_layers: int) -> list[int]:
    """Ascending, from one layer to all."""
    count = math.ceil(math.log(num_layers, _WIDENING)) + 1
    return (
        np.unique(np.ceil(_WIDENING ** np.arange(count)).clip(max=num_layers)).astype(int).tolist()
    )


def _components(coarse: OpGraph, stage: np.ndarray, band: np.ndarray) -> np.ndarray:
    """int32 [M]: equal numbers for what edges join without leaving stage and band."""
    senders, receivers = coarse.senders, coarse.receivers
    inside = (stage[senders] == stage[receivers]) & (band[senders] == band[receivers])
    return dag.weak_components(coarse.num_ops, senders[inside], receivers[inside])


def _numbered(*keys: np.ndarray) -> np.ndarray:
    """int32 [M]: equal numbers for equal keys, in their order, the first of which weighs most."""
    return np.unique(np.stack(keys), axis=1, return_inverse=True)[1].astype(np.int32)
