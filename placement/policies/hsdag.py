"""HSDAG: learned groups, and devices for them (Duan et al., NeurIPS 2024, arXiv 2405.14185).

One step of an episode, on node features x [N, F] (sections 2.3 and 2.4 of the paper):

    y       = MLP_in(x)                                   [N, H]
    repeat, on the nodes of a level,
      z     = LayerNorm(y + GCN_2(GCN_1(y)))              embeddings that score the edges
      s_uv  = sigmoid(MLP_edge(z_u * z_v))                score of every edge
      groups: connected components of every node's highest-scored edge
      r     = LayerNorm(y + GCN_3(y))                     features that are pooled
      r     = LayerNorm(r + linear(r))                    of every node
      r_g   = sum of r over the members of group g
      y_g   = LayerNorm(r_g + linear(r_g)) * (mean of s) * (number of edges)
    until nothing shrinks or one node is left; the groups of a level are the nodes of the next
    h       = MLP_out(y)                                  of every group, [F]
    device  ~ softmax(MLP(h))                             one draw for each group
    x      += h of the node's group                       state update

GCN_i are undirected graph convolutions (Kipf and Welling 2017) with ReLU. All levels share the
parameters. An episode has 20 steps; each yields a placement. `variant=released` is the algorithm of
the authors' code, the default that of the text: see `RECIPE`, whose comment lists the code's
faults and our departures. `tests/policies/golden_hsdag.json` holds values that the authors' program
computed.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement import arguments
from placement.policies import base, distributions, encoders, graph_parsing, inputs
from placement.policies.graph_parsing import Edges
from placement.types import Array, LogProb, Params, Policy, Sample

_ALL_LEVELS = 32  # more than any parse has
_SMALL_GRAPH = 64  # nodes; the levels of such a graph are not worth several sizes
_LEVEL_SHARES = (1.0, 1.0), (0.4, 0.65), (0.1, 0.2)  # of nodes and edges, see `_level_sizes`


# `apply(*inputs, method=...)`: a method of `Network` with its parameters
Apply = Callable[..., Any]


class ParsedLevel(NamedTuple):
    """A level of a parse: its n nodes and e edges (padded), and the groups that they form."""

    embedding: Array  # float32 [n, H]: z
    scores: Array  # float32 [e]
    group: Array  # int32 [n]: the number of each node's group; n for padding
    features: Array  # float32 [n, H]: y of the groups
    edges: Edges  # [e]: between the groups, in the order of their ends
    num_groups: Array  # int32 []


class _Level(NamedTuple):
    """The nodes of the next level, padded to the size of the first one."""

    features: Array  # float32 [N, H]: y
    edges: Edges  # [E]
    node: Array  # int32 [N]: the node that holds each operation; N for padding
    num_nodes: Array  # int32 []
    is_open: Array  # bool []: whether another level follows


class _Steps(NamedTuple):
    """The groups of episodes and the distributions of their devices; leading axes [B, T]."""

    log_probs: Array  # float32 [N, D]: a row for each group
    group: Array  # int32 [N]: the row of each operation; N for padding
    first_op: Array  # int32 [N]: the first operation that decides, of each group; N for none


class _Convolution(nn.Module):
    """A graph convolution (Kipf and Welling 2017) over masked undirected edges."""

    hidden_size: int

    @nn.compact
    def __call__(self, x: Array, edges: Edges) -> Array:
        """[n, H] -> [n, H]."""
        senders = jnp.concatenate([edges.senders, edges.receivers])  # both directions
        receivers = jnp.concatenate([edges.receivers, edges.senders])
        mask = jnp.tile(edges.mask, 2)
        degree = jnp.ones(len(x)).at[receivers].add(mask)  # with the self edge
        norm = jax.lax.rsqrt(degree)[:, None]
        y = norm * encoders.Dense(self.hidden_size, use_bias=False)(x)
        bias = self.param("bias", nn.initializers.zeros, (self.hidden_size,))
        return norm * y.at[receivers].add(jnp.where(mask[:, None], y[senders], 0.0)) + bias


class Network(nn.Module):
    """The layers of the policy; H is `hidden_size`. Without a seed nothing is dropped."""

    hidden_size: int
    num_features: int
    num_devices: int
    dropout: float = 0.0

    def setup(self) -> None:
        """Makes the layers."""
        width = self.hidden_size
        norm = partial(nn.LayerNorm, epsilon=1e-5)  # PyTorch's
        self.input_layers = [encoders.Dense(width) for _ in range(2)]
        self.input_norms = [norm() for _ in range(2)]
        self.score_convolutions = [_Convolution(width) for _ in range(2)]
        self.score_norm = norm()
        self.pool_convolution = _Convolution(width)
        self.pool_norm = norm()
        self.edge_layer, self.edge_norm = encoders.Dense(width), norm()
        self.edge_score = encoders.Dense(1)
        self.member_layer, self.member_norm = encoders.Dense(width), norm()
        self.group_layer, self.group_norm = encoders.Dense(width), norm()
        self.output_layers = [encoders.Dense(width), encoders.Dense(self.num_features)]
        self.placer_layers = [encoders.Dense(width), encoders.Dense(self.num_devices)]

    def __call__(self, x: Array) -> Array:
        """Calls every layer, for `init`: [N, F] -> [N, D]."""
        node = jnp.zeros(1, jnp.int32)
        z, r = self.embed(self.encode(x), Edges(node, node, jnp.zeros(1, bool)))
        return self.decode(self.pool(r, node) + self.score(z)[:, None])[1]

    def encode(self, x: Array, seed: Array | None = None) -> Array:
        """MLP_in: [N, F] -> [N, H]."""
        layers = zip(self.input_layers, self.input_norms, strict=True)
        for number, (layer, norm) in enumerate(layers):
            x = self._activate(norm(layer(x)), seed, number)
        return x

    def embed(self, y: Array, edges: Edges, seed: Array | None = None) -> tuple[Array, Array]:
        """Computes z and r, both [n, H], of nodes with features y [n, H]."""
        z = y
        for number, convolution in enumerate(self.score_convolutions):
            z = self._activate(convolution(z, edges), seed, number)
        r = self._activate(self.pool_convolution(y, edges), seed, 2)
        return self.score_norm(y + z), self.pool_norm(y + r)

    def score(self, products: Array, seed: Array | None = None) -> Array:
        """Scores edges by the products of the embeddings of their ends: [e, H] -> [e]."""
        hidden = self._activate(self.edge_norm(self.edge_layer(products)), seed, 3)
        return jax.nn.sigmoid(self.edge_score(hidden)[:, 0])

    def pool(self, r: Array, group: Array) -> Array:
        """Sums nodes [n, H] over groups int32 [n], with a layer before the sum and one after."""
        r = self.member_norm(r + self.member_layer(r))
        total = jax.ops.segment_sum(r, group, len(r))
        return self.group_norm(total + self.group_layer(total))

    def decode(self, y: Array, seed: Array | None = None) -> tuple[Array, Array]:
        """Computes h [n, F] of groups with features [n, H], and the logits of devices [n, D]."""
        h = y
        for number, layer in enumerate(self.output_layers):
            h = self._activate(layer(h), seed, number)
        hidden, logits = self.placer_layers
        return h, logits(jax.nn.relu(hidden(h)))

    def _activate(self, x: Array, seed: Array | None, number: int) -> Array:
        """Applies ReLU and dropout [n, H]; the mask depends on the seed, the number and the row.

        It is a hash of the position, because drawing random numbers would take longer than a layer.
        """
        x = jax.nn.relu(x)
        if seed is None:
            return x
        row, column = (jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis) for axis in (0, 1))
        word = _hash(_hash(row[:, :1] + _hash(seed + jnp.uint32(number))) + column)
        is_kept = word >= jnp.uint32(self.dropout * 2**32)
        return jnp.where(is_kept, x / (1 - self.dropout), 0.0)


def _hash(word: Array) -> Array:
    """Mixes the bits of words uint32, as the last step of MurmurHash3 does."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)


def parse_level(
    apply: Apply,
    y: Array,
    edges: Edges,
    num_nodes: Array | int,
    *,
    pool_inside: bool,
    seed: Array | None = None,
) -> ParsedLevel:
    """Groups and pools the nodes of a level.

    Args:
      apply: the layers.
      y: float32 [n, H], features of the nodes; the first `num_nodes` rows are real.
      edges: [e], distinct, in the order of their ends, the smaller end first.
      num_nodes: int32 [].
      pool_inside: see `pooling` in `make`.
      seed: uint32 [] of the dropout; None: no dropout.
    """
    chex.assert_rank(y, 2)
    chex.assert_type(y, float)
    n, num_edges = len(y), len(edges.mask)
    u, v, mask = edges
    z, r = apply(y, edges, seed, method="embed")
    scores = apply(z[u] * z[v], seed, method="score")

    kept_end = graph_parsing.find_highest_ends(jnp.tile(jax.lax.stop_gradient(scores), 2), edges, n)
    component = graph_parsing.connect(kept_end, edges)
    node = jnp.arange(n, dtype=jnp.int32)
    is_root = (component == node) & (node < num_nodes)
    number = jnp.cumsum(is_root, dtype=jnp.int32) - 1
    group = jnp.where(node < num_nodes, number[component], n)

    is_inner = mask & (group[u] == group[v])
    if pool_inside:
        weight = 2.0 * is_inner  # in both directions
    else:
        is_kept = jnp.zeros(2 * num_edges + 1, bool).at[kept_end].set(True)[:-1]
        weight = (is_inner & is_kept.reshape(2, -1).any(axis=0)).astype(jnp.float32)
    edge_group = jnp.where(is_inner, group[u], n)
    # The mean of the scores times their number is their sum.
    total = jax.ops.segment_sum(weight * scores, edge_group, n)
    has_edges = jax.ops.segment_sum(weight, edge_group, n) > 0
    pooled = apply(r, group, method="pool")
    features = pooled * jnp.where(has_edges, total, 1.0)[:, None]
    return ParsedLevel(
        z,
        scores,
        group,
        features,
        graph_parsing.order_edges(edges, group),
        is_root.sum(dtype=jnp.int32),
    )


def make(
    *,
    num_devices: int,
    hidden_size: int = 128,
    dropout: float = 0.0,
    levels: int = 1,
    pooling: str = "kept",
    detached: bool = False,
    episode_steps: int = 20,
) -> Policy:
    """Makes the policy. With dropout a sample's latent is uint32 [T], the seeds of its masks.

    Args:
      num_devices: D.
      hidden_size: H.
      dropout: the share of activations that is dropped.
      levels: the largest number of levels of a parse.
      pooling: the edges whose scores weigh a group: those that it 'kept', or all 'inside', each of
        which then counts in both directions.
      detached: whether no gradient passes through the states.
      episode_steps: T.

    Raises:
      UserError: `pooling` is unknown, or the dropout is out of range.
    """
    arguments.check_choice("pooling", pooling, ("kept", "inside"))
    arguments.check_range("dropout", dropout, 0, 0.99)

    def make_network(graph: jraph.GraphsTuple) -> Network:
        return Network(hidden_size, graph.nodes["features"].shape[1], num_devices, dropout)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        return make_network(graph).init(key, graph.nodes["features"][:1])

    def episode(params: Params, graph: jraph.GraphsTuple, seeds: Array | None) -> _Steps:
        """Runs an episode; seeds: uint32 [T], or None without dropout."""
        apply: Apply = partial(make_network(graph).apply, params)
        nodes = graph.nodes
        n = len(nodes["mask"])
        slot = jnp.arange(n, dtype=jnp.int32)
        # The operations are the nodes of the first level.
        edges = Edges(*map(jnp.asarray, (graph.senders, graph.receivers, graph.edges["mask"])))
        exists = jnp.asarray(nodes["mask"]).at[edges.senders].max(edges.mask)
        exists = exists.at[edges.receivers].max(edges.mask)
        num_nodes = jnp.where(exists, slot + 1, 0).max()
        node = jnp.where(slot < num_nodes, slot, n)
        edges, num_edges = graph_parsing.order_edges(edges, slot), len(edges.mask)
        max_levels = min(levels, (n - 1).bit_length() + 1)
        sizes = _level_sizes(n, num_edges)[:max_levels]

        def parse(size: tuple[int, int], level: _Level, seed: Array | None) -> _Level:
            parsed = parse_level(
                apply,
                level.features[: size[0]],
                jax.tree.map(lambda x: x[: size[1]], level.edges),
                level.num_nodes,
                pool_inside=pooling == "inside",
                seed=seed,
            )
            return _Level(
                jnp.pad(parsed.features, ((0, n - size[0]), (0, 0))),
                jax.tree.map(lambda x: jnp.pad(x, (0, num_edges - size[1])), parsed.edges),
                jnp.asarray(parsed.group).at[level.node].get(mode="fill", fill_value=n),
                parsed.num_groups,
                (parsed.num_groups < level.num_nodes) & (parsed.num_groups > 1),
            )

        # Storing the activations of all levels for the gradient is slower than computing them
        # again.
        parse_branches = [jax.checkpoint(partial(parse, size)) for size in sizes]
        parse_branches.append(lambda level, _: level)
        # The groups are in the first rows. Few are usual after several levels, and their rows are
        # decoded alone.
        decode_sizes = [n] if max_levels == 1 else [n, _level_sizes(n, 0)[-1][0]]

        def decode(size: int, y: Array, seed: Array | None) -> tuple[Array, Array]:
            decoded = apply(y[:size], seed, method="decode")
            return jax.tree.map(lambda x: jnp.pad(x, ((0, n - size), (0, 0))), decoded)

        def step(x: Array, seed: Any) -> tuple[Array, _Steps]:
            encode_seed, decode_seed = _split(seed, 0), _split(seed, 1)
            y: Array = apply(x, encode_seed, method="encode")

            def next_level(level: _Level, number: Array) -> tuple[_Level, None]:
                # The smallest size that holds the graph.
                graph_size = jnp.stack([level.num_nodes, level.edges.mask.sum()])
                smallest = (graph_size <= jnp.array(sizes)).all(axis=1).sum() - 1
                branch = jnp.where(level.is_open, smallest, len(sizes))
                return jax.lax.switch(branch, parse_branches, level, _split(seed, 2 + number)), None

            operations = _Level(y, edges, node, num_nodes, num_nodes > 1)
            parsed, _ = jax.lax.scan(next_level, operations, jnp.arange(max_levels))
            smallest = (parsed.num_nodes <= jnp.array(decode_sizes)).sum() - 1
            branches = [partial(decode, size) for size in decode_sizes]
            h, logits = jax.lax.switch(smallest, branches, parsed.features, decode_seed)
            allowed = jax.ops.segment_min(nodes["allowed"].astype(jnp.int32), parsed.node, n)
            log_probs = distributions.masked_log_softmax(logits, allowed > 0)
            first_op = jax.ops.segment_min(jnp.where(nodes["mask"], slot, n), parsed.node, n)
            update = jax.lax.stop_gradient(h) if detached else h
            x += jnp.asarray(update).at[parsed.node].get(mode="fill", fill_value=0.0)
            return x, _Steps(log_probs, parsed.node, jnp.minimum(first_op, n))

        return jax.lax.scan(step, nodes["features"], seeds, length=episode_steps)[1]

    def episodes(
        params: Params, graph: jraph.GraphsTuple, seeds: Array | None, num_samples: int
    ) -> _Steps:
        if seeds is None:  # all samples have the same groups and distributions
            steps = episode(params, graph, None)
            return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_samples, *x.shape)), steps)
        # One after another: `vmap` would turn the `switch` of a level into a `select`, and compute
        # the levels of every size.
        return jax.lax.map(lambda sample_seeds: episode(params, graph, sample_seeds), seeds)

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        key, seed_key = jax.random.split(key)
        shape = num_samples, episode_steps
        seeds = jax.random.bits(seed_key, shape, jnp.uint32) if dropout else None
        steps = episodes(params, graph, seeds, num_samples)
        device = distributions.sample(key, steps.log_probs)
        placement = jnp.take_along_axis(device, steps.group, axis=-1, mode="clip")
        score = _score(steps, device)
        return Sample(placement, score.log_prob, score.entropy, seeds, score.choices)

    def log_prob(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        steps = episodes(params, graph, samples.latent, len(samples.placement))
        device = jnp.take_along_axis(samples.placement, steps.first_op, axis=-1, mode="clip")
        return _score(steps, device)

    return Policy(init, sample, log_prob)


def _map_steps(function: Callable[..., Array]) -> Callable[..., Array]:
    """Maps a function over the leading axes [B, T] of its arguments."""
    return jax.vmap(jax.vmap(function))


def _score(steps: _Steps, device: Array) -> LogProb:
    """Computes the log-probability and the entropy of the groups' devices int32 [B, T, N]."""
    decides = steps.first_op < steps.first_op.shape[-1]
    value = _map_steps(distributions.log_prob)(steps.log_probs, device, decides)
    entropy = _map_steps(distributions.entropy)(steps.log_probs, decides)
    return LogProb(value, entropy, decides.sum(axis=-1).astype(jnp.float32))


def _split(seed: Array | None, number: Any) -> Array | None:
    """Makes a seed for a part of a step: 0 for MLP_in, 1 for MLP_out, 2 and more for levels."""
    return None if seed is None else _hash(_hash(seed) + jnp.uint32(number))


def _level_sizes(num_nodes: int, num_edges: int) -> list[tuple[int, int]]:
    """Returns the padded numbers of nodes and edges for which a level is compiled.

    A level runs at the smallest that holds its graph. Otherwise each would take as long as the
    first, though most have a third of the nodes of the level before and half of its edges.
    """
    shares = _LEVEL_SHARES if num_nodes > _SMALL_GRAPH else _LEVEL_SHARES[:1]
    return [(math.ceil(node * num_nodes), math.ceil(edge * num_edges)) for node, edge in shares]


# `released` has five properties that count as faults here. `faults=0` corrects them all, and an
# option such as `faults=0,levels=32` brings one back:
#
# - A placement on a single device counts as 1e10 seconds, so the best placement may never be found.
# - Parsing repeats until nothing shrinks. A connected graph therefore ends as one group, and every
#   placement of it uses a single device. Corrected: one level (`levels`).
# - No gradient passes from one step to the next (`detached`).
# - The log-probabilities of all steps are multiplied by one number, the sum over k of 0.95^(T-1-k)
#   times reward k: the last reward weighs most. Corrected: discounted rewards to go (`returns`).
# - Rewards have no baseline. Corrected: a moving average (`baseline`).
#
# A sixth fault does not apply: their code confuses two orders of operations, so most operations get
# another's device. Here a placement is one array, from the draw to the evaluation.
#
# `paper` parses one level, because the paper does not say how often parsing repeats, and weighs a
# group by the edges that were kept. An update has 8 episodes, each with the others as its baseline,
# and advantages have unit deviation; the paper has one episode and no baseline. The norm of the
# gradient is clipped at 1. Without dropout, all episodes of an update have the same groups.
#
# Departures of both: the loss is a mean over steps, and rewards are relative to the best single
# device, of which Adam's updates do not depend. Devices that cannot run a member of a group are
# masked. Counts among the features are logarithms (`placement.graphs.features`).
_UPDATE = {"algorithm": "reinforce", "reward": "inverse", "entropy_weight": 0.0}
_RELEASED_UPDATE = _UPDATE | {"num_samples": 1, "max_grad_norm": float("inf")}
_RELEASED = {"dropout": 0.2, "pooling": "inside", "features": "member_types+number"}
_FAULTS = {"levels": _ALL_LEVELS, "detached": True}
RECIPE = base.Recipe(
    make,
    {
        "paper": base.Variant({}, _UPDATE | {"num_samples": 8}),
        "released": base.Variant(
            _RELEASED | _FAULTS,
            _RELEASED_UPDATE | {"returns": "episode", "baseline": "none"},
            single_devices_fail=True,
            corrected=base.Variant(_RELEASED, _RELEASED_UPDATE | {"baseline": "moving_average"}),
        ),
    },
    inputs.read_operations,
)
