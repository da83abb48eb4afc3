"""HSDAG step by step: as Duan et al. (NeurIPS 2024, arXiv 2405.14185) describe and released it.

One step of an episode, on node features x [N, F] (sections 2.3 and 2.4 of the paper):

    z       = GCN_1(MLP(x))                         encoder
    repeat    groups of nodes by their edges' scores, see `placement.policies.parsing`
              z = GCN_2(MLP(pooled))                encode the graph of groups anew
    until nothing shrinks
    h       = linear(z)                             of every group, [F]
    device  ~ softmax(MLP(h))                       placer, one draw a group
    x      += h of the node's group                 state update

All graphs of groups share one encoder, and all levels one scorer. An episode has 20 steps; each
yields a placement. The groups follow from the features and the dropout, not from the devices drawn.

`variant=released` is the algorithm of the authors' code. Its faults, which `faults=0` corrects:

- a placement on a single device counts as 1e10 seconds, so that the best one may never be found;
- the least score of an edge is 0, so that a connected graph ends as one group, and every placement
  of it is on a single device: now 0.5 (`threshold`);
- a group's pooling weight counts the scores of all edges inside it, where the paper counts those
  that were kept (`pooling`);
- no gradient passes from one step to the next (`detached`);
- rewards have no baseline: now a moving average (`baseline`).

A sixth, that most operations get another's device because two orders of operations are mixed up,
does not apply here, where a placement is an array from draw to evaluation; what is wrong with its
recurrent baseline is no part of this method. Not taken for faults: dropout is the only exploration
of groups, and all log-probabilities of an episode are multiplied by one number, the sum over its
steps of their discounted returns (`learning.advantages.episode_returns`).

`variant=paper` is the method as one would build it from the description: the kept edges' scores
pool, edges below a score of 0.5 are not kept, and the gradient passes through the states.
Departures from the description: 8 episodes an update, each the others' baseline, and no dropout, so
that all episodes of an update see the same groups.

Of both, ours: the loss is a mean over steps, and rewards are relative to the best single device, to
which Adam is indifferent; devices that cannot run a member of the group are masked; a group without
edges keeps its embedding; parallel edges between groups count each; the last linear map is as wide
as the features, so that it can be added to them; their logarithms (`placement.graphs.features`).
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
from placement.policies import base, distributions, encoders, parsing
from placement.types import Array, LogProb, Params, Policy, Sample

_NUM_CONVOLUTIONS, _HALF_BITS = 2, 16


class _Edges(NamedTuple):
    """Undirected edges between slots of N nodes or groups."""

    senders: Array  # int32 [E]
    receivers: Array  # int32 [E]
    live: Array  # bool [E]: False for padding and inside a group


class _Level(NamedTuple):
    """The groups of a level of the parse, in the slots of their roots, see `parsing`."""

    encoded: Array  # float32 [N, H]: of what the level began with
    pooled: Array  # float32 [N, H]: of the groups that it made of these
    root: Array  # int32 [N]: the slot of every operation's group
    shrunk: Array  # bool []


class _Convolutions(nn.Module):
    """Graph convolutions as of `encoders.GCN`, over live edges alone and with dropout."""

    hidden_size: int
    dropout: float

    @nn.compact
    def __call__(self, x: Array, edges: _Edges, key: Array | None) -> Array:
        """[N, H] -> [N, H]; without a key nothing is dropped."""
        u, v, live = edges
        degree = jnp.ones(len(x)).at[u].add(live).at[v].add(live)
        norm = jax.lax.rsqrt(degree)[:, None]
        # Half a word for each layer: drawing takes as long as convolving.
        word = None if key is None else jax.random.bits(key, x.shape, jnp.uint32)
        for layer in range(_NUM_CONVOLUTIONS):
            y = norm * nn.Dense(self.hidden_size)(x)
            from_u, from_v = (jnp.where(live[:, None], y[ends], 0.0) for ends in (u, v))
            y = jax.nn.relu(norm * y.at[v].add(from_u).at[u].add(from_v))
            if word is not None:
                half = (word >> (_HALF_BITS * layer)) % 2**_HALF_BITS
                kept = half >= int(self.dropout * 2**_HALF_BITS)
                y = jnp.where(kept, y / (1 - self.dropout), 0.0)
            x = nn.LayerNorm()(x + y)
        return x


class _Layers(NamedTuple):
    """The parts of the network, as modules or as functions with their parameters."""

    input: Any  # [N, F] -> [N, H]
    encoder: Any  # of operations: [N, H], edges, key -> [N, H]
    scorer: Any  # [E, H] -> [E, 1]
    set: Any  # [N, H] -> [N, H]
    group_encoder: Any  # as `encoder`, of groups
    output: Any  # [N, H] -> [N, F]
    placer: Any  # [N, F] -> [N, D]


class _Steps(NamedTuple):
    """What the network says of episodes, with leading axes [B, T]."""

    log_probs: Array  # float32 [N, D]: of devices, at the slots of the groups' roots
    root: Array  # int32 [N]: the slot of every operation's group
    decides: Array  # bool [N]: slots of groups


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
    """Makes the policy; with dropout a sample's latent is uint32 [T], the seeds of its masks.

    Args:
      num_devices: D.
      hidden_size: H.
      dropout: share of the encoder's activations that a draw leaves out; `greedy` leaves out none.
      threshold: the least score of a kept edge.
      pooling: whose scores are a group's weight: of the edges that it 'kept', or of all 'inside'.
      detached: whether no gradient passes through the states.
      episode_steps: T.

    Raises:
      UserError: an unknown `pooling`, or a dropout of no share.
    """
    arguments.check("pooling", pooling, ("kept", "inside"))
    if not 0 <= dropout < 1:
        raise UserError(f"{dropout=}: give a share below 1")

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
        nowhere = jnp.zeros(1, jnp.int32)
        encoded = h, _Edges(nowhere, nowhere, jnp.zeros(1, bool)), None
        inputs = _Layers((x,), encoded, (h,), (h,), encoded, (h,), (x,))
        keys = jax.random.split(key, len(inputs))
        parts = zip(modules(num_features), keys, inputs, strict=True)
        return _Layers(*(part.init(key, *given) for part, key, given in parts))._asdict()

    def episode(params: Params, graph: jraph.GraphsTuple, seeds: Array | None) -> _Steps:
        features = graph.nodes["features"]
        n = len(features)
        parts = modules(features.shape[1])._asdict()
        layers = _Layers(**{name: partial(parts[name].apply, params[name]) for name in parts})

        def step(x: Array, seed: Any) -> tuple[Array, _Steps]:
            key = None if seed is None else jax.random.key(seed)
            z, root = _encode_and_parse(layers, graph, x, key, threshold, pooling)
            h = layers.output(z)
            allowed = jax.ops.segment_min(graph.nodes["allowed"].astype(jnp.int32), root, n)
            log_probs = distributions.masked_log_softmax(layers.placer(h), allowed > 0)
            decides = jax.ops.segment_max(graph.nodes["mask"].astype(jnp.int32), root, n) > 0
            update = jax.lax.stop_gradient(h) if detached else h
            return x + update[root], _Steps(log_probs, root, decides)

        return jax.lax.scan(jax.checkpoint(step), features, seeds, length=episode_steps)[1]

    def episodes(
        params: Params, graph: jraph.GraphsTuple, seeds: Array | None, num_samples: int
    ) -> _Steps:
        if seeds is None:  # all samples see the same
            one = episode(params, graph, None)
            return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_samples, *x.shape)), one)
        # One by one: `vmap` would compute the levels at which nothing is left to shrink.
        return jax.lax.map(lambda of_one: episode(params, graph, of_one), seeds)

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        key, seed_key = jax.random.split(key)
        shape = num_samples, episode_steps
        seeds = jax.random.bits(seed_key, shape, jnp.uint32) if dropout else None
        steps = episodes(params, graph, seeds, num_samples)
        choice = _each(distributions.sample)(jax.random.split(key, shape), steps.log_probs)
        placement = jnp.take_along_axis(choice, steps.root, axis=-1)
        value = _each(distributions.log_prob)(steps.log_probs, placement, steps.decides)
        entropy = _each(distributions.entropy)(steps.log_probs, steps.decides)
        return Sample(placement, value, entropy, seeds)

    def log_prob(params: Params, graph: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        steps = episodes(params, graph, drawn.latent, len(drawn.placement))
        value = _each(distributions.log_prob)(steps.log_probs, drawn.placement, steps.decides)
        entropy = _each(distributions.entropy)(steps.log_probs, steps.decides)
        return LogProb(value, entropy, steps.decides.sum(axis=-1).astype(jnp.float32))

    def greedy(params: Params, graph: jraph.GraphsTuple) -> Array:
        steps = episode(params, graph, None)
        return jnp.argmax(steps.log_probs[-1], axis=-1)[steps.root[-1]].astype(jnp.int32)

    return Policy(init, sample, log_prob, greedy)


def _each(function: Callable[..., Array]) -> Callable[..., Array]:
    """Maps a function over the leading axes [B, T] of its arguments."""
    return jax.vmap(jax.vmap(function))


def _encode_and_parse(
    layers: _Layers,
    graph: jraph.GraphsTuple,
    x: Array,
    key: Array | None,
    threshold: float,
    pooling: str,
) -> tuple[Array, Array]:
    """Encodes and groups, level by level.

    Args:
      layers: with their parameters.
      graph: padded, N nodes; its features are not read.
      x: float32 [N, F], the state.
      key: of the dropout; None: nothing is dropped.
      threshold: the least score of a kept edge.
      pooling: see `make`.

    Returns:
      Embeddings float32 [N, H] of the groups in the slots of their roots, and the root int32 [N] of
      every operation.
    """
    chex.assert_rank(x, 2)
    chex.assert_type(x, float)
    n = len(x)
    slots = jnp.arange(n, dtype=jnp.int32)

    def edges_between(root: Array) -> _Edges:
        u, v = root[graph.senders], root[graph.receivers]
        return _Edges(u, v, graph.edges["mask"] & (u != v))

    def level_key(level: Any) -> Array | None:
        return None if key is None else jax.random.fold_in(key, level)

    def group(z: Array, edges: _Edges, root: Array) -> _Level:
        u, v, live = edges
        score = jax.nn.sigmoid(layers.scorer(z[u] * z[v])[:, 0])
        edge = parsing.dominant_edge(
            jax.lax.stop_gradient(score), live & (score >= threshold), u, v, n
        )
        joined = parsing.components(edge, u, v)
        inside = jnp.where(live & (joined[u] == joined[v]), joined[u], n)
        weighs = parsing.kept(edge, joined, len(score)) if pooling == "kept" else inside
        pooled = parsing.pool(z, joined, score, weighs)
        return _Level(z, pooled, joined[root], (joined != slots).any())

    @jax.checkpoint  # as every step: what a gradient would keep of all levels is slow to write
    def encode_anew(level: _Level, number: Array) -> _Level:
        edges = edges_between(level.root)
        z = layers.group_encoder(layers.set(level.pooled), edges, level_key(number))
        return group(z, edges, level.root)

    def deeper(level: _Level, number: Array) -> tuple[_Level, None]:
        return jax.lax.cond(level.shrunk, encode_anew, lambda same, _: same, level, number), None

    edges = edges_between(slots)
    first = group(layers.encoder(layers.input(x), edges, level_key(0)), edges, slots)
    # Each level at least halves the nodes with a neighbour; the last one encodes and joins nothing.
    numbers = jnp.arange(1, (n - 1).bit_length() + 1)
    top, _ = jax.lax.scan(deeper, first, numbers)
    return top.encoded, top.root


_FEATURES = "member_types+degrees+fractal_directed+positional+output_shape"
_UPDATE = {"algorithm": "reinforce", "reward": "inverse", "entropy_weight": 0.0}
_ROLLOUT = {"num_samples": 1, "returns": "episode", "max_grad_norm": float("inf")}
_OF_CODE = {"dropout": 0.2, "features": _FEATURES}
_FAULTS = {"threshold": 0.0, "pooling": "inside", "detached": True}
_own = partial(base.Variant, make=make, read=base.operations)
VARIANTS = {
    "paper": _own({}, _UPDATE | {"num_samples": 8}),
    "released": _own(
        _OF_CODE | _FAULTS,
        _UPDATE | _ROLLOUT | {"baseline": "none"},
        single_devices_fail=True,
        corrected=_own(_OF_CODE, _UPDATE | _ROLLOUT | {"baseline": "moving_average"}),
    ),
}
