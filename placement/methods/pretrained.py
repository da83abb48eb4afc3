"""Policies that have learned on other graphs, and what they make of one that they have never seen.

The shipped one is what `--task=pretrain --config=pretrain` makes.
"""

from pathlib import Path
from typing import NamedTuple

import jax

from placement.errors import UserError
from placement.instance import Instance
from placement.learning import trainer, zero_shot
from placement.methods import checkpoints, learned
from placement.policies.base import PolicyInput
from placement.solvers.limits import SearchLimits
from placement.types import Array, Params, Solution

FILE = "policy.msgpack"
SHIPPED = Path(__file__).parent / "pretrained" / FILE
_LARGEST, _LEAST_S, _LEAST_BUDGET = 4_000, 15.0, 8_000  # of what is worth a start from a policy
_REMEDY = f"give --config.init_from the {FILE} of a --task=pretrain"


class Pretrained(NamedTuple):
    """A policy, and a problem as it reads it."""

    method: str  # with its arguments
    policy: learned.Method
    read: PolicyInput
    params: Params
    key: Array  # of what is drawn


def method_of(path: Path) -> str:
    """Returns the method, with its arguments, whose parameters a file holds.

    Raises:
      UserError: it cannot be read: one line.
    """
    return checkpoints.read(path, lambda content: str(content["method"]), remedy=_REMEDY)


def load(path: Path, method: str, params: Params) -> Params:
    """Reads the parameters in a file, in the shape of a method's own.

    Args:
      path: of a file that `--task=pretrain` wrote.
      method: with its arguments.
      params: of that method, such as its initial ones, or their shapes.

    Raises:
      UserError: it cannot be read, or holds another method's parameters: one line.
    """
    return checkpoints.read(
        path,
        lambda content: checkpoints.restored(params, content["params"]),
        remedy=f"{_REMEDY} with {method!r}",
    )


def prepare(problem: Instance, path: Path, seed: int) -> Pretrained:
    """Loads a policy for a problem.

    Raises:
      UserError: of `load`.
    """
    method = method_of(path)
    made = learned.make(method, len(problem.devices), False)
    read = made.read(problem)
    init_key, key = jax.random.split(jax.random.PRNGKey(seed))
    shapes = jax.eval_shape(made.policy.init, init_key, read.graph)
    params = load(path, method, shapes)
    return Pretrained(method, made, read, params, key)


def check_zero_shot(method: str) -> None:
    """Refuses a method whose policy does not place a graph without learning on it.

    Raises:
      UserError: in one line.
    """
    if not learned.make(method, 2, False).places_all:
        raise UserError(
            f"zero_shot cannot place with a policy of {method!r}, which does not place all "
            f"operations in one step; give a scheduler's {FILE}, or --config.method={method} with "
            "the same --config.init_from, which goes on from it"
        )


def place(of: Pretrained, problem: Instance) -> zero_shot.Result:
    """Places the problem that a policy was prepared for, without learning.

    Raises:
      UserError: of `check_zero_shot`.
    """
    check_zero_shot(of.method)
    improve = of.policy.policy.improve
    assert improve is not None
    simulator = trainer.Simulator.of(problem)._replace(assignment=of.read.assignment)
    num_ops = problem.graph.num_ops
    return zero_shot.place(improve, of.params, of.read.graph, simulator, of.key, num_ops=num_ops)


def find(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """What a policy that has learned on other graphs makes of this one, without learning."""
    placed = place(prepare(problem, SHIPPED, seed), problem)
    limits.tell(placed.evaluations, float(placed.latency_s[-1]), placed.placement)
    return Solution(placed.placement, evaluations=placed.evaluations)


def within(problem: Instance, seed: int, limits: SearchLimits) -> Solution | None:
    """Finds a placement as `find` does, for a search that goes on from it.

    None where it would not pay: that search's objective is another than the policy has learned on,
    it has little time or budget, or the graph is large.
    """
    pays = problem.objective == "makespan" and problem.graph.num_ops <= _LARGEST
    pays &= limits.left_s() >= _LEAST_S and limits.budget >= _LEAST_BUDGET
    return find(problem, seed, limits) if pays else None
