"""Learning on several graphs at once, so that a policy carries over to other graphs.

G graphs of one objective, padded to one size, are stacked: every leaf of their `GraphsTuple` gets a
leading axis G. `batch_policy` turns a policy of single graphs into one of stacks, with
B = G * num_samples episodes, graph after graph. Every learner can then learn from a stack, and
`learning.base` compares episodes with those of their own graph.

Graphs are taken one after another (`lax.map`). Their episodes already fill the machine, and each
graph needs its own number of schedule steps.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import chex
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement import simulators
from placement.graphs import batching
from placement.learning import mesh
from placement.learning.base import Learner, Metrics, State
from placement.problem import Problem
from placement.simulators import list_schedule
from placement.types import Array, LogProb, Params, Policy, Sample


class Stack(NamedTuple):
    """G graphs of one batch; `prepare` makes one without the leading axis."""

    graphs: jraph.GraphsTuple  # with a `CostView` as globals
    tables: Any  # the `Problem.tables` of the graphs' problems, padded to the size of the graphs
    reference_s: Array  # float32 [G]: latency of the fastest single device

    @property
    def simulate(self) -> Callable[[Any, Array], simulators.Outcome]:
        """The `simulators.Objective.simulate` of the graphs' objective."""
        return simulators.get_objective(self.graphs.globals.objective.name).simulate


def prepare(graph: jraph.GraphsTuple, problem: Problem) -> Stack:
    """Prepares one graph for a stack, on the host.

    Args:
      graph: with a node for each of the problem's operations, and at least as many edges.
      problem: the problem that the graph was read from, without co-location.
    """
    num_nodes, num_edges = len(graph.nodes["mask"]), len(graph.senders)
    num_steps = num_nodes + num_edges // list_schedule.WIDTH
    sizes = batching.Sizes(problem.graph.num_ops, num_nodes, num_edges, num_steps)
    # Finite also where no single device has enough memory, or can run all operations.
    reference_s = np.min(problem.evaluate_penalised(problem.single_devices))
    return Stack(jax.device_get(graph), problem.build_tables(sizes), np.asarray(reference_s))


def stack(graphs: list[Stack]) -> Stack:
    """Stacks graphs of equal shapes that `prepare` made, on the host."""
    result: Stack = jax.tree.map(lambda *leaves: np.stack(leaves), *graphs)
    return result


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
        samples = jax.lax.map(
            lambda x: policy.sample(params, x[0], x[1], num_samples), (keys, graphs)
        )
        # `log_prob` below is differentiated, because it stores one graph's activations at a time.
        return cast(Sample, flatten(samples))._replace(choices=None)

    def log_prob(params: Params, graphs: jraph.GraphsTuple, samples: Sample) -> LogProb:
        num_graphs = len(graphs.n_node)
        samples = jax.tree.map(lambda leaf: leaf.reshape(num_graphs, -1, *leaf.shape[1:]), samples)
        # Recomputed in the backward pass, so that only one graph's activations are in memory.
        one_log_prob = jax.checkpoint(lambda x: policy.log_prob(params, *x))
        return flatten(jax.lax.map(one_log_prob, (graphs, samples)))

    return Policy(init, sample, log_prob)


@partial(jax.jit, static_argnums=0)
def train_step(learner: Learner, state: State, batch: Stack) -> tuple[State, Metrics]:
    """Samples, simulates and learns once.

    The learner is of a policy that `batch_policy` made.

    Returns:
      The state, and the learner's metrics with `ratio`, the geometric mean over graphs of the
      fastest sample's latency over that of the fastest single device, and `evaluated`, the number
      of simulated placements.
    """
    state, samples = learner.sample(state, batch.graphs)
    num_graphs = len(batch.reference_s)
    placements = samples.placement.reshape(num_graphs, -1, *samples.placement.shape[1:])

    def simulate(tables: Any, placement: Array) -> simulators.Outcome:
        outcome = batch.simulate(tables, placement.reshape(-1, placement.shape[-1]))
        return jax.tree.map(lambda leaf: leaf.reshape(placement.shape[:2]), outcome)

    # [G, num_samples, T] each
    outcome: simulators.Outcome = jax.lax.map(
        lambda graph: mesh.shard_map(simulate, *graph), (batch.tables, placements)
    )
    latency_s = outcome.penalised_s()
    ratio = jnp.exp(jnp.log(latency_s.min(axis=(1, 2)) / batch.reference_s).mean())
    episodes_s = latency_s.reshape(-1, latency_s.shape[-1])
    state, metrics = learner.update(state, batch.graphs, samples, episodes_s, batch.reference_s)
    return state, metrics | {"ratio": ratio, "evaluated": jnp.float32(latency_s.size)}
