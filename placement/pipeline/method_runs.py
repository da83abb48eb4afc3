"""Checks the methods of a run, and runs any of them; its row is not yet measured."""

import math
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


def run(method: str, context: Context, *, is_only_method: bool) -> Row:
    """Runs a method, a learned one with its arguments.

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
        from placement.pipeline import learned_search

        return learned_search.train(method, context)
    problem, settings, measured = context.problem, context.settings, context.measured
    # What a run gives to the methods of some kinds, beside the problem.
    kind, given = methods_lib.entry(method).kind, dict[str, Any]()
    if kind == "openvino":
        given = {"members": context.target.net.members, "measurer": context.measurer}
    if kind == "pretrained" and settings.init_from:
        given = {"path": Path(settings.init_from)}
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
            find = methods_lib.find(method, problem.objective, **given)
            solution = methods_lib.run(method, find, problem, settings.seed, limits)
        search_metrics.finish(solution)
    return solution


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
        methods_lib.check(method, settings.objective)
    if settings.init_from:  # before anything takes time
        from placement.methods import pretrained

        policy_method = pretrained.method_of(Path(settings.init_from))
        if any(methods_lib.entry(method).kind == "pretrained" for method in methods):
            pretrained.check_zero_shot(policy_method)
    target = target_lib.find_target(settings)
    loading.refuse_stateful_stream(settings, target.net)
    # Every search evaluates the single devices first.
    arguments.check_range("budget", settings.budget, target.num_devices)
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
            display.say(f"without {method}: {reason}")
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
    if incumbent.placement is not None and status != Status.FAILED:
        solution = Solution(
            incumbent.placement,
            status=status,
            search_s=context.elapsed_s,
            evaluations=incumbent.evaluations,
            reason=reason,
        )
        return rows.make(context, method, solution)
    if status == Status.FAULT:
        status, reason = Status.FAILED, status.describe(reason)
    nowhere = np.zeros((1, context.problem.num_decisions), np.int32)
    solution = Solution(
        nowhere[0],
        value_s=math.inf,
        status=status,
        search_s=context.elapsed_s,
        reason=reason,
        elite=nowhere,
    )
    return Row(method, solution, (Candidate(None, ()),), (math.inf,))
