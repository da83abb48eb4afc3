"""The Hierarchical Planner: groups, then devices for the groups (Mirhoseini et al., ICLR 2018).

For operation n and groups g = 1 .. G:

    g_n  ~ softmax(MLP(features of n, features of the first six operations that read n)      grouper
                   - slices * (position of n - g)^2)
    e_g  = log(1 + [edges to each group, edges from each group, members, sum of their features])
    d    = Placer(e_1, .., e_G)                               `placement.policies.seq2seq`

Every operation draws its group independently. Its members share one device, which is one that can
run all of them. Grouper and placer are trained together: the log-probability of a sample is that of
its groups, which the sample keeps as `latent`, int32 [T, N], plus that of the devices given the
groups. The entropy is that of the devices only: a bonus for the grouper's would drive it towards
groups of scattered operations.

Where the paper and the authors' released code differ, the paper variant follows the code: 20 groups
a device up to 256, one sample of groups and devices in an update, a moving average that starts at
the failing signal, and failures that are left out after 1,000 updates. In the paper an update
learns from four placements of one grouping. The tuned variant starts with G slices of the order of
the nodes (`slices` > 0), from which the network departs: groups that start as independent draws, or
as any function of the features, cut nearly every edge, and the placer first learns to use one
device. Comments and `seq2seq` mark the other departures.
"""

from typing import cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement import arguments
from placement.policies import base, distributions, encoders, readers, seq2seq
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
    if grouping == "random":
        return _make_random(settings, num_groups)
    grouper, placer = _Grouper(num_groups, _GROUPER_SIZE, slices), seq2seq.Placer(settings)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        grouper_key, placer_key = jax.random.split(key)
        log_probs, params = grouper.init_with_output(grouper_key, graph)
        items = pool(graph, jnp.argmax(log_probs, axis=-1), log_probs.shape[-1])
        bias = jnp.zeros((1, *items.allowed.shape))
        return {"grouper": params, "placer": placer.init(placer_key, items, bias)}

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
            Sample(choices.device, log_prob, choices.entropy, group[None], count),
            LogProb(log_prob, choices.entropy, count),
        )

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        log_probs = cast(Array, grouper.apply(params["grouper"], graph))

        group_key, device_key = jax.random.split(key)
        groups = distributions.sample(
            group_key, jnp.broadcast_to(log_probs, (num_samples, *log_probs.shape))
        )
        bias = distributions.noise(device_key, (num_samples, log_probs.shape[-1], num_devices))

        def draw(group: Array, bias: Array) -> Sample:
            return episode(params, graph, log_probs, group, bias)[0]

        return jax.vmap(draw)(groups, bias)

    def log_prob(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        log_probs = cast(Array, grouper.apply(params["grouper"], graph))

        def score(group: Array, placement: Array) -> LogProb:
            bias = seq2seq.teacher_forcing_bias(graph, group, placement, log_probs.shape[-1])
            return episode(params, graph, log_probs, group, bias)[1]

        return jax.vmap(score)(samples.latent[:, 0], samples.placement[:, 0])

    return Policy(init, sample, log_prob)


def _make_random(settings: seq2seq.Settings, num_groups: int) -> Policy:
    """Makes the policy whose groups are drawn once, with the parameters."""

    def init_groups(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> dict[str, Params]:
        del graph
        # A float, because it is a parameter. It holds all whole numbers below 2^24 exactly.
        return {"seed": jax.random.uniform(key, maxval=2.0**24)}

    def sequence(params: Params, graph: jraph.GraphsTuple) -> tuple[seq2seq.Items, Array]:
        num_nodes = len(graph.nodes["mask"])
        size = min(num_groups, num_nodes)
        # The groups of the first nodes do not depend on the number of nodes.
        key = jax.random.key(jax.lax.stop_gradient(params["seed"]).astype(jnp.uint32))
        group = jax.random.randint(key, (num_nodes,), 0, size)
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
    # The authors divide by the largest sum; their operations have no degrees and positions.
    embedding = jnp.concatenate([edges, edges.T, sums], axis=-1)
    embedding = jnp.sign(embedding) * jnp.log1p(jnp.abs(embedding))
    # An empty group is not an item; in their code it has a device. If no device can run all
    # members, none is drawn: each member takes the first device that may run it.
    return seq2seq.Items(embedding, present, present[:, None] & (num_forbidden == 0))


class _Grouper(nn.Module):
    """Computes the log-probabilities [N, G] of every operation's group."""

    num_groups: int
    hidden_size: int
    slices: float

    @nn.compact
    def __call__(self, graph: jraph.GraphsTuple) -> Array:
        hidden = seq2seq.Embedding(self.hidden_size)(graph)
        mask, num_groups = graph.nodes["mask"], min(self.num_groups, len(hidden))
        logits = encoders.Dense(num_groups)(hidden)
        # The n-th of N operations is at (n + 1/2) / N * G, the middle of group g at g + 1/2.
        position = (jnp.cumsum(mask) - 0.5) / jnp.maximum(mask.sum(), 1) * num_groups
        distance = position[:, None] - (jnp.arange(num_groups) + 0.5)
        logits -= self.slices * distance**2
        return jax.nn.log_softmax(logits)


# 'tuned' starts with slices as groups, and runs of devices.
RECIPE = base.Recipe(
    make,
    {
        "paper": base.Variant(seq2seq.PAPER, seq2seq.PAPER_LEARNER | {"num_samples": 1}),
        "tuned": base.Variant(seq2seq.TUNED | {"num_groups": 32, "slices": 4.0}, base.PPO),
    },
    readers.read_decisions,
)
