"""The learned methods: a policy and a learner, each hyper-parameter an argument of the name.

`hsdag` alone is this project's default; `hsdag:variant=paper` is the authors' method, and
`hierarchical:grouping=random,num_samples=16` changes single hyper-parameters. What they mean stands
at the policy's `make`, at `learning.base.Settings` and at `learning.ppo.make`; variants stand at
the end of the policy's file. `features` are blocks of `graphs.features` joined by '+': some left
out are an ablation.
"""

import dataclasses
import functools
import importlib
import inspect
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jraph
import numpy as np

from placement import arguments
from placement.errors import UserError
from placement.graphs.features import BLOCKS, DEFAULT_BLOCKS
from placement.instance import Instance
from placement.learning import base, mesh, ppo, reinforce, trainer, walk
from placement.methods import checkpoints
from placement.policies.base import PolicyInput, Recipe, Variant
from placement.solvers.limits import SearchLimits
from placement.types import Array, Evaluate, Params, Policy, Solution, Status

# Each is a module of `placement.policies`, which ends with its recipe.
POLICIES = ("hsdag", "hierarchical", "colocrl", "placeto", "scheduler")
RECIPES: dict[str, Recipe] = {
    name: importlib.import_module(f"placement.policies.{name}").RECIPE for name in POLICIES
}
RELEASED_SINGLE_DEVICE_S = 1e10
CHUNK = 16  # steps between two reports at most
_REPORT_EVERY_S = 1.0
_FEW_SAMPLES = 8  # of a step, where each takes seconds
_INSTALLED = Path(__file__).parent / "pretrained"
_WALK = "walk"
_ALGORITHMS: dict[str, Callable[..., base.Learner]] = {
    "reinforce": reinforce.make,
    "ppo": ppo.make,
    _WALK: walk.make,
}
# Whole numbers that may be 0; the other hyper-parameters that are whole numbers are at least 1.
_LEAST = {"levels": 0, "groups": 0}


class Method(NamedTuple):
    """A learned method with its hyper-parameters, for some number of devices."""

    policy: Policy
    learner: base.Learner
    read: Callable[..., PolicyInput]  # of a problem
    single_devices_fail: bool  # see `Variant`
    # Whether a step places every operation, from nothing too; a walk's step moves a single group.
    places_all: bool


def is_learned(method: str) -> bool:
    """Whether a method's name, arguments included, is that of a learned one."""
    return method.split(":")[0] in RECIPES


@functools.cache  # the same objects again compile nothing again
def make(
    method: str,
    num_devices: int,
    measured: bool,
    over: Callable[[Policy], Policy] | None = None,
) -> Method:
    """Makes the method that a name and its arguments describe.

    Args:
      method: such as 'hsdag' or 'hierarchical:num_groups=32,variant=paper'.
      num_devices: D.
      measured: whether placements are evaluated on devices, which takes seconds each: a step then
        has few samples by default.
      over: what the learner's policy is made of the method's; None: it is the same.

    Raises:
      UserError: no such method, variant, algorithm, feature or hyper-parameter, or an impossible
        value.
    """
    parsed = _parse(method, measured)
    learner_keys = _defaults(parsed.algorithm)
    policy = mesh.shard_policy(parsed.make_policy(num_devices=num_devices, **parsed.policy))
    if parsed.variant.shipped:
        init = functools.partial(_shipped, method, parsed.name, policy.init)
        policy = policy._replace(init=init)
    algorithm_values = {k: v for k, v in parsed.learner.items() if k in learner_keys}
    shared_values = {k: v for k, v in parsed.learner.items() if k not in learner_keys}
    learned_policy = policy if over is None else over(policy)
    learner = parsed.algorithm(learned_policy, base.Settings(**shared_values), **algorithm_values)
    reader = {k: _blocks(v) if k == "features" else v for k, v in parsed.reader.items()}
    read = functools.partial(parsed.read, **reader)
    places_all = policy.improve is not None and parsed.algorithm is not walk.make
    return Method(policy, learner, read, parsed.variant.single_devices_fail, places_all)


def hyper_parameters(method: str) -> dict[str, arguments.Value]:
    """Returns the hyper-parameters of a method, those of its policy first, with their values.

    Raises:
      UserError: as `make`.
    """
    parsed = _parse(method, measured=False)
    names = {algorithm: name for name, algorithm in _ALGORITHMS.items()}
    algorithm = names[parsed.algorithm]
    return {**parsed.policy, **parsed.reader, "algorithm": algorithm, **parsed.learner}


class _Parsed(NamedTuple):
    """A method's name and arguments: what makes it, with all hyper-parameters."""

    name: str
    variant: Variant
    make_policy: Callable[..., Policy]
    read: Callable[..., PolicyInput]
    algorithm: Callable[..., base.Learner]
    policy: dict[str, Any]  # arguments of `make_policy`
    reader: dict[str, Any]  # arguments of `read`
    learner: dict[str, Any]  # arguments of `algorithm` and of `base.Settings`


def _parse(method: str, measured: bool) -> _Parsed:
    name, given = arguments.split(method, "method")
    arguments.check("method", name, RECIPES)
    recipe = RECIPES[name]
    variant = _variant(recipe, given)
    make_policy, read = variant.make or recipe.make, variant.read or recipe.read
    default_algorithm = variant.learner["algorithm"]
    algorithm_name = given.pop("algorithm", default_algorithm)
    arguments.check("algorithm", algorithm_name, _algorithms(default_algorithm))
    algorithm = _ALGORITHMS[algorithm_name]
    reader = _of_read(read)
    policy = {**_defaults(make_policy), **reader, **variant.policy}
    learner = {
        **dataclasses.asdict(base.Settings()),
        **_defaults(algorithm),
        **{key: value for key, value in variant.learner.items() if key != "algorithm"},
    }
    if measured:
        learner |= {"num_samples": min(_FEW_SAMPLES, learner["num_samples"])}
    values = arguments.values(method, given, policy | learner, least=_LEAST, kind="method")
    return _Parsed(
        name,
        variant,
        make_policy,
        read,
        algorithm,
        policy={key: values[key] for key in policy if key not in reader},
        reader={key: values[key] for key in reader},
        learner={key: values[key] for key in learner},
    )


def _variant(recipe: Recipe, given: dict[str, str]) -> Variant:
    """Takes the variant out of a name's arguments, and whether it keeps its faults."""
    name = given.pop("variant", "tuned")
    arguments.check("variant", name, recipe.variants)
    variant = recipe.variants[name]
    if variant.corrected is None:
        return variant
    faults = given.pop("faults", "1")
    arguments.check("faults", faults, ("0", "1"))
    return variant if faults == "1" else variant.corrected


def _algorithms(default: str) -> tuple[str, ...]:
    """What a policy may learn by: one that improves on placements by a walk, others by the rest."""
    return tuple(name for name in _ALGORITHMS if (name == _WALK) == (default == _WALK))


def _shipped(
    method: str, name: str, init: Callable[..., Params], key: Array, graph: jraph.GraphsTuple
) -> Params:
    """Reads the installed parameters of a policy, in the shape of what `init` makes."""
    like = jax.eval_shape(init, key, graph)
    return checkpoints.read(
        _INSTALLED / f"{name}.msgpack",
        lambda content: checkpoints.restored(like, content["params"]),
        remedy=f"{method!r} begins with it: leave its sizes and features, or give "
        f"{name}:variant=untrained with them",
    )


def check_fits(method: str, learner: base.Learner, graph: jraph.GraphsTuple) -> None:
    """Refuses hyper-parameters whose arrays this machine's memory cannot hold.

    JAX does not: it ends the process. Defaults are not looked at, as that takes up to a second.

    Raises:
      UserError: in one line.
    """
    if ":" not in method:
        return
    has_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        state = jax.eval_shape(learner.init, jax.random.PRNGKey(0), graph)
        sample = jax.eval_shape(learner.sample, state, graph)[1]
        # Twice, as an update makes a state of another.
        needs_bytes: float = 2 * _bytes(state) + _bytes(sample)
    except OverflowError:  # of a size that no array has
        needs_bytes = math.inf
    if needs_bytes > has_bytes:
        raise UserError(
            f"method={method!r} needs {needs_bytes / 2**30:,.0f} GiB at least, and this machine "
            f"has {has_bytes / 2**30:,.0f}; give smaller hyper-parameters"
        )


def _of_read(read: Callable[..., PolicyInput]) -> dict[str, Any]:
    """What a name may say of reading, with its defaults."""
    reads = {key: value for key, value in _defaults(read).items() if value is not None}
    return reads | ({"features": "+".join(DEFAULT_BLOCKS)} if "features" in reads else {})


def _blocks(features: str) -> tuple[str, ...]:
    blocks = tuple(filter(None, features.split("+")))
    for block in blocks:
        arguments.check("feature", block, BLOCKS)
    return blocks


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _defaults(make_: Callable[..., Any]) -> dict[str, arguments.Value]:
    parameters = inspect.signature(make_).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def about_a_second(clock_s: Callable[[], float]) -> Callable[[], int]:
    """Returns what says how many steps to take until the next report: a second's, `CHUNK` at most.

    The first chunk, which compiles, and the second, which is timed, have one.

    Args:
      clock_s: seconds from any beginning.
    """
    asked_s: list[float] = []
    steps = 1

    def pace() -> int:
        nonlocal steps
        asked_s.append(clock_s())
        if len(asked_s) > 2:
            step_s = max((asked_s[-1] - asked_s[-2]) / steps, _REPORT_EVERY_S / CHUNK)
            steps = max(1, int(_REPORT_EVERY_S / step_s))
        return steps

    return pace


def start(
    made: Method, read: PolicyInput, problem: Instance, seed: int, evaluate: Evaluate
) -> trainer.Progress:
    """Returns a search at its beginning: initial parameters, single devices evaluated.

    Args:
      made: the method.
      read: the problem as it reads it.
      problem: what is placed.
      seed: of all randomness.
      evaluate: of the problem's placements.
    """
    num_ops, num_devices = problem.costs.compute_s.shape
    return trainer.start(
        made.learner,
        jax.random.PRNGKey(seed),
        read.graph,
        evaluate,
        num_ops,
        num_devices,
        keep_single_devices=not made.single_devices_fail,
    )


def steps(
    made: Method,
    read: PolicyInput,
    problem: Instance,
    progress: trainer.Progress,
    budget: int,
    evaluate: Evaluate,
    *,
    measured: bool = False,
    pace: Callable[[], int] | None = None,
) -> Iterator[trainer.Report]:
    """Goes on with a search until the budget is spent: compiled, if it can be.

    Args:
      made, read, problem: as of `start`.
      progress: where to go on from.
      budget: placements evaluated in all.
      evaluate: of the problem's placements, on the host; a search that is compiled has its own.
      measured: whether that is on devices.
      pace: of a search that is compiled, as of `trainer.search_simulated`.
    """
    graph, assignment = read
    if measured:
        evaluate = _single_devices_fail(evaluate) if made.single_devices_fail else evaluate
        return trainer.search(
            made.learner, graph, evaluate, progress, budget, assignment=assignment
        )
    if made.single_devices_fail:
        return trainer.search(
            made.learner,
            graph,
            _single_devices_fail(evaluate),
            progress,
            budget,
            assignment=assignment,
            penalised=_single_devices_fail(problem.evaluate_penalised),
        )
    simulator = trainer.Simulator.of(problem)._replace(assignment=assignment)
    return trainer.search_simulated(
        made.learner, graph, simulator, progress, budget, chunk=CHUNK, pace=pace
    )


def find(method: str, problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Trains a learned method on one problem, in its simulator, until its limits.

    Args:
      method: with its arguments.
      problem, seed, limits: as of every `placement.solvers.base.Find`.
    """
    made = make(method, len(problem.devices), False)
    read = made.read(problem)
    check_fits(method, made.learner, read.graph)
    progress = start(made, read, problem, seed, problem.evaluate)
    pace = about_a_second(limits.spent_s)
    reports = steps(made, read, problem, progress, limits.budget, problem.evaluate, pace=pace)
    status = Status.FINISHED
    for report in reports:
        progress = report.progress
        limits.tell(progress.evaluations, progress.best_s, np.asarray(progress.elite[0]))
        if limits.over() and progress.evaluations < limits.budget:
            status = Status.TIME_LIMIT
            break
    able = np.isfinite(progress.elite_s[0])
    return Solution(
        progress.elite[0] if able else None, status=status, evaluations=progress.evaluations
    )


def _single_devices_fail(evaluate: Evaluate) -> Evaluate:
    """Evaluates as HSDAG's released code does: a single-device placement takes 1e10 seconds."""

    def wrapped(placements: Array) -> Array:
        placements = np.asarray(placements)
        single = (placements == placements[:, :1]).all(axis=1)
        return np.where(
            single, np.float32(RELEASED_SINGLE_DEVICE_S), np.asarray(evaluate(placements))
        )

    return wrapped
