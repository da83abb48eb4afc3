"""The learned methods: a policy and the algorithm that trains it on one problem.

A name such as `hsdag` stands for the method of its paper, and `hsdag:variant=released` for another
variant; `hierarchical:grouping=random,num_samples=16` changes single hyper-parameters. They are
documented at the policy's `make`, at `learning.base.Settings` and at `learning.ppo.make_learner`.
The variants stand at the end of the policy's module. `features` are blocks of `graphs.features`
joined by '+', or 'paper'; leaving some out is an ablation.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from placement import arguments, methods
from placement.graphs import features
from placement.learning import base, mesh, ppo, trainer
from placement.policies.base import Recipe
from placement.policies.inputs import PolicyInput
from placement.problem import Problem
from placement.solvers import starts
from placement.solvers.limits import SearchLimits
from placement.types import Evaluate, Policy, Solution, Status

_ALGORITHMS: dict[str, Callable[..., base.Learner]] = {
    "reinforce": base.make_reinforce_learner,
    "ppo": ppo.make_learner,
}
# Whole numbers that may be 0; the other hyper-parameters that are whole numbers are at least 1.
_MINIMA = {"levels": 0, "groups": 0, "num_groups": 0, "entropy_decay_updates": 0}


class Method(NamedTuple):
    """A learned method with its hyper-parameters, for a number of devices."""

    policy: Policy
    learner: base.Learner
    read: Callable[..., PolicyInput]  # maps a problem to the policy's input
    single_devices_fail: bool  # see `Variant`
    hyper_parameters: dict[str, arguments.Value]  # by name, those of the policy first


@functools.cache  # an equal method is the same object, so that nothing is compiled twice
def make(method: str, num_devices: int) -> Method:
    """Makes the method that a name with arguments describes.

    Args:
      method: such as 'hsdag' or 'hierarchical:num_groups=32,variant=tuned'.
      num_devices: D.

    Raises:
      UserError: the method, variant, algorithm, feature or hyper-parameter does not exist, or a
        value is impossible.
    """
    name, options = arguments.split_arguments(method, "method")
    arguments.check_choice("method", name, methods.of_kind("learned"))
    recipe: Recipe = methods.entry(name).load()
    variant_name = options.pop("variant", next(iter(recipe.variants)))
    arguments.check_choice("variant", variant_name, recipe.variants)
    variant = recipe.variants[variant_name]
    if variant.corrected is not None:  # the authors' code has faults, which `faults=0` corrects
        faults = options.pop("faults", "1")
        arguments.check_choice("faults", faults, ("0", "1"))
        variant = variant if faults == "1" else variant.corrected
    make_policy, read = recipe.make, recipe.read
    algorithm = options.pop("algorithm", variant.learner["algorithm"])
    arguments.check_choice("algorithm", algorithm, _ALGORITHMS)
    reader = {key: value for key, value in _defaults(read).items() if value is not None}
    if "features" in reader:
        reader["features"] = "+".join(features.DEFAULT_BLOCKS)
    policy_values = {**_defaults(make_policy), **reader, **variant.policy}
    algorithm_values = _defaults(_ALGORITHMS[algorithm])
    learner_values = {
        **dataclasses.asdict(base.Settings()),
        **algorithm_values,
        **{key: value for key, value in variant.learner.items() if key != "algorithm"},
    }
    values = arguments.convert_arguments(
        method, options, policy_values | learner_values, minimums=_MINIMA, kind="method"
    )

    if "learning_rate" in options:  # a part of the state: methods that differ in it share programs
        others = [text for text in method.split(":")[1].split(",") if "learning_rate=" not in text]
        shared = make(f"{name}:{','.join(others)}".rstrip(":"), num_devices)
        rate = {"learning_rate": values["learning_rate"]}
        learner = shared.learner._replace(init=functools.partial(shared.learner.init, **rate))
        return shared._replace(learner=learner, hyper_parameters=shared.hyper_parameters | rate)

    def select(keys: Iterable[str]) -> dict[str, Any]:
        return {key: values[key] for key in keys}

    policy = make_policy(num_devices=num_devices, **select(policy_values.keys() - reader.keys()))
    policy = mesh.shard_policy(policy)
    settings = base.Settings(**select(learner_values.keys() - algorithm_values.keys()))
    learner = _ALGORITHMS[algorithm](policy, settings, **select(algorithm_values))
    reader = select(reader)
    if "features" in reader:
        reader["features"] = features.parse_blocks(reader["features"])
    return Method(
        policy,
        learner,
        functools.partial(read, **reader),
        variant.single_devices_fail,
        {**select(policy_values), "algorithm": algorithm, **select(learner_values)},
    )


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the parameters of a function that have a default, with it."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


class Search(NamedTuple):
    """A learned method on one problem, for callers that log, save and resume it; others `find`."""

    method: Method
    policy_input: PolicyInput
    problem: Problem
    evaluate: Evaluate | None  # measures placements on devices; None: the simulator evaluates

    @classmethod
    def prepare(cls, name: str, problem: Problem, evaluate: Evaluate | None = None) -> "Search":
        """Makes the method and reads the problem as its policy does; raises as `make`."""
        method = make(name, len(problem.devices))
        return cls(method, method.read(problem), problem, evaluate)

    def start(self, seed: int, limits: SearchLimits) -> trainer.Progress:
        """Returns a search at its beginning: initial parameters, starts evaluated."""
        problem, is_released = self.problem, self.method.single_devices_fail
        start_limits = limits
        if is_released or self.evaluate is not None:  # the simulator's values are not reported
            start_limits = SearchLimits(
                limits.remaining_s(),
                limits.budget,
                stop=limits.is_stopped,
                starts="single" if is_released else limits.starts,
            )
        begun: list[Solution] = []
        for start in starts.evaluate_starts(problem, seed, start_limits):
            if not begun:  # the first one compiles the simulator, which no limit counts
                began_s = limits.elapsed_s()
            begun.append(start)
        if self.evaluate is not None:
            placements = np.array([start.placement for start in begun])
            evaluations = len(np.unique(placements, axis=0))
            begun = [
                Solution(placement, value_s=float(value_s), evaluations=evaluations)
                for placement, value_s in zip(placements, self.evaluate(placements), strict=True)
            ]
        # `run` extends the limits by all seconds until the first step, but the starts count.
        limits.extend(began_s - limits.elapsed_s())
        return trainer.start(
            self.method.learner,
            jax.random.PRNGKey(seed),
            self.policy_input,
            problem,
            begun,
            keep_starts=not is_released,
        )

    def run(
        self,
        progress: trainer.Progress,
        limits: SearchLimits,
        on_report: Callable[[trainer.Report, float], None] = lambda report, compile_s: None,
    ) -> Solution:
        """Takes steps until the limits, which count from the first step.

        Args:
          progress: where the search continues.
          limits: begun with the search; told of the best placement with every report.
          on_report: called after that with every report and the seconds until the first step, to
            log, show and save it. The first report has no steps.

        Returns:
          The fastest placements as `elite`. The placement is None where none that can run is known.
        """
        status, compile_s = Status.FINISHED, None
        for report in trainer.search(
            self.method.learner,
            self.policy_input,
            self.problem,
            progress,
            limits.budget,
            evaluate=self.evaluate,
            fail_single_devices=self.method.single_devices_fail,
            clock_s=limits.elapsed_s,
        ):
            progress = report.progress
            if compile_s is None:
                compile_s = limits.elapsed_s()
                limits.extend(compile_s)
            # Before the callback, which may fail.
            limits.report(progress.evaluations, progress.best_s, np.asarray(progress.elite[0]))
            on_report(report, compile_s)
            if progress.evaluations < limits.budget and limits.is_over():
                status = Status.INTERRUPTED if limits.is_stopped() else Status.TIME_LIMIT
                break
        num_known = int(np.isfinite(progress.elite_s).sum())
        return Solution(
            progress.elite[0] if num_known else None,
            value_s=progress.best_s,
            status=status,
            evaluations=progress.evaluations,
            elite=progress.elite[:num_known],
            compile_s=compile_s or 0.0,
            own_best_s=progress.own_best_s,
        )


def find(method: str, problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Trains a learned method on one problem, in its simulator, until its limits.

    Args:
      method: with its arguments.
      problem, seed, limits: as of every `placement.solvers.base.Find`.
    """
    search = Search.prepare(method, problem)
    return search.run(search.start(seed, limits), limits)
