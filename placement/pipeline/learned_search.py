"""The search of a learned method in a run: logged, saved while it runs, and continued.

Its checkpoint is in `checkpoint/` of the run directory, what it has learned in `policies/`.
"""

import functools
import hashlib
import json
from pathlib import Path

import numpy as np

from placement.learning import trainer
from placement.methods import learned, pretrained
from placement.methods.checkpoints import restored
from placement.pipeline import checkpoints
from placement.pipeline.console import metrics, progress
from placement.pipeline.context import Context
from placement.solvers.limits import NO_METRICS
from placement.types import Solution, Status

# The settings that may differ between an interrupted run and the one that continues it.
_CHANGEABLE = (
    *("budget", "time_limit_s", "measure_s", "evaluate", "measure_on"),
    *("method", "methods", "graphs", "seeds"),
)
_COMPILED: set[tuple[str, str, int, int]] = set()  # programs of learned methods, by their sizes
_POLICIES = "policies"  # the folder of what searches have learned


def train(method: str, context: Context) -> Solution:
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
        nowhere = np.zeros((1, problem.num_decisions), np.int32)
        solution = solution._replace(placement=nowhere[0], elite=nowhere, status=Status.INFEASIBLE)
    return solution._replace(search_s=spent_s + limits.elapsed_s())
