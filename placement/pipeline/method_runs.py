"""Checks the methods of a run, and runs any of them; its row is not yet measured."""

import functools
import hashlib
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from placement import arguments
from placement import methods as methods_lib
from placement.errors import UserError
from placement.pipeline import correction_loop, loading
from placement.pipeline import target as target_lib
from placement.pipeline.console import faults, metrics, progress
from placement.pipeline.context import Context, Incumbent
from placement.pipeline.results import rows
from placement.pipeline.results.rows import Row
from placement.pipeline.settings import Settings
from placement.runtime.measurement.request import Candidate
from placement.types import Solution, Status

# Every table of devices with limits of memory has the usual ways to split a model, too.
MEMORY_BASELINES = ("fill_in_order", "split_by_memory", "hetero_pipeline")
# The settings that may differ between an interrupted run and the one that continues it.
_CHANGEABLE = (
    *("budget", "time_limit_s", "measure_s", "evaluate", "measure_on"),
    *("method", "methods", "graphs", "seeds"),
)
_COMPILED: set[tuple[str, str, int, int]] = set()  # programs of learned methods, by their sizes


def run(method: str, context: Context, *, is_only_method: bool) -> Row:
    """Runs a method, a learned one with its arguments.

    If a fault, a failure of the machine or Ctrl-C ends a method, its row has the best placement so
    far and the reason. The task raises faults and failures later. A method that cannot be used on
    this problem also has a row; if it is the only requested method, that is a UserError.
    """
    context = context._replace(incumbent=Incumbent())
    measured = context.measured
    before = 0 if measured is None else measured.num_measurements
    try:
        solution = _search(method, context)
        row = rows.make(context, method, solution)
        if method == "hetero" and context.settings.backend == "hetero":
            # OpenVINO also runs its own choice, which may separate operations of a decision.
            row = row._replace(candidates=(Candidate(None, context.target.present),))
    except UserError as error:
        if is_only_method:
            raise
        row = _make_unfinished_row(context, method, Status.FAILED, str(error))
    except KeyboardInterrupt:
        context.stop.set()
        row = _make_unfinished_row(context, method, Status.INTERRUPTED)
    except Exception as fault:
        context.fault_log.add(fault, f"searching with {method}")
        row = _make_unfinished_row(context, method, Status.FAULT, faults.summarise(fault))
    count = 0 if measured is None else measured.num_measurements - before
    return row._replace(measurements=count)


def _search(method: str, context: Context) -> Solution:
    """Searches with a method and logs its progress."""
    if methods_lib.is_learned(method):  # can continue, logs its own numbers and keeps parameters
        return _train(method, context)
    problem, settings, measured = context.problem, context.settings, context.measured
    # Further arguments that the methods of some kinds need.
    kind, further_arguments = methods_lib.entry(method).kind, dict[str, Any]()
    if kind == "openvino":
        further_arguments = {"members": context.target.net.members, "measurer": context.measurer}
    if kind == "pretrained" and settings.init_from:
        further_arguments = {"path": Path(settings.init_from)}
    is_on_devices = kind == "search" and measured is not None
    # One at a time, as rows are.
    singles = methods_lib.single_device_placements(problem)
    single_s = math.nan if is_on_devices else min(map(problem.value_s, singles))
    goal = progress.Goal(settings.budget, settings.time_limit_s, single_s)
    with (
        context.display.phase(f"searching {method}", goal) as phase,
        metrics.Log(context.workdir, method, settings.seed) as log,
    ):
        search_metrics = metrics.SolverMetrics(log, phase)

        def observe(*step: Any) -> None:
            context.incumbent.observe(*step)  # first, since showing and logging may fail
            search_metrics.observe(*step)

        limits = context.begin_limits(observe)
        if is_on_devices:
            solution = correction_loop.search(context, limits)
        else:
            find = methods_lib.find(method, problem.objective, **further_arguments)
            solution = methods_lib.run(method, find, problem, settings.seed, limits)
        search_metrics.finish(solution)
    return solution


def _train(method: str, context: Context) -> Solution:
    """Trains a learned method until the budget or time is spent.

    Continues from the checkpoint in `checkpoint/` if there is one of the same method, settings and
    costs. It is written after every report, so that a search that is killed loses one report at
    most: on devices one step, in the simulator the steps of about a second. At the end the learned
    parameters are written to `policies/`, where the setting `init_from` can read them. The time
    limit counts the steps, not the compilation before them.

    Returns:
      The solution, whose elite has one placement at least. If none is known to run it is the first,
      so that measuring it records why.
    """
    # Here, because the other methods need none of these.
    from placement.learning import trainer
    from placement.methods import learned, pretrained
    from placement.methods.checkpoints import restored
    from placement.pipeline import checkpoints

    settings, problem, workdir = context.settings, context.problem, context.workdir
    display, observe = context.display, context.incumbent.observe
    limits = context.begin_limits(observe)
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
        digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode())
        digest.update(np.asarray(problem.costs.compute_s).tobytes())
        digest.update(f"{method} {settings.seed}".encode())
        path = workdir / "checkpoint" / f"{digest.hexdigest()[:16]}.msgpack"
        make = functools.partial(restored, (current, 0.0))
        current, spent_s = checkpoints.restore(path, make, display) or (current, 0.0)
        if current.step:
            display.detail(f"resuming {method} from step {current.step}, after {spent_s:.1f} s")
        limits.extend(-spent_s)
        if np.isfinite(current.best_s):
            observe(current.evaluations, current.best_s, current.elite[0])
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
    checkpoints.save(workdir / "policies" / f"{name}.msgpack", learned_policy)
    if solution.placement is None:
        nowhere = np.zeros((1, problem.num_decisions), np.int32)
        solution = solution._replace(placement=nowhere[0], elite=nowhere, status=Status.INFEASIBLE)
    return solution._replace(search_s=spent_s + limits.elapsed_s())


def prepare(
    settings: Settings,
    methods: tuple[str, ...],
    extra: tuple[str, ...],
    display: progress.Display,
) -> tuple[target_lib.Target, tuple[str, ...]]:
    """Checks everything that was asked for; returns the target and the methods to run.

    The `extra` methods run before those that the user asked for, if they can run on this machine.

    Raises:
      UserError: a setting is invalid, or a method that was asked for cannot run here.
    """
    loading.check_settings(settings)
    for method in methods:
        methods_lib.check(method, settings.objective)
    if settings.init_from:  # before anything takes time
        from placement.methods import pretrained

        policy_method = pretrained.method_of(Path(settings.init_from))
        if any(methods_lib.entry(method).kind == "pretrained" for method in methods):
            pretrained.check_zero_shot(policy_method)
    target = target_lib.find_target(settings)
    loading.refuse_stateful_stream(settings, target.net)
    # Every search evaluates the single devices first.
    arguments.check_range("budget", settings.budget, len(target.names))
    if any(device.capacity_bytes is not None for device in target.present):
        extra += tuple(m for m in MEMORY_BASELINES if m not in (*extra, *methods))
    requested, order = installed(methods, display), []
    for method in (*extra, *requested):
        if method == "single":
            continue  # its rows are in every table, see `rows.single_devices`
        row, reason = methods_lib.entry(method), None
        if row.kind == "openvino" and not target.present:
            reason = (
                "it asks OpenVINO itself, and the devices are described; "
                "set devices='host' or present devices"
            )
        elif settings.objective not in row.objectives:
            reason = f"it is for {' and '.join(row.objectives)}"
        else:
            reason = row.missing()
        if reason and method in requested:
            raise UserError(f"method {method!r} cannot run: {reason}")
        if reason:
            display.detail(f"without {method}: {reason}")
        else:
            order.append(method)
    return target, tuple(order)


def installed(methods: tuple[str, ...], display: progress.Display) -> tuple[str, ...]:
    """Returns the methods whose packages and programs are here; warns about the others.

    If none is left, it raises a UserError.
    """
    missing = {method: methods_lib.entry(method).missing() for method in methods}
    reasons = {method: reason for method, reason in missing.items() if reason}
    if methods and len(reasons) == len(methods):
        method, reason = next(iter(reasons.items()))
        raise UserError(f"method {method!r} cannot run: {reason}")
    for method, reason in reasons.items():
        display.warn(f"without {method}: {reason}")
    return tuple(method for method in methods if method not in reasons)


def _make_unfinished_row(context: Context, method: str, status: Status, reason: str = "") -> Row:
    """Makes the row of a method that did not end by itself, of its incumbent if there is one."""
    incumbent = context.incumbent
    placement = None if status == Status.FAILED else incumbent.placement
    if placement is None and status == Status.FAULT:
        status, reason = Status.FAILED, status.describe(reason)
    search_s = time.monotonic() - incumbent.began_s
    solution = Solution(placement, status=status, search_s=search_s, reason=reason)
    if placement is not None:
        return rows.make(context, method, solution._replace(evaluations=incumbent.evaluations))
    nowhere = np.zeros((1, context.problem.num_decisions), np.int32)
    solution = solution._replace(placement=nowhere[0], value_s=math.inf, elite=nowhere)
    return Row(method, solution, (Candidate(None, ()),), (math.inf,))
