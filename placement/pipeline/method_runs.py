"""Every method as a function from a run's context to entries: placements, not yet measured."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flax.serialization
import jax
import numpy as np

from placement import arguments
from placement import methods as methods_lib
from placement.errors import UserError
from placement.learning import trainer
from placement.methods import learned, pretrained
from placement.pipeline import learned_search, loading
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, metrics, progress
from placement.pipeline.distributed import processes
from placement.pipeline.settings import Settings
from placement.runtime import devices as devices_lib
from placement.runtime.measurement.evaluate import MeasuredEvaluate
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import Candidate, OwnChoice
from placement.search import measured as measured_lib
from placement.solvers.limits import Observe, SearchLimits
from placement.types import OUT_OF_MEMORY, Evaluate, Solution, Status


class Incumbent:
    """The best placement that a search has told so far, which outlives whatever ends the search."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.evaluations = 0
        self.placement: np.ndarray | None = None
        self.full = False  # as `Entry.full`

    def observe(
        self,
        evaluations: int,
        best_s: float,
        placement: np.ndarray | None,
        numbers: Mapping[str, float],
    ) -> None:
        """Takes what a search tells (`placement.solvers.limits.Observe`)."""
        del numbers
        self.evaluations = evaluations
        if math.isfinite(best_s):
            self.placement = placement


class Context(NamedTuple):
    """What a method is given."""

    settings: Settings
    workdir: Path
    target: target_lib.Target
    measurer: Measurer | None  # where the devices are present
    problem: loading.SearchProblem
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


def placed_on(entry: Entry, problem: loading.SearchProblem) -> loading.SearchProblem:
    """Returns the problem whose coarse operations an entry's placements are of."""
    return problem.whole() if entry.full or problem.coarse is problem.full else problem


def single(context: Context) -> list[Entry]:
    """Everything on one device: a row a device."""
    num_ops = context.problem.coarse.graph.num_ops
    return [
        _made(context, f"single:{name}", np.full(num_ops, i, np.int32))
        for i, name in enumerate(context.target.names)
    ]


def openvino_hetero(context: Context) -> list[Entry]:
    """OpenVINO's own choice: every operation on the first device that supports it.

    Run as all placements are: under HETERO by itself, else by the backend.
    """
    full, measurer = context.problem.full, context.measurer
    assert measurer is not None
    chosen = measurer.ask(OwnChoice(measurer.devices))
    placement = np.array([full.devices.index(chosen[name]) for name in full.graph.op_names])
    entry = _made(context, HETERO, placement, full=True)
    if context.settings.backend != "hetero":
        return [entry]
    return [entry._replace(candidates=(Candidate(None, context.target.present),))]


def trained(method: str, context: Context) -> list[Entry]:
    """A learned method, trained on this one graph."""
    result = learned_search.train(
        method,
        context.settings,
        context.problem,
        context.evaluate,
        context.workdir,
        seed=context.seed,
        display=context.display,
        stop=context.stop.is_set,
        observe=context.incumbent.observe,
    )
    return [_entry(context, method, result.solution, result.elite)]


def zero_shot(context: Context) -> list[Entry]:
    """What a policy that has learned on other graphs makes of this one, without learning."""
    started = time.monotonic()
    problem = context.problem.coarse
    path = Path(context.settings.init_from or pretrained.SHIPPED)
    with context.display.phase("placing with zero_shot"):
        prepared = pretrained.prepare(problem, path, context.seed)
        with processes.leading(
            "zero_shot",
            lambda: {
                "method": prepared.method,
                "problem": processes.packed(problem),
                "params": flax.serialization.to_bytes(prepared.params),
                "key": np.asarray(prepared.key),
            },
        ):
            placed = pretrained.place(prepared, problem)
    spent_s = time.monotonic() - started
    return [_made(context, "zero_shot", placed.placement, spent_s, placed.evaluations)]


def follow(job: dict[str, Any]) -> None:
    """Places what process 0 places with `zero_shot`."""
    problem, key = processes.unpacked(job["problem"]), job["key"]
    made = learned.make(job["method"], len(problem.devices), False)
    read = made.read(problem)
    fresh = jax.jit(made.policy.init)(key, read.graph)
    params = flax.serialization.from_bytes(fresh, job["params"])
    pretrained.place(pretrained.Pretrained(job["method"], made, read, params, key), problem)


def solved(name: str, context: Context) -> list[Entry]:
    """Any other of `placement.methods.METHODS`, on the coarse operations or on all."""
    problem, settings = context.problem, context.settings
    full = context.incumbent.full = name in _ON_ALL
    goal = progress.Goal(settings.budget, settings.time_limit_s, _single_s(problem))
    with _watched(name, context, goal) as (shown, observe):
        solution = methods_lib.solve(
            problem.full if full else problem.coarse,
            name,
            seed=context.seed,
            time_limit_s=settings.time_limit_s,
            budget=settings.budget,
            observe=observe,
            stop=context.stop.is_set,
        )
        shown.finish(solution)
    assert solution.placement is not None
    return [_entry(context, name, solution, solution.placement[None], full=full)]


def measured(name: str, context: Context) -> list[Entry]:
    """The search by few measurements, from what it finds in the simulator."""
    problem, settings, evaluate = context.problem.coarse, context.settings, context.evaluate
    assert isinstance(evaluate, MeasuredEvaluate)
    stop = context.stop.is_set
    goal = progress.Goal(min(settings.budget, measured_lib.MOST), settings.time_limit_s)
    with _watched(name, context, goal) as (shown, observe):
        limits = SearchLimits(settings.time_limit_s, settings.budget, observe, stop)
        first = methods_lib.solve(
            problem,
            name,
            seed=context.seed,
            time_limit_s=_SIMULATED_SHARE * settings.time_limit_s,
            budget=_SIMULATED,
            stop=stop,
        )
        assert first.placement is not None
        if stop() or math.isinf(first.value_s):
            return [_entry(context, name, first, first.placement[None])]
        found = measured_lib.find(problem, first.placement, evaluate, context.seed, limits)
        solution = first._replace(
            placement=found.placement[0],
            value_s=float(found.latency_s[0]),
            bound_s=math.nan,
            status=Status.INTERRUPTED if stop() else found.status,
            search_s=limits.spent_s(),
            evaluations=len(found.placement),
        )
        shown.finish(solution)
    ran = max(1, int(np.isfinite(found.latency_s).sum()))
    return [_entry(context, name, solution, found.placement[: min(ran, trainer.ELITE)])]


@contextlib.contextmanager
def _watched(
    name: str, context: Context, goal: progress.Goal
) -> Iterator[tuple[metrics.SolverMetrics, Observe]]:
    """Shows and logs a search, which is to tell its incumbent to the second."""
    with (
        context.display.phase(f"searching {name}", goal) as phase,
        metrics.Log(context.workdir, name, context.seed) as log,
    ):
        shown = metrics.SolverMetrics(log, phase)

        def observe(
            evaluations: int,
            best_s: float,
            placement: np.ndarray | None,
            numbers: Mapping[str, float],
        ) -> None:
            # First: what follows may fail.
            context.incumbent.observe(evaluations, best_s, placement, numbers)
            shown.observe(evaluations, best_s, numbers)

        yield shown, observe


HETERO = "hetero"
# `graph_cut` is exact and fast on all operations, and experts look at names, of which a coarse
# operation has that of one of its own.
_ON_ALL = ("graph_cut", "human_expert")
# Of a search on devices, what it searches in the simulator before: placements, share of the time.
_SIMULATED, _SIMULATED_SHARE = 2_000_000, 0.25
_RUN: dict[str, Callable[[Context], list[Entry]]] = {
    "single": single,
    HETERO: openvino_hetero,
    "zero_shot": zero_shot,
}


def names() -> tuple[str, ...]:
    """Returns the names of all methods, registered ones included."""
    return tuple(dict.fromkeys((*methods_lib.LEARNED, *_RUN, *methods_lib.METHODS)))


def run(method: str, context: Context, *, alone: bool) -> list[Entry]:
    """Runs a method of `names()`, a learned one with its arguments.

    One that a fault, a failure of the machine or Ctrl-C ends has the best that it told until then,
    in a row that says why; a fault or a failure is kept for the task to tell. One that cannot be
    used on this problem is a row, too, unless it was asked for `alone`.

    Raises:
      UserError: a method asked for alone cannot be used on this problem, in one line.
    """
    context = context._replace(incumbent=Incumbent())
    try:
        if learned.is_learned(method):
            return trained(method, context)
        if method == "search" and context.settings.evaluate == "measure":
            return measured(method, context)
        return _RUN[method](context) if method in _RUN else solved(method, context)
    except UserError as error:
        if alone:
            raise
        return [_nothing(context, method, Status.FAILED, str(error))]
    except KeyboardInterrupt:
        context.stop.set()
        return [_cut_short(context, method, Status.INTERRUPTED)]
    except Exception as fault:
        context.kept.add(fault, f"searching with {method}")
        return [_cut_short(context, method, Status.FAULT, faults.in_short(fault))]


def check(method: str, objective: str) -> None:
    """Refuses what is no method, or none of this objective, as `placement.methods.check` does.

    Raises:
      UserError: one line.
    """
    if not learned.is_learned(method):
        arguments.check("method", method, names())
    if method != HETERO:
        methods_lib.check(method, objective)


def is_seeded(method: str) -> bool:
    """Whether the seed may change what a method finds."""
    return method != HETERO and methods_lib.METHODS[method.split(":")[0]].seeded


def installed(chosen: tuple[str, ...], display: progress.Display) -> tuple[str, ...]:
    """Returns the methods whose packages and programs are here; says what the others lack.

    Raises:
      UserError: none is left.
    """
    missing = {m: methods_lib.METHODS[m.split(":")[0]].missing() for m in chosen if m != HETERO}
    reasons = {method: reason for method, reason in missing.items() if reason}
    if chosen and len(reasons) == len(chosen):
        method, reason = next(iter(reasons.items()))
        raise UserError(f"method {method!r} cannot run: {reason}")
    for method, reason in reasons.items():
        display.warn(f"without {method}: {reason}")
    return tuple(method for method in chosen if method not in reasons)


def runnable(
    chosen: tuple[str, ...],
    beside: tuple[str, ...],
    target: target_lib.Target,
    settings: Settings,
    display: progress.Display,
) -> tuple[str, ...]:
    """The methods to run, `beside` first and without those that cannot run here, which are named.

    Raises:
      UserError: one of `chosen` cannot run here for another reason than that something is not
        installed, or none can.
    """
    able = []
    chosen = installed(chosen, display)
    for method in (*beside, *chosen):
        reason = _lacking(method, target, settings.objective)
        if reason and method in chosen:
            raise UserError(f"method {method!r} cannot run: {reason}")
        if reason:
            display.say(f"without {method}: {reason}")
        else:
            able.append(method)
    return tuple(able)


def _lacking(method: str, target: target_lib.Target, objective: str) -> str | None:
    """Says what a method needs that is not here; None if it can run."""
    if method == HETERO:
        if target.present:
            return None
        return (
            "it asks OpenVINO itself, and the devices are described; "
            "give --config.devices=host or present devices"
        )
    needs = methods_lib.METHODS[method.split(":")[0]]
    if objective not in needs.objectives:
        return f"it is for {' and '.join(needs.objectives)}"
    return needs.missing()


def references(devices: tuple[devices_lib.Device, ...]) -> list[Entry]:
    """Devices outside the placement that it has to be compared with, such as the whole CPU."""
    nothing = np.empty((1, 0), np.int32)
    unknown = Solution(nothing[0])
    return [
        Entry(
            f"reference:{device.label}",
            unknown,
            nothing,
            (_reference(device),),
            (math.nan,),
            reference=True,
        )
        for device in devices
    ]


def _reference(device: devices_lib.Device) -> Candidate:
    streams = devices_lib.is_streaming(device)
    return Candidate(None, (device,), num_requests=None if streams else 1)


def _single_s(problem: loading.SearchProblem) -> float:
    """Values the fastest single device in the simulator; one at a time, as rows are."""
    num_ops, num_devices = problem.coarse.costs.compute_s.shape
    singles = np.tile(np.arange(num_devices, dtype=np.int32)[:, None, None], (1, 1, num_ops))
    return min(float(problem.simulate(single)[0]) for single in singles)


def _cut_short(context: Context, method: str, status: Status, reason: str = "") -> Entry:
    """Of a method that did not end by itself: its incumbent, if it told one."""
    incumbent = context.incumbent
    if incumbent.placement is None:
        if status == Status.FAULT:
            status, reason = Status.FAILED, status.describe(reason)
        return _nothing(context, method, status, reason)
    search_s = time.monotonic() - incumbent.began_s
    return _made(
        context,
        method,
        incumbent.placement,
        search_s,
        incumbent.evaluations,
        status=status,
        reason=reason,
        full=incumbent.full,
    )


def _nothing(context: Context, method: str, status: Status, reason: str = "") -> Entry:
    nowhere = np.zeros((1, context.problem.coarse.graph.num_ops), np.int32)
    search_s = time.monotonic() - context.incumbent.began_s
    solution = Solution(nowhere[0], math.inf, status=status, search_s=search_s, reason=reason)
    return Entry(method, solution, nowhere, (Candidate(None, ()),), (math.inf,))


def _made(
    context: Context,
    method: str,
    placement: np.ndarray,
    search_s: float = 0.0,
    evaluations: int = 1,
    *,
    status: Status = Status.FINISHED,
    reason: str = "",
    full: bool = False,
) -> Entry:
    """Of one placement, int [M], that comes without a bound."""
    solution = Solution(
        placement, status=status, search_s=search_s, evaluations=evaluations, reason=reason
    )
    return _entry(context, method, solution, placement[None], full=full)


def _entry(
    context: Context,
    method: str,
    solution: Solution,
    placements: np.ndarray,
    *,
    full: bool = False,
) -> Entry:
    """Of placements int [K, M], each with its value in the simulator and ready to be measured.

    The last placements are left out where preparing the others takes longer than a search may.
    """
    target, backend = context.target, context.settings.backend
    problem = context.problem.whole() if full else context.problem
    placements = problem.complete(placements)
    candidates: list[Candidate] = []
    until_s = time.monotonic() + context.settings.time_limit_s
    for placement in placements:
        if candidates and time.monotonic() > until_s:
            break
        candidates.append(loading.candidate(problem, placement, target.present, backend))
    placements = placements[: len(candidates)]
    predicted_s = tuple(float(value) for value in problem.simulate(placements))
    if math.isinf(solution.value_s):  # what a solver shows that found nothing
        predicted_s = (math.inf,) * len(placements)
    elif math.isinf(predicted_s[0]) and problem.coarse.exceeds_memory(placements[0]):
        solution = solution._replace(status=Status.FAILED, reason=OUT_OF_MEMORY)
    return Entry(
        method,
        solution._replace(placement=placements[0], value_s=predicted_s[0]),
        placements,
        tuple(candidates),
        predicted_s,
        full=full,
    )
