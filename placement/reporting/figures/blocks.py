"""Operations in blocks: few enough to draw, and each on one device, so that no crossing is lost.

Three steps, of which each splits what the one before left together:

1. *Stages.* The devices take turns, and each takes with it all that it can by then:

       stage(v) = the least t >= max over u -> v of stage(u) with t mod D = device(v)

   so that a stage is of one device, edges lead from a stage to the same or a later one, and two
   parts of a device are in one stage unless another device has to run between them.
2. *Bands.* Layers (`layout.layers`) are cut into bands of equal width. Within a stage no path leads
   from a band to an earlier one.
3. *Components.* What no edges join within a stage and band are blocks of their own, unless they are
   more than six: many branches that are alike are one block. No path leads from one component to
   another: it would pass through their stage and band only.

Sorted by stage, then by band, blocks are thus in topological order. The narrowest bands win that
leave few enough blocks; where even one band leaves too many, the components of a stage and band
stay together, side by side.
"""

import math
from collections import Counter

import numpy as np

from placement.graphs import dag
from placement.reporting.details import Details
from placement.reporting.figures import layout
from placement.types import OpGraph

_WIDENING = 1.2  # from one width of bands that is tried to the next
_MOST_BESIDE = 6  # components of a stage and band
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
    for most_beside in (_MOST_BESIDE, 1):
        for width in _widths(int(layer.max()) + 1):
            parts = _components(coarse, _numbered(stage, layer // width), most_beside)
            if parts.max() < most:
                return parts
    return _numbered(stage)


def names(details: Details, parts: np.ndarray) -> tuple[str, ...]:
    """Names each block: its operation's name, or how many it has and what takes longest.

    Args:
      details: M coarse operations, of which names count those that they stand for.
      parts: int32 [M]: the block of every coarse operation.
    """
    counts = np.bincount(parts[details.assignment])
    return tuple(
        f"{head}: {', '.join(kinds)}" if count > 1 else head
        for count, (head, *kinds) in zip(counts, summaries(details, parts), strict=True)
    )


def summaries(details: Details, parts: np.ndarray) -> list[list[str]]:
    """Says of each block what it is, the most telling first: 'conv1', 'Convolution'.

    Of several: '12 ops', 'Convolution x5', 'Add x3', the types that take longest in the lead.
    """
    members: list[list[int]] = [[] for _ in range(int(parts.max()) + 1)]
    for op, block in enumerate(parts[details.assignment].tolist()):
        members[block].append(op)
    seconds = details.op_compute_s
    return [_summary(details.graph, ops, seconds) for ops in members]


def _summary(graph: OpGraph, ops: list[int], seconds: np.ndarray) -> list[str]:
    if len(ops) == 1:
        return [graph.op_names[ops[0]], graph.op_types[ops[0]]]
    counts, spent_s = Counter[str](), Counter[str]()
    for op in ops:
        counts[graph.op_types[op]] += 1
        spent_s[graph.op_types[op]] += seconds[op]
    longest = [kind for kind, _ in spent_s.most_common(_SHOWN_TYPES)]
    kinds = [f"{kind} x{counts[kind]}" if counts[kind] > 1 else kind for kind in longest]
    return [f"{len(ops)} ops", *kinds]


def _stages(details: Details) -> np.ndarray:
    """Returns int64 [M]: the stage of every coarse operation."""
    coarse, num_devices = details.coarse, len(details.devices)
    starts, readers = dag.successors(coarse.num_ops, coarse.senders, coarse.receivers)
    device, stage = details.placement.tolist(), details.placement.tolist()
    for op in dag.topological_order(coarse).tolist():
        for reader in readers[starts[op] : starts[op + 1]].tolist():
            waits = (device[reader] - stage[op]) % num_devices
            stage[reader] = max(stage[reader], stage[op] + waits)
    return np.array(stage)


def _widths(num_layers: int) -> list[int]:
    """Returns the widths of bands, ascending from one layer to all."""
    count = math.ceil(math.log(num_layers, _WIDENING)) + 1
    return (
        np.unique(np.ceil(_WIDENING ** np.arange(count)).clip(max=num_layers)).astype(int).tolist()
    )


def _components(coarse: OpGraph, parts: np.ndarray, most: int) -> np.ndarray:
    """Returns int32 [M]: what edges join within a part; the part where these are over `most`.

    Numbered in the order of the parts.
    """
    inside = parts[coarse.senders] == parts[coarse.receivers]
    edges = coarse.senders[inside], coarse.receivers[inside]
    joined = dag.weak_components(coarse.num_ops, *edges)
    _, part_of = np.unique(np.stack([joined, parts]), axis=1)
    few = np.bincount(part_of) <= most
    return _numbered(parts, np.where(few[parts], joined, 0))


def _numbered(*keys: np.ndarray) -> np.ndarray:
    """Numbers int32 [M]: equal for equal keys, in their order, the first of which weighs most."""
    return np.unique(np.stack(keys), axis=1, return_inverse=True)[1].astype(np.int32)
