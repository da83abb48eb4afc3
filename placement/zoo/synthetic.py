"""Seeded random graphs of any size, in families: operations and tensors, without an `ov.Model`.

`synthetic:family=layered,ops=1000,seed=0` names such a graph. Every graph has one source, the first
operation, from which all others can be reached, and one sink, the last operation. The docstrings of
the functions that connect a family's operations describe its shape. `placement.zoo.sharded` has
families that are not random. The problems of `placement.zoo.known_optimum` and
`placement.zoo.task_graphs` bring their devices and costs.

The type of an operation depends on its number of inputs. With two it is an Add or a Multiply, with
more a Concat. With one, 40% are a Convolution or a MatMul with weights, the others are light. FLOPs
are log-uniform: 1e6 to 1e9 for operations with weights, 1e3 to 1e6 for the others. Weights are
float16, log-uniform from 2 KB to 6 MB. Outputs are float32 [1, 2^4 .. 2^10, 2^2 .. 2^10], whatever
the inputs' shapes. An edge carries its sender's output.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from placement import arguments
from placement.costs.workloads import Workload
from placement.graphs import opgraph
from placement.types import OpGraph
from placement.zoo import known_optimum, sharded, task_graphs

NAME = "synthetic"

_LONGEST_BRANCH = 8
_REACH = 3  # layers back from which an operation of `layered` reads
_WEIGHTED_SHARE = 0.4
_WEIGHTED = ("Convolution", "MatMul")
_LIGHT = ("Relu", "Sigmoid", "Tanh", "Softmax", "Gelu", "AvgPool", "Transpose", "Reshape")
_BINARY = ("Add", "Multiply")

_Edges = tuple[np.ndarray, np.ndarray]  # senders, receivers; every sender before its receiver


def build(text: str) -> OpGraph:
    """Builds the graph that a text describes; the text is its name. Equal texts give equal graphs.

    Args:
      text: 'synthetic:family=FAMILY,ops=N,seed=SEED', with width=W for families that have a width.
        Every argument is optional. N is the exact number of operations. For other families see
        `placement.zoo.sharded.build` and `build_workload`.

    Raises:
      UserError: the name, the family or an argument is not valid.
    """
    if (workload := build_workload(text)) is not None:
        return workload.graph
    values = arguments.split_arguments(text)[1]
    family = values.get("family", "layered")
    if family in sharded.FAMILIES:
        return sharded.build(text)
    connect = _FAMILIES[family]
    family_defaults: dict[str, int | str] = {
        key: parameter.default
        for key, parameter in inspect.signature(connect).parameters.items()
        if parameter.kind == parameter.KEYWORD_ONLY
    }
    defaults: dict[str, int | str] = {"family": family, "ops": 1000, "seed": 0, **family_defaults}
    sizes = arguments.convert_arguments(text, values, defaults, minimums={"ops": 2, "seed": 0})
    rng = np.random.default_rng(sizes["seed"])
    edges = connect(rng, sizes["ops"], **{key: sizes[key] for key in family_defaults})
    # The types, shapes, FLOPs and weights of the operations.
    num_ops = sizes["ops"]
    order = np.lexsort(edges)  # by receiver, then sender
    senders, receivers = edges[0][order], edges[1][order]
    num_inputs = np.bincount(receivers, minlength=num_ops)
    weighted = (num_inputs == 1) & (rng.random(num_ops) < _WEIGHTED_SHARE)
    weighted[-1] = False
    types = np.where(weighted, rng.choice(_WEIGHTED, num_ops), rng.choice(_LIGHT, num_ops))
    types = np.where(num_inputs == 2, rng.choice(_BINARY, num_ops), types)
    types[num_inputs > 2] = "Concat"
    types[0] = "Parameter"
    types[-1] = "Result" if num_inputs[-1] == 1 else types[-1]
    idle = np.isin(types, ("Parameter", "Result"))
    shapes = 2 ** rng.integers([4, 2], [11, 11], (num_ops, 2))
    output_bytes = 4 * shapes.prod(axis=1)
    work = 10 ** (rng.uniform(3, 6, num_ops) + np.where(weighted, 3, 0))
    weights = 2 * np.rint(10 ** rng.uniform(3, 6.5, num_ops)).astype(np.int64)
    return opgraph.make_graph(
        name=text,
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=types.tolist(),
        senders=senders,
        receivers=receivers,
        edge_bytes=output_bytes[senders],
        output_shapes=[(1, *shape) for shape in shapes.tolist()],
        flops=np.where(idle, 0.0, work),
        weight_bytes=np.where(weighted, weights, 0),
    )


def build_workload(text: str) -> Workload | None:
    """Builds the graph that a text describes with its devices and costs.

    Returns:
      The workload; None if graphs of the family have no devices and costs.

    Raises:
      UserError: the text is not that of a synthetic graph, or the family does not exist, or an
        argument is not valid.
    """
    name, values = arguments.split_arguments(text)
    arguments.check_choice("synthetic graph", name, (NAME,))
    family = values.get("family", "layered")
    arguments.check_choice("family", family, summaries(), context=f"graph {text!r}")
    if family in task_graphs.FAMILIES:
        return task_graphs.build(text)
    return known_optimum.build(text) if family == known_optimum.FAMILY else None


def summaries() -> dict[str, str]:
    """Describes the graphs of each family in one line."""
    functions: dict[str, Callable[..., Any]] = {
        **_FAMILIES,
        **sharded.FAMILIES,
        **task_graphs.FAMILIES,
        known_optimum.FAMILY: known_optimum.build,
    }
    return {name: (f.__doc__ or "").partition("\n")[0] for name, f in functions.items()}


def chain(rng: np.random.Generator, num_ops: int) -> _Edges:
    """A chain: every operation reads the one before."""
    return np.arange(num_ops - 1), np.arange(1, num_ops)


def fork_join(rng: np.random.Generator, num_ops: int, *, width: int = 8) -> _Edges:
    """Forks into chains, stage after stage, which the next fork joins.

    2 to `width` chains of 1 to 8 operations; one chain where `width` is 1.
    """
    sink, width = num_ops - 1, min(width, num_ops)
    branches = rng.integers(min(2, width), width + 1, num_ops // 2 + 1)  # chains of each stage
    branches = branches[: np.searchsorted(np.cumsum(branches + 1), num_ops) + 1]
    # A fork is a run of one operation. The runs of its branches follow it.
    forks_at = np.cumsum(branches + 1) - branches - 1
    lengths = rng.integers(1, _LONGEST_BRANCH + 1, np.sum(branches + 1))
    lengths[forks_at] = 1
    starts = np.cumsum(lengths) - lengths
    is_start, is_fork = np.zeros((2, num_ops), bool)
    is_start[starts[starts < sink]] = True
    is_fork[starts[forks_at][starts[forks_at] < sink]] = True
    is_start[sink] = is_fork[sink] = True

    ops = np.arange(num_ops)
    fork_before = np.maximum.accumulate(np.where(is_fork, ops, 0))
    fork_after = np.minimum.accumulate(np.where(is_fork, ops, sink)[::-1])[::-1]
    inner = ops[~is_fork]
    read = np.where(is_start, fork_before, ops - 1)[inner]
    # The sink may cut off the last stage right after its fork.
    last = ops[:-1][is_start[1:] & (~is_fork[:-1] | (ops[:-1] == sink - 1))]
    return np.concatenate([read, last]), np.concatenate([inner, fork_after[last + 1]])


def layered(rng: np.random.Generator, num_ops: int, *, width: int = 16) -> _Edges:
    """Layers of random width; operations read from the three layers before.

    A layer has 1 to 2 `width` - 1 operations. An operation reads one to three others: one in the
    previous layer, which fixes its level, the others in the three layers before. An operation that
    would have no reader gets one in the next layer.
    """
    sink = num_ops - 1
    sizes = np.append(1, rng.integers(1, 2 * width, num_ops))  # the source is a layer
    bounds = np.minimum(np.append(0, np.cumsum(sizes)), sink)
    layer = np.repeat(np.arange(len(sizes)), np.diff(bounds))
    final = layer[-1]
    ops = np.arange(1, sink)
    previous = layer[ops] - 1
    extra = np.repeat(ops, rng.integers(0, 3, len(ops)))  # the readers of further inputs
    furthest = bounds[np.maximum(layer[extra] - _REACH, 0)]
    senders = np.append(
        rng.integers(bounds[previous], bounds[previous + 1]),
        rng.integers(furthest, bounds[layer[extra]]),
    )
    receivers = np.append(ops, extra)

    unread = np.flatnonzero(np.bincount(senders, minlength=sink) == 0)
    next_layer = layer[unread] + 1
    reader = np.full(len(unread), sink)
    has_next = next_layer <= final
    reader[has_next] = rng.integers(bounds[next_layer[has_next]], bounds[next_layer[has_next] + 1])
    pairs = np.append(senders, unread) * num_ops + np.append(receivers, reader)
    distinct, _ = np.unique(pairs, return_index=True)  # sorts, which is faster, see `dag`
    return distinct // num_ops, distinct % num_ops


def series_parallel(rng: np.random.Generator, num_ops: int) -> _Edges:
    """Series-parallel, self-similar, with shortcuts of all lengths.

    The graph grows from a single edge. In each round half of all edges, drawn at random, get an
    operation: on the edge (series) or on a detour around it (parallel), with even odds.
    """
    senders, receivers = np.array([0]), np.array([1])
    place = np.array([0.0, 1.0])  # ascends along every edge
    while len(place) < num_ops:
        count = min(len(senders) // 2 + 1, num_ops - len(place))
        edges = rng.permutation(len(senders))[:count]
        added = len(place) + np.arange(count)
        ends = senders[edges], receivers[edges]
        place = np.append(place, (place[ends[0]] + place[ends[1]]) / 2)
        is_kept = np.ones(len(senders), bool)
        is_kept[edges] = rng.random(count) < 0.5
        senders = np.concatenate([senders[is_kept], ends[0], added])
        receivers = np.concatenate([receivers[is_kept], added, ends[1]])
    rank = np.argsort(np.argsort(place, kind="stable"))
    return rank[senders], rank[receivers]


_FAMILIES: dict[str, Callable[..., _Edges]] = {
    "chain": chain,
    "fork_join": fork_join,
    "layered": layered,
    "series_parallel": series_parallel,
}
