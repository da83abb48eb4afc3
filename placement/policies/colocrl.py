"""ColocRL: a sequence-to-sequence LSTM over groups of operations (Mirhoseini et al., ICML 2017).

    e_n  = relu(Dense(features of n, features of the first six operations that read n))
    d    = Placer(e_1, .., e_N)                               `placement.policies.seq2seq`

A node n of the policy's graph is a group: operations that the framework co-locates, and operations
that join their single consumer (`coarsen.label_sole_consumer_trees`). The paper's further rules
know the networks by name and are left out. The placer decides the nodes in their order, which is
topological in coarse graphs. The encoder does not depend on the samples: one pass serves all.

The tuned logits favour the device of the node before (`stay`). A search then starts with runs of
nodes that share a device. With independent devices it would cut most edges, and the quickest
improvement would be to use one device only.

Departures next to those of `seq2seq`: an update learns from 16 samples (in the paper from those of
several controllers), failures are left out after 1,000 updates, as in the Planner's code, the
encoder is bidirectional, and the embedding reads features of the neighbours instead of their
numbers; a co-located group has those of its first operation.
"""

from typing import cast

import chex
import jax.numpy as jnp
import jraph

from placement.policies import base, readers, seq2seq
from placement.types import Array, Params, Policy


def make(
    *,
    num_devices: int,
    hidden_size: int = 512,
    aligned: bool = True,
    stay: float = 0.0,
) -> Policy:
    """Makes the ColocRL policy.

    Args:
      num_devices: D.
      hidden_size: H, of the embedding, the encoder and the decoder.
      aligned: whether the attention asks with the node to decide; False in the paper.
      stay: added to the logit of the device of the node before.

    Raises:
      UserError: a hyper-parameter is out of range, see `seq2seq.Settings`.
    """
    embedding = seq2seq.Embedding(hidden_size)

    def init_embedding(key: chex.PRNGKey, graph: jraph.GraphsTuple) -> dict[str, Params]:
        return {"embedding": embedding.init(key, graph)}

    def sequence(params: Params, graph: jraph.GraphsTuple) -> tuple[seq2seq.Items, Array]:
        mask, allowed = graph.nodes["mask"], graph.nodes["allowed"]
        embedded = cast(Array, embedding.apply(params["embedding"], graph))
        return seq2seq.Items(embedded, mask, allowed & mask[:, None]), jnp.arange(len(mask))

    settings = seq2seq.Settings(num_devices, hidden_size, aligned, stay)
    return seq2seq.make_policy(settings, init_embedding, sequence)


# 'tuned' takes its gradient steps on all samples at once: half as many steps, with equal results.
RECIPE = base.Recipe(
    make,
    {
        "paper": base.Variant(seq2seq.PAPER, seq2seq.PAPER_LEARNER | {"num_samples": 16}),
        "tuned": base.Variant(seq2seq.TUNED, base.PPO | {"num_minibatches": 1}),
    },
    readers.read_sole_consumer_groups,
)
