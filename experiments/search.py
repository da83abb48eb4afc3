"""Runs one search of a learned method: progress bar, checkpoint, limits, interrupt."""

import contextlib
import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import flax.serialization
import jax
import numpy as np
from ml_collections import ConfigDict
from rich import progress as rich_progress

from experiments import build, learned
from placement.learning import trainer
from placement.reporting import runs
from placement.types import Evaluate, Solution

_REPORT_EVERY_S = 1.0
_CHUNK = 16  # steps between two reports at most
# What may change between an interrupted run and the one that goes on from it.
_MAY_CHANGE = (
    *("budget", "time_limit_s", "measure_s", "evaluate"),
    *("method", "methods", "graphs", "seeds"),
)


class Found(NamedTuple):
    """What a search found."""

    solution: Solution
    elite: np.ndarray  # int32 [K, M], the fastest distinct placements, fastest first


def train(
    method: str,
    config: ConfigDict,
    setting: build.Setting,
    evaluate: Evaluate,
    workdir: Path,
    *,
    seed: int,
    console: Any,
) -> Found:
    """Trains a learned method until the budget or time is spent, or Ctrl-C.

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
    progress = trainer.start(
        made.learner,
        jax.random.PRNGKey(seed),
        reading.graph,
        evaluate,
        num_ops,
        num_devices,
        keep_single_devices=not made.released,
    )
    checkpoint = _Checkpoint(workdir, _fingerprint(method, config, setting, seed))
    progress, spent_s = checkpoint.restore(progress)
    of_search = {"method": method, "seed": seed}
    _forget_later_records(workdir / "metrics.jsonl", of_search, int(progress.step))
    started = began - spent_s
    status = "time limit" if spent_s > config.time_limit_s else "finished"
    steps = _steps(made, reading, config, setting, evaluate, progress)
    bar = _bar(console)
    task = bar.add_task(method, total=config.budget, best="")
    with _interrupts(console) as interrupted, bar:
        for report in steps if status == "finished" else ():
            elapsed = time.monotonic() - started
            # Logged before it counts: going on drops records too many, but cannot add one.
            for record in report.records:
                timed = of_search | {"elapsed_s": round(elapsed, 4)} | record
                runs.append_jsonl(workdir / "metrics.jsonl", timed)
            progress = report.progress
            bar.update(task, completed=progress.evaluations, best=_ms(progress.best_s))
            checkpoint.save(progress, elapsed)
            if progress.evaluations >= config.budget:
                break
            if interrupted.is_set():
                status = "interrupted"
                break
            if elapsed > config.time_limit_s:
                status = "time limit"
                break
    return _found(progress, status, time.monotonic() - started)


def _steps(
    made: learned.Method,
    reading: learned.Reading,
    config: ConfigDict,
    setting: build.Setting,
    evaluate: Evaluate,
    progress: trainer.Progress,
) -> Iterator[trainer.Report]:
    """The search, on the host where placements are measured, else compiled."""
    graph, assignment = reading
    if made.released or config.evaluate == "measure":
        host = learned.penalised(evaluate) if made.released else evaluate
        return trainer.search(
            made.learner, graph, host, progress, config.budget, assignment=assignment
        )
    simulator = trainer.Simulator.of(setting.coarse)._replace(assignment=assignment)
    return trainer.search_simulated(
        made.learner, graph, simulator, progress, config.budget, chunk=_CHUNK, pace=_pace()
    )


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
        return steps

    return pace


@contextlib.contextmanager
def _interrupts(console: Any) -> Iterator[threading.Event]:
    """Within it, the first Ctrl-C sets the event that it yields; the second raises as usual.

    KeyboardInterrupt cannot be raised in the middle of a step: C extensions lose it or turn it into
    an error of their own (NumPy's structured comparison answers with a TypeError).
    """
    asked = threading.Event()

    def ask(number: int, frame: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, previous)
        console.print("stopping after this step; Ctrl-C again stops at once")

    previous = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, previous)


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


def _forget_later_records(path: Path, of_search: dict[str, Any], step: int) -> None:
    """Drops what was logged of this search after the checkpoint: it is about to happen again."""
    records = runs.read_jsonl(path)
    kept = [r for r in records if r["step"] <= step or not of_search.items() <= r.items()]
    if len(kept) < len(records):
        runs.write_text(path, "".join(json.dumps(record) + "\n" for record in kept))


def _bar(console: Any) -> rich_progress.Progress:
    return rich_progress.Progress(
        rich_progress.TextColumn("[bold]{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("best {task.fields[best]}"),
        rich_progress.TimeElapsedColumn(),
        console=console,
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def _fingerprint(method: str, config: ConfigDict, setting: build.Setting, seed: int) -> str:
    kept = {k: v for k, v in config.to_dict().items() if k not in _MAY_CHANGE}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode())
    digest.update(np.asarray(setting.coarse.costs.compute_s).tobytes())
    digest.update(f"{method} {seed}".encode())
    return digest.hexdigest()


class _Checkpoint:
    """The search's state in `checkpoint/`, written whole or not at all."""

    def __init__(self, workdir: Path, fingerprint: str):
        self._path = workdir / "checkpoint" / f"{fingerprint[:16]}.msgpack"

    def restore(self, fresh: trainer.Progress) -> tuple[trainer.Progress, float]:
        """The saved progress and the seconds it took, or the fresh one."""
        if not self._path.exists():
            return fresh, 0.0
        saved = flax.serialization.from_bytes((fresh, 0.0), self._path.read_bytes())
        return saved

    def save(self, progress: trainer.Progress, elapsed_s: float) -> None:
        self._path.parent.mkdir(exist_ok=True)
        data = flax.serialization.to_bytes((jax.device_get(progress), elapsed_s))
        runs.write_bytes(self._path, data)
