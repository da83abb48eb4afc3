"""ColocRL: a sequence-to-sequence LSTM over the operations (Mirhoseini et al., ICML 2017).

    e_n  = relu(Dense(features of n, features of the first six operations that read n))
    d    = Placer(e_1, .., e_N)                               `placement.policies.seq2seq`

The paper places groups that heuristics make: operations that the framework co-locates, which
`placement.graphs.coarsen` merges for every method, and an operation with the only one that it
serves, which `coarsen.sole_consumers` merges for this one: hand over that graph, and a node is a
group. (The paper's further rules, a group for each step of an LSTM layer, know the networks by
name and are left out.) Nodes are decided in their order, topological in coarse graphs. The encoder
does not depend on the draw: one pass serves all samples.

By default nodes are drawn to the device of the one before them (`stay`): a search starts with runs
of nodes that share a device, not with one that draws a device for each and cuts most edges, from
which the shortest way is to leave all but one device alone.

Departures from the paper: those of `placement.policies.seq2seq`; a group has the features of
the operation that stands for it; the encoder reads both ways, as the Hierarchical Planner's.
"""

from typing import cast

import chex
import jax
import jax.numpy as jnp
import jraph

from placement.policies import base, seq2seq
from placement.types import Array, Params, Policy


def make(
    *,
    num_devices: int,
    hidden_size: int = 512,
    temperature: float = 1.0,
    tanh_constant: float = 5.0,
    noise: float = 0.0,
    aligned: bool = True,
    stay: float = 0.0,
) -> Policy:
    """Makes the ColocRL policy.

    Args:
      num_devices: D.
      hidden_size: H, of the embedding, the encoder and the decoder.
      temperature: divides the logits of the devices.
      tanh_constant: C, bounds them; 0 does not.
      noise: the share of every choice that is uniform.
      aligned: whether a choice sees the node that it is for; False in the paper.
      stay: how strongly a node is drawn to the device of the one before it.

    Raises:
      UserError: an impossible hyper-parameter, see `seq2seq.Settings`.
    """
    placer = seq2seq.Placer(
        seq2seq.Settings(num_devices, hidden_size, temperature, tanh_constant, noise, aligned, stay)
    )
    embedding = seq2seq.Embedding(hidden_size)

    def sequence(params: Params, graph: jraph.GraphsTuple) -> tuple[seq2seq.Items, Array]:
        mask, allowed = graph.nodes["mask"], graph.nodes["allowed"]
        embedded = cast(Array, embedding.apply(params["embedding"], graph))
        return seq2seq.Items(embedded, mask, allowed & mask[:, None]), jnp.arange(len(mask))

    def init(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> Params:
        embedding_key, placer_key = jax.random.split(key)
        params = {"embedding": embedding.init(embedding_key, graph)}
        items, _ = sequence(params, graph)
        bias = jnp.zeros((1, *items.allowed.shape))
        return {**params, "placer": placer.init(placer_key, items, bias)}

    return seq2seq.policy(placer, init, sequence)


# 'tuned' takes its gradient steps on all samples: half as many, which find as much.
RECIPE = base.Recipe(
    make,
    {
        "tuned": base.Variant(seq2seq.TUNED, base.PPO | {"num_minibatches": 1}),
        "paper": base.Variant(seq2seq.PAPER, seq2seq.PAPER_LEARNER),
    },
    base.groups,
)
