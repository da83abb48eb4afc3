"""GiPH: a placement improved by relocations, after Hu et al. (MLSys 2023, arXiv 2305.14562).

A step moves one operation to another device, whatever that costs, and the resulting placement is
evaluated. The policy reads a graph of operations x devices, the paper's gpNet. Its node (i, d)
stands for operation i on device d; the nodes of the current placement are its *pivots*. An edge
from operation u to v becomes

    the edges  pivot of u -> (v, d)   for every device d
    the edges  (u, d) -> pivot of v   for every device d but u's own

so that a node meets the neighbours of its operation where they are now:

    x       = features of nodes and edges (`_read_state`)
    y       <- MLP(x) + relu(G mean over senders of relu(F[y, x of the edge]))      along the edges
    z       the same against the edges, with separate F and G and the same MLP
    move    ~ softmax over all nodes of MLP[y, z], except pivots and the operation that moved last

The first step of an episode evaluates its start, without a choice; 2 N moves of N operations
follow. No parameter depends on N or D. Rewards are decreases of the latency, in units of the
fastest single device's; the paper divides by a lower bound, its code (uidmice/placement-rl) by
nothing. Schedules are those of `makespan`, whatever the objective. The paper trains on many graphs;
a search here learns on its own. The default has the sizes, discount and episodes of the code.
`variant=tuned` moves groups of operations (`readers.read_cost_groups`) and starts on the fastest
device; four episodes are the baseline of each other.
"""

from typing import NamedTuple, cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement import arguments
from placement.policies import base, encoders, readers
from placement.policies.inputs import (
    CostView,
    PolicyInput,
    cost_view,
    find_leaders,
    with_finite_costs,
)
from placement.policies.readers import find_fastest_device, place_on_device
from placement.problem import Problem
from placement.simulators import makespan
from placement.simulators.makespan import OpSchedule
from placement.types import Array, LogProb, Params, Policy, Sample

_STARTS = ("fastest", "random")
_MOVES_PER_OP = 2  # moves of an episode for each operation
_MAX_AT_ONCE = 16  # steps that are scored at once


class Tables(NamedTuple):
    """Arrays of a problem that the policy reads next to its costs: N operations, padded."""

    is_op: Array  # bool [N]: False for padding
    leader: Array  # int32 [N]: the first of the operation's co-located ones
    size_s: Array  # float32 [N]: the operation's mean time
    rate: Array  # float32 [D]: a device's total time over the mean device's
    edge_bytes: Array  # float32 [E]: of all tensors between the edge's ends
    transfer_latency_s: Array  # float32 [D, D]
    transfer_s_per_byte: Array  # float32 [D, D]
    start_device: Array  # int32 []: the fastest single device


class Action(NamedTuple):
    """A move and the state before it."""

    placement: Array  # int32 [N]
    schedule: OpSchedule  # float32 [N] each: of that placement
    move: Array  # int32 []: D times the operation, plus the device; -1: no move


class _Messages(NamedTuple):
    """The edges of the gpNet in one direction, from operation s to t: E edges, D devices."""

    source: Array  # int32 [E]: s
    target: Array  # int32 [E]: t
    to_devices: Array  # float32 [E, D, F]: features of the edges from the pivot of s to (t, d)
    from_devices: Array  # float32 [E, D, F]: of the edges from (s, d) to the pivot of t
    is_edge: Array  # bool [E]
    is_node: Array  # bool [N, D]
    pivot: Array  # int32 [N]: the device of each operation
    num_sources: Array  # float32 [N]: of an operation's edges
    num_senders: Array  # float32 [N]: of the edges to an operation's pivot


def giph_view(problem: Problem, num_nodes: int, num_edges: int) -> CostView[Tables]:
    """Computes the padded costs of a problem and the policy's tables, on the host.

    In the paper a cost is the product of an operation's size and a device's speed. Here the size is
    the mean time over the devices, and the rate is a device's total time over the mean device's.
    """
    graph, costs = problem.graph, problem.costs
    compute_s = np.asarray(costs.compute_s, np.float64)
    is_supported = np.isfinite(compute_s)
    finite_s = np.where(is_supported, compute_s, 0.0)
    size_s = finite_s.sum(axis=1) / np.maximum(is_supported.sum(axis=1), 1)
    # Of the operations that a device supports, so that unsupported ones do not make it fast.
    mean_total_s = np.where(is_supported, size_s[:, None], 0.0).sum(axis=0)
    total_s = finite_s.sum(axis=0)
    rate = np.where(mean_total_s > 0, total_s / np.where(mean_total_s > 0, mean_total_s, 1.0), 1.0)
    pair = problem.dependencies.pair
    edge_bytes = np.bincount(pair, graph.edge_bytes, len(problem.dependencies.senders))

    def finite(values: Array) -> np.ndarray:
        return np.nan_to_num(np.asarray(values, np.float32), posinf=0.0)

    policy_tables = Tables(
        is_op=np.arange(num_nodes) < graph.num_ops,
        leader=find_leaders(problem, num_nodes),
        size_s=np.pad(size_s, (0, num_nodes - graph.num_ops)).astype(np.float32),
        rate=rate.astype(np.float32),
        edge_bytes=np.pad(edge_bytes, (0, num_edges - len(edge_bytes))).astype(np.float32),
        transfer_latency_s=finite(costs.transfer_latency_s),
        transfer_s_per_byte=finite(costs.transfer_s_per_byte),
        start_device=find_fastest_device(problem),
    )
    return cost_view(problem, num_nodes, num_edges)._replace(policy_tables=policy_tables)


def _scale(x: Array, exists: Array) -> Array:
    """Scales features [..., F] to [-1, 1] by their extremes over bool [...]; constants become 0."""
    axes = tuple(range(exists.ndim))
    low = jnp.where(exists[..., None], x, jnp.inf).min(axis=axes)
    high = jnp.where(exists[..., None], x, -jnp.inf).max(axis=axes)
    varies = high > low
    width = jnp.where(varies, high - low, 1.0)
    scaled = 2.0 * (x - jnp.where(varies, low, 0.0)) / width - 1.0
    return jnp.where(exists[..., None] & varies, scaled, 0.0)


# Flax names these modules after their classes, and draws their parameters by these names.
class _Round(nn.Module):
    """One round of messages: y [N, D, H] -> (y, None), with the nodes' features x [N, D, H].

    `edge_parts` are the products of the edges' features and their part of F, two times [E, D, M].
    """

    @nn.compact
    def __call__(
        self, y: Array, x: Array, m: _Messages, edge_parts: tuple[Array, Array]
    ) -> tuple[Array, None]:
        num_ops, num_devices, width = y.shape
        # F is linear, so its part for nodes is computed at the nodes, which are fewer than edges.
        node_parts = encoders.Dense(edge_parts[0].shape[-1], use_bias=False)(y)

        def add(values: Array, is_sent: Array) -> Array:
            values = jnp.where(is_sent[..., None], values, 0.0)
            return jax.ops.segment_sum(values, m.target, num_ops)

        sent_from_pivot = node_parts[m.source, m.pivot[m.source]][:, None]
        to_devices = jax.nn.relu(sent_from_pivot + edge_parts[0])
        to_pivot = jax.nn.relu(node_parts[m.source] + edge_parts[1])
        is_sender = m.is_edge[:, None] & m.is_node[m.source]  # [E, D]
        total = add(to_devices, jnp.broadcast_to(m.is_edge[:, None], is_sender.shape))
        mean = total / jnp.maximum(m.num_sources, 1)[:, None, None]
        total_at_pivot = add(jnp.where(is_sender[..., None], to_pivot, 0.0).sum(axis=1), m.is_edge)
        mean_at_pivot = total_at_pivot / jnp.maximum(m.num_senders, 1)[:, None]
        is_pivot = (m.pivot[:, None] == jnp.arange(num_devices))[..., None]
        mean = jnp.where(is_pivot, mean_at_pivot[:, None], mean)
        return x + jax.nn.relu(encoders.Dense(width)(mean)), None


class _Direction(nn.Module):
    """Messages in one direction: the nodes' features x [N, D, H] -> [N, D, H].

    Theirs pass once through the graph in topological order, which is equal if no path has more
    edges than there are rounds.
    """

    rounds: int

    @nn.compact
    def __call__(self, x: Array, m: _Messages) -> Array:
        edge_layer = encoders.Dense(x.shape[-1] + m.to_devices.shape[-1])
        edge_parts = edge_layer(m.to_devices), edge_layer(m.from_devices)
        return encoders.repeat_round(_Round, self.rounds)()(x, x, m, edge_parts)[0]


class _Network(nn.Module):
    """The logits of moves, see the module's docstring."""

    embedding_size: int  # of both directions together
    hidden_size: int
    rounds: int

    @nn.compact
    def __call__(self, x: Array, forward: _Messages, backward: _Messages) -> Array:
        """Features of nodes [N, D, F] -> logits [N, D]."""
        y = encoders.MLP((x.shape[-1], self.embedding_size // 2))(x)
        directions = (
            _Direction(self.rounds, name="forward")(y, forward),
            _Direction(self.rounds, name="backward")(y, backward),
        )
        hidden = jax.nn.relu(encoders.Dense(self.hidden_size)(jnp.concatenate(directions, axis=-1)))
        # A tenth of the usual scale.
        small = encoders.lecun_normal(0.01)
        # Only differences of logits matter, so the last layer has no bias.
        return cast(Array, encoders.Dense(1, use_bias=False, kernel_init=small)(hidden)[..., 0])


def make(
    *,
    num_devices: int,
    embedding_size: int = 10,
    hidden_size: int = 16,
    rounds: int = 8,
    start: str = "fastest",
) -> Policy:
    """Makes the GiPH policy; the globals of its graphs are a `giph_view`.

    T is twice the padded number of operations. The placements of a sample are those after each
    step; its latent is an `Action`.

    Args:
      num_devices: D, which the graph also has; the parameters do not depend on it.
      embedding_size: of a node, both directions together (10 in the authors' settings).
      hidden_size: of the MLP of moves (16 in the authors' settings).
      rounds: rounds of messages.
      start: of episodes: 'fastest', the fastest single device, or 'random'.

    Raises:
      UserError: `start` is unknown.
    """
    arguments.check_choice("start", start, _STARTS)
    del num_devices
    network = _Network(embedding_size, hidden_size, rounds)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        graph = with_finite_costs(graph)
        placement = fastest_start(graph)
        schedule = makespan.compute_schedule(graph.globals.simulator, placement)
        return network.init(key, *_read_state(graph, placement, schedule))

    def move_log_probs(
        params: Params, graph: jraph.GraphsTuple, action: Action, last_op: Array, step: Array
    ) -> tuple[Array, Array]:
        """Returns the log-probabilities [N D] of moves, and which are valid, bool [N D]."""
        placement, schedule, _ = action
        state = _read_state(graph, placement, schedule)
        # The moves that a step may make, bool [N, D]: none in the first step and in padding.
        mask, allowed = jnp.asarray(graph.nodes["mask"]), jnp.asarray(graph.nodes["allowed"])
        ops, devices = jnp.arange(allowed.shape[0]), jnp.arange(allowed.shape[1])
        is_move = allowed & mask[:, None] & (placement[:, None] != devices)
        # The authors' code stops to mask the last operation in the second half of an episode.
        is_other = is_move & (ops != last_op)[:, None]
        is_moving_step = (step > 0) & (step <= _MOVES_PER_OP * mask.sum())
        is_valid = (jnp.where(is_other.any(), is_other, is_move) & is_moving_step).reshape(-1)
        logits = cast(Array, network.apply(params, *state)).reshape(-1)
        return jax.nn.log_softmax(jnp.where(is_valid, logits, -1e9)), is_valid

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        graph = with_finite_costs(graph)
        num_steps = _MOVES_PER_OP * len(graph.nodes["mask"])
        num_devices = graph.globals.compute_s.shape[1]
        start_key, key = jax.random.split(key)
        keys = jax.random.split(key, num_steps * num_samples)
        keys = keys.reshape(num_steps, num_samples, *keys.shape[1:])

        def run_episode(start: Array, keys: Array) -> Sample:
            def take_step(
                carry: tuple[Array, Array], inputs: tuple[Array, Array]
            ) -> tuple[tuple[Array, Array], Sample]:
                (placement, last_op), (step, key) = carry, inputs
                schedule = makespan.compute_schedule(graph.globals.simulator, placement)
                action = Action(placement, schedule, jnp.int32(-1))
                log_probs, is_valid = move_log_probs(params, graph, action, last_op, step)
                noise = jax.random.gumbel(key, graph.globals.compute_s.shape).reshape(-1)
                best = jnp.argmax(jnp.where(is_valid, log_probs + noise, -jnp.inf))
                move = jnp.where(is_valid.any(), best, -1).astype(jnp.int32)
                moved_op = jnp.where(move < 0, -1, move // num_devices).astype(jnp.int32)
                is_moved = graph.globals.policy_tables.leader == moved_op  # with its followers
                next_placement = jnp.where(is_moved, move % num_devices, placement)
                next_placement = next_placement.astype(jnp.int32)
                scores = _score(log_probs, is_valid, move)
                action = action._replace(move=move)
                return (next_placement, moved_op), Sample(next_placement, *scores, action)

            steps = jnp.arange(num_steps)
            return jax.lax.scan(take_step, (start, jnp.int32(-1)), (steps, keys))[1]

        if start == "fastest":
            starts: Array = jnp.tile(fastest_start(graph), (num_samples, 1))
        else:  # a random device that can run the operation: the largest of random numbers
            allowed, leader = graph.nodes["allowed"], graph.globals.policy_tables.leader

            def draw(key: Array) -> Array:
                noise = jnp.where(allowed, jax.random.uniform(key, allowed.shape), -1.0)
                return jnp.argmax(noise, axis=1).astype(jnp.int32)[leader]

            starts = jax.vmap(draw)(jax.random.split(start_key, num_samples))
        return jax.vmap(run_episode, in_axes=(0, 1))(starts, keys)

    def log_prob(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        graph = with_finite_costs(graph)
        action: Action = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), samples.latent)  # [T, B]
        moved_op = jnp.where(action.move < 0, -1, action.move // graph.globals.compute_s.shape[1])
        last_op = jnp.concatenate([jnp.full_like(moved_op[:1], -1), moved_op[:-1]])
        steps = jnp.arange(len(moved_op))

        # Recomputed in the backward pass, so that the gradient stores few steps' activations.
        @jax.checkpoint
        def score_step(inputs: tuple[Action, Array, Array]) -> tuple[Array, Array]:
            action, last_op, step = inputs

            def score(action: Action, last_op: Array) -> tuple[Array, Array]:
                return _score(*move_log_probs(params, graph, action, last_op, step), action.move)

            return jax.vmap(score)(action, last_op)

        # The steps' states are known, so that some are scored at once.
        num_at_once = max(k for k in range(1, _MAX_AT_ONCE + 1) if len(steps) % k == 0)
        scores = jax.lax.map(score_step, (action, last_op, steps), batch_size=num_at_once)
        choices = (action.move >= 0).astype(jnp.float32)
        return LogProb(*(x.T for x in (*scores, choices)))

    return Policy(init, sample, log_prob)


def fastest_start(graph: jraph.GraphsTuple) -> Array:
    """Returns the placement on the fastest device, or the first one that supports an operation."""
    t: Tables = graph.globals.policy_tables
    return place_on_device(graph, t.start_device, t.leader)


def _read_state(
    graph: jraph.GraphsTuple, placement: Array, schedule: OpSchedule
) -> tuple[Array, _Messages, _Messages]:
    """Computes the network's arguments for a placement int32 [N]; costs are finite.

    Returns:
      The features of nodes, float32 [N, D, 5], and the messages along the edges and against them.
      Features are scaled to [-1, 1].
    """
    costs: CostView[Tables] = graph.globals
    t, num_ops = costs.policy_tables, len(placement)
    # Devices that cannot run an operation are not nodes. The ends of padding are valid indices.
    is_node = jnp.asarray(graph.nodes["allowed"]) & t.is_op[:, None]
    is_edge = jnp.asarray(costs.senders) < num_ops
    u, v = jnp.minimum(costs.senders, num_ops - 1), jnp.minimum(costs.receivers, num_ops - 1)
    edges, delay_s = jnp.arange(len(u)), jnp.asarray(costs.delay_s)
    # The delays [E, D] from the sender where it is to each device, and from each device to the
    # receiver where it is.
    delay_from_pivot_s = delay_s[edges, placement[u]]
    delay_to_pivot_s = delay_s[edges, :, placement[v]]
    # 1 on a critical path. The authors' is a number for each operation that drifts towards the
    # operations that were on the critical paths of earlier placements of the graph.
    latency_s = jnp.maximum(schedule.latency_s, jnp.finfo(jnp.float32).tiny)
    criticality = 1.0 - schedule.slack_s / latency_s  # [N]

    # Nodes: the operation's size, the device's rate, the operation's time on the device, its
    # start-time potential and its criticality. The potential is the time at which the operation's
    # inputs would arrive at the device, less its start time; it is 0 for the current device.
    arrival_s = schedule.finish_s[u][:, None] + delay_from_pivot_s
    arrival_s = jax.ops.segment_max(arrival_s, costs.receivers, num_ops + 1)[:-1]
    arrival_s = jnp.maximum(arrival_s, 0.0)  # -inf without inputs
    is_pivot = placement[:, None] == jnp.arange(is_node.shape[1])
    potential_s = jnp.where(is_pivot, 0.0, arrival_s - schedule.start_s[:, None])
    op_criticality = criticality[:, None]
    columns = t.size_s[:, None], t.rate, jnp.asarray(costs.compute_s), potential_s, op_criticality
    stacked = jnp.stack([jnp.broadcast_to(c, is_node.shape) for c in columns], axis=-1)
    x = _scale(stacked, is_node)

    # Edges from pivots, and to pivots: the bytes, the latency of the link, the time of the
    # transfer, the link's time for a byte, and the smaller criticality of the ends.
    link_s, s_per_byte = jnp.asarray(t.transfer_latency_s), jnp.asarray(t.transfer_s_per_byte)
    edge_criticality = jnp.minimum(criticality[u], criticality[v])[:, None]
    ends = (
        (link_s[placement[u]], delay_from_pivot_s, s_per_byte[placement[u]]),
        (link_s[:, placement[v]].T, delay_to_pivot_s, s_per_byte[:, placement[v]].T),
    )
    features = [
        jnp.stack(
            [
                jnp.broadcast_to(column, delay_from_pivot_s.shape)
                for column in (t.edge_bytes[:, None], *link_columns, edge_criticality)
            ],
            axis=-1,
        )
        for link_columns in ends
    ]
    exists = is_edge[:, None] & is_node[v], is_edge[:, None] & is_node[u]
    scaled = _scale(jnp.concatenate(features), jnp.concatenate(exists))
    from_pivots, to_pivots = scaled[: len(u)], scaled[len(u) :]

    def messages(source: Array, target: Array, to_devices: Array, from_devices: Array) -> _Messages:
        def count(values: Array) -> Array:
            values = jnp.where(is_edge, values, 0).astype(jnp.float32)
            return jax.ops.segment_sum(values, target, num_ops)

        counts = count(jnp.ones_like(source)), count(is_node[source].sum(axis=1))
        features = to_devices, from_devices
        return _Messages(source, target, *features, is_edge, is_node, placement, *counts)

    forward = messages(u, v, from_pivots, to_pivots)
    return x, forward, messages(v, u, to_pivots, from_pivots)


def _score(log_probs: Array, is_valid: Array, move: Array) -> tuple[Array, Array]:
    """Returns the log-probability of a move and the entropy of the choice; 0 without a choice."""
    entropy = -jnp.where(is_valid, jnp.exp(log_probs) * log_probs, 0.0).sum()
    return jnp.where(move < 0, 0.0, log_probs[move]), jnp.where(move < 0, 0.0, entropy)


def read(problem: Problem, groups: int = 0) -> PolicyInput:
    """Reads a node for every operation or group, see `readers.read_cost_groups`."""
    return readers.read_cost_groups(problem, giph_view, groups)


_REINFORCE = {"algorithm": "reinforce", "reward": "improvement", "entropy_weight": 0.0}
_TUNED_LEARNER = {"num_samples": 4, "learning_rate": 0.01, "discount": 0.97}
_PAPER_LEARNER = {
    "num_samples": 1,
    "baseline": "running_mean",
    "learning_rate": 0.01,
    "discount": 0.97,
}
RECIPE = base.Recipe(
    make,
    {
        "paper": base.Variant({"start": "random"}, _REINFORCE | _PAPER_LEARNER),
        "tuned": base.Variant({"groups": 64}, _REINFORCE | _TUNED_LEARNER),
    },
    read,
)
