"""A sequence-to-sequence LSTM that gives devices to items, one after another.

The items, groups of operations in `hierarchical` and operations in `colocrl`, stand in G slots. For
slot t, with e_t the item's embedding and d_t its device (Mirhoseini et al. 2017 and 2018):

    m_t     = [LSTM over e_1 .. e_t, LSTM over e_G .. e_t]        encoder
    s_t     = LSTM(d_{t-1}; s_{t-1}), s_0 the encoder's last      decoder
    a_t     = softmax over k of v . tanh(W m_t + U m_k)           attention by content
    c_t     = sum over k of a_tk U m_k
    logits  = V [s_t, c_t, m_t]
    d_t     ~ softmax(C tanh(logits / temperature))               over the devices allowed

A slot that is not `present` (padding, an empty group, an operation that follows another) is stepped
over: it changes no state, is not attended to and decides nothing, so that no number depends on the
padding. An item that is allowed nowhere is attended to, and decides nothing.

Departures from the papers: it is the item to decide, m_t, with which the attention asks and which
the logits read (`aligned`). The papers' asks with s_t, and first has to learn how to count; it also
differs from draw to draw, so that every sample costs the square of G, which with m_t is paid once
for all samples of a sequence. The devices fed back are D + 1 unit vectors, whose embeddings are
thus rows of the decoder's input matrix; the last layer starts at a tenth of the usual scale, so
that a search starts near the uniform policy, or near runs of items that share a device with `stay`,
which is added to the logit of d_{t-1}. The authors' code adds noise to the logits of the first 750
steps, which the score of a stored sample cannot repeat. Here `noise` is part of the distribution,
the share of every choice that is uniform, at any step: the probabilities are exact. What is to fade
out in a search is the learner's weight on the entropy.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple, cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement.errors import UserError
from placement.policies import distributions
from placement.types import Array, LogProb, Params, Policy, Sample

NUM_READERS = 6  # outgoing edges that an operation's embedding shows, as in the paper of 2018
TUNED = {"hidden_size": 64, "stay": 3.0}
# The Hierarchical Planner's published constants (tensorflow/python/grappler/
# hierarchical_controller.py): LSTMs of 512 and Adam with decay, but for the learning rate, which is
# 1e-3: on inception_v3 the Planner at their 0.1 and ColocRL at 0.01 saturated within a dozen
# updates, on placements worse than those they began with. The paper leaves ColocRL's open; they are
# taken to be the same.
PAPER = {"hidden_size": 512, "tanh_constant": 1.0, "aligned": False}
PAPER_LEARNER = {
    "algorithm": "reinforce",
    "num_samples": 16,
    "learning_rate_decay": 0.95,
    "reward": "sqrt",
    "baseline": "moving_average",
    "failed": "constant",
    "entropy_weight": 0.0,
}

_BLOCK = 2**22  # numbers that the attention of many slots works on at a time

_Carry = tuple[Array, Array]  # cell and hidden states
_scan = functools.partial(nn.scan, variable_broadcast="params", split_rngs={"params": False})


@dataclasses.dataclass(frozen=True)
class Settings:
    """Hyper-parameters of a `Placer`; static.

    Raises:
      UserError: an impossible one.
    """

    num_devices: int  # D
    hidden_size: int  # H, even: each direction of the encoder has half
    temperature: float  # divides the logits
    tanh_constant: float  # C, bounds the logits either way; 0 does not
    noise: float  # share of every choice that is uniform
    aligned: bool  # whether attention and logits read the item that is decided; the papers' do not
    stay: float  # added to the logit of the device before; 0 in the papers

    def __post_init__(self) -> None:
        if self.hidden_size < 2 or self.hidden_size % 2:
            raise UserError(
                f"hidden_size={self.hidden_size} has no halves for the encoder's two directions; "
                "give an even number"
            )
        if not self.temperature > 0:
            raise UserError(f"temperature={self.temperature} divides no logits; give more than 0")
        if not self.tanh_constant >= 0:
            raise UserError(
                f"tanh_constant={self.tanh_constant} bounds nothing; give more than 0, or 0 for "
                "logits without a bound"
            )
        if not 0 <= self.noise < 1:
            raise UserError(f"noise={self.noise} is no share; give 0 or more, and less than 1")


class Items(NamedTuple):
    """A sequence to place, in G slots."""

    embedding: Array  # float32 [G, F]
    present: Array  # bool [G]
    allowed: Array  # bool [G, D]; nowhere where not present

    @property
    def decide(self) -> Array:
        """bool [G]: whether a device is chosen for the item."""
        return jnp.any(self.allowed, axis=-1)


class Choices(NamedTuple):
    """K decoded sequences."""

    device: Array  # int32 [K, G]; without meaning where nothing is decided
    log_prob: Array  # float32 [K]
    entropy: Array  # float32 [K]: of each choice given those before it, summed


class Embedding(nn.Module):
    """Of operations: one layer over their features and those of the first that read them.

    The paper gives the numbers of these neighbours; here their features are given, among
    which is their position. The features of a neighbour that is missing are zero.
    """

    size: int
    num_readers: int = NUM_READERS

    @nn.compact
    def __call__(self, graph: jraph.GraphsTuple) -> Array:
        """Of every node of the graph, [N, size]."""
        features = jnp.asarray(graph.nodes["features"])
        neighbours = features[readers(graph, self.num_readers)].reshape(len(features), -1)
        return jax.nn.relu(nn.Dense(self.size)(jnp.concatenate([features, neighbours], axis=-1)))


class _Cell(nn.Module):
    """An LSTM cell that steps over what is not to be kept; its output there is zero."""

    hidden_size: int

    @nn.compact
    def __call__(self, carry: _Carry, step: tuple[Array, Array]) -> tuple[_Carry, Array]:
        x, keep = step
        after, output = nn.OptimizedLSTMCell(self.hidden_size)(carry, x)
        carry = jax.tree.map(lambda new, old: jnp.where(keep, new, old), after, carry)
        return carry, jnp.where(keep, output, 0.0)


class _Encoder(nn.Module):
    """Reads items both ways: states [G, H], zero where none is present, and the last states."""

    hidden_size: int

    @nn.compact
    def __call__(self, items: Items) -> tuple[Array, _Carry]:
        half = self.hidden_size // 2
        zero, steps = (jnp.zeros(half), jnp.zeros(half)), (items.embedding, items.present)
        forth, states_forth = _scan(_Cell)(half, name="forth")(zero, steps)
        back, states_back = _scan(_Cell, reverse=True)(half, name="back")(zero, steps)
        last = jax.tree.map(lambda *ends: jnp.concatenate(ends), forth, back)
        return jnp.concatenate([states_forth, states_back], axis=-1), last


class _Attention(nn.Module):
    """Additive attention (Bahdanau et al. 2015); keys serve as values, as in the authors' code."""

    @nn.compact
    def __call__(self, query: Array, keys: Array, present: Array) -> Array:  # [Q, H] -> [Q, H]
        query = nn.Dense(keys.shape[-1], use_bias=False, name="query")(query)
        # A broadcast whose gradient is a product of matrices: on a CPU, XLA's sum over the leading
        # axis takes forty times as long.
        copies = jnp.einsum("q,gh->qgh", jnp.ones(len(query)), keys)
        score = nn.Dense(1, use_bias=False, name="score")(jnp.tanh(query[:, None] + copies))[..., 0]
        return jax.nn.softmax(jnp.where(present, score, -1e9)) @ keys


def _attention() -> nn.Module:
    """Works on [Q, G, H]: computed again for the gradient rather than kept."""
    return nn.remat(_Attention, prevent_cse=False)(name="attention")


class _Step(nn.Module):
    """Decodes a slot of K sequences: devices [K] and their log-probabilities [K, D]."""

    settings: Settings

    @nn.compact
    def __call__(
        self,
        carry: tuple[_Carry, Array],  # LSTM, previous device [K]
        keys: Array,
        present: Array,
        slot: tuple[Array, Array, Array],  # read [R], allowed [D], bias [K, D]
    ) -> tuple[tuple[_Carry, Array], tuple[Array, Array]]:
        (lstm, previous), (read, allowed, bias), own = carry, slot, self.settings
        decides = jnp.any(allowed)
        fed_back = jax.nn.one_hot(previous, own.num_devices + 1)
        lstm, output = _Cell(own.hidden_size, name="lstm")(lstm, (fed_back, decides))
        if own.aligned:
            seen = jnp.broadcast_to(read, (len(output), len(read)))
        else:
            seen = _attention()(output, keys, present)
        small = nn.initializers.variance_scaling(0.01, "fan_in", "truncated_normal")
        head = nn.Dense(own.num_devices, use_bias=False, kernel_init=small, name="head")
        logits = head(jnp.concatenate([output, seen], axis=-1))
        logits = squash(logits, own.temperature, own.tanh_constant)
        logits += own.stay * jax.nn.one_hot(previous, own.num_devices)
        log_probs = mix(distributions.masked_log_softmax(logits, allowed), allowed, own.noise)
        device = jnp.argmax(log_probs + bias, axis=-1).astype(jnp.int32)
        return (lstm, jnp.where(decides, device, previous)), (device, log_probs)


class Placer(nn.Module):
    """Decodes K sequences of one list of items, which it encodes once."""

    settings: Settings

    @nn.compact
    def __call__(self, items: Items, bias: Array) -> Choices:
        """At each step, takes the device of highest log-probability plus bias.

        Args:
          items: G slots.
          bias: float32 [K, G, D]: Gumbel noise draws samples, zeros decode greedily, and
            `teacher_forcing` repeats what was drawn.
        """
        states, last = _Encoder(self.settings.hidden_size, name="encoder")(items)
        keys = nn.Dense(self.settings.hidden_size, use_bias=False, name="keys")(states)
        steps = _scan(_Step, in_axes=(nn.broadcast, nn.broadcast, 0), out_axes=1)
        start = (
            jax.tree.map(lambda x: jnp.tile(x, (len(bias), 1)), last),
            jnp.full(len(bias), self.settings.num_devices, jnp.int32),
        )
        read = self._contexts(states, keys, items.present) if self.settings.aligned else states
        slots = (read, items.allowed, jnp.swapaxes(bias, 0, 1))
        _, (device, log_probs) = steps(self.settings, name="decoder")(
            start, keys, items.present, slots
        )
        log_prob = jax.vmap(distributions.log_prob, (0, 0, None))(log_probs, device, items.decide)
        entropy = jax.vmap(distributions.entropy, (0, None))(log_probs, items.decide)
        return Choices(device, log_prob, entropy)

    def _contexts(self, states: Array, keys: Array, present: Array) -> Array:
        """What every slot reads, [G, 2 H]: its context and its state; attention in blocks."""
        rows = min(len(states), max(1, _BLOCK // states.size))
        blocks = jnp.pad(states, ((0, -len(states) % rows), (0, 0))).reshape(
            -1, rows, states.shape[1]
        )
        each = _scan(lambda attend, _, block: (None, attend(block, keys, present)))
        _, contexts = each(_attention(), None, blocks)
        contexts = contexts.reshape(-1, states.shape[1])[: len(states)]
        return jnp.concatenate([contexts, states], axis=-1)


def readers(graph: jraph.GraphsTuple, count: int) -> Array:
    """Finds the first operations that read each operation, int32 [N, count].

    Where there are fewer, the last node, which is padding. Edges are sorted by sender.
    """
    num_nodes = len(graph.nodes["mask"])
    number = jnp.arange(len(graph.senders)) - jnp.searchsorted(graph.senders, graph.senders)
    missing = jnp.full((num_nodes, count), num_nodes - 1, jnp.int32)
    return missing.at[graph.senders, number].set(graph.receivers, mode="drop")


def squash(logits: Array, temperature: float, tanh_constant: float) -> Array:
    """Divides logits [..., D] by the temperature and bounds them by the constant if not 0."""
    chex.assert_type(logits, float)
    logits = logits / temperature
    return tanh_constant * jnp.tanh(logits) if tanh_constant else logits


def mix(log_probs: Array, allowed: Array, noise: float) -> Array:
    """Makes the share `noise` of log-probabilities [..., D] uniform over what is allowed."""
    chex.assert_type([log_probs, allowed], [float, bool])
    if not noise:
        return log_probs
    uniform = distributions.masked_log_softmax(jnp.zeros_like(log_probs), allowed)
    return jnp.logaddexp(jnp.log1p(-noise) + log_probs, jnp.log(noise) + uniform)


def gumbel(keys: Array, shape: tuple[int, ...]) -> Array:
    """Draws a bias [K, *shape] from K keys; the first slots' does not depend on their number."""
    return jax.vmap(lambda key: jax.random.gumbel(key, shape))(keys)


def teacher_forcing(
    graph: jraph.GraphsTuple, item: Array, placement: Array, num_slots: int
) -> Array:
    """Makes the bias [G, D] that repeats a placement int32 [N], given each operation's item."""
    chex.assert_rank([item, placement], 1)
    chex.assert_type([item, placement], int)
    num_devices = graph.nodes["allowed"].shape[-1]
    decided = jnp.where(graph.nodes["mask"], placement, -1)
    device = jax.ops.segment_max(decided, item, num_slots)
    return jnp.where(jax.nn.one_hot(device, num_devices, dtype=bool), jnp.inf, 0.0)


def place(
    placer: Placer,
    params: Params,
    graph: jraph.GraphsTuple,
    items: Items,
    item: Array,
    bias: Array,
) -> Choices:
    """Decodes placements: `device` is int32 [K, N], of the operations.

    Args:
      placer: the module; `params` are its parameters.
      params: see there.
      graph: N nodes.
      items: the sequence, in G slots.
      item: int32 [N], the slot of each operation. One whose item decides nothing, or which is none,
        gets the first device that it is allowed on.
      bias: float32 [K, G, D], see `Placer`.
    """
    chex.assert_rank([item, bias], [1, 3])
    chex.assert_type([item, bias], [int, float])
    chosen = cast(Choices, placer.apply(params, items, bias))
    decided = graph.nodes["mask"] & items.decide[item]
    first = jnp.argmax(graph.nodes["allowed"], axis=-1).astype(jnp.int32)
    return chosen._replace(device=jnp.where(decided, chosen.device[:, item], first))


def policy(
    placer: Placer,
    init: Callable[[chex.PRNGKey, jraph.GraphsTuple], Params],
    sequence: Callable[[Params, jraph.GraphsTuple], tuple[Items, Array]],
) -> Policy:
    """Makes the policy over a sequence that no draw changes: encoded once for all samples.

    Args:
      placer: the module; its parameters are `params['placer']`.
      init: see `Policy`.
      sequence: the items, and the item int32 [N] of each operation.
    """

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        items, item = sequence(params, graph)
        bias = gumbel(jax.random.split(key, num_samples), items.allowed.shape)
        drawn = place(placer, params["placer"], graph, items, item, bias)
        return Sample(drawn.device[:, None], drawn.log_prob[:, None], drawn.entropy[:, None])

    def log_prob(params: Params, graph: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        items, item = sequence(params, graph)
        bias = jax.vmap(teacher_forcing, (None, None, 0, None))(
            graph, item, drawn.placement[:, 0], len(items.present)
        )
        again = place(placer, params["placer"], graph, items, item, bias)
        choices = jnp.broadcast_to(items.decide.sum().astype(jnp.float32), again.log_prob.shape)
        return LogProb(again.log_prob[:, None], again.entropy[:, None], choices[:, None])

    def greedy(params: Params, graph: jraph.GraphsTuple) -> Array:
        items, item = sequence(params, graph)
        bias = jnp.zeros((1, *items.allowed.shape))
        return place(placer, params["placer"], graph, items, item, bias).device[0]

    return Policy(init, sample, log_prob, greedy)
