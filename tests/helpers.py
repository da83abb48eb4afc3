"""Graphs small enough to work through by hand, and random ones for property tests."""

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from placement.graphs import batching, dag, opgraph
from placement.policies import distributions, placeto
from placement.problem import Problem
from placement.types import Array, CostModel, Evaluate, LogProb, OpGraph, Policy, Sample, Solution

_SOURCE_TYPES = ("Parameter", "Constant")
_INNER_TYPES = ("MatMul", "Add", "ShapeOf", "Gather", "Concat", "Convert", "Reshape")


def chain(n: int) -> OpGraph:
    """op0 -> op1 -> ... -> op(n-1); edge i carries 10 * (i + 1) bytes."""
    return build("chain", n, [(i, i + 1) for i in range(n - 1)])


def diamond() -> OpGraph:
    """op0 -> op1 -> op3 and op0 -> op2 -> op3: edges 0-1, 0-2, 1-3, 2-3.

    op0 writes one tensor of 10 bytes that both branches read; op1 and op2 write 30 and 40 bytes.
    """
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]
    return build("diamond", 4, edges, edge_bytes=[10, 10, 30, 40])


def fork_join(branches: int, length: int = 1) -> OpGraph:
    """op0 forks into `branches` chains of `length` operations, which join in the last operation.

    Branch b holds the operations 1 + b * length to (b + 1) * length; every tensor has 10 bytes.
    """
    last = branches * length + 1
    edges = []
    for branch in range(branches):
        path = [0, *range(1 + branch * length, 1 + (branch + 1) * length), last]
        edges += itertools.pairwise(path)
    return build("fork_join", last + 1, edges, edge_bytes=[10] * len(edges))


def random_dag(
    rng: np.random.Generator,
    n: int,
    *,
    edge_probability: float = 0.3,
    colocated: float = 0.0,
) -> OpGraph:
    """A random graph whose numbering is not a topological order, with outputs read several times.

    Args:
      rng: consumed.
      n: operations; each has up to two outputs.
      edge_probability: of an edge between two operations; a sixth of the edges is doubled.
      colocated: share of operations that take the co-location number of a random other one.
    """
    rank = rng.permutation(n)
    joined = (rng.random((n, n)) < edge_probability) & (rank[:, None] < rank[None, :])
    senders, receivers = np.nonzero(joined)
    doubled = rng.random(len(senders)) < 1 / 6
    senders = np.concatenate([senders, senders[doubled]])
    receivers = np.concatenate([receivers, receivers[doubled]])
    tensors = 2 * senders + rng.integers(0, 2, len(senders))
    colocation = np.arange(n)
    moved = np.flatnonzero(rng.random(n) < colocated)
    colocation[moved] = rng.integers(0, n, len(moved))
    is_source = ~np.isin(np.arange(n), receivers)
    return opgraph.make_graph(
        name="random",
        op_names=[f"op{i}" for i in range(n)],
        op_types=np.where(
            is_source, rng.choice(_SOURCE_TYPES, n), rng.choice(_INNER_TYPES, n)
        ).tolist(),
        senders=senders,
        receivers=receivers,
        edge_bytes=rng.integers(0, 1000, 2 * n)[tensors],
        output_shapes=[rng.integers(1, 9, rng.integers(0, 5)).tolist() for _ in range(n)],
        flops=rng.integers(0, 4, n),  # few values, so that ties occur
        weight_bytes=rng.integers(0, 100, n),
        colocation=colocation,
        tensors=tensors,
    )


def random_dag_of_size(
    rng: np.random.Generator, num_ops: int, num_edges: int, num_tensors: int
) -> OpGraph:
    """A random graph with exactly these numbers of operations, edges and tensors, so that many
    draws share one compilation. Edges may be parallel, and operations isolated.
    """
    rank = rng.permutation(num_ops)  # not the numbering
    producer = rng.integers(0, num_ops - 1, num_tensors)  # ranks; the last operation only reads
    tensors = np.arange(num_tensors)
    tensors = np.append(tensors, rng.integers(0, num_tensors, num_edges - num_tensors))
    rng.shuffle(tensors)
    reader = rng.integers(producer[tensors] + 1, num_ops)
    return opgraph.make_graph(
        name="random",
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        senders=rank[producer[tensors]],
        receivers=rank[reader],
        edge_bytes=rng.integers(0, 1000, num_tensors)[tensors],
        tensors=rng.permutation(num_tensors + 5)[tensors],  # numbers have gaps and no order
    )


def rewired(rng: np.random.Generator, graph: OpGraph, *, colocated: float = 0.0) -> OpGraph:
    """Another graph in which operations have as many inputs, and tensors as many readers.

    The arrays that simulators make of it have the same shapes, so that no draw compiles anew.

    Args:
      rng: consumed.
      graph: left as it is; what has no number there (types, shapes, FLOPs) is not kept.
      colocated: share of operations that take the co-location number of a random other one.
    """
    num_ops, num_edges = graph.num_ops, graph.num_edges
    senders, receivers = graph.senders.copy(), graph.receivers.copy()
    rank = np.argsort(dag.topological_order(graph))
    for one, other in rng.integers(0, max(num_edges, 1), (2 * num_edges, 2)):
        pair = [one, other]
        if rank[senders[pair]].max() < rank[receivers[pair]].min():
            receivers[pair] = receivers[pair[::-1]]
    number, edges = rng.permutation(num_ops), rng.permutation(num_edges)
    _, tensors = np.unique(graph.tensors, return_inverse=True)
    colocation = np.arange(num_ops)
    moved = np.flatnonzero(rng.random(num_ops) < colocated)
    colocation[moved] = rng.integers(0, num_ops, len(moved))
    return opgraph.make_graph(
        name="rewired",
        op_names=graph.op_names,
        op_types=["MatMul"] * num_ops,
        senders=number[senders][edges],
        receivers=number[receivers][edges],
        edge_bytes=rng.integers(0, 1000, num_edges)[tensors][edges],
        tensors=rng.permutation(num_edges + 5)[tensors][edges],
        colocation=colocation,
    )


def random_costs(
    rng: np.random.Generator,
    graph: OpGraph,
    num_devices: int,
    *,
    unsupported: float = 0.0,
    unlinked: float = 0.0,
    limited: float = 0.0,
    transfer: bool = False,
    accelerator: np.ndarray | None = None,
) -> CostModel:
    """Whole-number costs, a third of them zero: float32 adds them up exactly in any order.

    Args:
      rng: consumed.
      graph: N operations.
      num_devices: D.
      unsupported: the probability that a device cannot run an operation.
      unlinked: the probability that nothing can cross from one device to another.
      limited: the probability that memory is limited, to nothing or a power of two, so that
        float32 also divides by it exactly.
      transfer: whether transfers have a cost of their own.
      accelerator: int32 [D], by default every device is another accelerator.
    """

    def whole(high: int, *shape: int) -> np.ndarray:
        return (rng.integers(0, high, shape) * (rng.random(shape) < 2 / 3)).astype(np.float32)

    compute_s = whole(50, graph.num_ops, num_devices)
    compute_s[rng.random(compute_s.shape) < unsupported] = np.inf
    apart = 1 - np.eye(num_devices, dtype=np.float32)
    costs = CostModel(
        compute_s=compute_s,
        transfer_latency_s=apart * whole(30, num_devices, num_devices),
        transfer_s_per_byte=apart * whole(4, num_devices, num_devices),
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=whole(20, graph.num_edges),
        memory_bytes=whole(100, graph.num_ops),
        capacity_bytes=np.full(num_devices, np.inf, np.float32),
        accelerator=np.arange(num_devices, dtype=np.int32),
    )
    if unlinked:
        broken = rng.random(apart.shape) < unlinked
        costs.transfer_latency_s[broken & (apart > 0)] = np.inf
    if transfer:
        _, tensor = np.unique(graph.tensors, return_inverse=True)
        costs = costs._replace(transfer_fixed_s=whole(200, graph.num_edges)[tensor])
    if accelerator is not None:
        costs = costs._replace(accelerator=accelerator)
    if limited:
        capacity = np.where(
            rng.random(num_devices) < limited,
            rng.choice([0, *2.0 ** np.arange(4, 10)], num_devices),
            np.inf,
        ).astype(np.float32)
        same = costs.accelerator[:, None] == costs.accelerator
        same = (same & (costs.accelerator >= 0)) | (apart == 0)
        costs = costs._replace(capacity_bytes=capacity[same.argmax(axis=1)])
    return costs


def random_accelerators(
    rng: np.random.Generator, num_devices: int, *, shared: bool = False
) -> np.ndarray:
    """Hosts (-1) and accelerators int32 [D] in any order, with gaps; often there is no host.

    Args:
      rng: consumed.
      num_devices: D.
      shared: whether several devices may be parts of one accelerator.
    """
    numbers = rng.choice(num_devices + 2, num_devices, replace=shared)
    if shared:
        numbers = numbers % rng.integers(1, num_devices + 1)
    hosts = rng.random(num_devices) < rng.choice([0.0, 0.3, 0.6])
    return np.where(hosts, -1, numbers).astype(np.int32)


def random_placements(
    rng: np.random.Generator, graph: OpGraph, num_devices: int, batch: int
) -> np.ndarray:
    """int32 [batch, K], in turn: anything; segments of a topological order, each device's
    contiguous; the same but for a few operations.
    """
    rank = np.argsort(dag.topological_order(graph))
    placements = rng.integers(0, num_devices, (batch, graph.num_ops))
    for row in range(batch):
        if row % 3:
            devices = rng.permutation(num_devices)
            devices = np.sort(devices) if rng.random() < 0.5 else devices
            ends = np.sort(rng.integers(0, graph.num_ops + 1, num_devices - 1))
            kept = rng.random(graph.num_ops) < (1.0 if row % 3 == 1 else 0.8)
            segments = devices[np.searchsorted(ends, rank, side="right")]
            placements[row] = np.where(kept, segments, placements[row])
    first_ops = np.sort(np.unique(graph.colocation, return_index=True)[1])
    return placements[:, first_ops].astype(np.int32)


def unit_costs(graph: OpGraph, num_devices: int = 2, **changes: np.ndarray) -> CostModel:
    """Computing takes 1 on device 0, 2 on device 1 and so on; transfers take 100 + bytes."""
    apart = 1 - np.eye(num_devices, dtype=np.float32)
    costs = CostModel(
        compute_s=np.tile(np.arange(1, num_devices + 1, dtype=np.float32), (graph.num_ops, 1)),
        transfer_latency_s=100 * apart,
        transfer_s_per_byte=apart,
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
        memory_bytes=np.zeros(graph.num_ops, np.float32),
        capacity_bytes=np.full(num_devices, np.inf, np.float32),
        accelerator=np.arange(num_devices, dtype=np.int32),
    )
    return costs._replace(**changes)


def two_apart(graph: OpGraph, num_devices: int = 2, **changes: np.ndarray) -> CostModel:
    """As `unit_costs`, but transfers take 2, whatever crosses."""
    apart = 1 - np.eye(num_devices, dtype=np.float32)
    links = {"transfer_latency_s": 2 * apart, "transfer_s_per_byte": 0 * apart}
    return unit_costs(graph, num_devices, **links | changes)


def as_problem(graph: OpGraph, costs: CostModel, objective: str) -> Problem:
    """The problem on devices called device0, device1, ..."""
    num_devices = costs.compute_s.shape[1]
    return Problem(graph, costs, objective, tuple(f"device{i}" for i in range(num_devices)))


def single_starts(problem: Problem, evaluate: Evaluate | None = None) -> list[Solution]:
    """The single devices, with their latencies."""
    rows = problem.single_devices
    values_s = (evaluate or problem.evaluate)(rows)
    return [
        Solution(row, float(s), evaluations=len(rows))
        for row, s in zip(rows, values_s, strict=True)
    ]


def random_problem(colocated: float = 0.0) -> Problem:
    """Always the same 20 operations on three devices, in the `makespan` objective."""
    rng = np.random.default_rng(0)
    graph = random_dag(rng, 20, colocated=colocated)
    return as_problem(graph, random_costs(rng, graph, 3), "makespan")


def batched(
    graph: OpGraph,
    num_devices: int = 2,
    *,
    allowed: np.ndarray | None = None,
    num_nodes: int | None = None,
    num_edges: int | None = None,
    costed: bool = False,
) -> jraph.GraphsTuple:
    """The graph as policies read it, with five random features an operation.

    With `costed`, its globals are Placeto's view of random costs, infinite where not `allowed`.
    """
    features = np.random.default_rng(0).normal(size=(graph.num_ops, 5))
    if allowed is None:
        allowed = np.ones((graph.num_ops, num_devices), bool)
    ends = graph.senders, graph.receivers
    found = batching.to_graphs_tuple(
        *ends, features, allowed, num_nodes=num_nodes, num_edges=num_edges
    )
    if not costed:
        return found
    costs = random_costs(np.random.default_rng(1), graph, num_devices)
    costs = costs._replace(compute_s=np.where(allowed, costs.compute_s, np.inf))
    return with_costs(found, as_problem(graph, costs, "makespan"))


def with_costs(graph: jraph.GraphsTuple, problem: Problem) -> jraph.GraphsTuple:
    """The policy's graph of a problem as Placeto reads it."""
    sizes = len(graph.nodes["mask"]), len(graph.senders)
    return graph._replace(globals=placeto.placeto_view(problem, *sizes))


def independent_policy(num_devices: int = 2) -> Policy:
    """The simplest policy: its parameters [N, D] are the logits of every operation's device."""

    def log_probs(params: Array, graph: jraph.GraphsTuple) -> Array:
        return distributions.masked_log_softmax(params, graph.nodes["allowed"])

    def init(key: Array, graph: jraph.GraphsTuple) -> Array:
        return jax.random.normal(key, (graph.nodes["mask"].shape[0], num_devices))

    def log_prob(params: Array, graph: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        table, mask = log_probs(params, graph), graph.nodes["mask"]
        value = jax.vmap(distributions.log_prob, in_axes=(None, 0, None))(
            table, drawn.placement[:, 0], mask
        )
        entropy = jnp.broadcast_to(distributions.entropy(table, mask), value.shape)
        choices = jnp.broadcast_to(mask.sum().astype(jnp.float32), value.shape)
        return LogProb(value[:, None], entropy[:, None], choices[:, None])

    def sample(params: Array, key: Array, graph: jraph.GraphsTuple, num_samples: int) -> Sample:
        keys = jax.random.split(key, num_samples)
        choice = jax.vmap(distributions.sample, in_axes=(0, None))(keys, log_probs(params, graph))
        unscored = Sample(choice[:, None], jnp.zeros(()), jnp.zeros(()))
        return Sample(unscored.placement, *log_prob(params, graph, unscored)[:2])

    return Policy(init, sample, log_prob)


def episodic_policy(steps: int) -> Policy:
    """The independent policy, which draws every step of an episode anew."""
    policy = independent_policy()

    def episodes(flat: Any) -> Any:  # [B * T, 1, ...] -> [B, T, ...]
        return jax.tree.map(lambda leaf: leaf.reshape(-1, steps, *leaf.shape[2:]), flat)

    def log_prob(params: Array, graph: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, 1, *leaf.shape[2:]), drawn)
        return episodes(policy.log_prob(params, graph, flat))

    def sample(params: Array, key: Array, graph: jraph.GraphsTuple, num_samples: int) -> Sample:
        return episodes(policy.sample(params, key, graph, num_samples * steps))

    return policy._replace(sample=sample, log_prob=log_prob)


def all_placements(num_ops: int, num_devices: int) -> np.ndarray:
    """Every placement of operations that are not co-located, int32 [D**N, N]."""
    return np.array(list(itertools.product(range(num_devices), repeat=num_ops)), np.int32)


def every_placement(problem: Problem) -> np.ndarray:
    """Every placement, int32 [D**N, K], with co-location several times: there are as many rows."""
    placements = all_placements(problem.graph.num_ops, len(problem.devices))
    return placements[:, problem.decisions.first_ops]


@contextlib.contextmanager
def count_compilations() -> Iterator[list[str]]:
    """A list that gains an entry whenever XLA compiles something within the block."""
    compiled: list[str] = []

    def listen(event: str, duration_s: float, **kwargs: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(str(kwargs.get("fun_name", "")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def nightly_except(kept: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Returns the cases of a test, of which `make test` runs only those in `kept`."""
    return [
        case
        if case in kept
        else pytest.param(*case if isinstance(case, tuple) else (case,), marks=pytest.mark.nightly)
        for case in cases
    ]


def build(
    name: str,
    n: int,
    edges: list[tuple[int, int]],
    edge_bytes: Sequence[float] | None = None,
    **fields: Any,
) -> OpGraph:
    """Builds a graph of n operations; `fields` are further arguments of `opgraph.make_graph`."""
    senders, receivers = np.array(edges, np.int32).reshape(-1, 2).T
    defaults = {
        "op_names": [f"op{i}" for i in range(n)],
        "op_types": ["MatMul"] * n,
        "edge_bytes": 10 * (senders + 1) if edge_bytes is None else edge_bytes,
        "output_shapes": [(1, i + 1) for i in range(n)],
        "flops": 100.0 * np.arange(1, n + 1),
        "weight_bytes": np.arange(n),
    }
    return opgraph.make_graph(
        name=name, senders=senders, receivers=receivers, **(defaults | fields)
    )
