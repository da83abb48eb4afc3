"""HSDAG: the structure-aware placement policy of Duan et al. (NeurIPS 2024, arXiv 2405.14185).

One step of an episode, on states s [N, H] of the operations (section 2.3 and 2.4):

    s_0     = MLP(features)
    z       = GCN(s_t)                              encoder
    groups  = parse(z)                              graph parsing network
    device  ~ softmax(MLP(z_group)) per group       placer
    s_{t+1} = s_t + z_group                         state update: every operation adds its group's

The groups are a deterministic function of the parameters; exploration is in the devices. Encoder
and parse do not depend on the draw, so one pass serves all samples of a step.

Departures from the paper and the authors' code: no dropout (the log-probability of a sample would
depend on a mask that the update cannot see); group embeddings pass a signed logarithm, since pooled
sums grow without bound over the levels and the steps of an episode (LayerNorm would not do: it
cancels the kept scores, which are all that the edge scorer learns from); devices that cannot run a
member of the group are masked; the placer's last layer starts at a tenth of the usual scale, so
that a search starts near the uniform policy.
"""

from typing import cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement import arguments
from placement.errors import UserError
from placement.policies import base, distributions, encoders, hsdag_published, hsdag_walk, parsing
from placement.types import Array, LogProb, Params, Policy, Sample

_MOST_LEVELS = 64  # each at least halves what has an edge: of 2**64 operations nothing is left


def _signed_log(x: Array) -> Array:
    """Damps large values and keeps the order: unlike LayerNorm it lets a group's scale through."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


class _Step(nn.Module):
    """One step: state [N, H] -> next state, (device log-probabilities [N, D], root [N])."""

    num_devices: int
    hidden_size: int
    levels: int
    threshold: float
    decide: str

    @nn.compact
    def __call__(self, state: Array, graph: jraph.GraphsTuple) -> tuple[Array, tuple[Array, Array]]:
        z = encoders.GCN(self.hidden_size)(graph, state)
        scorer = encoders.MLP((self.hidden_size, 1))
        groups = parsing.parse(
            lambda products: scorer(products)[..., 0],
            z,
            graph.senders,
            graph.receivers,
            graph.edges["mask"],
            levels=self.levels,
            threshold=self.threshold,
        )
        pooled = _signed_log(groups.embedding)[groups.root]
        by_group = self.decide == "group"
        unit = groups.root if by_group else jnp.arange(state.shape[0], dtype=jnp.int32)
        placer_input = pooled if by_group else jnp.concatenate([z, pooled], axis=-1)
        hidden = jax.nn.relu(nn.Dense(self.hidden_size)(placer_input))
        small = nn.initializers.variance_scaling(0.01, "fan_in", "truncated_normal")
        logits = nn.Dense(self.num_devices, kernel_init=small)(hidden)
        allowed = jax.ops.segment_min(
            graph.nodes["allowed"].astype(jnp.int32), unit, state.shape[0]
        )
        log_probs = distributions.masked_log_softmax(logits, allowed > 0)
        return state + pooled, (log_probs, unit)


class _Network(nn.Module):
    """All steps of an episode: graph -> device log-probabilities [T, N, D], root [T, N]."""

    num_devices: int
    hidden_size: int
    levels: int
    threshold: float
    decide: str
    episode_steps: int

    @nn.compact
    def __call__(self, graph: jraph.GraphsTuple) -> tuple[Array, Array]:
        state = encoders.MLP((self.hidden_size, self.hidden_size))(graph.nodes["features"])
        steps = nn.scan(
            _Step,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=nn.broadcast,
            length=self.episode_steps,
        )(self.num_devices, self.hidden_size, self.levels, self.threshold, self.decide)
        _, (log_probs, root) = steps(state, graph)
        return log_probs, root


def make(
    *,
    num_devices: int,
    hidden_size: int = 128,
    levels: int = 1,
    threshold: float = 0.5,
    decide: str = "operation",
    episode_steps: int = 1,
) -> Policy:
    """Makes the HSDAG policy.

    Args:
      num_devices: D.
      hidden_size: H, of encoder, parser and placer (128 in the authors' code).
      levels: static bound on the levels of the parse; 0 places every operation by itself.
      threshold: the least score of a kept edge, see `placement.policies.parsing`.
      decide: 'operation': every operation draws its own device, seeing its own embedding and its
        group's; 'group': a group's operations share one draw, as in the paper.
      episode_steps: T, states visited in an episode (20 in the authors' code).

    Raises:
      UserError: an unknown `decide`, or more levels than there can be.
    """
    arguments.check("decide", decide, ("operation", "group"))
    if levels > _MOST_LEVELS:
        raise UserError(f"{levels=} are more than a parse has; give at most {_MOST_LEVELS}")
    network = _Network(num_devices, hidden_size, levels, threshold, decide, episode_steps)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        return network.init(key, graph)

    def apply(params: Params, graph: jraph.GraphsTuple) -> tuple[Array, Array]:
        return cast(tuple[Array, Array], network.apply(params, graph))

    def masks(graph: jraph.GraphsTuple, root: Array) -> Array:  # bool [T, N]: slots that decide
        return graph.nodes["mask"] & (root == jnp.arange(root.shape[-1]))

    def score(log_probs: Array, mask: Array, placement: Array) -> Array:  # all with axis T -> [T]
        return jax.vmap(distributions.log_prob)(log_probs, placement, mask)

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        log_probs, root = apply(params, graph)
        mask = masks(graph, root)
        keys = jax.random.split(key, (num_samples, episode_steps))
        choice = jax.vmap(jax.vmap(distributions.sample), in_axes=(0, None))(keys, log_probs)
        placement = jnp.take_along_axis(choice, root[None], axis=-1)
        log_prob_ = jax.vmap(score, in_axes=(None, None, 0))(log_probs, mask, placement)
        entropy = jax.vmap(distributions.entropy)(log_probs, mask)
        return Sample(placement, log_prob_, jnp.broadcast_to(entropy, log_prob_.shape))

    def log_prob(params: Params, graph: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        log_probs, root = apply(params, graph)
        mask = masks(graph, root)
        value = jax.vmap(score, in_axes=(None, None, 0))(log_probs, mask, drawn.placement)
        entropy = jax.vmap(distributions.entropy)(log_probs, mask)
        choices = mask.sum(axis=-1).astype(jnp.float32)
        return LogProb(value, *(jnp.broadcast_to(x, value.shape) for x in (entropy, choices)))

    def greedy(params: Params, graph: jraph.GraphsTuple) -> Array:
        log_probs, root = apply(params, graph)
        return jnp.argmax(log_probs[-1], axis=-1)[root[-1]].astype(jnp.int32)

    return Policy(init, sample, log_prob, greedy)


# 'tuned' decides in one step, from many samples, for every operation. 'walk' moves a group at a
# time, see `placement.policies.hsdag_walk`; 'paper' and 'released' are the published method, see
# `placement.policies.hsdag_published`.
RECIPE = base.Recipe(
    make,
    {
        "tuned": base.Variant({"levels": 1, "threshold": 0.5, "decide": "operation"}, base.PPO),
        "walk": base.Variant(
            {}, {"algorithm": "walk", "entropy_weight": 0.0}, hsdag_walk.make, hsdag_walk.read
        ),
        **hsdag_published.VARIANTS,
    },
    base.operations,
)
