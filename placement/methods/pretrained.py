"""Policies that have learned before: on other graphs, or on the same graph with other latencies.

The shipped policy is the result of the task `pretrain` with its configuration.
"""

from pathlib import Path

import jax

from placement.errors import UserError
from placement.instance import Instance
from placement.learning import zero_shot
from placement.methods import checkpoints, learned
from placement.solvers.limits import SearchLimits
from placement.types import Array, Params, Solution

FILE = "policy.msgpack"
SHIPPED = Path(__file__).parent / "pretrained" / FILE
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


def prepare(problem: Instance, path: Path) -> tuple[learned.Search, Params]:
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
    """Places a problem with a policy that has learned on other graphs."""
    improve = search.method.policy.improve
    assert improve is not None
    graph = search.policy_input.graph
    result = zero_shot.place(improve, params, graph, search.simulator, key)
    return Solution(
        result.placement[: search.problem.graph.num_ops],
        value_s=float(result.latency_s[-1]),
        evaluations=result.evaluations,
    )


def find(problem: Instance, seed: int, limits: SearchLimits, *, path: Path = SHIPPED) -> Solution:
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
