"""The data of a run's page: columns of JSON, which the page's script reads.

N operations, M coarse operations, K drawn nodes, D devices.
"""

from typing import Any

import numpy as np

from placement.graphs import dag
from placement.reporting import units
from placement.reporting.details import Details, Timeline
from placement.reporting.figures import blocks, layout

_MOST_NODES = 1_500  # drawn one by one; more nodes are drawn as blocks

Columns = dict[str, Any]


def columns(details: Details) -> Columns:
    """Collects everything that the page shows about a placement; times are texts.

    Returns:
      `devices`: D labels. `how`: how the times were obtained. `costs`, `clock`: the units of
      computing times and of start times. `ops`: columns of length N. `coarse`: M names, null where
      nothing was merged. `deviceOf`, `nodeOf`: device and node of the M coarse operations.
      `crossings`: the number of transfers. `blocks`: whether some nodes are blocks. `nodes`:
      columns of length K. `edges`: columns of the edges between nodes.
    """
    graph, coarse = details.graph, details.coarse
    parts = blocks.blocks(details, _MOST_NODES)  # int32 [M]: the node of every coarse operation
    costs = units.latency_unit(details.compute_s.ravel())
    clock = units.latency_unit(span.finish_s for span in details.predicted.spans)
    _, first, sizes = np.unique(parts, return_index=True, return_counts=True)
    num_nodes, device = len(sizes), details.placement[first]
    senders, receivers = dag.quotient(coarse.senders, coarse.receivers, parts)
    drawing = layout.layered(num_nodes, senders, receivers)
    node = parts[details.assignment]
    counts, seconds = np.bincount(node), np.zeros((num_nodes, len(details.devices)))
    np.add.at(seconds, node, details.compute_s)
    names, types = list(coarse.op_names), list(coarse.op_types)
    if num_nodes < coarse.num_ops:
        texts = blocks.summaries(details, parts)
        names = [f"{head}: {', '.join(kinds)}" for head, *kinds in texts]
        types = [f"{count} ops" for count in counts]
        for number in np.flatnonzero(sizes == 1):
            names[number] = coarse.op_names[first[number]]
            types[number] = coarse.op_types[first[number]]
    return {
        "devices": details.devices,
        "how": [line.source for line in (details.predicted, details.measured) if line],
        "costs": costs.name,
        "clock": clock.name,
        "ops": {
            "name": graph.op_names,
            "type": graph.op_types,
            "shape": [" x ".join(map(str, sizes)) for sizes in graph.output_shapes],
            "coarse": details.assignment.tolist(),
            "times": _written(details.compute_s.T, costs),
            "kilobytes": [f"{size / 1000:.1f}" for size in details.memory_bytes],
        },
        "coarse": None if coarse is graph else coarse.op_names,
        "crossings": details.num_crossings,
        "deviceOf": details.placement.tolist(),
        "nodeOf": parts.tolist(),
        "blocks": num_nodes < coarse.num_ops,
        "nodes": {
            "name": names,
            "type": types,
            "device": device.tolist(),
            "times": _written(seconds.T, costs),
            "predicted": _times(details.predicted, parts, clock),
            "measured": details.measured and _times(details.measured, parts, clock),
            "x": drawing.x.astype(int).tolist(),
            "y": drawing.y.round(2).tolist(),
        },
        "edges": {
            "senders": senders.tolist(),
            "receivers": receivers.tolist(),
            "crossing": (device[senders] != device[receivers]).astype(int).tolist(),
            "paths": [path.round(2).ravel().tolist() for path in drawing.paths],
        },
    }


def _times(timeline: Timeline, parts: np.ndarray, clock: units.Unit) -> list[list[str]]:
    """Returns the start of each node's first operation and the finish of its last one."""
    num_nodes = int(parts.max()) + 1
    start_s, finish_s = np.full(num_nodes, np.inf), np.full(num_nodes, -np.inf)
    for span in timeline.spans:
        nodes = parts[list(span.ops)]
        start_s[nodes] = np.minimum(start_s[nodes], span.start_s)
        finish_s[nodes] = np.maximum(finish_s[nodes], span.finish_s)
    return _written(np.stack([start_s, finish_s]), clock)


def _written(seconds: np.ndarray, unit: units.Unit) -> list[list[str]]:
    return [[unit.write(value) for value in column] for column in seconds]
