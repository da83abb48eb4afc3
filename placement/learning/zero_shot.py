"""Zero-shot placement: a policy places a graph that it has never seen, without learning.

The policy places all operations `steps` times (`Improve`). After each step the fastest eighth of
the placements is copied eight times, and the policy improves these copies. All moves are the
policy's: neither single devices nor other methods' placements are tried.
`placement.methods.pretrained` loads a policy's parameters and calls `place`.
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
from placement.learning import mesh
from placement.learning.trainer import Simulator, lift_to_ops
from placement.types import Array, Improve, Params

COPIES = 8  # of each placement that is improved; the fastest 1 / COPIES are


class Result(NamedTuple):
    """The fastest placement, and the progress of the search."""

    placement: np.ndarray  # int32 [N], with padding
    latency_s: np.ndarray  # float32 [steps]: least latency so far; inf while nothing is feasible
    evaluations: int


def place(
    improve: Improve,
    params: Params,
    graph: jraph.GraphsTuple,
    simulator: Simulator,
    key: chex.PRNGKey,
    *,
    num_samples: int = 256,
    steps: int = 6,
) -> Result:
    """Places a graph with `steps` * `num_samples` evaluations; compiled once for each bucket.

    The placement has the operations of the simulator, padding included.

    Args:
      improve: the policy's `improve`.
      params: of the policy, trained on other graphs.
      graph: the policy's input, padded.
      simulator: of the problem.
      key: consumed.
      num_samples: a multiple of `COPIES`.
      steps: number of times that the policy places all operations.
    """
    inputs = graph, simulator.tables, simulator.assignment, params
    shape = simulator.num_ops, num_samples, steps
    placements, latency_s = jax.device_get(_place(improve, simulator.simulate, shape, inputs, key))
    best = int(np.argmin(latency_s))
    return Result(placements[best], np.minimum.accumulate(latency_s), steps * num_samples)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _place(
    improve: Improve,
    simulate: Callable[[Any, Array], simulators.Outcome],
    shape: tuple[int, int, int],
    inputs: tuple[jraph.GraphsTuple, Any, Array | None, Params],
    key: chex.PRNGKey,
) -> tuple[Array, Array]:
    """Returns the fastest placement of each step, [steps, N], and its latency."""
    graph, tables, assignment, params = inputs
    num_ops, num_samples, steps = shape

    def step(current: Array | None, key: chex.PRNGKey) -> tuple[Array, tuple[Array, Array]]:
        improved = improve(params, key, graph, current, num_samples).placement[:, 0]
        lifted = lift_to_ops(improved, assignment, num_ops)
        outcome = mesh.shard_map(simulate, tables, lifted)
        latency_s = jnp.where(outcome.feasible, outcome.latency_s, jnp.inf)
        fastest = jnp.argsort(latency_s)[: num_samples // COPIES]
        best = fastest[0]
        return jnp.repeat(improved[fastest], COPIES, axis=0), (lifted[best], latency_s[best])

    first_key, *_ = keys = jax.random.split(key, steps)
    # The first step has no placements to improve, so that it is not part of the scan.
    current, first = step(None, first_key)
    _, later = jax.lax.scan(step, current, keys[1:])
    return jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), first, later)
