"""The Hierarchical Planner: groups, then devices for the groups (Mirhoseini et al., ICLR 2018).

For operation n and groups g = 1 .. G:

    g_n  ~ softmax(MLP(features of n, features of the first six operations that read n)      grouper
                   - slices * (position of n - g)^2)
    e_g  = log(1 + [edges to each group, edges from each group, members, sum of their features])
    d    = Placer(e_1, .., e_G)                               `placement.policies.seq2seq`

In the paper `slices` is 0. Every operation draws its group independently. The members of a group
share one device, which is one that can run all of them. The sum of the members' features counts
their types and adds up their output shapes.

Grouper and placer are trained together. The log-probability of a sample is that of its groups,
which the sample keeps as `latent`, int32 [T, N], plus that of the devices given the groups. The
entropy is that of the devices only: an entropy bonus for the grouper would drive it towards groups
of scattered operations. Only the grouper's logits are the same for all samples; every sample has
its own sequence of groups.

Where the paper and the authors' released code differ, or only the code gives a constant, the
paper variant follows the code: 40 groups for two devices, one sample an update, a moving average
that starts at the failing signal, and failures that are left out after 1,000 updates. A placement
that exceeds a memory fails. Departures:

- Those of `placement.policies.seq2seq`.
- The number of groups is the code's, the least of 256 and twenty a device; the paper's is 256.
  There are never more groups than nodes.
- An update learns from one sample, of groups and devices, as in the code. In the paper it learns
  from four placements of one grouping, and several workers measure at the same time.
- The grouper and the groups' embeddings read features of operations: their types, degrees, fractal
  dimensions, positions and output shapes. The paper and the code have no degrees, dimensions and
  positions; they embed an operation with the numbers of its neighbours, not with their features.
- The sums of a group pass through a signed logarithm; theirs are divided by the largest.
- The grouper has biases and a ReLU, which the code lacks.
- An empty group is not in the sequence and has no probability. In the code it has a device.
- If no device can run all members of a group, no device is drawn for the group: each member takes
  the first device that may run it.
- A class of co-located operations is one node, see `base.read_classes`.

The tuned variant departs further. With `slices` > 0 the groups start as G slices of the order of
the nodes, from which the network then departs. The position of n is its place in this order, scaled
to 0 .. G; coarse graphs are in topological order. Groups that start as independent draws, or as any
function of the features, cut nearly every edge, and the placer first learns to use one device.
"""

from typing import cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement import arguments
from placement.policies import base, distributions, seq2seq
from placement.types import Array, LogProb, Params, Policy, Sample

GROUPINGS = ("learned", "random")
_GROUPER_SIZE = 64  # hidden units of the grouper, as in the paper
_MAX_GROUPS, _GROUPS_PER_DEVICE = 256, 20  # as in the authors' code


def make(
    *,
    num_devices: int,
    num_groups: int = 0,
    hidden_size: int = 512,
    aligned: bool = True,
    stay: float = 0.0,
    slices: float = 0.0,
    grouping: str = "learned",
) -> Policy:
    """Makes the Hierarchical Planner's policy.

    Args:
      num_devices: D.
      num_groups: G; 0: the number of the authors' code, the least of 256 and twenty a device. At
        most as many as padded nodes are used, so the parameters of a small graph only fit graphs of
        its bucket.
      hidden_size: H, of the placer's encoder and decoder.
      aligned: whether the attention asks with the group to decide; False in the paper.
      stay: added to the logit of the device of the group before.
      slices: how strongly operations are drawn to the group at their position; 0 in the paper.
      grouping: 'learned'. 'random': each operation's group is drawn once, with the parameters, and
        only the placer learns (the paper's table 2).

    Raises:
      UserError: the grouping is unknown, or a hyper-parameter is out of range.
    """
    arguments.check_choice("grouping", grouping, GROUPINGS)
    arguments.check_range("slices", slices, 0)
    num_groups = num_groups or min(_MAX_GROUPS, _GROUPS_PER_DEVICE * num_devices)
    settings = seq2seq.Settings(num_devices, hidden_size, aligned, stay)
    if grouping == "learned":
        grouper = _Grouper(num_groups, _GROUPER_SIZE, slices)
        return _make_learned(seq2seq.Placer(settings), grouper)

    def init_groups(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> dict[str, Params]:
        del graph
        # A float, because it is a parameter. It holds all whole numbers below 2^24 exactly.
        return {"seed": jax.random.uniform(key, maxval=2.0**24)}

    def sequence(params: Params, graph: jraph.GraphsTuple) -> tuple[seq2seq.Items, Array]:
        num_nodes = len(graph.nodes["mask"])
        size = min(num_groups, num_nodes)
        group = random_groups(params["seed"], num_nodes, size)
        return pool(graph, group, size), group

    return seq2seq.make_policy(settings, init_groups, sequence)


def pool(graph: jraph.GraphsTuple, group: Array, num_groups: int) -> seq2seq.Items:
    """Computes the items of the groups: e_g float32 [G, 2 G + 1 + F], present, allowed.

    Args:
      graph: N nodes with F features.
      group: int32 [N], the group of each operation; that of a masked node does not count.
      num_groups: G.
    """
    chex.assert_rank(group, 1)
    chex.assert_type(group, int)
    mask, features = graph.nodes["mask"], graph.nodes["features"]
    group = jnp.where(mask, group, num_groups)  # out of bounds: dropped below
    edges = jnp.zeros((num_groups, num_groups))
    edges = edges.at[group[graph.senders], group[graph.receivers]].add(
        graph.edges["mask"].astype(jnp.float32), mode="drop"
    )
    columns = jnp.concatenate([jnp.ones((len(mask), 1)), features], axis=-1)
    sums = jax.ops.segment_sum(columns, group, num_groups)
    num_forbidden = jax.ops.segment_sum(1.0 - graph.nodes["allowed"], group, num_groups)  # [G, D]
    present = sums[:, 0] > 0
    embedding = jnp.concatenate([edges, edges.T, sums], axis=-1)
    embedding = jnp.sign(embedding) * jnp.log1p(jnp.abs(embedding))
    return seq2seq.Items(embedding, present, present[:, None] & (num_forbidden == 0))


def random_groups(seed: Array, num_nodes: int, num_groups: int) -> Array:
    """Draws a group int32 [N] for each node; the groups of the first nodes do not depend on N.

    The seed is a float32 [], because it is a parameter; no gradient reaches it.
    """
    chex.assert_rank(seed, 0)
    chex.assert_type(seed, float)
    key = jax.random.key(jax.lax.stop_gradient(seed).astype(jnp.uint32))
    return jax.random.randint(key, (num_nodes,), 0, num_groups)


class _Grouper(nn.Module):
    """Computes the log-probabilities [N, G] of every operation's group."""

    num_groups: int
    hidden_size: int
    slices: float

    @nn.compact
    def __call__(self, graph: jraph.GraphsTuple) -> Array:
        hidden = seq2seq.Embedding(self.hidden_size)(graph)
        mask, num_groups = graph.nodes["mask"], min(self.num_groups, len(hidden))
        logits = nn.Dense(num_groups)(hidden)
        # The n-th of N operations is at (n + 1/2) / N * G, the middle of group g at g + 1/2.
        position = (jnp.cumsum(mask) - 0.5) / jnp.maximum(mask.sum(), 1) * num_groups
        distance = position[:, None] - (jnp.arange(num_groups) + 0.5)
        logits -= self.slices * distance**2
        return jax.nn.log_softmax(logits)


def _make_learned(placer: seq2seq.Placer, grouper: _Grouper) -> Policy:
    """Makes the policy that draws groups, then devices."""

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
        """Computes one sample from its groups int32 [N] and the bias [G, D] of its devices."""
        items = pool(graph, group, len(bias))
        choices = seq2seq.decode(placer, params["placer"], graph, items, group, bias[None])
        grouping_log_prob = distributions.log_prob(log_probs, group, graph.nodes["mask"])
        log_prob = choices.log_prob + grouping_log_prob
        count = items.decides.sum(keepdims=True).astype(jnp.float32)
        return (
            Sample(choices.device, log_prob, choices.entropy, latent=group[None]),
            LogProb(log_prob, choices.entropy, count),
        )

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        log_probs = group_log_probs(params, graph)

        def draw(key: chex.PRNGKey) -> Sample:
            group_key, device_key = jax.random.split(key)
            group = distributions.sample(group_key, log_probs)
            shape = (log_probs.shape[-1], placer.settings.num_devices)
            bias = jax.random.gumbel(device_key, shape)
            return episode(params, graph, log_probs, group, bias)[0]

        return jax.vmap(draw)(jax.random.split(key, num_samples))

    def log_prob(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        if samples.latent is None:
            raise ValueError("the sample has no groups: its latent is None")
        log_probs = group_log_probs(params, graph)

        def score(group: Array, placement: Array) -> LogProb:
            bias = seq2seq.teacher_forcing_bias(graph, group, placement, log_probs.shape[-1])
            return episode(params, graph, log_probs, group, bias)[1]

        return jax.vmap(score)(samples.latent[:, 0], samples.placement[:, 0])

    return Policy(init, sample, log_prob)


# 'tuned' starts with slices as groups, and runs of devices.
RECIPE = base.Recipe(
    make,
    {
        "tuned": base.Variant(seq2seq.TUNED | {"num_groups": 32, "slices": 4.0}, base.PPO),
        "paper": base.Variant(seq2seq.PAPER, seq2seq.PAPER_LEARNER | {"num_samples": 1}),
    },
    base.read_classes,
)
