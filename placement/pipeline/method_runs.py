"""Runs any method on a run's problem and returns the rows of its placements, not yet measured."""

import functools
import hashlib
import itertools
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from placement import arguments
from placement import methods as methods_lib
from placement.errors import UserError
from placement.learning import trainer
from placement.methods import learned, pretrained
from placement.methods.checkpoints import restored
from placement.pipeline import checkpoints, correction_loop, loading
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, metrics, progress
from placement.pipeline.context import Context, Incumbent
from placement.pipeline.results.rows import Row
from placement.pipeline.settings import Settings
from placement.reporting import units
from placement.runtime.execution import mixed_precision
from placement.runtime.measurement.request import Candidate, HeteroChoice
from placement.solvers import base
from placement.solvers.limits import NO_METRICS, SearchLimits
from placement.types import OUT_OF_MEMORY, Solution, Status

# OpenVINO's own choices, which need its devices: what each does.
OPENVINO = {
    "hetero": "OpenVINO's own choice: every operation on the first device that supports it",
    "hetero_pipeline": "OpenVINO's own split by memory: HETERO with the policy PIPELINE_PARALLEL",
}
# Every table of devices with limits of memory has the usual ways to split a model, too.
MEMORY_BASELINES = ("fill_in_order", "split_by_memory", "hetero_pipeline")
# The settings that may differ between an interrupted run and the one that continues it.
_CHANGEABLE = (
    *("budget", "time_limit_s", "measure_s", "evaluate", "measure_on"),
    *("method", "methods", "graphs", "seeds"),
)
_COMPILED: set[tuple[str, str, int, int]] = set()  # programs of learned methods, by their sizes
_POLICIES = "policies"  # the folder of what searches have learned
_MOVED = "operations moved to keep variables together"
_TOGETHER = "predicted with merged operations together, which OpenVINO separates"


def names() -> tuple[str, ...]:
    """Returns the names of all methods, registered ones included."""
    learners = methods_lib.of_kind("learned")
    return tuple(dict.fromkeys((*learners, "single", *OPENVINO, "zero_shot", *methods_lib.METHODS)))


def run(method: str, context: Context, *, is_only_method: bool) -> list[Row]:
    """Runs a method of `names()`, a learned one with its arguments.

    If a fault, a failure of the machine or Ctrl-C ends a method, its row has the best placement so
    far and the reason. The task raises faults and failures later. A method that cannot be used on
    this problem also has a row, unless it is the only requested method.

    Raises:
      UserError: the only method that was asked for cannot be used on this problem.
    """
    context = context._replace(incumbent=Incumbent())
    measured = context.measured
    before = 0 if measured is None else measured.num_measurements
    try:
        rows = _run(method, context)
    except UserError as error:
        if is_only_method:
            raise
        rows = [_make_unfinished_row(context, method, Status.FAILED, str(error))]
    except KeyboardInterrupt:
        context.stop.set()
        rows = [_make_unfinished_row(context, method, Status.INTERRUPTED)]
    except Exception as fault:
        context.fault_log.add(fault, f"searching with {method}")
        rows = [_make_unfinished_row(context, method, Status.FAULT, faults.summarise(fault))]
    count = 0 if measured is None else measured.num_measurements - before
    return [row._replace(measurements=count) for row in rows]


def _run(method: str, context: Context) -> list[Row]:
    problem, settings = context.problem, context.settings
    singles = methods_lib.single_device_placements(problem)
    if method == "single":
        return [
            _make_row(context, f"single:{name}", Solution(placement, evaluations=1))
            for name, placement in zip(context.target.names, singles, strict=True)
        ]
    if method in OPENVINO:
        return [_ask_openvino(method, context)]
    if methods_lib.is_learned(method):
        return [_make_row(context, method, _train(method, context))]
    # One at a time, as rows are.
    single_s = min(problem.value_s(single) for single in singles)
    is_on_devices = method == "search" and context.measured is not None
    goal = progress.Goal(
        settings.budget, settings.time_limit_s, math.nan if is_on_devices else single_s
    )
    with (
        context.display.phase(f"searching {method}", goal) as phase,
        metrics.Log(context.workdir, method, settings.seed) as log,
    ):
        search_metrics = metrics.SolverMetrics(log, phase)

        def observe(
            evaluations: int,
            best_s: float,
            placement: np.ndarray | None,
            numbers: Mapping[str, float],
        ) -> None:
            # First, since showing and logging may fail.
            context.incumbent.observe(evaluations, best_s, placement, numbers)
            search_metrics.observe(evaluations, best_s, placement, numbers)

        limits = SearchLimits(
            settings.time_limit_s,
            settings.budget,
            observe,
            context.stop.is_set,
            starts=settings.starts,
        )
        if is_on_devices:
            solution = correction_loop.search(context, limits)
        elif method == "zero_shot":
            path = Path(settings.init_from or pretrained.SHIPPED)
            solution = pretrained.find(problem, settings.seed, limits, path=path)
            solution = solution._replace(value_s=math.nan, search_s=limits.elapsed_s())
        else:
            solution = methods_lib.solve(
                problem,
                method,
                seed=settings.seed,
                time_limit_s=settings.time_limit_s,
                budget=settings.budget,
                starts=settings.starts,
                observe=observe,
                stop=context.stop.is_set,
            )
        search_metrics.finish(solution)
    return [_make_row(context, method, solution)]


def _ask_openvino(method: str, context: Context) -> Row:
    """Asks OpenVINO for its choice, which runs as all placements do: under HETERO by itself.

    A decision whose operations OpenVINO would separate is on the first device that supports all of
    them, as HETERO places a single operation.
    """
    problem, net, measurer = context.problem, context.target.net, context.measurer
    assert measurer is not None
    is_pipeline = method == "hetero_pipeline"
    device_of_op = measurer.ask(HeteroChoice(measurer.devices, split_by_memory=is_pipeline))
    placement, reason = problem.allowed.argmax(axis=1).astype(np.int32), ""
    for decision, ops in enumerate(net.members):
        # Constants and inputs run nowhere.
        op_devices = {device_of_op[op] for op in ops if op in measurer.computed_ops}
        if len(op_devices) == 1:
            placement[decision] = problem.devices.index(op_devices.pop())
        elif op_devices:
            reason = _TOGETHER
    row = _make_row(context, method, Solution(placement, evaluations=1, reason=reason))
    if is_pipeline or context.settings.backend != "hetero":
        return row
    return row._replace(candidates=(Candidate(None, context.target.present),))


def _train(method: str, context: Context) -> Solution:
    """Trains a learned method until the budget or time is spent.

    Continues from the checkpoint in the run directory if there is one of the same method, settings
    and costs. It is written after every report, so that a search that is killed loses one report at
    most: on devices one step, in the simulator the steps of about a second. At the end the learned
    parameters are written to `policies/`, where the setting `init_from` can read them. The time
    limit counts the steps, not the compilation before them.

    Returns:
      The solution, whose elite has one placement at least. If none is known to run it is the first,
      so that measuring it records why.
    """
    settings, problem, workdir = context.settings, context.problem, context.workdir
    display, observe = context.display, context.incumbent.observe
    limits = SearchLimits(
        settings.time_limit_s,
        settings.budget,
        observe,
        context.stop.is_set,
        starts=settings.starts,
    )
    with display.phase(f"searching {method}") as phase:
        search = learned.Search.prepare(method, problem, context.measured)
        graph = search.policy_input.graph
        # All graphs that are padded to these sizes share one compilation.
        program = method, problem.objective, len(graph.nodes["mask"]), len(graph.senders)
        if program not in _COMPILED:
            _COMPILED.add(program)
            display.say(f"compiling {method} (once)")
        phase.note("compiling")
        current = search.start(settings.seed, limits)
        if settings.init_from:
            params = pretrained.load(Path(settings.init_from), method, current.state.params)
            current = current._replace(state=current.state._replace(params=params))
        fixed = {k: v for k, v in settings.to_dict().items() if k not in _CHANGEABLE}
        fixed["is_measured"] = context.measured is not None
        digest = hashlib.sha256(json.dumps(fixed, sort_keys=True, default=str).encode())
        digest.update(np.asarray(problem.costs.compute_s).tobytes())
        digest.update(f"{method} {settings.seed}".encode())
        path = workdir / "checkpoint" / f"{digest.hexdigest()[:16]}.msgpack"
        make = functools.partial(restored, (current, 0.0))
        current, spent_s = checkpoints.restore(path, make, display) or (current, 0.0)
        if current.step:
            display.detail(f"resuming {method} from step {current.step}, after {spent_s:.1f} s")
        limits.extend(-spent_s)
        if np.isfinite(current.best_s):
            observe(current.evaluations, current.best_s, current.elite[0], NO_METRICS)
        resumed = {"step": int(current.step), "evaluations": int(current.evaluations)}
        single_s, params = float(current.reference_s), current.state.params

        def keep(report: trainer.Report, compile_s: float) -> None:
            nonlocal params
            params = report.progress.state.params
            if not report.records:
                phase.note("")
                phase.goal = progress.Goal(
                    settings.budget, settings.time_limit_s, single_s, spent_s - compile_s
                )
                return
            elapsed_s = spent_s + limits.elapsed_s()
            # Logged before it is saved: a search that continues drops records that come after its
            # checkpoint, but cannot add missing ones.
            for record, latencies_s in zip(report.records, report.latencies_s, strict=True):
                log.add(record, elapsed_s, latencies_s)
            phase.update(report.progress.evaluations, report.progress.best_s)
            checkpoints.save(path, (report.progress, elapsed_s - compile_s))

        with metrics.Log(workdir, method, settings.seed, **resumed) as log:
            solution = search.run(current, limits, keep)
    name = metrics.name_search(method, settings.seed)
    learned_policy = {"method": method, "params": params}
    checkpoints.save(workdir / _POLICIES / f"{name}.msgpack", learned_policy)
    if solution.placement is None:
        nowhere = np.zeros((1, problem.graph.num_ops), np.int32)
        solution = solution._replace(placement=nowhere[0], elite=nowhere, status=Status.INFEASIBLE)
    return solution._replace(search_s=spent_s + limits.elapsed_s())


def prepare(
    settings: Settings,
    methods: tuple[str, ...],
    extra: tuple[str, ...],
    display: progress.Display,
) -> tuple[target_lib.Target, tuple[str, ...]]:
    """Checks everything that was asked for; returns the target and the methods to run.

    Args:
      settings: of the run.
      methods: that the user asked for.
      extra: methods that run before them, if they can run on this machine.
      display: receives a line about each method that is left out.

    Raises:
      UserError: a setting is invalid, or a method that was asked for cannot run here.
    """
    loading.check_settings(settings)
    for method in methods:
        check(method, settings.objective)
    if settings.init_from:  # before anything takes time
        policy_method = pretrained.method_of(Path(settings.init_from))
        if "zero_shot" in methods:
            pretrained.check_zero_shot(policy_method)
    target = target_lib.find_target(settings)
    loading.refuse_stateful_stream(settings, target.net)
    if extra and any(device.capacity_bytes is not None for device in target.present):
        extra += tuple(method for method in MEMORY_BASELINES if method not in methods)
    order = runnable(methods, extra, target, settings, display)
    # Every search evaluates the single devices first.
    arguments.check_range("budget", settings.budget, target.num_devices)
    return target, order


def check(method: str, objective: str) -> None:
    """Refuses a method that does not exist or is for other objectives.

    Raises:
      UserError: as `placement.methods.check`.
    """
    if not methods_lib.is_learned(method):
        arguments.check_choice("method", method, names())
    if method not in OPENVINO:
        methods_lib.check(method, objective)


def is_seeded(method: str) -> bool:
    """Whether the seed may change a method's result."""
    return method not in OPENVINO and methods_lib.entry(method).seeded


def installed(methods: tuple[str, ...], display: progress.Display) -> tuple[str, ...]:
    """Returns the methods whose packages and programs are here; warns about the others.

    Raises:
      UserError: none is left.
    """
    missing = {m: methods_lib.entry(m).missing() for m in methods if m not in OPENVINO}
    reasons = {method: reason for method, reason in missing.items() if reason}
    if methods and len(reasons) == len(methods):
        method, reason = next(iter(reasons.items()))
        raise UserError(f"method {method!r} cannot run: {reason}")
    for method, reason in reasons.items():
        display.warn(f"without {method}: {reason}")
    return tuple(method for method in methods if method not in reasons)


def runnable(
    requested: tuple[str, ...],
    extra: tuple[str, ...],
    target: target_lib.Target,
    settings: Settings,
    display: progress.Display,
) -> tuple[str, ...]:
    """Returns the methods to run: first the extra ones that can run here, then the requested ones.

    Raises:
      UserError: a requested method cannot run here, other than because a package or program is
        missing; or no requested method is left.
    """
    methods = []
    requested = installed(requested, display)
    for method in (*extra, *requested):
        reason: str | None = None
        if method in OPENVINO:
            if not target.present:
                reason = (
                    "it asks OpenVINO itself, and the devices are described; "
                    "set devices='host' or present devices"
                )
        elif settings.objective not in methods_lib.entry(method).objectives:
            reason = f"it is for {' and '.join(methods_lib.entry(method).objectives)}"
        else:
            reason = methods_lib.entry(method).missing()
        if reason and method in requested:
            raise UserError(f"method {method!r} cannot run: {reason}")
        if reason:
            display.say(f"without {method}: {reason}")
        else:
            methods.append(method)
    return tuple(methods)


def _make_unfinished_row(context: Context, method: str, status: Status, reason: str = "") -> Row:
    """Makes the row of a method that did not end by itself, of its incumbent if there is one."""
    incumbent = context.incumbent
    if incumbent.placement is not None and status != Status.FAILED:
        solution = Solution(
            incumbent.placement,
            status=status,
            search_s=context.elapsed_s,
            evaluations=incumbent.evaluations,
            reason=reason,
        )
        return _make_row(context, method, solution)
    if status == Status.FAULT:
        status, reason = Status.FAILED, status.describe(reason)
    nowhere = np.zeros((1, context.problem.graph.num_ops), np.int32)
    solution = Solution(
        nowhere[0],
        value_s=math.inf,
        status=status,
        search_s=context.elapsed_s,
        reason=reason,
        elite=nowhere,
    )
    return Row(method, solution, (Candidate(None, ()),), (math.inf,))


def _make_row(context: Context, method: str, solution: Solution) -> Row:
    """Makes the row of a solution: each placement with its value in the simulator, ready to run.

    Uses the solution's elite, or its placement alone. The last placements are left out where
    preparing the others takes longer than a search may.
    """
    assert solution.placement is not None
    net, problem = context.target.net, context.problem.with_order(solution.order)
    placements = solution.placement[None] if solution.elite is None else solution.elite
    placements = np.asarray(placements, np.int32)
    present, backend = context.target.present, context.settings.backend
    needs_acyclic_variables = (
        backend == "hetero"
        and len(present) > 1
        and mixed_precision.find_coarse_device(present) is None
        and not math.isinf(solution.value_s)
    )
    if needs_acyclic_variables:
        first = placements[0]
        placements = loading.remove_variable_cycles(net, problem, placements)
        if not np.array_equal(placements[0], first):
            # A proof of the search was about another placement.
            is_proof = solution.status == Status.OPTIMAL
            status = Status.FINISHED if is_proof else solution.status
            solution = solution._replace(status=status, reason=solution.reason or _MOVED)
    candidates: list[Candidate] = []
    deadline_s = time.monotonic() + context.settings.time_limit_s
    for placement in placements:
        if candidates and time.monotonic() > deadline_s:
            break
        candidates.append(loading.make_candidate(net, problem, placement, present, backend))
    placements = placements[: len(candidates)]
    predicted_s = tuple(float(value) for value in problem.evaluate(placements))
    if math.isinf(solution.value_s):  # the method found none; the placement is only for show
        predicted_s = (math.inf,) * len(placements)
    elif not all(map(math.isfinite, predicted_s)):
        fits = [not problem.exceeds_memory(placement) for placement in placements]
        if any(fits):
            placements = placements[fits]
            candidates = list(itertools.compress(candidates, fits))
            predicted_s = tuple(itertools.compress(predicted_s, fits))
        else:
            solution = solution._replace(status=Status.FAILED, reason=OUT_OF_MEMORY)
    if solution.reason == OUT_OF_MEMORY:
        capacity_bytes = np.asarray(problem.costs.capacity_bytes, np.float64)
        excess = ", ".join(
            f"{name} needs {units.size(used)} of {units.size(capacity)}"
            for name, used, capacity in zip(
                problem.devices, problem.peak_bytes(placements[0]), capacity_bytes, strict=True
            )
            if used > capacity * (1 - base.ROUNDING)
        )
        solution = solution._replace(reason=f"{OUT_OF_MEMORY}: {excess}")
    solution = solution._replace(placement=placements[0], value_s=predicted_s[0], elite=placements)
    return Row(method, solution, tuple(candidates), predicted_s)
