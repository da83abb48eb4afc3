"""Graph encoders: Flax layers around Jraph's message passing."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph

from placement.types import Array


class MLP(nn.Module):
    """Dense layers with ReLU between them, none after the last."""

    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[..., F] -> [..., widths[-1]]."""
        for width in self.widths[:-1]:
            x = jax.nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.widths[-1])(x)


class GCN(nn.Module):
    """Graph convolutions on the undirected graph, each with a residual and LayerNorm.

    Kipf and Welling (2017) with self edges and symmetric normalisation, as in the encoder of HSDAG
    (Duan et al. 2024, section 2.3). Padding edges are self loops of a padding node, so they reach
    no operation.
    """

    hidden_size: int
    num_layers: int = 2

    @nn.compact
    def __call__(self, graph: jraph.GraphsTuple, x: Array) -> Array:
        """States [N, hidden_size] -> [N, hidden_size]; the graph's own nodes are not read."""
        both_ways = graph._replace(
            edges=None,
            senders=jnp.concatenate([graph.senders, graph.receivers]),
            receivers=jnp.concatenate([graph.receivers, graph.senders]),
            n_edge=2 * graph.n_edge,
        )
        for _ in range(self.num_layers):
            convolution = jraph.GraphConvolution(
                nn.Dense(self.hidden_size), add_self_edges=True, symmetric_normalization=True
            )
            y = convolution(both_ways._replace(nodes=x)).nodes
            x = nn.LayerNorm()(x + jax.nn.relu(y))
        return x
