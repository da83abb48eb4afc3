"""Every method as a function from a run's context to entries: placements, not yet measured."""

import importlib.util
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import flax.serialization
import jax
import numpy as np
from ml_collections import ConfigDict

from experiments import build, faults, learned, search
from experiments import target as target_lib
from experiments.console import metrics, progress
from experiments.distributed import processes
from placement import arguments, solvers
from placement.errors import UserError
from placement.learning import trainer
from placement.learning import zero_shot as unseen
from placement.runtime import devices as devices_lib
from placement.runtime import scotch
from placement.runtime.measurement.local import Candidate
from placement.runtime.measurement.measurer import Measurer
from placement.solvers.heuristics import human_expert as expert
from placement.solvers.heuristics import partition
from placement.types import Array, Evaluate, Params, Problem, Solution


class Incumbent:
    """The best placement that a search has told so far, which outlives whatever ends the search."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.evaluations = 0
        self.placement: np.ndarray | None = None
        self.full = False  # as `Entry.full`

    def observe(self, evaluations: int, best_s: float, placement: np.ndarray | None) -> None:
        """Takes what a search tells (`placement.solvers.limits.Observe`)."""
        self.evaluations = evaluations
        if math.isfinite(best_s):
            self.placement = placement


class Context(NamedTuple):
    """What a method is given."""

    config: ConfigDict
    workdir: Path
    target: target_lib.Target
    measurer: Measurer | None  # where the devices are present
    setting: build.SearchProblem
    evaluate: Evaluate  # of coarse placements: the simulator, or the devices
    seed: int
    display: progress.Display
    stop: threading.Event  # set: searches are to end with the best that they have
    kept: faults.Faults
    incumbent: Incumbent  # of the method that is run


class Entry(NamedTuple):
    """A row of the table to be: K placements, the most promising first.

    The row is of the first one: `solution` has that placement, and its value as predicted.
    """

    method: str
    solution: Solution
    placements: np.ndarray  # int32 [K, M], complete: co-located operations are together
    candidates: tuple[Candidate, ...]  # K, the same as devices run them
    predicted_s: tuple[float, ...]  # K
    reference: bool = False  # runs on a device that placements cannot use
    full: bool = False  # placements are of all operations, where others are of the coarse ones

    def only(self, number: int) -> "Entry":
        """The entry with one of its placements alone."""
        value_s, placement = self.predicted_s[number], self.placements[number]
        return self._replace(
            solution=self.solution._replace(placement=placement, value_s=value_s),
            placements=self.placements[number : number + 1],
            candidates=self.candidates[number : number + 1],
            predicted_s=(value_s,),
        )


def placed_on(entry: Entry, setting: build.SearchProblem) -> build.SearchProblem:
    """The setting whose coarse operations an entry's placements are of."""
    return setting.whole() if entry.full or setting.coarse is setting.full else setting


def single(context: Context) -> list[Entry]:
    """Everything on one device: a row a device."""
    num_ops = context.setting.coarse.graph.num_ops
    return [
        _made(context, f"single:{name}", np.full(num_ops, i, np.int32))
        for i, name in enumerate(context.target.names)
    ]


def openvino_hetero(context: Context) -> list[Entry]:
    """OpenVINO's own choice: every operation on the first device that supports it.

    Run as all placements are: under HETERO by itself, else by the backend.
    """
    full, measurer = context.setting.full, context.measurer
    assert measurer is not None
    chosen = measurer.own_choice()
    placement = np.array([full.devices.index(chosen[name]) for name in full.graph.op_names])
    entry = _made(context, "hetero", placement, full=True)
    if context.config.backend != "hetero":
        return [entry]
    return [entry._replace(candidates=(Candidate(None, context.target.present),))]


def trained(method: str, context: Context) -> list[Entry]:
    """A learned method, trained on this one graph."""
    found = search.train(
        method,
        context.config,
        context.setting,
        context.evaluate,
        context.workdir,
        seed=context.seed,
        display=context.display,
        stop=context.stop.is_set,
        observe=context.incumbent.observe,
    )
    return [_entry(context, method, found.solution, found.elite)]


def human_expert(context: Context) -> list[Entry]:
    """What people choose, by rules of thumb: of all operations, not coarsened."""
    full = context.setting.full
    is_host = np.asarray(full.costs.accelerator) < 0
    accelerators = np.flatnonzero(~is_host).tolist()
    host = int(np.argmax(is_host)) if is_host.any() else None
    placement = expert.place(full.graph, accelerators, host)
    return [_made(context, "human_expert", placement, full=True)]


def zero_shot(context: Context) -> list[Entry]:
    """What a policy that has learned on other graphs makes of this one, without learning."""
    started = time.monotonic()
    setting, path = context.setting, context.config.init_from or str(learned.SHIPPED)
    num_devices = setting.coarse.costs.compute_s.shape[1]
    method = learned.of_checkpoint(path)
    made = learned.make(method, num_devices, False)
    reading = made.read(setting.coarse)
    init_key, key = jax.random.split(jax.random.PRNGKey(context.seed))
    with context.display.phase("placing with zero_shot"):
        params = learned.load(path, method, jax.jit(made.policy.init)(init_key, reading.graph))
        with processes.leading(
            "zero_shot",
            lambda: {
                "method": method,
                "problem": processes.packed(setting.coarse),
                "params": flax.serialization.to_bytes(params),
                "key": np.asarray(key),
            },
        ):
            found = place_unseen(made, reading, setting.coarse, params, key)
    spent_s = time.monotonic() - started
    return [_made(context, "zero_shot", found.placement, spent_s, found.evaluations)]


def follow(job: dict[str, Any]) -> None:
    """Places what process 0 places with `zero_shot`."""
    problem = processes.unpacked(job["problem"])
    made = learned.make(job["method"], problem.costs.compute_s.shape[1], False)
    reading, key = made.read(problem), job["key"]
    fresh = jax.jit(made.policy.init)(key, reading.graph)
    params = flax.serialization.from_bytes(fresh, job["params"])
    place_unseen(made, reading, problem, params, key)


def place_unseen(
    made: learned.Method,
    reading: learned.PolicyInput,
    problem: Problem,
    params: Params,
    key: Array,
) -> unseen.Found:
    """Places a problem, as a method reads it, with parameters that learned on others."""
    simulator = trainer.Simulator.of(problem)._replace(assignment=reading.assignment)
    num_ops = problem.graph.num_ops
    return unseen.place(made.policy, params, reading.graph, simulator, key, num_ops=num_ops)


def _solved(name: str) -> Callable[[Context], list[Entry]]:
    """A solver of `placement.solvers`."""

    def method(context: Context) -> list[Entry]:
        return [_solve(name, context)]

    method.__doc__ = solvers.SOLVERS[name].find.__doc__
    return method


def _solve(name: str, context: Context) -> Entry:
    """All but `graph_cut`, which is exact and fast on all operations, place the coarse ones."""
    setting, config = context.setting, context.config
    incumbent = context.incumbent
    full = incumbent.full = name == "graph_cut"
    goal = progress.Goal(config.budget, config.time_limit_s, _single_s(setting))
    with (
        context.display.phase(f"searching {name}", goal) as phase,
        metrics.Log(context.workdir, name, context.seed) as log,
    ):
        told = metrics.SolverMetrics(log, phase)

        def observe(evaluations: int, best_s: float, placement: np.ndarray | None) -> None:
            incumbent.observe(evaluations, best_s, placement)  # first: what follows may fail
            told.observe(evaluations, best_s)

        solution = solvers.solve(
            name,
            setting.full if full else setting.coarse,
            seed=context.seed,
            time_limit_s=config.time_limit_s,
            budget=config.budget,
            observe=observe,
            stop=context.stop.is_set,
        )
        told.finish(solution)
    return _entry(context, name, solution, solution.placement[None], full=full)


def _partitioned(
    name: str, partition: Callable[..., np.ndarray], **others: Any
) -> Callable[[Context], list[Entry]]:
    """A baseline of `solvers.heuristics.partition`, on the coarse operations."""

    def method(context: Context) -> list[Entry]:
        started = time.monotonic()
        with context.display.phase(f"searching {name}"):
            placement = partition(context.setting.coarse, seed=context.seed, **others)
        return [_made(context, name, placement, time.monotonic() - started)]

    method.__doc__ = partition.__doc__
    return method


# Nothing is searched.
BASELINES = {
    "single": single,
    "hetero": openvino_hetero,
    "human_expert": human_expert,
    "zero_shot": zero_shot,
}
PARTITIONERS = {
    "metis": _partitioned("metis", partition.metis),
    "kahip": _partitioned("kahip", partition.kahip),
    "scotch": _partitioned("scotch", partition.scotch, gmap=scotch.gmap),
    "min_cut": _partitioned("min_cut", partition.min_cut),
}
OTHERS: dict[str, Callable[[Context], list[Entry]]] = {
    **BASELINES,
    **PARTITIONERS,
    **{name: _solved(name) for name in solvers.SOLVERS},
}
NAMES = (*learned.RECIPES, *OTHERS)
_PACKAGES = {"metis": "pymetis", "min_cut": "pymetis", "kahip": "kahip", "cpsat": "ortools"}


def run(method: str, context: Context, *, alone: bool) -> list[Entry]:
    """What a method of `NAMES`, a learned one with its arguments, finds.

    One that a fault, a failure of the machine or Ctrl-C ends has the best that it told until then,
    in a row that says why; a fault or a failure is kept for the task to tell. One that cannot be
    used on this problem is a row, too, unless it was asked for `alone`.

    Raises:
      UserError: a method asked for alone cannot be used on this problem, in one line.
    """
    context = context._replace(incumbent=Incumbent())
    try:
        return trained(method, context) if learned.is_learned(method) else OTHERS[method](context)
    except UserError as error:
        if alone:
            raise
        return [_nothing(context, method, f"failed: {error}")]
    except KeyboardInterrupt:
        context.stop.set()
        return [_cut_short(context, method, "interrupted")]
    except Exception as fault:
        context.kept.add(fault, f"searching with {method}")
        return [_cut_short(context, method, f"fault: {faults.in_short(fault)}")]


def check(method: str, objective: str) -> None:
    """Refuses what is no method, a learned one with impossible hyper-parameters, or a solver of
    other objectives.

    Raises:
      UserError: one line.
    """
    if learned.is_learned(method):
        learned.make(method, 2, False)
    else:
        arguments.check("method", method, NAMES)
    if method in solvers.SOLVERS:
        solvers.check(method, objective)


def runnable(
    chosen: tuple[str, ...],
    beside: tuple[str, ...],
    target: target_lib.Target,
    config: ConfigDict,
    display: progress.Display,
) -> tuple[str, ...]:
    """The methods to run, `beside` first and without those that cannot run here, which are named.

    Raises:
      UserError: one of `chosen` cannot run here.
    """
    able = []
    for method in (*beside, *chosen):
        reason = _lacking(method, target, config.objective)
        if reason and method in chosen:
            raise UserError(f"method {method!r} cannot run: {reason}")
        if reason:
            display.say(f"without {method}: {reason}")
        else:
            able.append(method)
    return tuple(able)


def _lacking(method: str, target: target_lib.Target, objective: str) -> str | None:
    """What a method needs that is not here, in words."""
    if method in solvers.SOLVERS and objective not in solvers.SOLVERS[method].objectives:
        return f"it is for {' and '.join(solvers.SOLVERS[method].objectives)}"
    if method == "hetero" and not target.present:
        return (
            "it asks OpenVINO itself, and the devices are described; "
            "give --config.devices=host or present devices"
        )
    return missing(method)


def missing(method: str) -> str | None:
    """The software that a method needs and that is not installed, in words."""
    package = _PACKAGES.get(method)
    if package and importlib.util.find_spec(package) is None:
        return f"{package} is not installed; pip install 'placement[solvers]'"
    return scotch.missing() if method == "scotch" else None


def references(devices: tuple[devices_lib.Device, ...]) -> list[Entry]:
    """Devices outside the placement that it has to be compared with, such as the whole CPU."""
    nothing = np.empty((1, 0), np.int32)
    unknown = Solution(nothing[0], math.nan, math.nan, "finished", 0.0, 0)
    return [
        Entry(
            f"reference:{device.label}",
            unknown,
            nothing,
            (Candidate(None, (device,)),),
            (math.nan,),
            reference=True,
        )
        for device in devices
    ]


def _single_s(setting: build.SearchProblem) -> float:
    """What the fastest single device takes in the simulator; one at a time, as rows are valued."""
    num_ops, num_devices = setting.coarse.costs.compute_s.shape
    singles = np.tile(np.arange(num_devices, dtype=np.int32)[:, None, None], (1, 1, num_ops))
    return min(float(setting.simulate(single)[0]) for single in singles)


def _cut_short(context: Context, method: str, status: str) -> Entry:
    """Of a method that did not end by itself: its incumbent, if it told one."""
    incumbent = context.incumbent
    if incumbent.placement is None:
        return _nothing(context, method, status if status == "interrupted" else f"failed: {status}")
    search_s = time.monotonic() - incumbent.began_s
    return _made(
        context,
        method,
        incumbent.placement,
        search_s,
        incumbent.evaluations,
        status=status,
        full=incumbent.full,
    )


def _nothing(context: Context, method: str, status: str) -> Entry:
    nowhere = np.zeros((1, context.setting.coarse.graph.num_ops), np.int32)
    search_s = time.monotonic() - context.incumbent.began_s
    solution = Solution(nowhere[0], math.inf, math.nan, status, search_s, 0)
    return Entry(method, solution, nowhere, (Candidate(None, ()),), (math.inf,))


def _made(
    context: Context,
    method: str,
    placement: np.ndarray,
    search_s: float = 0.0,
    evaluations: int = 1,
    *,
    status: str = "finished",
    full: bool = False,
) -> Entry:
    """Of one placement, int [M], that comes without a bound."""
    solution = Solution(placement, math.nan, math.nan, status, search_s, evaluations)
    return _entry(context, method, solution, placement[None], full=full)


def _entry(
    context: Context,
    method: str,
    solution: Solution,
    placements: np.ndarray,
    *,
    full: bool = False,
) -> Entry:
    """Of placements int [K, M], each with its value in the simulator and ready to be measured."""
    target, backend = context.target, context.config.backend
    setting = context.setting.whole() if full else context.setting
    placements = setting.complete(placements)
    predicted_s = tuple(float(value) for value in setting.simulate(placements))
    if math.isinf(solution.value_s):  # what a solver shows that found nothing
        predicted_s = (math.inf,) * len(placements)
    return Entry(
        method,
        solution._replace(placement=placements[0], value_s=predicted_s[0]),
        placements,
        tuple(build.candidate(setting, each, target.present, backend) for each in placements),
        predicted_s,
        full=full,
    )
