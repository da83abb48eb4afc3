"""Runs one search of a learned method: logged, shown and saved."""

import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from placement.learning import trainer
from placement.methods import learned, pretrained
from placement.methods.checkpoints import restored
from placement.pipeline import checkpoints, loading
from placement.pipeline.console import metrics
from placement.pipeline.console import progress as progress_lib
from placement.pipeline.settings import Settings
from placement.solvers.limits import NO_METRICS, Observe, SearchLimits
from placement.types import Evaluate, Solution, Status

# The settings that may differ between an interrupted run and the one that continues it.
_CHANGEABLE = (
    *("budget", "time_limit_s", "measure_s", "evaluate", "measure_on"),
    *("method", "methods", "graphs", "seeds"),
)
_POLICIES = "policies"  # the folder of what searches have learned


def train(
    method: str,
    settings: Settings,
    problem: loading.SearchProblem,
    evaluate: Evaluate,
    workdir: Path,
    display: progress_lib.Display,
    stop: Callable[[], bool],
    observe: Observe,
) -> Solution:
    """Trains a learned method until the budget or time is spent, or `stop` says so.

    Continues from the checkpoint in `workdir` where there is one of the same method, settings and
    costs. The time limit counts the steps, whose compilation before is reported apart.

    The checkpoint is written after every report. A search that is killed so loses one report at
    most: on devices one step, in the simulator the steps of about a second. The search that
    continues takes the same steps again. At its end the learned parameters are written to
    `policies/`, where the setting `init_from` of another search can read them.

    Args:
      method: with its arguments.
      settings, workdir, display: of the run.
      problem: its coarse operations are placed.
      evaluate: measures coarse placements, if the settings say so.
      stop, observe: asked and told with every report, as by `placement.methods.solve`.

    Returns:
      The solution, whose elite has one placement at least. If none is known to run it is the first,
      so that measuring it records why.
    """
    limits = SearchLimits(settings.time_limit_s, settings.budget, observe, stop)
    with display.phase(f"searching {method}") as phase:
        is_measured = settings.evaluate == "measure"
        search = learned.Search.prepare(method, problem.coarse, evaluate if is_measured else None)
        graph = search.policy_input.graph
        # All graphs that are padded to these sizes share one compilation.
        sizes = f"{len(graph.nodes['mask'])} nodes and {len(graph.senders)} edges"
        phase.note(f"compiling for graphs of up to {sizes}")
        progress = search.start(settings.seed)
        if settings.init_from:
            params = pretrained.load(Path(settings.init_from), method, progress.state.params)
            progress = progress._replace(state=progress.state._replace(params=params))
        fixed = {k: v for k, v in settings.to_dict().items() if k not in _CHANGEABLE}
        fixed["is_measured"] = settings.evaluate == "measure"
        digest = hashlib.sha256(json.dumps(fixed, sort_keys=True, default=str).encode())
        digest.update(np.asarray(problem.coarse.costs.compute_s).tobytes())
        digest.update(f"{method} {settings.seed}".encode())
        path = workdir / "checkpoint" / f"{digest.hexdigest()[:16]}.msgpack"
        make = functools.partial(restored, (progress, 0.0))
        progress, spent_s = checkpoints.restore(path, make, display) or (progress, 0.0)
        if progress.step:
            display.detail(f"resuming {method} from step {progress.step}, after {spent_s:.1f} s")
        limits.extend(-spent_s)
        if np.isfinite(progress.best_s):
            observe(progress.evaluations, progress.best_s, progress.elite[0], NO_METRICS)
        resumed = {"step": int(progress.step), "evaluations": int(progress.evaluations)}
        single_s, params = float(progress.reference_s), progress.state.params

        def keep(report: trainer.Report, compile_s: float) -> None:
            nonlocal params
            params = report.progress.state.params
            if not report.records:
                phase.note("")
                phase.goal = progress_lib.Goal(
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
            solution = search.run(progress, limits, keep)
    name = metrics.name_search(method, settings.seed)
    learned_policy = {"method": method, "params": params}
    checkpoints.save(workdir / _POLICIES / f"{name}.msgpack", learned_policy)
    if solution.placement is None:
        nowhere = np.zeros((1, problem.coarse.graph.num_ops), np.int32)
        solution = solution._replace(placement=nowhere[0], elite=nowhere, status=Status.INFEASIBLE)
    return solution._replace(search_s=spent_s + limits.elapsed_s())
