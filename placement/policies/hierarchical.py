"""The Hierarchical Planner: groups, then devices for the groups (Mirhoseini et al., ICLR 2018).

    g_n  ~ softmax(MLP(features of n, features of the first R operations that read n)        grouper
                   - slices * (slice of n - g)^2)
    e_g  = log(1 + [edges to each group, edges from each group, members, sum of their features])
    d    = Placer(e_1, .., e_G)                               `placement.policies.seq2seq`

R is `num_readers`, six in the paper. Every operation draws its group by itself; the members of a
group share one device, among those that can run all of them. The sum of features counts the types
and adds up the output shapes. Both parts are trained together: the log-probability of a sample is
that of its groups, which it keeps as `latent`, int32 [T, N], plus that of the devices given the
groups. The entropy is of the devices alone: a learner that is paid for the grouper's drives it
towards groups of scattered operations. Only the grouper's logits do not depend on the draw: every
sample has its own sequence.

The last term of the grouper is not the papers' and 0 by default. With it the groups start as G
slices of the nodes' order, topological in coarse graphs, which the network then moves away from:
`slices` is how strongly. Groups that start as scattered draws (or as any function of features) cut
nearly every edge, so that whatever the placer learns first is to leave all but one device alone.

An empty group is not in the sequence and costs nothing. Where no device can run all members of a
group, nothing is decided for it: each member takes the first device that it is allowed on.
Of operations that follow one another, the first draws the group of all.

Departures from the paper and the authors' code: those of `placement.policies.seq2seq`; a group's
sums pass a signed logarithm instead of being divided by the largest; the grouper has a ReLU, which
their code lacks; a sample draws groups and devices both, where the paper has four placements for
each grouping; there are never more groups than nodes.
"""

import dataclasses
from collections.abc import Callable
from typing import cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement import arguments
from placement.errors import UserError
from placement.graphs import batching
from placement.graphs import roles as roles_lib
from placement.graphs.features import DEFAULT_BLOCKS
from placement.instance import Instance
from placement.policies import base, colocrl, distributions, seq2seq
from placement.types import Array, LogProb, Params, Policy, Sample

GROUPINGS = ("learned", "random", "roles", "none")
ROLES = {"names": roles_lib.by_name, "neighbours": roles_lib.by_neighbours}


def make(
    *,
    num_devices: int,
    num_groups: int = 256,
    grouper_size: int = 64,
    hidden_size: int = 512,
    temperature: float = 1.0,
    tanh_constant: float = 5.0,
    noise: float = 0.0,
    aligned: bool = True,
    stay: float = 0.0,
    slices: float = 0.0,
    num_readers: int = seq2seq.NUM_READERS,
    grouping: str = "learned",
) -> Policy:
    """Makes the Hierarchical Planner's policy.

    Args:
      num_devices: D.
      num_groups: G; no more than the padded nodes are used, so that parameters of small graphs fit
        those of one bucket only.
      grouper_size: hidden units of the grouper.
      hidden_size: H, of the placer's encoder and decoder.
      temperature: divides the logits of the devices.
      tanh_constant: C, bounds them; 0 does not.
      noise: the share of every choice, of groups and of devices, that is uniform.
      aligned: whether a choice sees the group that it is for; False in the paper.
      stay: how strongly a group is drawn to the device of the one before it.
      slices: how strongly an operation is drawn to the group of its place in the order.
      num_readers: how many of the operations that read one the grouper sees; six in the paper.
      grouping: 'learned'; 'random': every operation's group is drawn once, with the parameters,
        and the placer alone learns (the paper's table 2); 'roles': operations of one role are a
        group, see `read`; 'none': every operation by itself, which is `colocrl`'s network.

    Raises:
      UserError: an unknown grouping, no groups, or what `seq2seq.Settings` refuses.
    """
    arguments.check("grouping", grouping, GROUPINGS)
    if num_groups < 1 or grouper_size < 1:
        raise UserError(f"{num_groups=}, {grouper_size=}: give at least 1 of each")
    if not slices >= 0:
        raise UserError(f"{slices=} draws nothing together; give at least 0")
    settings = seq2seq.Settings(
        num_devices, hidden_size, temperature, tanh_constant, noise, aligned, stay
    )
    if grouping == "none":
        return colocrl.make(**dataclasses.asdict(settings))
    if grouping == "random":
        return _fixed(seq2seq.Placer(settings), num_groups, _seed, _drawn)
    if grouping == "roles":
        return _fixed(seq2seq.Placer(settings), num_groups, lambda key: {}, _of_roles)
    grouper = _Grouper(num_groups, grouper_size, noise, slices, num_readers)
    return _learned(seq2seq.Placer(settings), grouper)


def pool(graph: jraph.GraphsTuple, group: Array, num_groups: int) -> seq2seq.Items:
    """Makes items of the groups, from the group int32 [N] of each operation.

    Their embedding is float32 [G, 2 G + 1 + F].
    """
    chex.assert_rank(group, 1)
    chex.assert_type(group, int)
    mask, features = graph.nodes["mask"], graph.nodes["features"]
    group = jnp.where(mask, group, num_groups)  # out of bounds: dropped below
    edges = jnp.zeros((num_groups, num_groups))
    edges = edges.at[group[graph.senders], group[graph.receivers]].add(
        graph.edges["mask"].astype(jnp.float32), mode="drop"
    )
    each = jnp.concatenate([jnp.ones((len(mask), 1)), features], axis=-1)
    summed = jax.ops.segment_sum(each, group, num_groups)
    barred = jax.ops.segment_sum(1.0 - graph.nodes["allowed"], group, num_groups)
    present = summed[:, 0] > 0
    embedding = jnp.concatenate([edges, edges.T, summed], axis=-1)
    embedding = jnp.sign(embedding) * jnp.log1p(jnp.abs(embedding))
    return seq2seq.Items(embedding, present, present[:, None] & (barred == 0))


def random_groups(seed: Array, num_nodes: int, num_groups: int) -> Array:
    """Draws a group int32 [N] for each node; the draws of the first nodes do not depend on N.

    The seed is a float32 [], since it is a parameter, though no gradient reaches it.
    """
    chex.assert_rank(seed, 0)
    chex.assert_type(seed, float)
    key = jax.random.key(jax.lax.stop_gradient(seed).astype(jnp.uint32))
    return jax.random.randint(key, (num_nodes,), 0, num_groups)


class _Grouper(nn.Module):
    """Log-probabilities [N, G] of every operation's group."""

    num_groups: int
    hidden_size: int
    noise: float
    slices: float
    num_readers: int

    @nn.compact
    def __call__(self, graph: jraph.GraphsTuple) -> Array:
        hidden = seq2seq.Embedding(self.hidden_size, self.num_readers)(graph)
        logits = nn.Dense(min(self.num_groups, len(hidden)))(hidden)
        logits -= self.slices * _from_slice(graph.nodes["mask"], logits.shape[-1]) ** 2
        log_probs = jax.nn.log_softmax(logits)
        return seq2seq.mix(log_probs, jnp.ones_like(log_probs, bool), self.noise)


def _from_slice(mask: Array, num_groups: int) -> Array:
    """How many groups, float32 [N, G], a node's place in the order is from each group's middle."""
    place = (jnp.cumsum(mask) - 0.5) / jnp.maximum(mask.sum(), 1) * num_groups
    return place[:, None] - (jnp.arange(num_groups) + 0.5)


def _seed(key: chex.PRNGKey) -> Params:
    return {"seed": jax.random.uniform(key, maxval=2.0**24)}


def _drawn(params: Params, graph: jraph.GraphsTuple, num_groups: int) -> Array:
    return random_groups(params["seed"], len(graph.nodes["mask"]), num_groups)


def _of_roles(params: Params, graph: jraph.GraphsTuple, num_groups: int) -> Array:
    del params
    return jnp.minimum(graph.nodes["role"], num_groups - 1)


def _fixed(
    placer: seq2seq.Placer,
    num_groups: int,
    init_group: Callable[[chex.PRNGKey], Params],
    group_of: Callable[[Params, jraph.GraphsTuple, int], Array],
) -> Policy:
    """Groups int32 [N] that no sample changes, of parameters that are theirs."""

    def sequence(params: Params, graph: jraph.GraphsTuple) -> tuple[seq2seq.Items, Array]:
        size = min(num_groups, len(graph.nodes["mask"]))
        group = group_of(params, graph, size)
        return pool(graph, group, size), group

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        group_key, placer_key = jax.random.split(key)
        params = init_group(group_key)
        items, _ = sequence(params, graph)
        bias = jnp.zeros((1, *items.allowed.shape))
        return {**params, "placer": placer.init(placer_key, items, bias)}

    return seq2seq.policy(placer, init, sequence)


def _learned(placer: seq2seq.Placer, grouper: _Grouper) -> Policy:
    num_devices = placer.settings.num_devices

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        grouper_key, placer_key = jax.random.split(key)
        log_probs, params = grouper.init_with_output(grouper_key, graph)
        items = pool(graph, jnp.argmax(log_probs, axis=-1), log_probs.shape[-1])
        bias = jnp.zeros((1, *items.allowed.shape))
        return {"grouper": params, "placer": placer.init(placer_key, items, bias)}

    def group_log_probs(params: Params, graph: jraph.GraphsTuple) -> Array:
        return cast(Array, grouper.apply(params["grouper"], graph))

    def episode(
        params: Params, graph: jraph.GraphsTuple, log_probs: Array, group: Array, bias: Array
    ) -> tuple[Sample, LogProb]:
        """One sample, of the groups int32 [N] and of the devices that follow from bias [G, D]."""
        mask = graph.nodes["mask"]
        items = pool(graph, group, len(bias))
        chosen = seq2seq.place(placer, params["placer"], graph, items, group, bias[None])
        log_prob = chosen.log_prob + distributions.log_prob(log_probs, group, mask)
        choices = items.decide.sum(keepdims=True).astype(jnp.float32)
        return (
            Sample(chosen.device, log_prob, chosen.entropy, latent=group[None]),
            LogProb(log_prob, chosen.entropy, choices),
        )

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        log_probs = group_log_probs(params, graph)

        def draw(key: chex.PRNGKey) -> Sample:
            group_key, device_key = jax.random.split(key)
            group = distributions.sample(group_key, log_probs)
            bias = jax.random.gumbel(device_key, (log_probs.shape[-1], num_devices))
            return episode(params, graph, log_probs, group, bias)[0]

        return jax.vmap(draw)(jax.random.split(key, num_samples))

    def log_prob(params: Params, graph: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        if drawn.latent is None:
            raise ValueError("the sample does not say its groups (latent is None)")
        log_probs = group_log_probs(params, graph)

        def score(group: Array, placement: Array) -> LogProb:
            bias = seq2seq.teacher_forcing(graph, group, placement, log_probs.shape[-1])
            return episode(params, graph, log_probs, group, bias)[1]

        return jax.vmap(score)(drawn.latent[:, 0], drawn.placement[:, 0])

    def greedy(params: Params, graph: jraph.GraphsTuple) -> Array:
        log_probs = group_log_probs(params, graph)
        group = jnp.argmax(log_probs, axis=-1).astype(jnp.int32)
        bias = jnp.zeros((log_probs.shape[-1], num_devices))
        return episode(params, graph, log_probs, group, bias)[0].placement[0]

    return Policy(init, sample, log_prob, greedy)


def read(
    problem: Instance,
    features: tuple[str, ...] = DEFAULT_BLOCKS,
    num_nodes: int | None = None,
    num_edges: int | None = None,
    roles: str = "names",
) -> base.PolicyInput:
    """Reads as `base.classes` does, and the role of every node, int32 [N], as `role`.

    Args:
      problem, features, num_nodes, num_edges: as there.
      roles: what tells them, 'names' or 'neighbours' (`placement.graphs.roles`). They are numbered
        by their first operation; those beyond the number of groups share the last.

    Raises:
      UserError: nothing of that name tells them.
    """
    arguments.check("roles", roles, ROLES)

    def of_nodes(problem: Instance, num_nodes: int, num_edges: int) -> Array:
        del num_edges
        leaders = problem.classes.first_ops
        return batching.pad(ROLES[roles](problem.graph)[leaders], num_nodes, 0)

    graph, assignment = base.classes(problem, features, of_nodes, num_nodes, num_edges)
    nodes = graph.nodes | {"role": graph.globals}
    return base.PolicyInput(graph._replace(nodes=nodes, globals=None), assignment)


# 'paper' has 256 groups, the default; in 'tuned' groups start as slices, and devices as runs.
RECIPE = base.Recipe(
    make,
    {
        "tuned": base.Variant(seq2seq.TUNED | {"num_groups": 32, "slices": 4.0}, base.PPO),
        "paper": base.Variant(seq2seq.PAPER, seq2seq.PAPER_LEARNER),
    },
    read,
)
