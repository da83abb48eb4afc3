"""Runs one search of a learned method: log, checkpoint, limits, interrupt."""

import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import flax.serialization
import jax
import numpy as np

from placement.instance import Instance
from placement.learning import trainer
from placement.methods import learned, pretrained
from placement.methods.checkpoints import restored
from placement.pipeline import checkpoints, loading
from placement.pipeline.console import metrics
from placement.pipeline.console import progress as progress_lib
from placement.pipeline.distributed import processes
from placement.pipeline.settings import Settings
from placement.policies.base import PolicyInput
from placement.solvers import limits
from placement.solvers.limits import Observe
from placement.types import Evaluate, Solution, Status

# What may change between an interrupted run and the one that goes on from it.
_MAY_CHANGE = (
    *("budget", "time_limit_s", "measure_s", "evaluate", "measure_on"),
    *("method", "methods", "graphs", "seeds"),
)


class Trained(NamedTuple):
    """What a search found."""

    solution: Solution
    elite: np.ndarray  # int32 [K, M], the fastest distinct placements, fastest first


class _Search(NamedTuple):
    """A learned method on a problem."""

    made: learned.Method
    read: PolicyInput
    problem: Instance
    measured: bool  # placements are evaluated on devices

    @classmethod
    def of(cls, method: str, problem: Instance, measured: bool) -> "_Search":
        made = learned.make(method, len(problem.devices), measured)
        return cls(made, made.read(problem), problem, measured)

    def start(self, seed: int, evaluate: Evaluate) -> trainer.Progress:
        return learned.start(self.made, self.read, self.problem, seed, evaluate)

    def steps(
        self, progress: trainer.Progress, budget: int, evaluate: Evaluate, pace: Callable[[], int]
    ) -> Iterator[trainer.Report]:
        return learned.steps(
            self.made, self.read, self.problem, progress, budget, evaluate,
            measured=self.measured,
            pace=pace,
        )  # fmt: skip


def train(
    method: str,
    settings: Settings,
    problem: loading.SearchProblem,
    evaluate: Evaluate,
    workdir: Path,
    *,
    seed: int,
    display: progress_lib.Display,
    stop: Callable[[], bool] = lambda: False,
    observe: Observe = limits.unobserved,
) -> Trained:
    """Trains a learned method until the budget or time is spent, or it is to stop.

    `stop` is asked, and `observe` told, with every report, as by solvers.

    Resumes from the checkpoint in `workdir` where there is one of the same method, configuration
    and costs. The time counts from the beginning, compilation included.

    The checkpoint is written after every report, so that a search that is killed loses one report
    at most: on devices one step; in the simulator the steps of about a second, `learned.CHUNK` at
    most, which the search that goes on takes again, the same ones.
    """
    began = time.monotonic()
    with display.phase(f"searching {method}") as phase:
        search = _Search.of(method, problem.coarse, settings.evaluate == "measure")
        phase.note(_compiling(search.read))
        learned.check_fits(method, search.made.learner, search.read.graph)
        fresh = _initialised(search.start(seed, evaluate), method, settings.init_from)
        name = _fingerprint(method, settings, problem, seed)[:16]
        path = workdir / "checkpoint" / f"{name}.msgpack"
        make = functools.partial(restored, (fresh, 0.0))
        progress, spent_s = checkpoints.restore(path, make, display) or (fresh, 0.0)
        if progress.step:
            display.detail(f"resuming {method} from step {progress.step}, after {spent_s:.1f} s")
        single_s = float(progress.reference_s)
        phase.goal = progress_lib.Goal(settings.budget, settings.time_limit_s, single_s, spent_s)
        pace = learned.about_a_second(time.monotonic)
        steps = search.steps(
            progress,
            settings.budget,
            lambda placements: processes.broadcast(np.asarray(evaluate(placements), np.float32)),
            lambda: int(processes.broadcast(pace())),
        )
        started, status = began - spent_s, Status.TIME_LIMIT
        at = {"step": int(progress.step), "evaluations": int(progress.evaluations)}
        save = functools.partial(checkpoints.save, path)
        with (
            metrics.Log(workdir, method, seed, **at) as log,
            processes.leading("search", lambda: _job(method, search, settings.budget, progress)),
        ):
            if spent_s <= settings.time_limit_s:
                progress, status = _followed(
                    steps, progress, settings, started, log, phase, save, stop, observe
                )
    return _trained(progress, status, time.monotonic() - started)


def _initialised(fresh: trainer.Progress, method: str, init_from: str) -> trainer.Progress:
    """The same with the parameters in a file, if one is given."""
    if not init_from:
        return fresh
    params = pretrained.load(Path(init_from), method, fresh.state.params)
    return fresh._replace(state=fresh.state._replace(params=params))


def _followed(
    steps: Iterator[trainer.Report],
    progress: trainer.Progress,
    settings: Settings,
    started: float,
    log: metrics.Log,
    phase: progress_lib.Phase,
    save: Callable[[Any], None],
    stop: Callable[[], bool],
    observe: Observe,
) -> tuple[trainer.Progress, Status]:
    """Logs, shows and saves every report until a limit is reached; the last one's, and a status."""
    for report in steps:
        elapsed = time.monotonic() - started
        # Logged before it counts: going on drops records too many, but cannot add one.
        for record, latencies_s in zip(report.records, report.latencies_s, strict=True):
            log.add(record, elapsed, latencies_s)
        progress = report.progress
        phase.update(progress.evaluations, progress.best_s)
        best = np.asarray(progress.elite[0])
        observe(progress.evaluations, progress.best_s, best, limits.NO_NUMBERS)
        save((progress, elapsed))
        if progress.evaluations >= settings.budget:
            break
        if stop():
            return progress, Status.INTERRUPTED
        if elapsed > settings.time_limit_s:
            return progress, Status.TIME_LIMIT
    return progress, Status.FINISHED


def _compiling(read: PolicyInput) -> str:
    """The sizes for which all graphs of a bucket share one compilation."""
    nodes, edges = len(read.graph.nodes["mask"]), len(read.graph.senders)
    return f"compiling for {nodes}x{edges} nodes and edges"


def _job(method: str, search: _Search, budget: int, progress: trainer.Progress) -> dict[str, Any]:
    """Packs what other processes have to know to take the same steps (`follow`)."""
    return {
        "method": method,
        "measured": search.measured,
        "problem": processes.packed(search.problem),
        "budget": int(budget),
        "progress": flax.serialization.to_bytes(jax.device_get(progress)),
    }


def follow(job: dict[str, Any]) -> None:
    """Takes the steps of a search that process 0 takes.

    Raises:
      processes.Stopped: process 0 has stopped before the budget was spent.
    """
    problem = processes.unpacked(job["problem"])
    search = _Search.of(job["method"], problem, job["measured"])
    fresh = search.start(0, problem.evaluate)
    progress = flax.serialization.from_bytes(fresh, job["progress"])
    heard = processes.broadcast
    for _ in search.steps(progress, job["budget"], lambda _: heard(), heard):
        pass


def _trained(progress: trainer.Progress, status: Status, search_s: float) -> Trained:
    known = int(np.isfinite(progress.elite_s).sum())
    solution = Solution(
        placement=progress.elite[0],
        value_s=progress.best_s,
        status=status if known else Status.INFEASIBLE,
        search_s=search_s,
        evaluations=progress.evaluations,
    )
    # Of an infeasible problem the first is kept, so that measuring it records why.
    return Trained(solution, progress.elite[: max(known, 1)])


def _fingerprint(method: str, settings: Settings, problem: loading.SearchProblem, seed: int) -> str:
    kept = {k: v for k, v in settings.to_dict().items() if k not in _MAY_CHANGE}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode())
    digest.update(np.asarray(problem.coarse.costs.compute_s).tobytes())
    digest.update(f"{method} {seed}".encode())
    return digest.hexdigest()
