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
from ml_collections import ConfigDict

from experiments import build, checkpoints, learned
from experiments.console import metrics
from experiments.console import progress as progress_lib
from experiments.distributed import processes
from placement import simulators
from placement.learning import trainer
from placement.solvers import limits
from placement.solvers.limits import Observe
from placement.types import Evaluate, Problem, Solution

_REPORT_EVERY_S = 1.0
_CHUNK = 16  # steps between two reports at most
# What may change between an interrupted run and the one that goes on from it.
_MAY_CHANGE = (
    *("budget", "time_limit_s", "measure_s", "evaluate", "measure_on"),
    *("method", "methods", "graphs", "seeds"),
)


class Found(NamedTuple):
    """What a search found."""

    solution: Solution
    elite: np.ndarray  # int32 [K, M], the fastest distinct placements, fastest first


def train(
    method: str,
    config: ConfigDict,
    setting: build.SearchProblem,
    evaluate: Evaluate,
    workdir: Path,
    *,
    seed: int,
    display: progress_lib.Display,
    stop: Callable[[], bool] = lambda: False,
    observe: Observe = limits.unobserved,
) -> Found:
    """Trains a learned method until the budget or time is spent, or it is to stop.

    `stop` is asked, and `observe` told, with every report, as by solvers.

    Resumes from the checkpoint in `workdir` where there is one of the same method, configuration
    and costs. The time counts from the beginning, compilation included.

    The checkpoint is written after every report, so that a search that is killed loses one report
    at most: on devices one step; in the simulator the steps of about a second, `_CHUNK` at most,
    which the search that goes on takes again, the same ones.
    """
    began = time.monotonic()
    num_ops, num_devices = setting.coarse.costs.compute_s.shape
    made = learned.make(method, num_devices, config.evaluate == "measure")
    reading = made.read(setting.coarse)
    with display.phase(f"searching {method}") as phase:
        phase.note(_compiling(reading))
        learned.check_fits(method, made.learner, reading.graph)
        fresh = trainer.start(
            made.learner,
            jax.random.PRNGKey(seed),
            reading.graph,
            evaluate,
            num_ops,
            num_devices,
            keep_single_devices=not made.released,
        )
        if config.init_from:
            params = learned.load(config.init_from, method, fresh.state.params)
            fresh = fresh._replace(state=fresh.state._replace(params=params))
        checkpoint = _Checkpoint(workdir, _fingerprint(method, config, setting, seed))
        progress, spent_s = checkpoint.restore(fresh, display)
        if progress.step:
            display.detail(f"resuming {method} from step {progress.step}, after {spent_s:.1f} s")
        single_s = float(progress.reference_s)
        phase.goal = progress_lib.Goal(config.budget, config.time_limit_s, single_s, spent_s)
        host = learned.penalised(evaluate) if made.released else evaluate
        steps = _steps(
            made, reading, setting.coarse, config.budget, progress,
            on_host=made.released or config.evaluate == "measure",
            evaluate=lambda p: processes.broadcast(np.asarray(host(p), np.float32)),
            pace=_pace(),
        )  # fmt: skip
        started, status = began - spent_s, "time limit"
        at = {"step": int(progress.step), "evaluations": int(progress.evaluations)}
        with (
            metrics.Log(workdir, method, seed, **at) as log,
            processes.leading(
                "search",
                lambda: {
                    "method": method,
                    "measured": config.evaluate == "measure",
                    "problem": processes.packed(setting.coarse),
                    "budget": int(config.budget),
                    "progress": flax.serialization.to_bytes(jax.device_get(progress)),
                },
            ),
        ):
            if spent_s <= config.time_limit_s:
                progress, status = _followed(
                    steps, progress, config, started, log, phase, checkpoint, stop, observe
                )
    return _found(progress, status, time.monotonic() - started)


def _followed(
    steps: Iterator[trainer.Report],
    progress: trainer.Progress,
    config: ConfigDict,
    started: float,
    log: metrics.Log,
    phase: progress_lib.Phase,
    checkpoint: "_Checkpoint",
    stop: Callable[[], bool],
    observe: Observe,
) -> tuple[trainer.Progress, str]:
    """Logs, shows and saves every report until a limit is reached; the last one's, and a status."""
    for report in steps:
        elapsed = time.monotonic() - started
        # Logged before it counts: going on drops records too many, but cannot add one.
        for record, latencies_s in zip(report.records, report.latencies_s, strict=True):
            log.add(record, elapsed, latencies_s)
        progress = report.progress
        phase.update(progress.evaluations, progress.best_s)
        observe(progress.evaluations, progress.best_s, np.asarray(progress.elite[0]))
        checkpoint.save(progress, elapsed)
        if progress.evaluations >= config.budget:
            break
        if stop():
            return progress, "interrupted"
        if elapsed > config.time_limit_s:
            return progress, "time limit"
    return progress, "finished"


def _compiling(reading: learned.PolicyInput) -> str:
    """The sizes for which all graphs of a bucket share one compilation."""
    nodes, edges = len(reading.graph.nodes["mask"]), len(reading.graph.senders)
    return f"compiling for {nodes}x{edges} nodes and edges"


def _steps(
    made: learned.Method,
    reading: learned.PolicyInput,
    problem: Problem,
    budget: int,
    progress: trainer.Progress,
    *,
    on_host: bool,
    evaluate: Evaluate,
    pace: Callable[[], int],
) -> Iterator[trainer.Report]:
    """The search, on the host where placements are measured, else compiled."""
    graph, assignment = reading
    if on_host:
        return trainer.search(
            made.learner, graph, evaluate, progress, budget, assignment=assignment
        )
    simulator = trainer.Simulator.of(problem)._replace(assignment=assignment)
    return trainer.search_simulated(
        made.learner, graph, simulator, progress, budget, chunk=_CHUNK, pace=pace
    )


def follow(job: dict[str, Any]) -> None:
    """Takes the steps of a search that process 0 takes.

    Raises:
      processes.Stopped: process 0 has stopped before the budget was spent.
    """
    problem = processes.unpacked(job["problem"])
    num_ops, num_devices = problem.costs.compute_s.shape
    made = learned.make(job["method"], num_devices, job["measured"])
    reading = made.read(problem)
    key, evaluate = jax.random.PRNGKey(0), simulators.evaluator(problem)
    fresh = trainer.start(made.learner, key, reading.graph, evaluate, num_ops, num_devices)
    progress = flax.serialization.from_bytes(fresh, job["progress"])
    steps = _steps(
        made, reading, problem, job["budget"], progress,
        on_host=made.released or job["measured"],
        evaluate=lambda _: processes.broadcast(),
        pace=processes.broadcast,
    )  # fmt: skip
    for _ in steps:
        pass


def _pace() -> Callable[[], int]:
    """How many steps to take until the next report: about a second's, `_CHUNK` at most.

    The first chunk, which compiles, and the second, which is timed, have one.
    """
    asked: list[float] = []
    steps = 1

    def pace() -> int:
        nonlocal steps
        asked.append(time.monotonic())
        if len(asked) > 2:
            step_s = max((asked[-1] - asked[-2]) / steps, _REPORT_EVERY_S / _CHUNK)
            steps = max(1, int(_REPORT_EVERY_S / step_s))
        return int(processes.broadcast(steps))

    return pace


def _found(progress: trainer.Progress, status: str, search_s: float) -> Found:
    known = int(np.isfinite(progress.elite_s).sum())
    solution = Solution(
        placement=progress.elite[0],
        value_s=progress.best_s,
        bound_s=float("nan"),
        status=status if known else "infeasible",
        search_s=search_s,
        evaluations=progress.evaluations,
    )
    # Of an infeasible problem the first is kept, so that measuring it records why.
    return Found(solution, progress.elite[: max(known, 1)])


def _fingerprint(method: str, config: ConfigDict, setting: build.SearchProblem, seed: int) -> str:
    kept = {k: v for k, v in config.to_dict().items() if k not in _MAY_CHANGE}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode())
    digest.update(np.asarray(setting.coarse.costs.compute_s).tobytes())
    digest.update(f"{method} {seed}".encode())
    return digest.hexdigest()


class _Checkpoint:
    """The search's state in `checkpoint/`, written whole or not at all."""

    def __init__(self, workdir: Path, fingerprint: str):
        self._path = workdir / "checkpoint" / f"{fingerprint[:16]}.msgpack"

    def restore(
        self, fresh: trainer.Progress, display: progress_lib.Display
    ) -> tuple[trainer.Progress, float]:
        """The saved progress and the seconds it took, or the fresh one."""
        made = functools.partial(checkpoints.restored, (fresh, 0.0))
        read = functools.partial(checkpoints.read, make=made, remedy="remove it")
        saved = checkpoints.readable(self._path, read, display) if self._path.exists() else None
        return saved or (fresh, 0.0)

    def save(self, progress: trainer.Progress, elapsed_s: float) -> None:
        self._path.parent.mkdir(exist_ok=True)
        checkpoints.save(self._path, (progress, elapsed_s))
