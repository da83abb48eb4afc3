"""What the page of a run is told of its placement: columns of JSON, which its script reads.

    N operations, M coarse operations, K nodes that are drawn, D devices

Numbers come in the unit in which they are shown, with as many decimals; null is no number.
"""

from typing import Any

import numpy as np

from placement.reporting import units
from placement.reporting.details import Details, Timeline
from placement.reporting.figures import blocks, layout

_MOST_NODES = 1_500  # drawn one by one; of more, nobody reads a name

Columns = dict[str, Any]


def columns(details: Details) -> Columns:
    """Collects everything that the page shows of a placement.

    Returns:
      `devices`: D labels; `how` the times were obtained; `costs` and `clock`: the units of what
      operations cost and of when they run; `types` and `shapes`: texts, which `ops` numbers; `ops`:
      columns of N; `coarse`: M names, null where nothing was merged; `deviceOf` and `nodeOf`: of
      the M coarse operations; `crossings`: how often tensors go from device to device; `blocks`:
      whether some nodes are blocks; `nodes`: columns of K, of
      which a block has no `type`; `edges`: columns of what joins two nodes.
    """
    parts = blocks.blocks(details, _MOST_NODES)
    costs = units.of_latencies(value for value in details.compute_s.ravel())
    clock = units.of_latencies(span.finish_s for span in details.predicted.spans)
    types, type_numbers = _numbered(details.graph.op_types)
    shapes, shape_numbers = _numbered(map(_shape, details.graph.output_shapes))
    timelines = filter(None, (details.predicted, details.measured))
    return {
        "devices": details.devices,
        "how": [timeline.how for timeline in timelines],
        "costs": _unit(costs),
        "clock": _unit(clock),
        "types": types,
        "shapes": shapes,
        "ops": {
            "name": details.graph.op_names,
            "type": type_numbers,
            "shape": shape_numbers,
            "coarse": details.assignment.tolist(),
            "seconds": _in_unit(details.compute_s.T, costs),
            "bytes": details.memory_bytes.round(2).tolist(),
        },
        "coarse": None if details.coarse is details.graph else details.coarse.op_names,
        "crossings": details.num_crossings,
        "deviceOf": details.placement.tolist(),
        "nodeOf": parts.tolist(),
        **_drawing(details, parts, costs, clock),
    }


def _drawing(details: Details, parts: np.ndarray, costs: units.Unit, clock: units.Unit) -> Columns:
    """Lays out nodes and edges; `parts` int32 [M] is the node of every coarse operation."""
    coarse = details.coarse
    _, first, sizes = np.unique(parts, return_index=True, return_counts=True)
    num_nodes, device = len(sizes), details.placement[first]
    merged = num_nodes < coarse.num_ops
    ends = parts[np.stack([coarse.senders, coarse.receivers])]
    senders, receivers = np.unique(ends[:, ends[0] != ends[1]], axis=1)
    drawn = layout.layered(num_nodes, senders, receivers)
    node = parts[details.assignment]
    seconds = np.zeros((num_nodes, len(details.devices)))
    np.add.at(seconds, node, details.compute_s)
    return {
        "blocks": merged,
        "nodes": {
            "name": blocks.names(details, parts) if merged else coarse.op_names,
            "type": [
                coarse.op_types[op] if size == 1 else None
                for op, size in zip(first.tolist(), sizes.tolist(), strict=True)
            ],
            "count": np.bincount(node, minlength=num_nodes).tolist(),
            "device": device.tolist(),
            "seconds": _in_unit(seconds.T, costs),
            "predicted": _times(details.predicted, parts, clock),
            "measured": details.measured and _times(details.measured, parts, clock),
            "x": drawn.x.astype(int).tolist(),
            "y": drawn.y.round(2).tolist(),
        },
        "edges": {
            "senders": senders.tolist(),
            "receivers": receivers.tolist(),
            "crossing": (device[senders] != device[receivers]).astype(int).tolist(),
            "paths": [path.round(2).ravel().tolist() for path in drawn.paths],
        },
    }


def _times(timeline: Timeline, parts: np.ndarray, clock: units.Unit) -> list[list[float | None]]:
    """Returns when each node starts, and when it finishes: by its first and last operation."""
    num_nodes = int(parts.max()) + 1
    start_s, finish_s = np.full(num_nodes, np.inf), np.full(num_nodes, -np.inf)
    for span in timeline.spans:
        nodes = parts[list(span.ops)]
        start_s[nodes] = np.minimum(start_s[nodes], span.start_s)
        finish_s[nodes] = np.maximum(finish_s[nodes], span.finish_s)
    return _in_unit(np.stack([start_s, finish_s]), clock)


def _numbered(texts: Any) -> tuple[list[str], list[int]]:
    """Returns the distinct texts, and which of them each is."""
    numbers: dict[str, int] = {}
    of_texts = [numbers.setdefault(text, len(numbers)) for text in texts]
    return list(numbers), of_texts


def _shape(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


def _unit(unit: units.Unit) -> Columns:
    return {"name": unit.name, "decimals": unit.decimals}


def _in_unit(seconds: np.ndarray, unit: units.Unit) -> Any:
    """Converts seconds to nested lists of the array's shape."""
    values = np.round(seconds * unit.per_s, unit.decimals).astype(object)
    values[~np.isfinite(seconds)] = None
    return values.tolist()
