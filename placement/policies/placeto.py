"""Placeto: a placement improved step by step, by Addanki et al. (2019, arXiv 1906.08879).

An episode starts from a fixed placement and visits every operation once, in a fixed order. A step
sees the current placement, draws a device for the operation that it visits, and yields the
resulting placement, which is evaluated and rewarded (in the paper by the decrease of the runtime):

    x       = MLP(features under the current placement)                        `step_features`
    y       <- x + relu(G mean over u -> v of relu(F y_u))      forward, `rounds` times from y = x
    z       <- x + relu(G' mean over v -> w of relu(F' z_w))    backward, with separate weights
    e       = [y, z]
    pool    = mean of relu(F'' e)                               three of them, with weights each
    device  ~ softmax(MLP[e of the current operation,
                          pool of its ancestors, of its descendants, of those parallel to it])

Operations have no names or types for the policy, so a trained one can place other graphs.
The default has the rounds of the authors' settings and the undiscounted rewards of their code
(aravic/generalizable-device-placement). An update learns from one episode; they add up the
gradients of four to eight workers. The mean gradient is clipped at 1, their sum at 1.25; the
learning rate is constant, theirs falls linearly; a step's baseline decays by 0.9, theirs is the
mean of ten episodes. With `variant=tuned` a step re-places a group of operations, because every
step costs an evaluation; the logits favour the current device (`stay`), and four episodes are the
baseline of each other. Comments mark the other departures.
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
from placement.policies import base, distributions, encoders, readers
from placement.policies.inputs import CostView, PolicyInput, cost_view
from placement.policies.readers import find_fastest_device, place_on_device
from placement.problem import Problem
from placement.simulators import makespan
from placement.types import Array, LogProb, Params, Policy, Sample

# The relations between operations, see `Tables.relation`.
_NONE, _SELF, _ANCESTOR, _DESCENDANT, _PARALLEL = range(5)


class Tables(NamedTuple):
    """Arrays that the policy reads next to a problem's costs: N operations, padded; T steps."""

    order: Array  # int32 [T]: the operation that each step visits
    visit: Array  # int32 [N]: the step that places the operation: its own, or its leader's
    constant_features: Array  # float32 [N, D + 1]: costs and output bytes, over the graph's largest
    relation: Array  # int8 [N, N]: [i, j] is what j is to i; 0 if either is padding
    start_device: Array  # int32 []: the device that episodes start from


def placeto_view(problem: Problem, num_nodes: int, num_edges: int) -> CostView[Tables]:
    """Computes the padded costs of a problem and the policy's tables, on the host."""
    graph, num_ops = problem.graph, problem.graph.num_ops
    num_padding = num_nodes - num_ops
    # By priority; in the paper in any topological order. Co-located operations move together, when
    # the first of them is due. Steps of padding come last and change nothing.
    decisions = problem.order_decisions(problem.priority_order)
    order = np.append(problem.decisions.first_ops[decisions], np.arange(num_ops, num_nodes))
    visit = np.append(
        np.argsort(decisions)[problem.decision], np.arange(len(decisions), len(order))
    )

    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    is_supported = np.isfinite(compute_s)
    # Where a device cannot run an operation, the feature is that of the most expensive operation.
    max_s = compute_s[is_supported].max(initial=0.0)
    _, first_edge = np.unique(graph.tensors, return_index=True)  # of every tensor
    output_bytes = np.bincount(
        graph.senders[first_edge], graph.edge_bytes[first_edge], graph.num_ops
    )
    constant_features = np.column_stack(
        [
            np.where(is_supported, compute_s, max_s) / (max_s or 1.0),
            output_bytes / (output_bytes.max(initial=0.0) or 1.0),
        ]
    ).astype(np.float32)

    leads_to = dag.reachability(graph)
    relation = np.full(leads_to.shape, _PARALLEL, np.int8)
    relation[leads_to] = _DESCENDANT
    relation[leads_to.T] = _ANCESTOR
    np.fill_diagonal(relation, _SELF)

    policy_tables = Tables(
        order=order.astype(np.int32),
        visit=visit.astype(np.int32),
        constant_features=np.pad(constant_features, ((0, num_padding), (0, 0))),
        relation=np.pad(relation, (0, num_padding), constant_values=_NONE),
        start_device=find_fastest_device(problem),
    )
    return cost_view(problem, num_nodes, num_edges)._replace(policy_tables=policy_tables)


def initial_placement(graph: jraph.GraphsTuple) -> Array:
    """Returns the start of episodes, int32 [N]: the start device, or the first allowed one.

    The paper's episodes start on the first device or at a random placement. From the fastest single
    device, the placements that an episode evaluates are near good ones.
    """
    t: Tables = graph.globals.policy_tables
    return place_on_device(graph, t.start_device, jnp.asarray(t.order)[t.visit])


def compute_start_s(costs: CostView[Tables], placement: Array) -> Array:
    """Computes the operations' starts float32 [N, B] under placements int32 [N, B]; inf: never."""
    finish_s = makespan.finish_s(costs.simulator, placement)
    compute_s = jnp.take_along_axis(jnp.asarray(costs.compute_s), placement, axis=1)
    return jnp.where(jnp.isfinite(finish_s), finish_s - compute_s, jnp.inf)


def step_features(t: Tables, placement: Array, start_s: Array, step: Array | int) -> Array:
    """Computes the features of operations at one step of B episodes.

    There are F = 2 D + 4 columns: the cost on each device and the output's size, each over the
    graph's largest; whether the operation is current; whether it is done; its device, one-hot; its
    start time less that of the current operation, over the latest, in [-1, 1]. An infinite start
    time counts as the latest finite one.

    Args:
      t: the problem's tables.
      placement: int32 [N, B], the current placements.
      start_s: float32 [N, B], the start times under these.
      step: the number of the step.

    Returns:
      float32 [N, B, F].
    """
    chex.assert_rank([placement, start_s, step], [2, 2, 0])
    chex.assert_type([placement, start_s, step], [int, float, int])
    num_devices = t.constant_features.shape[1] - 1
    latest_s = jnp.where(jnp.isfinite(start_s), start_s, 0.0).max(axis=0)
    start_s = jnp.minimum(start_s, latest_s)
    # The authors divide by the largest difference, which is 0 for the last operation.
    relative = (start_s - start_s[t.order[step]]) / jnp.where(latest_s > 0, latest_s, 1.0)
    flags = jnp.stack([t.visit == step, t.visit < step], axis=-1)
    node_features = jnp.concatenate([t.constant_features, flags.astype(jnp.float32)], axis=-1)
    return jnp.concatenate(
        [
            jnp.broadcast_to(node_features[:, None], (*placement.shape, node_features.shape[-1])),
            jax.nn.one_hot(placement, num_devices),
            relative[..., None],
        ],
        axis=-1,
    )


class _Links(NamedTuple):
    """The edges along which messages travel in one direction."""

    senders: Array  # int32 [E]
    receivers: Array  # int32 [E]
    weight: Array  # float32 [N, 1]: one over the number of senders, 1 if there is none


# Flax names these modules after their classes, and draws their parameters by these names.
class _Round(nn.Module):
    """One round of messages: y [N B, H] -> (y, None), with the operations' own x [N B, H]."""

    hidden_size: int

    @nn.compact
    def __call__(self, y: Array, x: Array, links: _Links) -> tuple[Array, None]:
        num_nodes = links.weight.shape[0]
        message = jax.nn.relu(encoders.Dense(self.hidden_size, use_bias=False)(y)).reshape(
            num_nodes, -1
        )
        total = jraph.segment_sum(message[links.senders], links.receivers, num_nodes)
        # Theirs are sums, which grow with the eighth power of the fan-in over eight rounds.
        mean = (total * links.weight).reshape(y.shape)
        return x + jax.nn.relu(encoders.Dense(self.hidden_size, use_bias=False)(mean)), None


class _Messages(nn.Module):
    """`rounds` rounds in one direction, with the same weights: [N B, H] -> [N B, H].

    A state has 8 numbers by default; theirs has 5 + D. F and G are as shallow as with their option
    `--small-nn`.
    """

    hidden_size: int
    rounds: int

    @nn.compact
    def __call__(self, x: Array, links: _Links) -> Array:
        return encoders.repeat_round(_Round, self.rounds)(self.hidden_size)(x, x, links)[0]


class _Pools(nn.Module):
    """Means [B, 3 H] of embeddings [N B, 2 H] over ancestors, descendants and parallel operations.

    The relation int8 [N] is that of each operation to the current one.
    """

    hidden_size: int

    @nn.compact
    def __call__(self, embedding: Array, relation: Array) -> Array:
        kinds = np.array([_ANCESTOR, _DESCENDANT, _PARALLEL])
        member = relation == kinds[:, None]  # [3, N]
        weight = member / jnp.maximum(member.sum(axis=1, keepdims=True), 1)
        y = jax.nn.relu(encoders.Dense(len(kinds) * self.hidden_size, use_bias=False)(embedding))
        # The means of all kinds' features over all kinds' members in two products. The pools are
        # the diagonal: the features of a kind over its own members.
        mean = weight @ y.reshape(relation.shape[0], -1)
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
        current_device = x[current, :, -1 - self.num_devices : -1]  # one-hot [B, D]
        x = encoders.MLP((self.hidden_size, self.hidden_size))(x.reshape(num_nodes * batch, -1))
        messages = (
            _Messages(self.hidden_size, self.rounds, name="forward")(x, forward),
            _Messages(self.hidden_size, self.rounds, name="backward")(x, backward),
        )
        embedding = jnp.concatenate(messages, axis=-1)  # [N B, 2 H]
        current_embedding = embedding.reshape(num_nodes, batch, -1)[current]
        pools = _Pools(self.hidden_size)(embedding, relation)
        inputs = jnp.concatenate([current_embedding, pools], axis=-1)
        hidden = jax.nn.relu(encoders.Dense(inputs.shape[-1])(inputs))
        # A tenth of the usual scale.
        small = encoders.lecun_normal(0.01)
        logits = cast(Array, encoders.Dense(self.num_devices, kernel_init=small)(hidden))
        return logits + self.stay * current_device


def make(*, num_devices: int, hidden_size: int = 8, rounds: int = 8, stay: float = 0.0) -> Policy:
    """Makes the Placeto policy; the globals of its graphs are a `placeto_view`.

    T is the padded number of operations that decide. The placements of a sample are those after
    each step.

    Args:
      num_devices: D.
      hidden_size: H, of an operation's state in one direction (5 + D in the authors' code).
      rounds: rounds of messages (8 in the authors' settings).
      stay: added to the logit of the operation's current device.
    """
    network = _Network(num_devices, hidden_size, rounds, stay)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        t, links = graph.globals.policy_tables, _both_links(graph)
        features = jnp.zeros((len(t.relation), 1, 2 * num_devices + 4))
        return network.init(key, features, jnp.asarray(t.relation[0]), *links)

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        shape = num_samples, len(graph.nodes["mask"]), num_devices
        noise = distributions.noise(key, shape)  # [B, T, D]

        def draw(step: Array, log_probs: Array) -> Array:
            return jnp.argmax(log_probs + noise[:, step], axis=-1)

        return _run_episodes(network, params, graph, num_samples, draw)

    def log_prob(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        # No later step changes the device that a step decides, so the last placement has them all.
        order = graph.globals.policy_tables.order
        devices = jnp.asarray(samples.placement)[:, -1, order].T  # [T, B]

        def repeat(step: Array, log_probs: Array) -> Array:
            return devices[step]

        episodes = _run_episodes(network, params, graph, devices.shape[1], repeat)
        assert episodes.choices is not None
        return LogProb(episodes.log_prob, episodes.entropy, episodes.choices)

    return Policy(init, sample, log_prob)


def _run_episodes(
    network: _Network,
    params: Params,
    graph: jraph.GraphsTuple,
    batch: int,
    choose: Callable[[Array, Array], Array],
) -> Sample:
    """Runs B episodes; `choose(step, log-probabilities [B, D])` returns the devices, int [B]."""
    graph = jax.tree.map(jnp.asarray, graph)
    costs: CostView[Tables] = graph.globals
    t, links = costs.policy_tables, _both_links(graph)
    # Recomputed in the backward pass, so that the gradient stores only the input of each step.
    apply_network = jax.checkpoint(network.apply, prevent_cse=False)
    # Whether each step places an operation, bool [T].
    is_deciding = graph.nodes["mask"][t.order] & (t.visit[t.order] == jnp.arange(len(t.order)))

    def decide(step: Array, placement: Array) -> tuple[Array, Array, Array]:
        op = t.order[step]
        features = step_features(t, placement, compute_start_s(costs, placement), step)
        logits = apply_network(params, features, t.relation[op], *links)
        log_probs = distributions.masked_log_softmax(logits, graph.nodes["allowed"][op][None])
        device = choose(step, log_probs).astype(jnp.int32)
        log_prob = jnp.take_along_axis(log_probs, device[:, None], axis=1)[:, 0]
        entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=-1)
        return jnp.where((t.visit == step)[:, None], device, placement), log_prob, entropy

    def skip(step: Array, placement: Array) -> tuple[Array, Array, Array]:
        return placement, jnp.zeros(batch), jnp.zeros(batch)

    def take_step(placement: Any, step: Array) -> tuple[Any, tuple[Array, Array, Array]]:
        result = jax.lax.cond(is_deciding[step], decide, skip, step, placement)
        return result[0], result

    start = jnp.broadcast_to(initial_placement(graph)[:, None], (len(t.relation), batch))
    _, (placements, log_prob, entropy) = jax.lax.scan(take_step, start, jnp.arange(len(t.order)))
    choices = jnp.broadcast_to(is_deciding.astype(jnp.float32), log_prob.T.shape)
    placements = jnp.transpose(placements, (2, 0, 1))
    return Sample(placements, log_prob.T, entropy.T, choices=choices)


def _both_links(graph: jraph.GraphsTuple) -> tuple[_Links, _Links]:
    """Returns the links along the edges and against them."""
    num_nodes = len(graph.nodes["mask"])
    is_edge = graph.edges["mask"].astype(jnp.float32)

    def links(senders: Array, receivers: Array) -> _Links:
        count = jraph.segment_sum(is_edge, receivers, num_nodes)
        return _Links(senders, receivers, (1 / jnp.maximum(count, 1))[:, None])

    return links(graph.senders, graph.receivers), links(graph.receivers, graph.senders)


def read(problem: Problem, groups: int = 0) -> PolicyInput:
    """Reads a node for every operation or group, see `readers.read_cost_groups`."""
    return readers.read_cost_groups(problem, placeto_view, groups)


_REINFORCE = {"algorithm": "reinforce", "reward": "improvement"}
_TUNED_LEARNER = {
    "num_samples": 4,
    "learning_rate": 0.03,
    "discount": 0.99,
    "entropy_weight": 0.01,
}
_PAPER_LEARNER = {
    "num_samples": 1,
    "baseline": "moving_average",
    "discount": 1.0,
    "entropy_weight": 1.0,
    # About as many updates as a run of configs/placeto.py has; the authors' users choose it.
    "entropy_decay_updates": 40,
}
RECIPE = base.Recipe(
    make,
    {
        "paper": base.Variant({}, _REINFORCE | _PAPER_LEARNER),
        "tuned": base.Variant({"groups": 64, "stay": 2.0}, _REINFORCE | _TUNED_LEARNER),
    },
    read,
)
