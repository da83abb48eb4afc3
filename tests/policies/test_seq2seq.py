import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.policies import seq2seq
from placement.policies.seq2seq import Choices, Items, Settings
from placement.types import Array, Params
from tests import helpers

SETTINGS = Settings(
    num_devices=3,
    hidden_size=4,
    aligned=True,
    stay=0.6,
)
NUM_SLOTS, NUM_FEATURES = 5, 2


def _items(present: list[bool], seed: int = 0) -> Items:
    rng = np.random.default_rng(seed)
    embedding = rng.normal(size=(len(present), NUM_FEATURES)).astype(np.float32)
    allowed = np.tile(np.array(present)[:, None], (1, 3))
    return Items(embedding, np.array(present), allowed)


EVERY = _items([True] * NUM_SLOTS)


@functools.cache
def _params(aligned: bool = True) -> Params:
    """Far enough from the initial ones that every term of the formulas counts."""
    placer = seq2seq.Placer(dataclasses.replace(SETTINGS, aligned=aligned))
    params = jax.jit(placer.init)(jax.random.key(0), EVERY, jnp.zeros((1, NUM_SLOTS, 3)))
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: x + 0.5 * rng.normal(size=x.shape).astype(np.float32), params)


@functools.cache
def _compiled(settings: Settings) -> Callable[[Params, Items, Array], Choices]:
    return jax.jit(seq2seq.Placer(settings).apply)


def _decode(items: Items, bias: Array, settings: Settings = SETTINGS) -> Choices:
    return _compiled(settings)(_params(settings.aligned), items, bias)


def _bias(devices: list[list[int]]) -> np.ndarray:
    """Makes the placer choose these, [K, G]."""
    return np.where(np.eye(3, dtype=bool)[np.array(devices)], np.inf, 0.0).astype(np.float32)


def _softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum()


class _Reference:
    """The formulas of the module's docstring for one sequence in which every item is present."""

    def __init__(self, params: Params):
        self.params = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])

    @staticmethod
    def lstm(
        params: Params, carry: tuple, x: np.ndarray, direction: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        cell, hidden = carry
        recurrent, layer = params["recurrent"], params["input"]
        inputs = x @ layer["kernel"] + layer["bias"]
        if direction is not None:
            recurrent, inputs = recurrent[direction], np.split(inputs, 2)[direction]
        i, f, o, g = np.split(inputs + hidden @ recurrent, 4)
        cell = cell / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        return cell, np.tanh(cell) / (1 + np.exp(-o))

    def encode(self, embedding: np.ndarray) -> tuple[np.ndarray, tuple]:
        read, ends = [], []
        for direction, order in enumerate((embedding, embedding[::-1])):
            carry, states = (np.zeros(2), np.zeros(2)), []
            for x in order:
                carry = self.lstm(self.params["encoder"], carry, x, direction)
                states.append(carry[1])
            read.append(states[::-1] if direction else states)
            ends.append(carry)
        return np.concatenate(read, axis=1), tuple(map(np.concatenate, zip(*ends, strict=True)))

    def probabilities(self, items: Items, devices: list[int], aligned: bool = True) -> np.ndarray:
        """[G, D], of each choice given the devices before it."""
        states, carry = self.encode(items.embedding)
        keys = states @ self.params["keys"]["kernel"]
        decoder, found = self.params["decoder"], []
        attention = (self.params if aligned else decoder)["attention"]
        for state, previous in zip(states, [3, *devices], strict=False):
            carry = self.lstm(decoder, carry, np.eye(4)[previous])
            asks = state if aligned else carry[1]
            query = asks @ attention["query"]["kernel"]
            score = np.tanh(query + keys) @ attention["score"]["kernel"][:, 0]
            seen = [carry[1], _softmax(score) @ keys, *([state] if aligned else [])]
            logits = 5.0 * np.tanh(np.concatenate(seen) @ decoder["head"]["kernel"])
            logits += 0.6 * np.eye(4)[previous, :3]
            found.append(_softmax(logits))
        return np.array(found)


def _check(chosen: Choices, items: Items, devices: list[list[int]], aligned: bool = True) -> None:
    """Compares decoded sequences with the reference's, of items that are all present."""
    reference = _Reference(_params(aligned))
    for row, log_prob, entropy in zip(devices, chosen.log_prob, chosen.entropy, strict=True):
        probabilities = reference.probabilities(items, row, aligned)
        expected = np.log(probabilities[np.arange(len(row)), row]).sum()
        np.testing.assert_allclose(log_prob, expected, rtol=1e-5)
        expected = -(probabilities * np.log(probabilities)).sum()
        np.testing.assert_allclose(entropy, expected, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("aligned", [True, False])
def test_placer_computes_the_formulas(aligned):
    devices = [[0, 0, 0, 0, 0], [2, 0, 1, 1, 2]]
    chosen = _decode(EVERY, _bias(devices), dataclasses.replace(SETTINGS, aligned=aligned))
    assert chosen.device.tolist() == devices
    _check(chosen, EVERY, devices, aligned)


@pytest.mark.slow
def test_empty_slots_are_skipped():
    """Neither LSTM reads them, none attends to them, and their devices are not fed back."""
    empty = [0, 1, 4]
    filled = np.delete(np.arange(NUM_SLOTS), empty)
    items = _items([slot in filled for slot in range(NUM_SLOTS)])
    devices = np.array([[2, 1, 0, 1, 2], [0, 0, 2, 0, 1]])
    compact = Items(*(field[filled] for field in items))
    _check(_decode(items, _bias(devices)), compact, devices[:, filled].tolist())


def test_first_readers():
    """The last node, 15, stands for none."""
    readers = seq2seq.first_readers(helpers.batched(helpers.diamond()), 3)
    expected = [[1, 2, 15], [3, 15, 15], [3, 15, 15], [15, 15, 15]]
    assert np.asarray(readers)[:4].tolist() == expected
    fork = seq2seq.first_readers(helpers.batched(helpers.fork_join(8)), 6)
    assert np.asarray(fork)[0].tolist() == [1, 2, 3, 4, 5, 6]


def test_teacher_forcing_bias():
    """Operations that do not decide have no say in their group's device."""
    graph = helpers.batched(helpers.diamond(), 3)
    graph.nodes["mask"][2] = False
    item = np.array([2, 0, 0, 2, *[1] * 12])
    placement = np.array([1, 0, 2, 1, *[2] * 12])
    bias = seq2seq.teacher_forcing_bias(graph, item, placement, 4)
    assert bias.tolist() == [[np.inf, 0, 0], [0, 0, 0], [0, np.inf, 0], [0, 0, 0]]
