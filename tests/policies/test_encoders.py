import jax
import jax.numpy as jnp
import numpy as np

from placement.policies import encoders


def test_mpnn_messages():
    """One round on two edges into node 2, one of them masked, against plain sums and a GRU."""
    network = encoders.MPNN(hidden_size=3, rounds=1)
    rng = np.random.default_rng(0)
    x, edge = jnp.asarray(rng.normal(size=(3, 2))), jnp.asarray(rng.normal(size=(2, 1)))
    ends = jnp.array([0, 1]), jnp.array([2, 2])
    inputs = x, edge, *ends, jnp.array([True, False])
    params = network.init(jax.random.key(0), *inputs)
    p = params["params"]
    result = network.apply(params, *inputs)

    def dense(layer: dict, value: np.ndarray) -> np.ndarray:
        return value @ layer["kernel"] + layer.get("bias", 0)

    def sigmoid(value: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-value))

    state = np.maximum(dense(p["Dense_0"], x), 0)
    hidden = np.maximum(dense(p["MLP_0"]["Dense_0"], edge), 0)
    matrix = np.reshape(dense(p["MLP_0"]["Dense_1"], hidden), (2, 3, 3))
    message = np.stack([np.zeros(3), np.zeros(3), state[0] @ matrix[0]])
    cell, message = p["Scan_MPNNRound_0"]["GRUCell_0"], np.maximum(message, 0)
    r = sigmoid(dense(cell["ir"], message) + dense(cell["hr"], state))
    z = sigmoid(dense(cell["iz"], message) + dense(cell["hz"], state))
    n = np.tanh(dense(cell["in"], message) + r * dense(cell["hn"], state))
    np.testing.assert_allclose(result, (1 - z) * n + z * state, rtol=1e-4, atol=1e-6)
