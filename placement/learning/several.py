"""Learning on several graphs at once, which is how a policy comes to carry over to others.

G graphs that are padded to one size are stacked: every leaf of their `GraphsTuple` gets a leading
axis G. A policy of single graphs then is one of the stack, with B = G * num_samples episodes, graph
after graph, so that every learner of `placement.learning` learns from them as it does from one
graph; `learning.base` compares episodes with those of their own graph.

Latencies are those of the `placement.policies.cost_features.CostView` that each graph carries,
which every policy that reads costs puts there.

Graphs are taken one after another (`lax.map`): their episodes already fill the machine, and each
walks only its own number of steps.
"""

from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement.learning import mesh, walk
from placement.learning.base import Learner, Metrics, State
from placement.policies.cost_features import CostView
from placement.simulators import makespan
from placement.types import Array, LogProb, Params, Policy, Sample

_WALK = 400  # steps on a graph: what a search of some 10,000 evaluations takes


class Stack(NamedTuple):
    """G graphs for one batch."""

    graphs: jraph.GraphsTuple  # stacked, with a `CostView` as globals
    reference_s: Array  # float32 [G]: latency of the fastest single device


def stack(graphs: list[jraph.GraphsTuple]) -> Stack:
    """Stacks padded graphs of one size, which carry a `CostView`, on the host.

    Raises:
      ValueError: sizes differ, or numbers of devices.
    """
    shapes = {str(jax.tree.map(np.shape, graph)) for graph in graphs}
    if len(shapes) > 1:
        raise ValueError(f"{len(graphs)} graphs of {len(shapes)} sizes; pad them to one")
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *graphs)
    return Stack(stacked, np.array([_reference_s(graph) for graph in graphs], np.float32))


def _reference_s(graph: jraph.GraphsTuple) -> float:
    """The fastest single device's; the slowest one's where none supports all operations."""
    costs: CostView[Any] = graph.globals
    num_nodes, num_devices = costs.compute_s.shape
    everywhere = np.tile(np.arange(num_devices, dtype=np.int32), (num_nodes, 1))
    possible = np.asarray(graph.nodes["allowed"])[np.asarray(graph.nodes["mask"])].all(axis=0)
    latency_s = np.asarray(makespan.latency(_simulator(costs), everywhere))
    return float(latency_s[possible].min()) if possible.any() else float(latency_s.max())


def _simulator(costs: CostView[Any]) -> makespan.Tables:
    """What a device does not support takes no time there: it is drawn only where all else fails."""
    compute_s = jnp.asarray(costs.compute_s)
    return costs._replace(compute_s=jnp.where(jnp.isfinite(compute_s), compute_s, 0.0)).simulator


def batch_policy(policy: Policy) -> Policy:
    """Makes the policy of stacks whose graphs `policy` places, each by itself."""

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

    return Policy(init, sample, log_prob)


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
    count = len(batch.reference_s)
    placements = drawn.placement.reshape(count, -1, *drawn.placement.shape[1:])

    def simulate(costs: CostView[Any], placement: Array) -> Array:
        columns = placement.reshape(-1, placement.shape[-1]).T
        return makespan.latency(_simulator(costs), columns).reshape(placement.shape[:2])

    latency_s = jax.lax.map(  # [G, num_samples, T]
        lambda graph: mesh.replicate(mesh.shard_map(simulate, *graph)),
        (batch.graphs.globals, placements),
    )
    ratio = jnp.exp(jnp.log(latency_s.min(axis=(1, 2)) / batch.reference_s).mean())
    episodes_s = latency_s.reshape(-1, latency_s.shape[-1])
    state, metrics = learner.update(state, batch.graphs, drawn, episodes_s, batch.reference_s)
    return state, metrics | {"ratio": ratio, "evaluated": jnp.float32(latency_s.size)}


@partial(jax.jit, static_argnums=0)
def walks(learner: Learner, state: State, batch: Stack) -> tuple[State, Metrics]:
    """Learns from walks on all graphs, in the `makespan` objective, a step on each in turn.

    Every walk begins anew, and what is learned on one graph serves the next step on another.

    Args:
      learner: of `learning.walk`, of the policy of single graphs.
      state: its state; where it stands is of no account, and None afterwards.
      batch: the graphs.

    Returns:
      As `step`, of the last placements of the walks and the means of the learner's metrics.
    """
    count = len(batch.reference_s)

    def simulate(costs: CostView[Any], placements: Array) -> Array:
        return makespan.latency(_simulator(costs), placements.T)

    def one(
        carry: tuple[State, walk.Walk], number: Array
    ) -> tuple[tuple[State, walk.Walk], tuple[Metrics, Array]]:
        state, walks = carry
        nth = number % count
        graph, at = jax.tree.map(lambda leaf: leaf[nth], (batch.graphs, walks))
        state, drawn = learner.sample(state._replace(walk=at), graph)
        placements = drawn.placement[:, 0]
        latency_s = mesh.replicate(mesh.shard_map(simulate, graph.globals, placements))
        reference_s = batch.reference_s[nth]
        state, metrics = learner.update(state, graph, drawn, latency_s[:, None], reference_s)
        walks = jax.tree.map(lambda every, now: every.at[nth].set(now), walks, state.walk)
        return (state._replace(walk=None), walks), (metrics, jnp.float32(len(latency_s)))

    begun = state._replace(walk=None), jax.vmap(walk.begin)(batch.graphs)
    numbers = jnp.arange(count * _WALK)
    (state, ended), (metrics, evaluated) = jax.lax.scan(one, begun, numbers)
    ratio = jnp.exp(jnp.log(ended.best_s / batch.reference_s).mean())
    means = jax.tree.map(jnp.mean, metrics)
    return state, means | {"ratio": ratio, "evaluated": evaluated.sum()}
