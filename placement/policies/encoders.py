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
                nn.Dense(self.hidden_size), add_self_edges=True, symmetric_normalization=True
            )
            y = convolution(undirected._replace(nodes=x)).nodes
            x = nn.LayerNorm()(x + jax.nn.relu(y))
        return x


class DirectedRounds(nn.Module):
    """Rounds of messages along the edges and against them, with separate weights.

    A message depends on the sender's state and the edge, as in interaction networks (Battaglia et
    al. 2016). A node takes the mean of its messages; a residual and LayerNorm follow. Parameters
    are stacked over rounds and directions, so that only one round is compiled.
    """

    hidden_size: int
    num_rounds: int

    @nn.compact
    def __call__(self, graph: jraph.GraphsTuple, x: Array, edge: Array) -> Array:
        """States [N, hidden_size] and edges [E, F] -> [N, hidden_size]."""
        width, rounds = self.hidden_size, self.num_rounds
        params = {
            "update_kernel": self._kernel("update_kernel", rounds, width, width),
            "update_bias": self.param("update_bias", nn.initializers.zeros, (rounds, width)),
            "message_kernel": self._kernel("message_kernel", rounds, 2, width, width),
            "edge_kernel": self._kernel("edge_kernel", rounds, 2, edge.shape[1], width),
            "edge_bias": self.param("edge_bias", nn.initializers.zeros, (rounds, 2, width)),
            "mean_kernel": self._kernel("mean_kernel", rounds, 2, width, width),
            "scale": self.param("scale", nn.initializers.ones, (rounds, width)),
            "bias": self.param("bias", nn.initializers.zeros, (rounds, width)),
        }
        mask = jnp.asarray(graph.edges["mask"])[:, None]
        # The directions are the first axis: along the edges, and against them.
        sources = jnp.stack([graph.senders, graph.receivers])
        targets = sources[::-1]

        def sum_messages(messages: Array, target: Array) -> Array:
            return jax.ops.segment_sum(jnp.where(mask, messages, 0.0), target, len(x))

        count = jax.vmap(sum_messages, (None, 0))(jnp.ones(mask.shape), targets)  # [2, N, 1]

        def one_round(x: jax.Array, p: dict[str, Array]) -> tuple[jax.Array, None]:
            sent = jax.vmap(lambda kernel, source: (x @ kernel)[source])(
                p["message_kernel"], sources
            )  # [2, E, H]
            messages = jax.nn.relu(sent + (edge @ p["edge_kernel"] + p["edge_bias"][:, None]))
            mean = jax.vmap(sum_messages)(messages, targets) / jnp.maximum(count, 1.0)
            along, against = mean @ p["mean_kernel"]  # [N, H] each
            y = x @ p["update_kernel"] + p["update_bias"] + along + against
            y = nn.LayerNorm(use_bias=False, use_scale=False, parent=None).apply(
                {}, x + jax.nn.relu(y)
            )
            return y * p["scale"] + p["bias"], None

        return jax.lax.scan(one_round, x, params)[0]

    def _kernel(self, name: str, *shape: int) -> Array:
        batch_axes = tuple(range(len(shape) - 2))
        return self.param(name, nn.initializers.lecun_normal(batch_axis=batch_axes), shape)
