"""Every way to place a problem, learned and classical: one table, one function that runs any.

    methods.solve(problem, "lns", time_limit_s=10)
    methods.solve(problem, "hsdag:variant=paper,num_samples=16", budget=4_000)

What needs devices, such as OpenVINO's own choice, is no method here: `--task=place` has it.
"""

import functools
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from placement import arguments, solvers
from placement.errors import UserError, missing_extra
from placement.instance import Instance
from placement.methods import learned, pretrained
from placement.policies.base import Recipe
from placement.runtime import scotch
from placement.search import population
from placement.solvers import base
from placement.solvers.heuristics import human_expert as expert
from placement.solvers.heuristics import partition
from placement.solvers.limits import Observe, SearchLimits, unobserved
from placement.types import Problem, Solution


class Method(NamedTuple):
    """A way to place a problem."""

    find: base.Find  # of a learned one with its defaults
    summary: str  # a line
    objectives: tuple[str, ...] = solvers.ANY  # that it is for
    missing: Callable[[], str | None] = lambda: None  # in words, what it needs and lacks here
    seeded: bool = True  # whether the seed may change what it finds


def solve(
    problem: Problem,
    method: str,
    *,
    seed: int = 0,
    time_limit_s: float = 60.0,
    budget: int = solvers.BUDGET,
    observe: Observe = unobserved,
    stop: Callable[[], bool] = lambda: False,
) -> Solution:
    """Searches for the best placement of a problem, in its simulator.

    Args:
      problem: what is to be placed; an `Instance` keeps what is derived from it.
      method: of `METHODS`; a learned one may have arguments, see `placement.methods.learned`.
      seed, time_limit_s, budget, observe, stop: as of `placement.solvers.solve`. What a learned
        method compiles counts as time.

    Returns:
      As `placement.solvers.solve` does.

    Raises:
      UserError: no such method or argument, or none for this objective, or what it needs is not
        installed: one line.
    """
    check(method, problem.objective)
    limits = SearchLimits(time_limit_s, budget, observe, stop)
    is_learned = learned.is_learned(method)
    find = functools.partial(learned.find, method) if is_learned else METHODS[method].find
    return solvers.run(method, find, Instance.from_problem(problem), seed, limits)


def check(method: str, objective: str) -> None:
    """Refuses what is no method, a learned one with impossible arguments, or one for others.

    Raises:
      UserError: one line.
    """
    if learned.is_learned(method):
        learned.make(method, 2, False)
    elif method in solvers.SOLVERS:
        solvers.check(method, objective)
    elif method not in METHODS:
        raise arguments.unknown("method", method, METHODS)


def _package(name: str) -> Callable[[], str | None]:
    """Whether an optional package is missing, in words."""

    def missing() -> str | None:
        return None if importlib.util.find_spec(name) else missing_extra(name, "solvers")

    return missing


def _single(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Everything on one device: a row a device."""
    del seed, limits
    num_ops, num_devices = problem.costs.compute_s.shape
    singles = np.tile(np.arange(num_devices, dtype=np.int32)[:, None], (1, num_ops))
    latency_s = np.asarray(problem.evaluate(singles))
    return Solution(singles[np.argmin(latency_s)], evaluations=num_devices)


def _human_expert(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """What people choose, by rules of thumb: of all operations, not coarsened."""
    del seed, limits
    is_host = np.asarray(problem.costs.accelerator) < 0
    host = int(np.argmax(is_host)) if is_host.any() else None
    accelerators = np.flatnonzero(~is_host).tolist()
    return Solution(expert.place(problem, accelerators, host), evaluations=1)


def _partitioned(partition_: Callable[..., np.ndarray], **others: Any) -> base.Find:
    def find(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
        del limits
        return Solution(partition_(problem, seed=seed, **others), evaluations=1)

    return find


def _search(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Blocks moved at the simulator's speed, from what heuristics and a trained policy find."""
    return population.find(problem, seed, limits, pretrained.within(problem, seed, limits))


def _first_line(documented: Any) -> str:
    return (documented.__doc__ or "").partition("\n")[0].rstrip(".")


def _learned(name: str, recipe: Recipe) -> Method:
    summary = _first_line(inspect.getmodule(recipe.make))
    return Method(functools.partial(learned.find, name), summary)


LEARNED = {name: _learned(name, recipe) for name, recipe in learned.RECIPES.items()}
# Nothing is searched.
BASELINES = {
    "single": Method(_single, _first_line(_single), seeded=False),
    "human_expert": Method(_human_expert, _first_line(_human_expert), seeded=False),
    "zero_shot": Method(pretrained.find, _first_line(pretrained.find)),
}
PARTITIONERS = {
    "metis": Method(
        _partitioned(partition.metis), _first_line(partition.metis), missing=_package("pymetis")
    ),
    "kahip": Method(
        _partitioned(partition.kahip), _first_line(partition.kahip), missing=_package("kahip")
    ),
    "scotch": Method(
        _partitioned(partition.scotch, gmap=scotch.gmap),
        _first_line(partition.scotch),
        missing=scotch.missing,
    ),
    "min_cut": Method(
        _partitioned(partition.min_cut), _first_line(partition.min_cut), missing=_package("pymetis")
    ),
}
SOLVERS = {
    name: Method(solver.find, _first_line(solver.find), solver.objectives, seeded=solver.seeded)
    for name, solver in solvers.SOLVERS.items()
}
SOLVERS["cpsat"] = SOLVERS["cpsat"]._replace(missing=_package("ortools"))
SEARCHES = {"search": Method(_search, _first_line(_search))}
METHODS: dict[str, Method] = LEARNED | SEARCHES | BASELINES | PARTITIONERS | SOLVERS


def register(name: str, recipe: Recipe) -> None:
    """Adds a learned method, which every function and command then takes by its name.

    Args:
      name: an identifier that no method has.
      recipe: the policy, how it is trained and what it reads, as at the end of each module of
        `placement.policies`. Registering the same recipe again changes nothing.

    Raises:
      UserError: the name is taken or no identifier.
    """
    if not name.isidentifier():
        raise UserError(f"{name!r} cannot name a method; give an identifier")
    if learned.RECIPES.get(name) == recipe:
        return
    if name in METHODS:
        raise UserError(f"there is a method {name!r} already; give another name")
    learned.RECIPES[name] = recipe
    LEARNED[name] = METHODS[name] = _learned(name, recipe)
