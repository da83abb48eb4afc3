"""HSDAG as published, in plain NumPy and float64: one operation, one edge, one group at a time.

Written from the description in `placement/policies/hsdag_published.py`, with none of its code and
without padding. Groups are frozensets of operations in a list that is ordered by smallest member.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from placement.graphs.features import OP_TYPES
from placement.types import OpGraph

Groups = list[frozenset[int]]
# Whether each activation of a group is kept: `(level, layer) -> bool [N, H]`, a row an operation;
# a group's is that of its smallest member. None: nothing is dropped.
Keep = Callable[[int, int], np.ndarray] | None


class Level(NamedTuple):
    """One level of the parse."""

    groups: Groups  # G that it begins with
    embedding: np.ndarray  # [G, H]
    edges: list[tuple[int, int]]  # between these, by their places in the list
    score: list[float]
    kept_edges: list[int | None]  # the edge that each group keeps
    merged: Groups  # that it ends with
    pooled: np.ndarray  # [merged, H]


class Step(NamedTuple):
    """One step of an episode."""

    state: np.ndarray  # [N, F], before it
    levels: list[Level]
    groups: Groups
    log_probs: np.ndarray  # [G, D]


def features(graph: OpGraph) -> np.ndarray:
    """Computes the features that the authors' code has, [N, F]."""
    n = graph.num_ops
    readers = [[int(r) for s, r in _ends(graph) if s == op] for op in range(n)]
    writers = [[int(s) for s, r in _ends(graph) if r == op] for op in range(n)]
    rows = []
    for op in range(n):
        types = np.zeros(len(OP_TYPES))
        members = graph.member_types[op]
        for op_type in members:
            is_known = op_type in OP_TYPES
            types[OP_TYPES.index(op_type) if is_known else -1] += 1 / len(members)
        degrees = [math.log(1 + len(writers[op])), math.log(1 + len(readers[op]))]
        position = _sinusoids(_order(writers).index(op)) + _sinusoids(_longest(op, writers))
        shape = [0, 0, 0, 0, 0, *graph.output_shapes[op]][-5:]
        sizes = [math.log(1 + size) for size in shape]
        rows.append([*types, *degrees, _fractal(op, readers), *position, *sizes])
    return np.array(rows)


def episode(
    params: dict[str, Any],
    x: np.ndarray,
    edges: list[tuple[int, int]],
    *,
    steps: int,
    threshold: float,
    inside: bool,
    keep: Callable[[int], Keep] = lambda step: None,
    states: list[np.ndarray] | None = None,
) -> list[Step]:
    """Runs an episode.

    Args:
      params: of the policy.
      x: features [N, F].
      edges: pairs of operations.
      steps: T.
      threshold: the least score of a kept edge.
      inside: whether all edges inside a group weigh, not only those that were kept.
      keep: of each step.
      states: [N, F] before each step, where they are constants; None: they follow.
    """
    result = []
    for t in range(steps):
        x = x if states is None else states[t]
        levels = [_first(params, x, edges, threshold, inside, keep(t))]
        while len(levels[-1].merged) < len(levels[-1].groups):
            levels.append(_next(params, levels, edges, threshold, inside, keep(t)))
        groups, z = levels[-1].groups, levels[-1].embedding
        h = _dense(params["output"]["params"], z)
        logits = _mlp(params["placer"], h)
        result.append(Step(x, levels, groups, logits - np.log(np.exp(logits).sum(1))[:, None]))
        x = np.array([x[op] + h[_place(groups, op)] for op in range(len(x))])
    return result


def log_prob(step: Step, placement: np.ndarray) -> float:
    """Computes the log-probability of the devices int [N] that a step's groups have."""
    devices = [placement[min(group)] for group in step.groups]
    return sum(step.log_probs[g, device] for g, device in enumerate(devices))


def _first(params, x, edges, threshold, inside, keep) -> Level:
    groups = [frozenset({op}) for op in range(len(x))]
    drop = keep and (lambda layer: keep(0, layer))
    z = _convolutions(params["encoder"], _mlp(params["input"], x), edges, drop)
    return _parse(params, groups, z, edges, threshold, inside)


def _next(params, levels, edges, threshold, inside, keep) -> Level:
    groups, pooled = levels[-1].merged, levels[-1].pooled
    group_edges = [(_place(groups, u), _place(groups, v)) for u, v in edges]
    group_edges = [(u, v) for u, v in group_edges if u != v]
    smallest = [min(group) for group in groups]
    drop = keep and (lambda layer: keep(len(levels), layer)[smallest])
    z = _convolutions(params["group_encoder"], _mlp(params["set"], pooled), group_edges, drop)
    return _parse(params, groups, z, group_edges, threshold, inside)


def _parse(params, groups, z, edges, threshold, inside) -> Level:
    score = [float(_sigmoid(_mlp(params["scorer"], z[u] * z[v])[0])) for u, v in edges]
    kept_edges: list[int | None] = []
    for g in range(len(groups)):
        mine = [e for e, ends in enumerate(edges) if g in ends and score[e] >= threshold]
        kept_edges.append(min(mine, key=lambda e: (-score[e], e)) if mine else None)
    parts = [{g} for g in range(len(groups))]
    for e in set(kept_edges) - {None}:
        joined = [part for part in parts if part & set(edges[e])]
        parts = [part for part in parts if part not in joined] + [set().union(*joined)]
    parts.sort(key=lambda part: min(min(groups[g]) for g in part))
    pooled = []
    for part in parts:
        inner_edges = {e for e, (u, v) in enumerate(edges) if u in part and v in part}
        weigh = inner_edges if inside else inner_edges & set(kept_edges)
        mean = np.mean([score[e] for e in weigh]) if weigh else 1.0
        pooled.append(sum(z[g] for g in part) * mean * max(len(weigh), 1))
    merged = [frozenset().union(*(groups[g] for g in part)) for part in parts]
    return Level(groups, z, edges, score, kept_edges, merged, np.array(pooled))


def _convolutions(params, x, edges, drop) -> np.ndarray:
    """Two graph convolutions (Kipf and Welling 2017), by the normalised adjacency matrix."""
    adjacency = np.eye(len(x))
    for u, v in edges:
        adjacency[u, v] += 1
        adjacency[v, u] += 1
    root = np.diag(adjacency.sum(axis=1) ** -0.5)
    for layer in range(2):
        y = root @ adjacency @ root @ _dense(params["params"][f"Dense_{layer}"], x)
        y = np.maximum(y, 0)
        if drop:
            y = y * drop(layer) / 0.8
        x = _layer_norm(params["params"][f"LayerNorm_{layer}"], x + y)
    return x


def _mlp(params, x) -> np.ndarray:
    hidden = np.maximum(_dense(params["params"]["Dense_0"], x), 0)
    return _dense(params["params"]["Dense_1"], hidden)


def _dense(params, x) -> np.ndarray:
    return x @ params["kernel"] + params["bias"]


def _layer_norm(params, x) -> np.ndarray:
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-6)
    return centred / deviation * params["scale"] + params["bias"]


def _sigmoid(x) -> float:
    return 1 / (1 + math.exp(-x))


def _place(groups: Groups, op: int) -> int:
    return next(place for place, group in enumerate(groups) if op in group)


def _ends(graph: OpGraph):
    return zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)


def _order(writers: list[list[int]]) -> list[int]:
    """The smallest operation whose producers have all been, again and again."""
    order: list[int] = []
    while len(order) < len(writers):
        ready = [op for op in range(len(writers)) if op not in order]
        order.append(next(op for op in ready if set(writers[op]) <= set(order)))
    return order


def _longest(op: int, writers: list[list[int]]) -> int:
    return max((1 + _longest(writer, writers) for writer in writers[op]), default=0)


def _sinusoids(position: int) -> list[float]:
    angles = [position / 10_000 ** (k / 4) for k in range(4)]
    return [*map(math.sin, angles), *map(math.cos, angles)]


def _fractal(op: int, readers: list[list[int]]) -> float:
    """The slope of log(operations that r hops along edges reach, itself not) against log r."""
    reached, last, counts = {op}, {op}, []
    while last := {reader for reached_op in last for reader in readers[reached_op]} - reached:
        reached |= last
        counts.append(len(reached) - 1)
    if len(counts) < 2:
        return 0.0
    radii = np.log(np.arange(1, len(counts) + 1))
    return float(np.polyfit(radii, np.log(counts), 1)[0])
