"""Policies that have learned before: on other graphs, or on the same graph with other latencies.

The shipped policy is the result of the task `pretrain` with its configuration.
"""

from pathlib import Path
from typing import NamedTuple

import jax

from placement.errors import UserError
from placement.instance import Instance
from placement.learning import trainer, zero_shot
from placement.methods import checkpoints, learned
from placement.solvers.limits import SearchLimits
from placement.types import Array, Params, Solution

FILE = "policy.msgpack"
SHIPPED = Path(__file__).parent / "pretrained" / FILE
_REMEDY = f"set init_from to the {FILE} of the task pretrain, or to a file in policies/ of a run"


class Pretrained(NamedTuple):
    """A learned method on one problem, with parameters that were trained on other graphs."""

    method: str  # with its arguments
    search: learned.Search
    params: Params
    key: Array  # of the placements that are drawn


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


def prepare(problem: Instance, path: Path, seed: int) -> Pretrained:
    """Loads the policy in a file for a problem.

    Raises:
      UserError: as `load`.
    """
    method = method_of(path)
    search = learned.Search.prepare(method, problem)
    init_key, key = jax.random.split(jax.random.PRNGKey(seed))
    shapes = jax.eval_shape(search.method.policy.init, init_key, search.policy_input.graph)
    return Pretrained(method, search, load(path, method, shapes), key)


def check_zero_shot(method: str) -> None:
    """Refuses a method whose policy does not place all operations in one step.

    Raises:
      UserError: in one line.
    """
    if learned.make(method, 2, False).policy.improve is None:
        raise UserError(
            f"zero_shot cannot place with a policy of {method!r}, which does not place all "
            f"operations in one step; set a scheduler's {FILE}, or method={method!r} with "
            "the same init_from, which continues its training"
        )


def place(pretrained: Pretrained) -> Solution:
    """Places the problem that a policy was prepared for, without learning.

    Raises:
      UserError: as `check_zero_shot`.
    """
    check_zero_shot(pretrained.method)
    method, (graph, assignment), problem, _ = pretrained.search
    improve = method.policy.improve
    assert improve is not None
    simulator = trainer.Simulator.from_problem(problem, assignment)
    result = zero_shot.place(improve, pretrained.params, graph, simulator, pretrained.key)
    return Solution(
        result.placement[: problem.graph.num_ops],
        value_s=float(result.latency_s[-1]),
        evaluations=result.evaluations,
    )


def find(
    problem: Instance,
    seed: int,
    limits: SearchLimits,
    *,
    path: Path = SHIPPED,
) -> Solution:
    """Places with a policy that has learned on other graphs, without learning on this one.

    Args:
      problem, seed, limits: as of every `placement.solvers.base.Find`.
      path: the file of the policy.

    Raises:
      UserError: as `load` and `check_zero_shot`.
    """
    solution = place(prepare(problem, path, seed))
    limits.report(solution.evaluations, solution.value_s, solution.placement)
    return solution
