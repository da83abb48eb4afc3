"""Learning on several graphs at once, which is how a policy comes to carry over to others.

G graphs that are padded to one size are stacked: every leaf of their `GraphsTuple` gets a leading
axis G. A policy of single graphs then is one of the stack, with B = G * num_samples episodes, graph
after graph, so that every learner of `placement.learning` learns from them as it does from one
graph; `learning.base` compares episodes with those of their own graph.

Graphs are taken one after another (`lax.map`): their episodes already fill the machine, and each
walks only its own number of steps.
"""

from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement.learning import mesh
from placement.learning.base import Learner, Metrics, State
from placement.simulators import makespan
from placement.types import Array, LogProb, Params, Policy, Sample


class Stack(NamedTuple):
    """G graphs for one batch."""

    graphs: jraph.GraphsTuple  # stacked, with `scheduler_tables.Tables` as globals
    reference: Array  # float32 [G]: latency of the fastest single device, in the graph's unit


def stack(graphs: list[jraph.GraphsTuple]) -> Stack:
    """Stacks padded graphs of one size, which carry `scheduler_tables.tables`, on the host.

    Raises:
      ValueError: sizes differ, or numbers of devices.
    """
    shapes = {str(jax.tree.map(np.shape, graph)) for graph in graphs}
    if len(shapes) > 1:
        raise ValueError(f"{len(graphs)} graphs of {len(shapes)} sizes; pad them to one")
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *graphs)
    return Stack(stacked, np.array([_reference(graph) for graph in graphs], np.float32))


def _reference(graph: jraph.GraphsTuple) -> float:
    num_nodes, num_devices = np.shape(graph.globals.onward)
    everywhere = np.tile(np.arange(num_devices, dtype=np.int32), (num_nodes, 1))
    possible = np.asarray(graph.nodes["allowed"])[np.asarray(graph.nodes["mask"])].all(axis=0)
    latency = np.asarray(makespan.latency(graph.globals.unrolled.simulator, everywhere))
    return float(latency[possible].min()) if possible.any() else float(latency.max())


def batch_policy(policy: Policy) -> Policy:
    """The policy of stacks whose graphs `policy` places, each by itself."""

    def init(key: chex.PRNGKey, graphs: jraph.GraphsTuple) -> Params:
        return policy.init(key, jax.tree.map(lambda leaf: leaf[0], graphs))

    def sample(
        params: Params, key: chex.PRNGKey, graphs: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        keys = jax.random.split(key, len(graphs.n_node))
        drawn = jax.lax.map(
            lambda x: policy.sample(params, x[0], x[1], num_samples), (keys, graphs)
        )
        return _flat(drawn)

    def log_prob(params: Params, graphs: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        count = len(graphs.n_node)
        of_graphs = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), drawn)
        # Recomputed in the backward pass, lest every graph's activations wait for it.
        again = jax.checkpoint(lambda x: policy.log_prob(params, *x))
        return _flat(jax.lax.map(again, (graphs, of_graphs)))

    def greedy(params: Params, graphs: jraph.GraphsTuple) -> Array:
        return jax.lax.map(partial(policy.greedy, params), graphs)

    return Policy(init, sample, log_prob, greedy)


def _flat(tree: chex.ArrayTree) -> chex.ArrayTree:
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


@partial(jax.jit, static_argnums=0)
def step(learner: Learner, state: State, batch: Stack) -> tuple[State, Metrics]:
    """Samples, simulates and learns once, in the `makespan` objective.

    Memory limits nothing but the policy's candidates: what it places fits.

    Args:
      learner: of `batch_policy` of some policy.
      state: its state.
      batch: the graphs.

    Returns:
      The state, and metrics: the learner's; `ratio`, the geometric mean over graphs of the fastest
      sample's latency over that of the fastest single device; `evaluated`, how many placements.
    """
    state, drawn = learner.sample(state, batch.graphs)
    count = len(batch.reference)
    placements = drawn.placement.reshape(count, -1, *drawn.placement.shape[1:])

    def latency(tables: makespan.Tables, placement: Array) -> Array:
        columns = placement.reshape(-1, placement.shape[-1]).T
        return makespan.latency(tables, columns).reshape(placement.shape[:2])

    simulator = batch.graphs.globals.unrolled.simulator
    # [G, num_samples, T]
    found = jax.lax.map(
        lambda x: mesh.replicate(mesh.shard_map(latency, *x)), (simulator, placements)
    )
    fastest = found.min(axis=(1, 2)) / batch.reference
    latency_s = found.reshape(-1, found.shape[-1])
    state, metrics = learner.update(state, batch.graphs, drawn, latency_s, batch.reference)
    ratio = jnp.exp(jnp.log(fastest).mean())
    return state, metrics | {"ratio": ratio, "evaluated": jnp.float32(found.size)}
