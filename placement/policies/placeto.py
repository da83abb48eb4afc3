"""Placeto: a placement improved step by step, by Addanki et al. (2019, arXiv 1906.08879).

An episode starts from a fixed placement and visits every operation once, in a fixed order. Each
step sees the placement so far, draws a device for the operation that it visits, and yields the
placement that results, which is evaluated and rewarded (the paper: by the drop of the runtime):

    x       = MLP(features under the placement so far)
    y       <- x + relu(G mean over u -> v of relu(F y_u))      forward, `rounds` times from y = x
    z       <- x + relu(G' mean over v -> w of relu(F' z_w))    backward, with weights of its own
    e       = [y, z]
    pool    = mean of relu(F'' e)                               three of them, with weights each
    device  ~ softmax(MLP[e of the current operation,
                          pool of its ancestors, of its descendants, of those parallel to it])

Features are costs, sizes, and start times in the list schedule of `placement.simulators.makespan`,
whatever the problem's objective. So this policy reads costs: `graph.globals` must be
`view(problem, ...)`. It sees nothing of `graph.nodes["features"]`: operations have no
names and types for it, which is how a trained policy can place graphs that it has never seen.

Operations are visited in the simulator's order of priority. Co-located operations move together,
when the first of them is due in that order. The steps of padding come last and change nothing.

By default a step re-places not an operation but one of some groups of them, all of whose members
share a device: the policy reads the graph of the groups (`read`), in everything above; of classes
of co-located operations, which need have no acyclic one, that of the operations. Every step
costs an evaluation, so that with an operation a step some thousand evaluations are a handful of
episodes, from which little can be learned. `variant=paper` visits every operation.

Departures from the paper and the authors' code (aravic/generalizable-device-placement). Devices
differ, so an operation has a cost on each. Start times are divided by the latest and not, after the
current one's is subtracted, by what is then the largest: that is 0 for the last operation. Messages
are means without biases (sums over eight rounds grow with the eighth power of the fan-in), pools
are means (an option of theirs) that the placer reads as they are, and F, G and the placer are as
shallow as with their `--small-nn`. The order is by priority, not any topological one; the start is
the fastest device alone (theirs: the first, or a random placement), so that what an episode
evaluates on its way is near what is worth finding; with `stay`, which theirs lacks, episodes begin
as small changes to it. Devices that cannot run an operation are masked, and the placer's last layer
starts at a tenth of the usual scale.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement.graphs import dag
from placement.instance import Instance
from placement.policies import base, distributions, encoders
from placement.policies.cost_features import CostView, cost_view
from placement.simulators import makespan
from placement.types import Array, LogProb, OpGraph, Params, Policy, Sample

# What an operation is to another: see `Tables.relation`.
_NONE, _SELF, _ANCESTOR, _DESCENDANT, _PARALLEL = range(5)


class Tables(NamedTuple):
    """What the policy must know of a problem beside its costs: N operations, padded; T steps."""

    order: Array  # int32 [T]: the operation that each step visits
    visit: Array  # int32 [N]: the step that places the operation: its own, or its leader's
    constant: Array  # float32 [N, D + 1]: costs and output bytes, over the largest of the graph
    relation: Array  # int8 [N, N]: [i, j] is what j is to i; 0 where either is padding
    start: Array  # int32 []: the device that episodes start from


def view(problem: Instance, num_nodes: int, num_edges: int) -> CostView[Tables]:
    """Makes the view of a problem, on the host.

    Args:
      problem: of the graph that the policy places.
      num_nodes: padded number of nodes of the policy's graph.
      num_edges: its padded number of edges.
    """
    graph, num_ops = problem.graph, problem.graph.num_ops
    costs = cost_view(problem, num_nodes, num_edges)
    leaders = np.array(list(dict.fromkeys(problem.leaders[problem.priority_order].tolist())))
    order = np.append(leaders, np.arange(num_ops, num_nodes)).astype(np.int32)
    visit = np.empty(num_nodes, np.int32)
    visit[order] = np.arange(len(order))
    visit[:num_ops] = visit[problem.leaders]
    own = Tables(
        order=order,
        visit=visit,
        constant=_constant(problem, num_nodes),
        relation=_relation(graph, num_nodes),
        start=_fastest_device(problem),
    )
    return costs._replace(own=own)


def _constant(problem: Instance, num_nodes: int) -> np.ndarray:
    """Where a device cannot run an operation, it costs as much as the dearest operation does."""
    graph = problem.graph
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    finite = np.isfinite(compute_s)
    dearest = compute_s[finite].max(initial=0.0)
    _, first = np.unique(graph.tensors, return_index=True)
    bytes_ = np.bincount(graph.senders[first], graph.edge_bytes[first], graph.num_ops)
    columns = np.column_stack(
        [
            np.where(finite, compute_s, dearest) / (dearest or 1.0),
            bytes_ / (bytes_.max(initial=0.0) or 1.0),
        ]
    )
    return np.pad(columns.astype(np.float32), ((0, num_nodes - graph.num_ops), (0, 0)))


def _fastest_device(problem: Instance) -> np.ndarray:
    """int32 []: of the devices that can run most operations, the one that takes least for them."""
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    finite = np.isfinite(compute_s)
    total_s = np.where(finite, compute_s, 0.0).sum(axis=0)
    return np.lexsort((total_s, -finite.sum(axis=0)))[0].astype(np.int32)


def _relation(graph: OpGraph, num_nodes: int) -> np.ndarray:
    leads_to = dag.reachability(graph)
    relation = np.full(leads_to.shape, _PARALLEL, np.int8)
    relation[leads_to] = _DESCENDANT
    relation[leads_to.T] = _ANCESTOR
    np.fill_diagonal(relation, _SELF)
    return np.pad(relation, (0, num_nodes - graph.num_ops), constant_values=_NONE)


def initial_placement(graph: jraph.GraphsTuple) -> Array:
    """Returns where episodes start, int32 [N]: all on the fastest device, or the first allowed."""
    t: Tables = graph.globals.own
    allowed = jnp.asarray(graph.nodes["allowed"])
    first = jnp.where(allowed[:, t.start], t.start, jnp.argmax(allowed, axis=1)).astype(jnp.int32)
    return first[jnp.asarray(t.order)[t.visit]]


def start_s(costs: CostView[Tables], placement: Array) -> Array:
    """Computes when operations start, float32 [N, B], under placements int32 [N, B]; inf: never."""
    chex.assert_rank(placement, 2)
    chex.assert_type(placement, int)
    finish_s = makespan.finish_s(costs.simulator, placement)
    compute_s = jnp.take_along_axis(jnp.asarray(costs.compute_s), placement, axis=1)
    return jnp.where(jnp.isfinite(finish_s), finish_s - compute_s, jnp.inf)


def features(t: Tables, placement: Array, start_s: Array, step: Array | int) -> Array:
    """Computes what a step sees of the operations under placements int32 [N, B].

    Columns, F = 2 D + 4 of them: the cost on each device and the output's size, both over the
    graph's largest; whether the operation is current; whether it is done; its device, one-hot; its
    start time less the current operation's, over the latest, in [-1, 1]. What cannot run (an
    infinite start) counts as late as the latest that can.

    Args:
      t: the problem's tables.
      placement: so far.
      start_s: float32 [N, B], under that placement.
      step: of the episode.

    Returns:
      float32 [N, B, F].
    """
    chex.assert_rank([placement, start_s, step], [2, 2, 0])
    chex.assert_type([placement, start_s, step], [int, float, int])
    num_devices = t.constant.shape[1] - 1
    latest = jnp.where(jnp.isfinite(start_s), start_s, 0.0).max(axis=0)
    start_s = jnp.minimum(start_s, latest)
    relative = (start_s - start_s[t.order[step]]) / jnp.where(latest > 0, latest, 1.0)
    flags = jnp.stack([t.visit == step, t.visit < step], axis=-1)
    of_node = jnp.concatenate([t.constant, flags.astype(jnp.float32)], axis=-1)
    return jnp.concatenate(
        [
            jnp.broadcast_to(of_node[:, None], (*placement.shape, of_node.shape[-1])),
            jax.nn.one_hot(placement, num_devices),
            relative[..., None],
        ],
        axis=-1,
    )


class _Links(NamedTuple):
    """Where messages travel."""

    senders: Array  # int32 [E]
    receivers: Array  # int32 [E]
    share: Array  # float32 [N, 1]: one over the number of senders, 0 where there is none


class _Round(nn.Module):
    """One round of messages: y [N B, H] -> (y, nothing), around the operations' own x [N B, H]."""

    hidden_size: int

    @nn.compact
    def __call__(self, y: Array, x: Array, links: _Links) -> tuple[Array, None]:
        num_nodes = links.share.shape[0]
        sent = jax.nn.relu(nn.Dense(self.hidden_size, use_bias=False)(y)).reshape(num_nodes, -1)
        heard = jraph.segment_sum(sent[links.senders], links.receivers, num_nodes) * links.share
        heard = heard.reshape(y.shape)
        return x + jax.nn.relu(nn.Dense(self.hidden_size, use_bias=False)(heard)), None


class _Messages(nn.Module):
    """`rounds` rounds in one direction, with the same weights: [N B, H] -> [N B, H]."""

    hidden_size: int
    rounds: int

    @nn.compact
    def __call__(self, x: Array, links: _Links) -> Array:
        rounds = nn.scan(
            _Round,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=nn.broadcast,
            length=self.rounds,
        )(self.hidden_size)
        return rounds(x, x, links)[0]


class _Pools(nn.Module):
    """Summaries [B, 3 H] of the embeddings [N B, 2 H] of ancestors, descendants and parallels."""

    hidden_size: int

    @nn.compact
    def __call__(self, embedding: Array, relation: Array) -> Array:
        kinds = np.array([_ANCESTOR, _DESCENDANT, _PARALLEL])
        member = relation == kinds[:, None]
        share = member / jnp.maximum(member.sum(axis=1, keepdims=True), 1)
        y = jax.nn.relu(nn.Dense(len(kinds) * self.hidden_size, use_bias=False)(embedding))
        # All kinds' weights over all kinds' members, in two products; the pools are the diagonal.
        mean = share @ y.reshape(relation.shape[0], -1)
        mean = mean.reshape(len(kinds), -1, len(kinds), self.hidden_size)
        return jnp.concatenate([mean[kind, :, kind] for kind in range(len(kinds))], axis=-1)


class _Network(nn.Module):
    """One step: features [N, B, F], relation int8 [N] to the current one -> logits [B, D]."""

    num_devices: int
    hidden_size: int
    rounds: int
    stay: float = 0.0

    @nn.compact
    def __call__(self, x: Array, relation: Array, forward: _Links, backward: _Links) -> Array:
        num_nodes, batch, _ = x.shape
        current = jnp.argmax(relation == _SELF)
        device = x[current, :, -1 - self.num_devices : -1]  # one-hot
        x = encoders.MLP((self.hidden_size, self.hidden_size))(x.reshape(num_nodes * batch, -1))
        messages = (
            _Messages(self.hidden_size, self.rounds, name="forward")(x, forward),
            _Messages(self.hidden_size, self.rounds, name="backward")(x, backward),
        )
        embedding = jnp.concatenate(messages, axis=-1)
        own = embedding.reshape(num_nodes, batch, -1)[current]
        seen = jnp.concatenate([own, _Pools(self.hidden_size)(embedding, relation)], axis=-1)
        hidden = jax.nn.relu(nn.Dense(seen.shape[-1])(seen))
        small = nn.initializers.variance_scaling(0.01, "fan_in", "truncated_normal")
        logits = cast(Array, nn.Dense(self.num_devices, kernel_init=small)(hidden))
        return logits + self.stay * device


def make(*, num_devices: int, hidden_size: int = 8, rounds: int = 8, stay: float = 0.0) -> Policy:
    """Makes the Placeto policy; its graphs carry `view` as their globals.

    T is the number of operations that decide, padded: a sample's placements are those after each
    step.

    Args:
      num_devices: D.
      hidden_size: H, of an operation's state in one direction (5 + D in the authors' code).
      rounds: of message passing (8 in the authors' settings).
      stay: how strongly an operation is drawn to the device where it is.
    """
    network = _Network(num_devices, hidden_size, rounds, stay)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        t, links = graph.globals.own, _links(graph)
        seen = jnp.zeros((len(t.relation), 1, 2 * num_devices + 4))
        return network.init(key, seen, jnp.asarray(t.relation[0]), *links)

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        keys = jax.random.split(key, len(graph.nodes["mask"]))

        def draw(step: Array, log_probs: Array) -> Array:
            return distributions.sample(keys[step], log_probs)

        return _episode(network, params, graph, num_samples, draw)

    def log_prob(params: Params, graph: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        # What a step has decided stays to the end.
        decided = jnp.asarray(drawn.placement)[:, -1, graph.globals.own.order].T

        def repeat(step: Array, log_probs: Array) -> Array:
            return decided[step]

        again = _episode(network, params, graph, decided.shape[1], repeat)
        choices = _decides(graph).astype(jnp.float32)
        return LogProb(again.log_prob, again.entropy, jnp.broadcast_to(choices, decided.T.shape))

    def greedy(params: Params, graph: jraph.GraphsTuple) -> Array:
        def best(step: Array, log_probs: Array) -> Array:
            return jnp.argmax(log_probs, axis=-1)

        return _episode(network, params, graph, 1, best).placement[0, -1]

    return Policy(init, sample, log_prob, greedy)


def _episode(
    network: _Network,
    params: Params,
    graph: jraph.GraphsTuple,
    batch: int,
    choose: Callable[[Array, Array], Array],
) -> Sample:
    """B episodes, in which `choose(step, log-probabilities [B, D])` gives the devices, int [B].

    The network is recomputed in the backward pass, so that a gradient keeps of every step no more
    than its input.
    """
    graph = jax.tree.map(jnp.asarray, graph)
    costs: CostView[Tables] = graph.globals
    t, links = costs.own, _links(graph)
    logits_of = jax.checkpoint(network.apply, prevent_cse=False)
    decides = _decides(graph)

    def decide(step: Array, placement: Array) -> tuple[Array, Array, Array]:
        node = t.order[step]
        seen = features(t, placement, start_s(costs, placement), step)
        logits = logits_of(params, seen, t.relation[node], *links)
        log_probs = distributions.masked_log_softmax(logits, graph.nodes["allowed"][node][None])
        device = choose(step, log_probs).astype(jnp.int32)
        log_prob = jnp.take_along_axis(log_probs, device[:, None], axis=1)[:, 0]
        entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=-1)
        return jnp.where((t.visit == step)[:, None], device, placement), log_prob, entropy

    def leave(step: Array, placement: Array) -> tuple[Array, Array, Array]:
        return placement, jnp.zeros(batch), jnp.zeros(batch)

    def take(placement: Any, step: Array) -> tuple[Any, tuple[Array, Array, Array]]:
        done = jax.lax.cond(decides[step], decide, leave, step, placement)
        return done[0], done

    start = jnp.broadcast_to(initial_placement(graph)[:, None], (len(t.relation), batch))
    _, (placements, log_prob, entropy) = jax.lax.scan(take, start, jnp.arange(len(t.order)))
    return Sample(jnp.transpose(placements, (2, 0, 1)), log_prob.T, entropy.T)


def _decides(graph: jraph.GraphsTuple) -> Array:
    """bool [T]: whether a step places an operation."""
    t: Tables = graph.globals.own
    steps = jnp.arange(len(t.order))
    return jnp.asarray(graph.nodes["mask"])[t.order] & (jnp.asarray(t.visit)[t.order] == steps)


def _links(graph: jraph.GraphsTuple) -> tuple[_Links, _Links]:
    """Along the edges and against them."""
    num_nodes = len(graph.nodes["mask"])
    heard = graph.edges["mask"].astype(jnp.float32)

    def links(senders: Array, receivers: Array) -> _Links:
        count = jraph.segment_sum(heard, receivers, num_nodes)
        return _Links(senders, receivers, (1 / jnp.maximum(count, 1))[:, None])

    return links(graph.senders, graph.receivers), links(graph.receivers, graph.senders)


def read(problem: Instance, groups: int = 0) -> base.PolicyInput:
    """Reads a node for every operation, or group of them, with their `view`, and one of padding.

    Not a whole bucket: a step for each node of padding would be evaluated and change nothing.

    Args:
      problem: N operations.
      groups: how many to make at most, see `base.intervals_of`; 0: none. Of operations that follow
        others, groups of their classes, see `base.colocate`.
    """
    if not 0 < groups < len(problem.classes.first_ops):
        return base.costs(problem, view, num_nodes=problem.graph.num_ops + 1)
    if problem.is_colocated:
        return read(base.colocate(problem, groups))
    of = base.intervals_of(problem, groups)
    grouped = base.costs(base.merge(problem, of), view, num_nodes=of.graph.num_ops + 1)
    return grouped._replace(assignment=of.assignment)


# 'paper': an operation a step, one episode an update, and a moving average for every step. 'tuned'
# re-places groups, which mostly stay, in episodes that are each other's baseline.
_IMPROVEMENT = {
    "algorithm": "reinforce",
    "reward": "improvement",
    "discount": 0.99,
    "entropy_weight": 0.01,
}
RECIPE = base.Recipe(
    make,
    {
        "tuned": base.Variant(
            {"groups": 64, "stay": 2.0}, _IMPROVEMENT | {"num_samples": 4, "learning_rate": 0.03}
        ),
        "paper": base.Variant({}, _IMPROVEMENT | {"num_samples": 1, "baseline": "moving_average"}),
    },
    read,
)
