"""Graph encoders: Flax layers around Jraph's message passing."""

from collections.abc import Callable
from functools import partial
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement.types import Array

# Maps a key, a shape and a type to the initial values of a parameter.
Initialiser = Callable[..., Array]


def lecun_normal(scale: float = 1.0, in_axis: int = -2) -> Initialiser:
    """Makes the initialiser of Flax's layers: normal, truncated at two standard deviations.

    The variance is `scale` over the number of inputs, which is the size of the axis `in_axis`.
    NumPy draws the values, because JAX compiles half a second for every shape of an array.
    """

    def initialise(key: chex.PRNGKey, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        def draw(seed: Array) -> np.ndarray:
            rng = np.random.default_rng(np.asarray(seed))
            values = rng.standard_normal(shape)
            while (is_beyond := np.abs(values) > 2).any():
                values[is_beyond] = rng.standard_normal(is_beyond.sum())
            # The truncated normal's deviation is 0.8796.
            return (values * np.sqrt(scale / shape[in_axis]) / 0.87962566103423978).astype(dtype)

        result = jax.ShapeDtypeStruct(shape, dtype)
        values: Array = jax.pure_callback(draw, result, jax.random.key_data(key))
        return values

    return initialise


def zeros(key: chex.PRNGKey, shape: tuple[int, ...], dtype: Any = jnp.float32) -> np.ndarray:
    """Returns the zeros that a bias starts from; NumPy's need no program."""
    del key
    return np.zeros(shape, dtype)


Dense = partial(nn.Dense, kernel_init=lecun_normal(), bias_init=zeros)


class MLP(nn.Module):
    """Dense layers with ReLU between them, none after the last."""

    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., F] -> [..., widths[-1]]."""
        for width in self.widths[:-1]:
            x = jax.nn.relu(Dense(width)(x))
        return Dense(self.widths[-1])(x)


class GCN(nn.Module):
    """Graph convolutions on the undirected graph, each with a residual and LayerNorm.

    The convolution is that of Kipf and Welling (2017), with self edges and symmetric normalisation,
    as in the encoder of HSDAG (Duan et al. 2024, section 2.3). Padding edges join a padding node to
    itself, so that they reach no operation.
    """

    hidden_size: int
    num_layers: int = 2

    @nn.compact
    def __call__(self, graph: jraph.GraphsTuple, x: Array) -> Array:
        """States [N, hidden_size] -> [N, hidden_size]; the graph's nodes are not read."""
        undirected = graph._replace(
            edges=None,
            senders=jnp.concatenate([graph.senders, graph.receivers]),
            receivers=jnp.concatenate([graph.receivers, graph.senders]),
            n_edge=2 * graph.n_edge,
        )
        for _ in range(self.num_layers):
            convolution = jraph.GraphConvolution(
                Dense(self.hidden_size), add_self_edges=True, symmetric_normalization=True
            )
            y = convolution(undirected._replace(nodes=x)).nodes
            x = nn.LayerNorm()(x + jax.nn.relu(y))
        return x


def repeat_round(round_class: type[nn.Module], num_rounds: int) -> Any:
    """Makes a module class that repeats a round of messages with the same weights.

    Args:
      round_class: its `__call__` takes the state and constant inputs, and returns the next state
        and None.
      num_rounds: the number of rounds.
    """
    return nn.scan(
        round_class,
        variable_broadcast="params",
        split_rngs={"params": False},
        in_axes=nn.broadcast,
        length=num_rounds,
    )


class _MPNNRound(nn.Module):
    """A round of `MPNN`: state [N, H] -> (state, None)."""

    @nn.compact
    def __call__(
        self, state: Array, matrices: Array, senders: Array, receivers: Array
    ) -> tuple[Array, None]:
        width = state.shape[-1]
        bias = self.param("bias", zeros, (width,))
        normal = lecun_normal()
        cell = nn.GRUCell(width, kernel_init=normal, recurrent_kernel_init=normal, bias_init=zeros)
        messages = jnp.einsum("ei,eij->ej", state[senders], matrices)
        total = jax.ops.segment_sum(messages, receivers, len(state))
        return cell(state, jax.nn.relu(total + bias))[0], None


class MPNN(nn.Module):
    """The message-passing network of Gilmer et al. (2017, arXiv 1704.01212), without a read-out.

    A message is a matrix, which an MLP makes of the edge, times the sender's state. A GRU with the
    weights of all rounds in common takes the sum of a node's messages.
    """

    hidden_size: int
    rounds: int

    @nn.compact
    def __call__(
        self, x: Array, edge: Array, senders: Array, receivers: Array, mask: Array
    ) -> Array:
        """Nodes [N, F] and edges [E, F'], with a mask bool [E] -> [N, hidden_size]."""
        width = self.hidden_size
        matrices = MLP((width, width * width))(edge).reshape(-1, width, width)
        matrices = jnp.where(mask[:, None, None], matrices, 0.0)
        state = jax.nn.relu(Dense(width)(x))
        return repeat_round(_MPNNRound, self.rounds)()(state, matrices, senders, receivers)[0]
