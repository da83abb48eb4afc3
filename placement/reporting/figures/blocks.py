"""Groups of operations to draw: few enough for a page, each on one device.

Three steps refine the groups:

1. *Stages.* The devices take turns, and each turn takes all operations whose inputs are available:

       stage(v) = the least t >= max over u -> v of stage(u) with t mod D = device(v)

   So every stage has one device, edges lead from a stage to the same or a later one, and two
   operations of a device share a stage unless another device has to run between them.
2. *Bands.* Layers (`layout.layers`) are cut into bands of equal width. Within a stage no path leads
   from a band to an earlier one.
3. *Components.* The connected components within a stage and band become separate blocks, unless
   there are more than six: many similar branches stay one block. No path leads from one component
   to another, because it would stay within the stage and band.

Sorted by stage, then by band, blocks are in topological order. The narrowest bands are used that
leave few enough blocks. Where even a single band leaves too many, the stages are the blocks.
"""

from collections import Counter

import numpy as np

from placement.graphs import dag
from placement.reporting.details import Details
from placement.reporting.figures import layout

_MOST_COMPONENTS = 6


def blocks(details: Details, max_blocks: int) -> np.ndarray:
    """Groups the coarse operations into blocks for drawing.

    Makes at most `max_blocks` of the M coarse operations, where possible.

    Returns:
      int32 [M]: the block of every coarse operation; a block is on one device, and the quotient
      graph is acyclic. `arange(M)` where M <= max_blocks, else numbered in topological order.
      There are more than `max_blocks` where the devices alternate too often.
    """
    coarse, num_devices = details.coarse, len(details.devices)
    if coarse.num_ops <= max_blocks:
        return np.arange(coarse.num_ops, dtype=np.int32)
    starts, readers = dag.successors(coarse.num_ops, coarse.senders, coarse.receivers)
    device, stages = details.placement.tolist(), details.placement.tolist()
    for op in dag.topological_order(coarse).tolist():
        for reader in readers[starts[op] : starts[op + 1]].tolist():
            waits = (device[reader] - stages[op]) % num_devices
            stages[reader] = max(stages[reader], stages[op] + waits)
    stage = np.array(stages)
    layer = layout.layers(coarse.num_ops, coarse.senders, coarse.receivers)
    if len(np.unique(stage)) < max_blocks:
        width = 1
        while width < 2 * (layer.max() + 1):
            parts = _renumbered(stage, layer // width)
            inside = parts[coarse.senders] == parts[coarse.receivers]
            edges = coarse.senders[inside], coarse.receivers[inside]
            joined = dag.components("weak", coarse.num_ops, *edges)
            _, part_of_component = np.unique(np.stack([joined, parts]), axis=1)
            is_split = np.bincount(part_of_component) <= _MOST_COMPONENTS
            parts = _renumbered(parts, np.where(is_split[parts], joined, 0))
            if parts.max() < max_blocks:
                return parts
            width = max(width + 1, int(1.2 * width))
    return _renumbered(stage)


def summaries(details: Details, parts: np.ndarray) -> list[list[str]]:
    """Describes each block, most important text first: 'conv1', 'Convolution'.

    A block of several operations: '12 ops', 'Convolution x5', 'Add x3', slowest types first.
    Operations are counted as they were before merging. `parts`, int32 [M], is from `blocks`.
    """
    members: list[list[int]] = [[] for _ in range(int(parts.max()) + 1)]
    for op, block in enumerate(parts[details.assignment].tolist()):
        members[block].append(op)
    graph, texts = details.graph, list[list[str]]()
    seconds = details.compute_s[np.arange(graph.num_ops), details.op_placement]
    for ops in members:
        if len(ops) == 1:
            texts.append([graph.op_names[ops[0]], graph.op_types[ops[0]]])
            continue
        counts, spent_s = Counter[str](), Counter[str]()
        for op in ops:
            counts[graph.op_types[op]] += 1
            spent_s[graph.op_types[op]] += seconds[op]
        slowest = [kind for kind, _ in spent_s.most_common(2)]
        kinds = [f"{kind} x{counts[kind]}" if counts[kind] > 1 else kind for kind in slowest]
        texts.append([f"{len(ops)} ops", *kinds])
    return texts


def _renumbered(*keys: np.ndarray) -> np.ndarray:
    """Numbers the distinct tuples of keys in lexicographic order, int32 [M]."""
    return np.unique(np.stack(keys), axis=1, return_inverse=True)[1].astype(np.int32)
