"""Placing a graph that a policy has never seen: samples and the simulator, and no learning.

The policy places all operations `steps` times (`Improve`). After each time the fastest share
of the placements is kept, copied to be as many again, and improved on: a search whose every move is
the policy's. Nothing else is tried, neither single devices nor another method's placements.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement import simulators
from placement.graphs import coarsen
from placement.learning import mesh
from placement.learning.trainer import Simulator
from placement.types import Array, Improve, Params

KEPT = 8  # one of so many placements is improved on


class Result(NamedTuple):
    """The fastest placement, and how the search came to it."""

    placement: np.ndarray  # int32 [N]
    latency_s: np.ndarray  # float32 [steps]: of the fastest placement after each; inf: none can run
    evaluations: int


def place(
    improve: Improve,
    params: Params,
    graph: jraph.GraphsTuple,
    simulator: Simulator,
    key: chex.PRNGKey,
    *,
    num_ops: int,
    num_samples: int = 256,
    steps: int = 6,
) -> Result:
    """Places a graph with `steps` * `num_samples` evaluations; compiled once a size.

    Args:
      improve: of the policy.
      params: of the policy, trained on other graphs.
      graph: padded, as the policy reads it.
      simulator: of the problem that is placed, with as many operations.
      key: consumed.
      num_ops: N, without padding.
      num_samples: a multiple of `KEPT`.
      steps: how often all operations are placed.
    """
    inputs = graph, simulator.tables, simulator.assignment, params
    shape = num_ops, num_samples, steps
    fastest = _place(improve, simulator.simulate, shape, inputs, key)
    placements, latency_s = mesh.fetch(fastest)
    best = int(np.argmin(latency_s))
    so_far_s = np.minimum.accumulate(latency_s)
    return Result(placements[best], so_far_s, steps * num_samples)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _place(
    improve: Improve,
    simulate: Callable[[Any, Array], simulators.Outcome],
    shape: tuple[int, int, int],
    inputs: tuple[jraph.GraphsTuple, Any, Array | None, Params],
    key: chex.PRNGKey,
) -> tuple[Array, Array]:
    """The fastest placement of each step, [steps, N], and its latency."""
    graph, tables, assignment, params = inputs
    num_ops, num_samples, steps = shape

    def step(before: Array | None, key: chex.PRNGKey) -> tuple[Array, tuple[Array, Array]]:
        placed = improve(params, key, graph, before, num_samples).placement[:, 0]
        lifted = placed[:, :num_ops] if assignment is None else coarsen.lift(assignment, placed)
        outcome = mesh.replicate(mesh.shard_map(simulate, tables, lifted))
        latency_s = jnp.where(outcome.feasible, outcome.latency_s, jnp.inf)
        fastest = jnp.argsort(latency_s)[: num_samples // KEPT]
        best = fastest[0]
        return jnp.repeat(placed[fastest], KEPT, axis=0), (lifted[best], latency_s[best])

    first_key, *_ = keys = jax.random.split(key, steps)
    before, first = step(None, first_key)
    _, rest = jax.lax.scan(step, before, keys[1:])
    return jax.tree.map(lambda one, others: jnp.concatenate([one[None], others]), first, rest)
