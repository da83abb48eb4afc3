"""Policies that have learned before: on other graphs, or on the same graph with other latencies.

The shipped policy is the result of the task `pretrain` with its configuration.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement import methods, simulators
from placement.errors import UserError
from placement.learning import mesh
from placement.learning.trainer import prepare_tables
from placement.methods import checkpoints, learned
from placement.problem import Problem
from placement.solvers.limits import SearchLimits
from placement.types import Array, Params, Sample, Solution

FILE = "policy.msgpack"
SHIPPED = Path(__file__).parent / "pretrained" / FILE
STEPS = 6  # number of times that the policy places all operations
SAMPLES = 256  # placements of each step
_COPIES = 8  # of each placement that is improved; the fastest 1 / _COPIES are
_REMEDY = f"set init_from to the {FILE} of the task pretrain, or to a file in policies/ of a run"


def method_of(path: Path) -> str:
    """Returns the method, with its arguments, whose parameters a file holds.

    Raises:
      UserError: the file cannot be read.
    """
    return checkpoints.read(path, lambda content: str(content["method"]), remedy=_REMEDY)


def load(path: Path, method: str, params: Params) -> Params:
    """Reads a file that the task `pretrain` or a search wrote.

    Args:
      path: the file.
      method: with its arguments.
      params: parameters of that method, such as its initial ones, or their shapes.

    Raises:
      UserError: the file cannot be read, or holds another method's parameters.
    """
    return checkpoints.read(
        path,
        lambda content: checkpoints.restored(params, content["params"]),
        remedy=f"{_REMEDY} with {method!r}",
    )


def check_zero_shot(method: str) -> None:
    """Raises a `UserError` where the policy does not place all operations in one step."""
    learned.make(method, 2)  # refuses what does not exist
    if not methods.entry(method).load().zero_shot:
        raise UserError(
            f"zero_shot cannot place with a policy of {method!r}, which does not place all "
            f"operations in one step; set a scheduler's {FILE}, or method={method!r} with "
            "the same init_from, which continues its training"
        )


def prepare(problem: Problem, path: Path) -> tuple[learned.Search, Params]:
    """Prepares the method in a file for a problem; returns it with the file's parameters.

    Raises:
      UserError: as `load` and `check_zero_shot`.
    """
    method = method_of(path)
    check_zero_shot(method)
    search = learned.Search.prepare(method, problem)
    init, graph = search.method.policy.init, search.policy_input.graph
    shapes = jax.eval_shape(init, jax.random.PRNGKey(0), graph)
    return search, load(path, method, shapes)


def place(search: learned.Search, params: Params, key: Array) -> Solution:
    """Places a problem with a policy that has learned on other graphs.

    The policy places all operations `STEPS` times. After each step the fastest eighth of the
    placements is copied eight times, and the policy improves these copies. All moves are the
    policy's: neither single devices nor other methods' placements are tried.

    Args:
      search: of `prepare`.
      params: of the policy.
      key: consumed.
    """
    problem, policy_input = search.problem, search.policy_input
    simulate = simulators.get_objective(problem.objective).simulate
    tables, deciding_nodes = prepare_tables(policy_input, problem)
    inputs = policy_input.graph, tables, params
    result = _place(search.method.policy.sample, simulate, inputs, key)
    placements, latency_s = jax.device_get(result)
    best = int(np.argmin(latency_s))
    return Solution(
        placements[best][deciding_nodes],
        value_s=float(latency_s[best]),
        evaluations=STEPS * SAMPLES,
    )


@partial(jax.jit, static_argnums=(0, 1))
def _place(
    sample: Callable[..., Sample],
    simulate: Callable[[Any, Array], simulators.Outcome],
    inputs: tuple[jraph.GraphsTuple, simulators.Tables, Params],
    key: chex.PRNGKey,
) -> tuple[Array, Array]:
    """Returns the fastest placement of each step, [STEPS, M] of M nodes, and its latency."""
    graph, tables, params = inputs

    def step(current: Any, key: chex.PRNGKey) -> tuple[Any, tuple[Array, Array]]:
        improved = sample(params, key, graph, SAMPLES, current).placement[:, 0]
        outcome = mesh.shard_map(simulate, tables, improved)
        latency_s = jnp.where(outcome.feasible, outcome.latency_s, jnp.inf)
        fastest = jnp.argsort(latency_s)[: SAMPLES // _COPIES]
        best = fastest[0]
        return jnp.repeat(improved[fastest], _COPIES, axis=0), (improved[best], latency_s[best])

    start = jnp.full((SAMPLES, len(graph.nodes["mask"])), -1, jnp.int32)  # no placements yet
    _, result = jax.lax.scan(step, start, jax.random.split(key, STEPS))
    return result


def zero_shot(
    problem: Problem, seed: int, limits: SearchLimits, *, path: Path = SHIPPED
) -> Solution:
    """Places with a policy that has learned on other graphs, without learning on this one.

    Args:
      problem, seed, limits: as of every `placement.solvers.base.Find`.
      path: the file of the policy.

    Raises:
      UserError: as `prepare`.
    """
    search, params = prepare(problem, path)
    solution = place(search, params, jax.random.split(jax.random.PRNGKey(seed))[1])
    limits.report(solution.evaluations, solution.value_s, solution.placement)
    return solution
