"""The data of a run's page: columns of JSON, which the page's script reads.

    N operations, M coarse operations, K drawn nodes, D devices

Numbers are in the unit and with the decimals in which they are shown. Null means no number.
"""

from typing import Any

import numpy as np

from placement.reporting import units
from placement.reporting.details import Details, Timeline
from placement.reporting.figures import blocks, layout

_MOST_NODES = 1_500  # drawn one by one; more nodes are drawn as blocks

Columns = dict[str, Any]


def columns(details: Details) -> Columns:
    """Collects everything that the page shows about a placement.

    Returns:
      `devices`: D labels. `how`: how the times were obtained. `costs`, `clock`: the units of
      computing times and of start times. `types`, `shapes`: texts, which `ops` refers to by index.
      `ops`: columns of length N. `coarse`: M names, null where nothing was merged. `deviceOf`,
      `nodeOf`: device and node of the M coarse operations. `crossings`: the number of transfers.
      `blocks`: whether some nodes are blocks. `nodes`: columns of length K; a block's `type` is
      null. `edges`: columns of the edges between nodes.
    """
    graph, coarse = details.graph, details.coarse
    parts = blocks.blocks(details, _MOST_NODES)  # int32 [M]: the node of every coarse operation
    costs = units.latency_unit(value for value in details.compute_s.ravel())
    clock = units.latency_unit(span.finish_s for span in details.predicted.spans)
    types, type_numbers = _indexed(graph.op_types)
    shapes, shape_numbers = _indexed(" x ".join(map(str, sizes)) for sizes in graph.output_shapes)
    _, first, sizes = np.unique(parts, return_index=True, return_counts=True)
    num_nodes, device = len(sizes), details.placement[first]
    merged = num_nodes < coarse.num_ops
    ends = parts[np.stack([coarse.senders, coarse.receivers])]
    senders, receivers = np.unique(ends[:, ends[0] != ends[1]], axis=1)
    drawing = layout.layered(num_nodes, senders, receivers)
    node = parts[details.assignment]
    seconds = np.zeros((num_nodes, len(details.devices)))
    np.add.at(seconds, node, details.compute_s)
    names = coarse.op_names
    if merged:
        described = blocks.summaries(details, parts)
        counts = np.bincount(node)
        names = tuple(
            f"{head}: {', '.join(kinds)}" if count > 1 else head
            for count, (head, *kinds) in zip(counts, described, strict=True)
        )
    op_types = [
        coarse.op_types[op] if size == 1 else None
        for op, size in zip(first.tolist(), sizes.tolist(), strict=True)
    ]
    return {
        "devices": details.devices,
        "how": [line.source for line in (details.predicted, details.measured) if line],
        "costs": {"name": costs.name, "decimals": costs.decimals},
        "clock": {"name": clock.name, "decimals": clock.decimals},
        "types": types,
        "shapes": shapes,
        "ops": {
            "name": graph.op_names,
            "type": type_numbers,
            "shape": shape_numbers,
            "coarse": details.assignment.tolist(),
            "seconds": _converted(details.compute_s.T, costs),
            "bytes": details.memory_bytes.round(2).tolist(),
        },
        "coarse": None if coarse is graph else coarse.op_names,
        "crossings": details.num_crossings,
        "deviceOf": details.placement.tolist(),
        "nodeOf": parts.tolist(),
        "blocks": merged,
        "nodes": {
            "name": names,
            "type": op_types,
            "count": np.bincount(node, minlength=num_nodes).tolist(),
            "device": device.tolist(),
            "seconds": _converted(seconds.T, costs),
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


def _times(timeline: Timeline, parts: np.ndarray, clock: units.Unit) -> list[list[float | None]]:
    """Returns the start of each node's first operation and the finish of its last one."""
    num_nodes = int(parts.max()) + 1
    start_s, finish_s = np.full(num_nodes, np.inf), np.full(num_nodes, -np.inf)
    for span in timeline.spans:
        nodes = parts[list(span.ops)]
        start_s[nodes] = np.minimum(start_s[nodes], span.start_s)
        finish_s[nodes] = np.maximum(finish_s[nodes], span.finish_s)
    return _converted(np.stack([start_s, finish_s]), clock)


def _indexed(texts: Any) -> tuple[list[str], list[int]]:
    """Returns the distinct texts, and the index of each text among them."""
    numbers: dict[str, int] = {}
    indices = [numbers.setdefault(text, len(numbers)) for text in texts]
    return list(numbers), indices


def _converted(seconds: np.ndarray, unit: units.Unit) -> Any:
    """Converts seconds to nested lists of the array's shape."""
    values = np.round(seconds * unit.per_s, unit.decimals).astype(object)
    values[~np.isfinite(seconds)] = None
    return values.tolist()
