"""The sequence-to-sequence LSTM of ColocRL and the Hierarchical Planner.

It gives devices to a sequence of items, one after another (Mirhoseini et al. 2017 and 2018). An
item is an operation in `colocrl` and a group of operations in `hierarchical`. The items stand in G
slots. For slot t, let e_t be the embedding of its item and d_t its device:

    m_t     = [LSTM over e_1 .. e_t, LSTM over e_G .. e_t]        encoder
    s_t     = LSTM(d_{t-1}; s_{t-1}), s_0 the encoder's last      decoder
    a_t     = softmax over k of v . tanh(W m_t + U m_k)           attention by content
    c_t     = sum over k of a_tk U m_k
    logits  = 5 tanh(V [s_t, c_t, m_t]) + stay d_{t-1}
    d_t     ~ softmax(logits)                                     over the allowed devices

Slots that are not `present` hold padding, an empty group, or an operation that follows another one.
The LSTMs step over them, the attention masks them, and no device is drawn for them, so that no
number depends on the padding.

In the papers the attention asks with s_t, and V does not read m_t (`aligned=False`). Then the
decoder first has to learn which item is next, and every sample costs G^2; with m_t the attention is
computed once for all samples. The paper variants take the constants (`PAPER`, `PAPER_LEARNER`) from
the Planner's released code, tensorflow/python/grappler/hierarchical_controller.py, except where
comments say so. They have no noise on the logits, which the code adds in the first 750 updates, and
every update draws devices; the code repeats those of the last draw after 500.
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
from placement.policies import distributions, encoders
from placement.types import Array, LogProb, Params, Policy, Sample

_NUM_READERS = 6  # outgoing edges that an operation's embedding shows, as in the paper of 2018
TUNED = {"hidden_size": 64, "stay": 3.0}
PAPER = {"hidden_size": 512, "aligned": False}
# The learning rate is 1e-3, the paper's and the code's 0.1: at 0.1 the Planner, and at 0.01
# ColocRL, saturated within a dozen updates of inception_v3, on placements worse than the first
# ones. Units of latency are the fastest single device's, theirs seconds; the failing signal is 100
# of either.
PAPER_LEARNER = {
    "algorithm": "reinforce",
    "learning_rate_decay": 0.95,
    "reward": "sqrt",
    "baseline": "moving_average",
    "failed": "constant",
    "entropy_weight": 0.0,
}

# The bound of the logits, as in the Planner's paper, which also divides by a temperature of 10; the
# code has neither.
_TANH_FACTOR = 5.0
_ATTENTION_BLOCK = 2**22  # numbers in a block of rows that the attention computes at a time

_LSTMState = tuple[Array, Array]  # cell and hidden states
_scan = functools.partial(nn.scan, variable_broadcast="params", split_rngs={"params": False})


@dataclasses.dataclass(frozen=True)
class Settings:
    """Hyper-parameters of a `Placer`; static.

    Raises:
      UserError: a hyper-parameter is out of range.
    """

    num_devices: int  # D
    hidden_size: int  # H, even: each direction of the encoder has half
    aligned: bool  # see the module's docstring; False in the papers
    stay: float  # added to the logit of the previous item's device; 0 in the papers

    def __post_init__(self) -> None:
        if self.hidden_size < 2 or self.hidden_size % 2:
            raise UserError(
                f"hidden_size={self.hidden_size} cannot be halved for the encoder's two "
                "directions; pass an even number"
            )


class Items(NamedTuple):
    """A sequence of items to place, in G slots."""

    embedding: Array  # float32 [G, F]
    present: Array  # bool [G]
    allowed: Array  # bool [G, D]; False everywhere if not present

    @property
    def decides(self) -> Array:
        """bool [G]: whether a device is drawn for the item."""
        return jnp.any(self.allowed, axis=-1)


class Choices(NamedTuple):
    """The devices of K decoded sequences."""

    device: Array  # int32 [K, G]; meaningless where no device is drawn
    log_prob: Array  # float32 [K]
    entropy: Array  # float32 [K]: summed over the items, each given the items before it


class Embedding(nn.Module):
    """Embeds operations: one dense layer over the features of an operation and its first readers.

    The paper gives the numbers of the neighbours. Here the layer reads their features, which
    include their position. The features of a missing reader are zero.
    """

    size: int

    @nn.compact
    def __call__(self, graph: jraph.GraphsTuple) -> Array:
        """Returns the embeddings float32 [N, size] of all nodes."""
        features = jnp.asarray(graph.nodes["features"])  # [N, F]
        readers = first_readers(graph, _NUM_READERS)  # [N, R]
        reader_features = features[readers].reshape(len(features), -1)  # [N, R * F]
        inputs = jnp.concatenate([features, reader_features], axis=-1)
        return jax.nn.relu(encoders.Dense(self.size)(inputs))


def _lstm(state: _LSTMState, gates: Array, mask: Array) -> tuple[_LSTMState, Array]:
    """Steps an LSTM, except where masked: there the state does not change, the output is zero.

    The gates [..., 4 H] are linear in the input and the hidden state; the last quarter is new.
    """
    cell, hidden = state
    size = hidden.shape[-1]
    enter, forget, leave = jnp.split(jax.nn.sigmoid(gates[..., : 3 * size]), 3, axis=-1)
    new_cell = forget * cell + enter * jnp.tanh(gates[..., 3 * size :])
    new_hidden = leave * jnp.tanh(new_cell)
    state = jnp.where(mask, new_cell, cell), jnp.where(mask, new_hidden, hidden)
    return state, jnp.where(mask, new_hidden, 0.0)


class _Encoder(nn.Module):
    """A bidirectional LSTM: Items -> (m [G, H], zero where not present; the last states).

    The two directions step side by side, and their inputs enter in one product: fewer kernels.
    """

    hidden_size: int

    @nn.compact
    def __call__(self, items: Items) -> tuple[Array, _LSTMState]:
        half = self.hidden_size // 2
        recurrent = self.param("recurrent", encoders.lecun_normal(), (2, half, 4 * half))
        gates = encoders.Dense(8 * half, name="input")(items.embedding)
        gates = gates.reshape(-1, 2, 4 * half)

        def turn(x: Array) -> Array:
            """Reverses the second direction of [G, 2, ...]."""
            return jnp.stack([x[:, 0], x[::-1, 1]], axis=1)

        def step(state: _LSTMState, inputs: tuple[Array, Array]) -> tuple[_LSTMState, Array]:
            gates, present = inputs
            gates += jnp.einsum("dh,dhk->dk", state[1], recurrent)
            return _lstm(state, gates, present)

        present = jnp.broadcast_to(items.present[:, None, None], (len(gates), 2, 1))
        start: _LSTMState = jnp.zeros((2, half)), jnp.zeros((2, half))
        last, states = jax.lax.scan(step, start, (turn(gates), turn(present)))
        return turn(states).reshape(len(gates), -1), (last[0].reshape(-1), last[1].reshape(-1))


class _Attention(nn.Module):
    """Additive attention (Bahdanau et al. 2015); keys serve as values, as in the authors' code."""

    @nn.compact
    def __call__(self, query: Array, keys: Array, present: Array) -> Array:  # [Q, H] -> [Q, H]
        query = encoders.Dense(keys.shape[-1], use_bias=False, name="query")(query)
        # A broadcast to [Q, G, H] whose gradient is a product of matrices. The gradient of a plain
        # broadcast is a sum over the leading axis, for which XLA takes forty times as long on a
        # CPU.
        copies = jnp.einsum("q,gh->qgh", jnp.ones(len(query)), keys)
        score = encoders.Dense(1, use_bias=False, name="score")(jnp.tanh(query[:, None] + copies))[
            ..., 0
        ]
        return jax.nn.softmax(jnp.where(present, score, -1e9)) @ keys


def _attention() -> nn.Module:
    """Returns an attention that is recomputed in the backward pass: it works on [Q, G, H]."""
    return nn.remat(_Attention, prevent_cse=False)(name="attention")


class _Step(nn.Module):
    """Decodes one slot of K sequences: devices [K] and their log-probabilities [K, D]."""

    settings: Settings

    @nn.compact
    def __call__(
        self,
        carry: tuple[_LSTMState, Array],  # LSTM state, previous device [K]
        keys: Array,  # U m [G, H]
        present: Array,  # [G]
        slot: tuple[Array, Array, Array],  # context and state [2 H], allowed [D], bias [K, D]
    ) -> tuple[tuple[_LSTMState, Array], tuple[Array, Array]]:
        (lstm, previous), (context, allowed, bias), settings = carry, slot, self.settings
        decides = jnp.any(allowed)
        # D + 1 unit vectors, one for "no device yet": their embeddings are the LSTM's input matrix.
        previous_one_hot = jax.nn.one_hot(previous, settings.num_devices + 1)
        size = settings.hidden_size
        recurrent = self.param("recurrent", encoders.lecun_normal(), (size, 4 * size))
        gates = encoders.Dense(4 * size, name="input")(previous_one_hot) + lstm[1] @ recurrent
        lstm, output = _lstm(lstm, gates, decides)  # output: s_t [K, H]
        if settings.aligned:
            context = jnp.broadcast_to(context, (len(output), len(context)))
        else:
            context = _attention()(output, keys, present)
        # A tenth of the usual scale, so that a search starts near the uniform policy.
        small = encoders.lecun_normal(0.01)
        head = encoders.Dense(settings.num_devices, use_bias=False, kernel_init=small, name="head")
        logits = _TANH_FACTOR * jnp.tanh(head(jnp.concatenate([output, context], axis=-1)))
        logits += settings.stay * jax.nn.one_hot(previous, settings.num_devices)
        log_probs = distributions.masked_log_softmax(logits, allowed)
        device = jnp.argmax(log_probs + bias, axis=-1).astype(jnp.int32)
        return (lstm, jnp.where(decides, device, previous)), (device, log_probs)


class Placer(nn.Module):
    """The encoder and decoder: encodes one sequence of items, decodes K sequences of devices."""

    settings: Settings

    @nn.compact
    def __call__(self, items: Items, bias: Array) -> Choices:
        """Takes the device of highest log-probability plus bias at each step.

        Args:
          items: G slots.
          bias: float32 [K, G, D]: Gumbel noise draws samples; zeros decode greedily;
            `teacher_forcing_bias` repeats given devices.
        """
        settings = self.settings
        states, last = _Encoder(settings.hidden_size, name="encoder")(items)
        keys = encoders.Dense(settings.hidden_size, use_bias=False, name="keys")(states)
        decoder = _scan(_Step, in_axes=(nn.broadcast, nn.broadcast, 0), out_axes=1)
        initial = (
            jax.tree.map(lambda x: jnp.tile(x, (len(bias), 1)), last),
            jnp.full(len(bias), settings.num_devices, jnp.int32),  # no device yet
        )
        contexts = states
        if settings.aligned:  # [c_t, m_t] of all slots; the attention works on blocks of rows
            num_rows = min(len(states), max(1, _ATTENTION_BLOCK // states.size))
            blocks = jnp.pad(states, ((0, -len(states) % num_rows), (0, 0)))
            blocks = blocks.reshape(-1, num_rows, states.shape[1])
            attend_blocks = _scan(
                lambda attend, _, block: (None, attend(block, keys, items.present))
            )
            _, contexts = attend_blocks(_attention(), None, blocks)
            contexts = contexts.reshape(-1, states.shape[1])[: len(states)]
            contexts = jnp.concatenate([contexts, states], axis=-1)
        slots = (contexts, items.allowed, jnp.swapaxes(bias, 0, 1))
        _, (device, log_probs) = decoder(settings, name="decoder")(
            initial, keys, items.present, slots
        )
        log_prob = jax.vmap(distributions.log_prob, (0, 0, None))(log_probs, device, items.decides)
        entropy = jax.vmap(distributions.entropy, (0, None))(log_probs, items.decides)
        return Choices(device, log_prob, entropy)


def first_readers(graph: jraph.GraphsTuple, count: int) -> Array:
    """Finds the first operations that read each operation, int32 [N, count].

    Edges are sorted by sender. A missing reader is the last node, which is padding.
    """
    num_nodes = len(graph.nodes["mask"])
    # The number of each edge among the edges of its sender: senders 0 0 1 -> numbers 0 1 0.
    number = jnp.arange(len(graph.senders)) - jnp.searchsorted(graph.senders, graph.senders)
    missing = jnp.full((num_nodes, count), num_nodes - 1, jnp.int32)
    return missing.at[graph.senders, number].set(graph.receivers, mode="drop")


def teacher_forcing_bias(
    graph: jraph.GraphsTuple, item: Array, placement: Array, num_slots: int
) -> Array:
    """Computes the bias [G, D] that repeats a placement int32 [N]; `item` as in `decode`."""
    chex.assert_rank([item, placement], 1)
    chex.assert_type([item, placement], int)
    num_devices = graph.nodes["allowed"].shape[-1]
    member_device = jnp.where(graph.nodes["mask"], placement, -1)
    device = jax.ops.segment_max(member_device, item, num_slots)
    return jnp.where(jax.nn.one_hot(device, num_devices, dtype=bool), jnp.inf, 0.0)


def decode(
    placer: Placer,
    params: Params,
    graph: jraph.GraphsTuple,
    items: Items,
    item: Array,
    bias: Array,
) -> Choices:
    """Decodes placements: `device` of the result is int32 [K, N].

    Args:
      placer: the module.
      params: its parameters.
      graph: N nodes.
      items: the sequence, in G slots.
      item: int32 [N], the slot of each operation. An operation that is masked, or for whose item no
        device is drawn, gets the first device that may run it.
      bias: float32 [K, G, D], see `Placer`.
    """
    chex.assert_rank([item, bias], [1, 3])
    chex.assert_type([item, bias], [int, float])
    choices = cast(Choices, placer.apply(params, items, bias))
    is_drawn = graph.nodes["mask"] & items.decides[item]
    first_allowed = jnp.argmax(graph.nodes["allowed"], axis=-1).astype(jnp.int32)
    return choices._replace(device=jnp.where(is_drawn, choices.device[:, item], first_allowed))


def make_policy(
    settings: Settings,
    init_sequence: Callable[[chex.PRNGKey, jraph.GraphsTuple], dict[str, Params]],
    sequence: Callable[[Params, jraph.GraphsTuple], tuple[Items, Array]],
) -> Policy:
    """Makes a policy over a sequence that is the same for all samples, so it is encoded once.

    Args:
      settings: the placer's; its parameters are `params['placer']`.
      init_sequence: draws the parameters of `sequence`, by name.
      sequence: computes the items, and the item int32 [N] of each operation.
    """
    placer = Placer(settings)

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        sequence_key, placer_key = jax.random.split(key)
        params = init_sequence(sequence_key, graph)
        items, _ = sequence(params, graph)
        bias = jnp.zeros((1, *items.allowed.shape))
        return {**params, "placer": placer.init(placer_key, items, bias)}

    def count(items: Items, num_samples: int) -> Array:
        return jnp.full(num_samples, items.decides.sum().astype(jnp.float32))

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        items, item = sequence(params, graph)
        bias = distributions.noise(key, (num_samples, *items.allowed.shape))
        choices = decode(placer, params["placer"], graph, items, item, bias)
        terms = choices.device, choices.log_prob, choices.entropy, count(items, num_samples)
        device, log_prob, entropy, num_choices = (x[:, None] for x in terms)
        return Sample(device, log_prob, entropy, None, num_choices)

    def log_prob(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        items, item = sequence(params, graph)
        bias = jax.vmap(teacher_forcing_bias, (None, None, 0, None))(
            graph, item, samples.placement[:, 0], len(items.present)
        )
        choices = decode(placer, params["placer"], graph, items, item, bias)
        terms = choices.log_prob, choices.entropy, count(items, len(bias))
        return LogProb(*(x[:, None] for x in terms))

    return Policy(init, sample, log_prob)
