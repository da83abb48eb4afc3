"""Learning on several graphs at once, so that a policy carries over to other graphs.

G graphs that are padded to one size are stacked: every leaf of their `GraphsTuple` gets a leading
axis G. `batch_policy` turns a policy of single graphs into one of stacks, with B = G * num_samples
episodes, graph after graph. Every learner of `placement.learning` can then learn from a stack;
`learning.base` compares episodes with those of their own graph.

Latencies come from the `placement.policies.cost_features.CostView` of each graph, which the `read`
of every policy that reads costs adds.

Graphs are taken one after another (`lax.map`). Their episodes already fill the machine, and each
graph needs its own number of schedule steps.
"""

from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement.learning import local_search, mesh
from placement.learning.base import Learner, Metrics, State
from placement.policies.cost_features import CostView
from placement.simulators import makespan
from placement.solvers import iterated_local_search as ils
from placement.types import Array, LogProb, Params, Policy, Sample

# Steps of a local search on each graph: as in a search of some 10,000 evaluations.
_LOCAL_SEARCH_STEPS = 400


class Stack(NamedTuple):
    """G graphs of one batch."""

    graphs: jraph.GraphsTuple  # stacked, with a `CostView` as globals
    reference_s: Array  # float32 [G]: latency of the fastest single device


def stack_graphs(graphs: list[jraph.GraphsTuple]) -> Stack:
    """Stacks padded graphs of one size, which carry a `CostView`, on the host.

    Raises:
      ValueError: the graphs differ in size or number of devices.
    """
    shapes = {str(jax.tree.map(np.shape, graph)) for graph in graphs}
    if len(shapes) > 1:
        raise ValueError(f"{len(graphs)} graphs of {len(shapes)} sizes; pad them to one")
    references_s = []
    for graph in graphs:
        costs: CostView[Any] = graph.globals
        num_nodes, num_devices = costs.compute_s.shape
        singles = np.tile(np.arange(num_devices, dtype=np.int32), (num_nodes, 1))
        latency_s = np.asarray(makespan.latency(_makespan_tables(costs), singles))
        mask = np.asarray(graph.nodes["mask"])
        supports_all = np.asarray(graph.nodes["allowed"])[mask].all(axis=0)
        # Where no device supports all operations, the slowest one is the reference.
        reference_s = latency_s[supports_all].min() if supports_all.any() else latency_s.max()
        references_s.append(float(reference_s))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *graphs)
    return Stack(stacked, np.array(references_s, np.float32))


def _makespan_tables(costs: CostView[Any]) -> makespan.Tables:
    """Returns the simulator's tables, in which unsupported operations take no time.

    Policies place an operation on a device that does not support it only where none does.
    """
    compute_s = jnp.asarray(costs.compute_s)
    return costs._replace(compute_s=jnp.where(jnp.isfinite(compute_s), compute_s, 0.0)).simulator


def batch_policy(policy: Policy) -> Policy:
    """Makes the policy of stacks whose graphs `policy` places, each by itself."""

    def flatten(tree: chex.ArrayTree) -> chex.ArrayTree:
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)

    def init(key: chex.PRNGKey, graphs: jraph.GraphsTuple) -> Params:
        return policy.init(key, jax.tree.map(lambda leaf: leaf[0], graphs))

    def sample(
        params: Params, key: chex.PRNGKey, graphs: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        keys = jax.random.split(key, len(graphs.n_node))
        return flatten(
            jax.lax.map(lambda x: policy.sample(params, x[0], x[1], num_samples), (keys, graphs))
        )

    def log_prob(params: Params, graphs: jraph.GraphsTuple, samples: Sample) -> LogProb:
        num_graphs = len(graphs.n_node)
        samples = jax.tree.map(lambda leaf: leaf.reshape(num_graphs, -1, *leaf.shape[1:]), samples)
        # Recomputed in the backward pass, so that only one graph's activations are in memory.
        one_log_prob = jax.checkpoint(lambda x: policy.log_prob(params, *x))
        return flatten(jax.lax.map(one_log_prob, (graphs, samples)))

    return Policy(init, sample, log_prob)


@partial(jax.jit, static_argnums=0)
def train_step(learner: Learner, state: State, batch: Stack) -> tuple[State, Metrics]:
    """Samples, simulates and learns once, under the `makespan` objective.

    Memory is not simulated; a policy's candidates are limited to placements that fit.

    Args:
      learner: of a policy that `batch_policy` made.
      state: the learner's state.
      batch: the graphs.

    Returns:
      The state, and metrics: the learner's; `ratio`, the geometric mean over graphs of the fastest
      sample's latency over that of the fastest single device; `evaluated`, the number of simulated
      placements.
    """
    state, samples = learner.sample(state, batch.graphs)
    num_graphs = len(batch.reference_s)
    placements = samples.placement.reshape(num_graphs, -1, *samples.placement.shape[1:])

    def simulate(costs: CostView[Any], placement: Array) -> Array:
        columns = placement.reshape(-1, placement.shape[-1]).T
        return makespan.latency(_makespan_tables(costs), columns).reshape(placement.shape[:2])

    latency_s = jax.lax.map(  # [G, num_samples, T]
        lambda graph: mesh.replicate(mesh.shard_map(simulate, *graph)),
        (batch.graphs.globals, placements),
    )
    ratio = jnp.exp(jnp.log(latency_s.min(axis=(1, 2)) / batch.reference_s).mean())
    episodes_s = latency_s.reshape(-1, latency_s.shape[-1])
    state, metrics = learner.update(state, batch.graphs, samples, episodes_s, batch.reference_s)
    return state, metrics | {"ratio": ratio, "evaluated": jnp.float32(latency_s.size)}


@partial(jax.jit, static_argnums=0)
def train_by_local_search(learner: Learner, state: State, batch: Stack) -> tuple[State, Metrics]:
    """Learns from local searches of all graphs under `makespan`, a step on each in turn.

    Every local search starts anew. The parameters that a step on one graph has updated serve the
    next step on another.

    Args:
      learner: of `learning.local_search`, of a policy of single graphs.
      state: the learner's state; its local search is ignored, and None afterwards.
      batch: the graphs.

    Returns:
      As `train_step`: the ratio is of the best placements, the learner's metrics are means.
    """
    num_graphs = len(batch.reference_s)

    def simulate(costs: CostView[Any], placements: Array) -> Array:
        return makespan.latency(_makespan_tables(costs), placements.T)

    def one_step(
        carry: tuple[State, ils.ChainState], number: Array
    ) -> tuple[tuple[State, ils.ChainState], tuple[Metrics, Array]]:
        state, searches = carry
        index = number % num_graphs
        graph, search = jax.tree.map(lambda leaf: leaf[index], (batch.graphs, searches))
        state, samples = learner.sample(state._replace(local_search=search), graph)
        placements = samples.placement[:, 0]
        latency_s = mesh.replicate(mesh.shard_map(simulate, graph.globals, placements))
        reference_s = batch.reference_s[index]
        state, metrics = learner.update(state, graph, samples, latency_s[:, None], reference_s)
        searches = jax.tree.map(
            lambda leaf, new: leaf.at[index].set(new), searches, state.local_search
        )
        return (state._replace(local_search=None), searches), (metrics, jnp.float32(len(latency_s)))

    start = state._replace(local_search=None), jax.vmap(local_search.begin)(batch.graphs)
    (state, searches), (metrics, evaluated) = jax.lax.scan(
        one_step, start, jnp.arange(num_graphs * _LOCAL_SEARCH_STEPS)
    )
    ratio = jnp.exp(jnp.log(searches.best_latency_s / batch.reference_s).mean())
    means = jax.tree.map(jnp.mean, metrics)
    return state, means | {"ratio": ratio, "evaluated": evaluated.sum()}
