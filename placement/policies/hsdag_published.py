"""HSDAG step by step: as Duan et al. (NeurIPS 2024, arXiv 2405.14185) describe and released it.

One step of an episode, on node features x [N, F] (sections 2.3 and 2.4 of the paper):

    z       = GCN_1(MLP(x))                         encoder
    repeat    s_uv = sigmoid(MLP(z_u * z_v))        score of every edge
              groups: connected components of every node's highest-scored edge
              z = GCN_2(MLP(pooled z of groups))    encode the graph of groups again
    until nothing shrinks
    h       = linear(z)                             of every group, [F]
    device  ~ softmax(MLP(h))                       placer, one draw for each group
    x      += h of the node's group                 state update

`placement.policies.graph_parsing` forms and pools the groups. All levels share one scorer, and all
levels but the first share one encoder. An episode has 20 steps, and each yields a placement. The
groups follow from the features and the dropout, not from the devices drawn.

`variant=released` is the algorithm of the authors' code. It has five faults, which `faults=0`
corrects:

- A placement on a single device counts as 1e10 seconds, so the best placement may never be found.
- The least score of a kept edge is 0. A connected graph therefore ends as one group, and every
  placement of it uses a single device. Corrected: 0.5 (`threshold`).
- The pooling weight of a group counts the scores of all edges inside it. The paper counts those
  that were kept (`pooling`).
- No gradient passes from one step to the next (`detached`).
- Rewards have no baseline. Corrected: a moving average (`baseline`).

A sixth fault does not apply here: their code confuses two orders of operations, so that most
operations get another's device. Here a placement is one array, from the draw to the evaluation. The
fault of their recurrent baseline is no part of this method. Two properties do not count as faults:
dropout is the only exploration of groups, and all log-probabilities of an episode are multiplied by
one number, the sum of the discounted returns of its steps (`learning.advantages.episode_returns`).

`variant=paper` follows the description: the scores of kept edges pool, edges with a score below 0.5
are not kept, and the gradient passes through the states. Its departures from the description: an
update has 8 episodes, each of which has the others as its baseline; there is no dropout, so that
all episodes of an update have the same groups.

Departures of both variants:

- The loss is a mean over steps, and rewards are relative to the best single device. Adam's updates
  do not depend on such factors.
- Devices that cannot run a member of the group are masked.
- A group without edges keeps its embedding.
- Parallel edges between two groups count separately.
- The last linear map is as wide as the features, so that its output can be added to them.
- Counts among the features are logarithms (`placement.graphs.features`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement import arguments
from placement.errors import UserError
from placement.policies import base, distributions, encoders, graph_parsing
from placement.policies.graph_parsing import Edges
from placement.types import Array, LogProb, Params, Policy, Sample

_NUM_CONVOLUTIONS = 2
_DROPOUT_BITS = 16  # random bits for each activation


class _Level(NamedTuple):
    """The groups of a level of the parse, in the slots of their roots."""

    encoded: Array  # float32 [N, H]: embeddings z of the nodes of this level
    pooled: Array  # float32 [N, H]: pooled embeddings of the groups that they form
    root: Array  # int32 [N]: the slot of every operation's group
    shrunk: Array  # bool []: whether any nodes were joined


class _Convolutions(nn.Module):
    """Graph convolutions as in `encoders.GCN`, over masked edges and with dropout."""

    hidden_size: int
    dropout: float

    @nn.compact
    def __call__(self, x: Array, edges: Edges, key: Array | None) -> Array:
        """[N, H] -> [N, H]; without a key nothing is dropped."""
        u, v, mask = edges
        degree = jnp.ones(len(x)).at[u].add(mask).at[v].add(mask)  # with the self edge
        norm = jax.lax.rsqrt(degree)[:, None]
        # One word for both layers, half of its bits each: drawing takes as long as convolving.
        word = None if key is None else jax.random.bits(key, x.shape, jnp.uint32)
        for layer in range(_NUM_CONVOLUTIONS):
            y = norm * nn.Dense(self.hidden_size)(x)
            from_u, from_v = (jnp.where(mask[:, None], y[ends], 0.0) for ends in (u, v))
            y = jax.nn.relu(norm * y.at[v].add(from_u).at[u].add(from_v))
            if word is not None:
                random_bits = (word >> (_DROPOUT_BITS * layer)) % 2**_DROPOUT_BITS
                is_kept = random_bits >= int(self.dropout * 2**_DROPOUT_BITS)
                y = jnp.where(is_kept, y / (1 - self.dropout), 0.0)
            x = nn.LayerNorm()(x + y)
        return x


class _Layers(NamedTuple):
    """The parts of the network, as modules or as functions with their parameters."""

    input: Any  # [N, F] -> [N, H]
    encoder: Any  # GCN_1: [N, H], edges, key -> [N, H]
    scorer: Any  # [E, H] -> [E, 1]
    set: Any  # [N, H] -> [N, H], of pooled groups
    group_encoder: Any  # GCN_2: as `encoder`
    output: Any  # [N, H] -> [N, F]
    placer: Any  # [N, F] -> [N, D]


class _Steps(NamedTuple):
    """The groups of episodes and the distributions of their devices; leading axes [B, T]."""

    log_probs: Array  # float32 [N, D]: in the slots of the groups' roots
    root: Array  # int32 [N]: the slot of every operation's group
    decides: Array  # bool [N]: which slots have a group


def make(
    *,
    num_devices: int,
    hidden_size: int = 128,
    dropout: float = 0.0,
    threshold: float = 0.5,
    pooling: str = "kept",
    detached: bool = False,
    episode_steps: int = 20,
) -> Policy:
    """Makes the policy. With dropout a sample's latent is uint32 [T], the seeds of its masks.

    Args:
      num_devices: D.
      hidden_size: H.
      dropout: the share of the encoder's activations that a sample drops.
      threshold: the least score of a kept edge.
      pooling: the edges whose scores weigh a group: those that it 'kept', or all 'inside'.
      detached: whether no gradient passes through the states.
      episode_steps: T.

    Raises:
      UserError: `pooling` is unknown, or the dropout is out of range.
    """
    arguments.check_choice("pooling", pooling, ("kept", "inside"))
    if not 0 <= dropout < 1:
        raise UserError(f"dropout={dropout} is out of range; give a share below 1")

    def modules(num_features: int) -> _Layers:
        return _Layers(
            encoders.MLP((hidden_size, hidden_size)),
            _Convolutions(hidden_size, dropout),
            encoders.MLP((hidden_size, 1)),
            encoders.MLP((hidden_size, hidden_size)),
            _Convolutions(hidden_size, dropout),
            nn.Dense(num_features),
            encoders.MLP((hidden_size, num_devices)),
        )

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        num_features = graph.nodes["features"].shape[1]
        x, h = jnp.zeros((1, num_features)), jnp.zeros((1, hidden_size))
        node = jnp.zeros(1, jnp.int32)
        encoder_inputs = h, Edges(node, node, jnp.zeros(1, bool)), None
        inputs = _Layers((x,), encoder_inputs, (h,), (h,), encoder_inputs, (h,), (x,))
        keys = jax.random.split(key, len(inputs))
        parts = zip(modules(num_features), keys, inputs, strict=True)
        return _Layers(*(part.init(key, *args) for part, key, args in parts))._asdict()

    def episode(params: Params, graph: jraph.GraphsTuple, seeds: Array | None) -> _Steps:
        """Runs an episode; seeds: uint32 [T], or None without dropout."""
        features = graph.nodes["features"]
        n = len(features)
        parts = modules(features.shape[1])._asdict()
        layers = _Layers(**{name: partial(parts[name].apply, params[name]) for name in parts})

        def step(x: Array, seed: Any) -> tuple[Array, _Steps]:
            key = None if seed is None else jax.random.key(seed)
            z, root = _encode_and_parse(layers, graph, x, key, threshold, pooling == "inside")
            h = layers.output(z)  # [N, F]
            allowed = jax.ops.segment_min(graph.nodes["allowed"].astype(jnp.int32), root, n)
            log_probs = distributions.masked_log_softmax(layers.placer(h), allowed > 0)
            decides = jax.ops.segment_max(graph.nodes["mask"].astype(jnp.int32), root, n) > 0
            update = jax.lax.stop_gradient(h) if detached else h
            return x + update[root], _Steps(log_probs, root, decides)

        return jax.lax.scan(jax.checkpoint(step), features, seeds, length=episode_steps)[1]

    def episodes(
        params: Params, graph: jraph.GraphsTuple, seeds: Array | None, num_samples: int
    ) -> _Steps:
        if seeds is None:  # all samples have the same groups and distributions
            steps = episode(params, graph, None)
            return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_samples, *x.shape)), steps)
        # One after another: `vmap` would turn the `cond` of a level into a `select`, and compute
        # the levels at which nothing is left to shrink.
        return jax.lax.map(lambda sample_seeds: episode(params, graph, sample_seeds), seeds)

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        key, seed_key = jax.random.split(key)
        shape = num_samples, episode_steps
        seeds = jax.random.bits(seed_key, shape, jnp.uint32) if dropout else None
        steps = episodes(params, graph, seeds, num_samples)
        group_device = _map_steps(distributions.sample)(
            jax.random.split(key, shape), steps.log_probs
        )
        placement = jnp.take_along_axis(group_device, steps.root, axis=-1)
        value = _map_steps(distributions.log_prob)(steps.log_probs, placement, steps.decides)
        entropy = _map_steps(distributions.entropy)(steps.log_probs, steps.decides)
        return Sample(placement, value, entropy, seeds)

    def log_prob(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        steps = episodes(params, graph, samples.latent, len(samples.placement))
        # The device of a group is that of its root, a member.
        value = _map_steps(distributions.log_prob)(
            steps.log_probs, samples.placement, steps.decides
        )
        entropy = _map_steps(distributions.entropy)(steps.log_probs, steps.decides)
        return LogProb(value, entropy, steps.decides.sum(axis=-1).astype(jnp.float32))

    return Policy(init, sample, log_prob)


def _map_steps(function: Callable[..., Array]) -> Callable[..., Array]:
    """Maps a function over the leading axes [B, T] of its arguments."""
    return jax.vmap(jax.vmap(function))


def _encode_and_parse(
    layers: _Layers,
    graph: jraph.GraphsTuple,
    x: Array,
    key: Array | None,
    threshold: float,
    pool_inside: bool,
) -> tuple[Array, Array]:
    """Encodes and groups the operations, level by level.

    Args:
      layers: functions with their parameters.
      graph: padded, N nodes; its features are not read.
      x: float32 [N, F], the state.
      key: for the dropout; None: no dropout.
      threshold: the least score of a kept edge.
      pool_inside: see `graph_parsing.pool`.

    Returns:
      Embeddings float32 [N, H] of the last groups, in the slots of their roots, and the root
      int32 [N] of every operation.
    """
    chex.assert_rank(x, 2)
    chex.assert_type(x, float)
    n = len(x)
    slots = jnp.arange(n, dtype=jnp.int32)
    op_edges = Edges(graph.senders, graph.receivers, graph.edges["mask"])

    def level_key(level: Any) -> Array | None:
        return None if key is None else jax.random.fold_in(key, level)

    def group(z: Array, edges: Edges, root: Array) -> _Level:
        """Groups the nodes with embeddings z [N, H] in the slots `root` [N] of the operations."""
        scores = jax.nn.sigmoid(layers.scorer(z[edges.senders] * z[edges.receivers])[:, 0])
        candidates = edges._replace(mask=edges.mask & (scores >= threshold))
        end_scores = jnp.tile(jax.lax.stop_gradient(scores), 2)
        kept_end = graph_parsing.find_highest_ends(end_scores, candidates, n)
        component = graph_parsing.connect(kept_end, edges)
        joined = jax.ops.segment_min(slots, component, n)[component]  # the smallest member
        pooled = graph_parsing.pool(z, scores, edges, kept_end, joined, inside=pool_inside)
        return _Level(z, pooled, joined[root], (joined != slots).any())

    @jax.checkpoint  # as every step: storing all levels for the gradient is slow
    def encode_anew(level: _Level, number: Array) -> _Level:
        edges = graph_parsing.contract(op_edges, level.root)
        z = layers.group_encoder(layers.set(level.pooled), edges, level_key(number))
        return group(z, edges, level.root)

    def next_level(level: _Level, number: Array) -> tuple[_Level, None]:
        return jax.lax.cond(level.shrunk, encode_anew, lambda same, _: same, level, number), None

    edges = graph_parsing.contract(op_edges, slots)
    first = group(layers.encoder(layers.input(x), edges, level_key(0)), edges, slots)
    # Without a threshold each level at least halves the nodes with a neighbour. The last level
    # encodes the groups once more and joins nothing.
    numbers = jnp.arange(1, (n - 1).bit_length() + 1)
    last, _ = jax.lax.scan(next_level, first, numbers)
    return last.encoded, last.root


_FEATURES = "member_types+degrees+fractal_directed+positional+output_shape"
_UPDATE = {"algorithm": "reinforce", "reward": "inverse", "entropy_weight": 0.0}
_RELEASED_UPDATE = _UPDATE | {
    "num_samples": 1,
    "returns": "episode",
    "max_grad_norm": float("inf"),
}
_RELEASED = {"dropout": 0.2, "features": _FEATURES}
_FAULTS = {"threshold": 0.0, "pooling": "inside", "detached": True}
_variant = partial(base.Variant, make=make, read=base.read_operations)
VARIANTS = {
    "paper": _variant({}, _UPDATE | {"num_samples": 8}),
    "released": _variant(
        _RELEASED | _FAULTS,
        _RELEASED_UPDATE | {"baseline": "none"},
        single_devices_fail=True,
        corrected=_variant(_RELEASED, _RELEASED_UPDATE | {"baseline": "moving_average"}),
    ),
}
