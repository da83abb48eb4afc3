"""RNNLM and NMT: published sizes, what they compute against plain NumPy, who depends on what."""

import numpy as np
import openvino as ov
import pytest

from placement import zoo
from placement.graphs import coarsen
from placement.runtime.models import extract, frontend

# Operations and edges of the full view, and of the coarse graph. Counts do not depend on widths.
SIZES = {
    "rnnlm": ((1280, 1866), (978, 1564)),
    "nmt": ((2440, 3534), (1741, 2835)),
    "nmt:layers=4,batch=2,hidden=8,vocabulary=9": ((4256, 6302), (3299, 5345)),
}
WORDS, HIDDEN = 40, 16


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


class Reference:
    """The networks in NumPy, with the weights of a model."""

    def __init__(self, model: ov.Model):
        self._weights = {
            op.get_friendly_name(): op.data.astype(np.float64)
            for op in model.get_ops()
            if op.get_type_name() == "Constant"
        }

    def embed(self, ids: np.ndarray, prefix: str = "") -> list[np.ndarray]:
        return list(self._weights[f"{prefix}embedding/weight"][ids])

    def cell(self, name: str, x: np.ndarray, state: tuple) -> tuple[np.ndarray, np.ndarray]:
        joined = np.concatenate([x, state[0]], axis=1)
        gates = joined @ self._weights[f"{name}/weight"].T + self._weights[f"{name}/bias"]
        i, f, g, o = np.split(gates, 4, axis=1)
        memory = _sigmoid(f) * state[1] + _sigmoid(i) * np.tanh(g)
        return _sigmoid(o) * np.tanh(memory), memory

    def layer(self, name: str, inputs: list, state: tuple) -> tuple[list, tuple]:
        outputs = []
        for x in inputs:
            state = self.cell(name, x, state)
            outputs.append(state[0])
        return outputs, state

    def attend(self, query: np.ndarray, sentence: np.ndarray) -> np.ndarray:
        keys = sentence @ self._weights["attention/weight"].T  # [steps, batch, hidden]
        weights = _softmax(np.einsum("bh,sbh->bs", query, keys))
        return np.einsum("bs,sbh->bh", weights, sentence)

    def predict(self, x: np.ndarray) -> np.ndarray:
        return _softmax(x @ self._weights["softmax/weight"].T + self._weights["softmax/bias"])


def _rnnlm(model: ov.Model, words: np.ndarray, layers: int) -> list[np.ndarray]:
    reference = Reference(model)
    x = reference.embed(words)
    for layer in range(layers):
        x, _ = reference.layer(f"lstm{layer}", x, (np.zeros_like(x[0]),) * 2)
    return [reference.predict(each) for each in x]


def _nmt(model: ov.Model, source: np.ndarray, target: np.ndarray, layers: int) -> list[np.ndarray]:
    reference = Reference(model)
    x = reference.embed(source, "encoder/")
    zeros = (np.zeros_like(x[0]),) * 2
    y, state = reference.layer("encoder/lstm0", x, zeros)
    states = [state]
    for layer in range(1, layers):
        name = f"encoder/lstm{layer}"
        if layer == 1:
            z, state = reference.layer(name, x[::-1], zeros)
            z = z[::-1]
        else:
            z, state = reference.layer(name, y, zeros)
        states.append(state)
        y = [a + b for a, b in zip(y, z, strict=True)]
    predictions = []
    for x_t in reference.embed(target, "decoder/"):
        context = reference.attend(states[-1][0], np.array(y))
        z_t = np.concatenate([x_t, context], axis=1)
        for layer in range(layers):
            states[layer] = reference.cell(f"decoder/lstm{layer}", z_t, states[layer])
            z_t = states[layer][0] + (z_t if layer > 1 else 0)
        predictions.append(reference.predict(z_t))
    return predictions


def _draw(name: str, layers: int, *seeds: int) -> tuple[ov.Model, list[np.ndarray]]:
    """A small network and words for each of its inputs."""
    sizes = f"steps=3,batch=2,hidden={HIDDEN},vocabulary={WORDS}"
    words = [np.random.default_rng(seed).integers(0, WORDS, (3, 2)) for seed in seeds]
    return zoo.build(f"{name}:layers={layers},{sizes}"), words


def _run(model: ov.Model, words: list[np.ndarray]) -> list[np.ndarray]:
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    result = compiled(words)
    return [np.array(result[port]) for port in compiled.outputs]


@pytest.mark.parametrize("text", SIZES)
def test_sizes_are_exact(text):
    model = frontend.prepare(zoo.build(text, weights=False))
    graph, estimated = extract.op_graph(model, name=text)
    coarse = coarsen.coarsen(graph).graph
    assert (graph.num_ops, graph.num_edges) == SIZES[text][0]
    assert (coarse.num_ops, coarse.num_edges) == SIZES[text][1]
    assert graph.name == text
    assert estimated == {}


def test_rnnlm_equals_numpy():
    model, words = _draw("rnnlm", 2, 0)
    np.testing.assert_allclose(_run(model, words), _rnnlm(model, *words, 2), atol=1e-6)


@pytest.mark.parametrize("layers", [1, 4])
def test_nmt_equals_numpy(layers):
    model, words = _draw("nmt", layers, 0, 1)
    np.testing.assert_allclose(_run(model, words), _nmt(model, *words, layers), atol=1e-6)
