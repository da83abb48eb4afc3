"""The `pretrain` task: one policy learns on many graphs and devices, to place others unseen.

Writes policy.msgpack, which `--config.init_from` reads: the method `zero_shot` places with it at
once, and learned methods go on from it. What it learns on are members of families
(`placement.zoo.families`), on described devices, in the `makespan` objective. Nothing of another
family is seen.
"""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import flax.serialization
import jax
import jraph
import numpy as np

from placement import arguments
from placement.costs import roofline
from placement.errors import UserError
from placement.learning import base, several
from placement.methods import learned, pretrained
from placement.methods.checkpoints import restored
from placement.pipeline import checkpoints, loading, workdirs
from placement.pipeline.console import interrupts, metrics, progress
from placement.pipeline.distributed import processes
from placement.pipeline.settings import Settings
from placement.reporting import runs
from placement.types import Problem, Status
from placement.zoo import families

# Policies that carry over: what a policy of several graphs is made by, and how it learns a batch.
_LEARNED = {"scheduler": (several.batch_policy, several.step), "hsdag": (None, several.walks)}
_STATE = "pretraining.msgpack"
# Padded operations and edges of a batch. A graph that fits none of them is left out: what is
# learned on a thousand operations holds for more, and a batch takes as long as its largest graph.
_SIZES = ((128, 256), (512, 1024), (1280, 2560))
_GRAPHS = 4  # of a batch
_SAVED_S = 20.0
_MAY_CHANGE = ("budget", "time_limit_s")  # between a run and the one that goes on from it


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.NORMAL
) -> dict[str, Any]:
    """Learns until the budget or the time is spent, or Ctrl-C; the same command goes on.

    Returns:
      What pretraining.json holds: what was learned on, and how it went.

    Raises:
      UserError: the settings ask for something invalid, in one line.
    """
    loading.check(settings)
    if settings.objective != "makespan":
        raise UserError(
            f"--task=pretrain learns schedules; given objective={settings.objective!r}: give "
            "--config.objective=makespan"
        )
    if _name(settings.method) not in _LEARNED:
        raise UserError(
            f"--task=pretrain trains {' or '.join(_LEARNED)}, which carry over; given "
            f"method={settings.method!r}"
        )
    sets = tuple(filter(None, settings.devices.split(";")))
    named = [roofline.devices(devices) for devices in sets]
    made = _made(settings.method, len(named[0]))
    _check_carries_over(settings, named)
    texts = _members(settings)
    workdirs.claim(workdir, display)
    runs.write_json(workdir / "config.json", settings.to_dict())
    with display.phase("reading graphs"):
        batches = _batches(texts, settings.constants, named, made, display)
    graphs = {"graphs": texts, "constants": settings.constants, "devices": list(map(list, named))}
    told = _learned(settings, workdir, made, batches, graphs, display)
    told |= {"families": settings.families, "devices": sets, "graphs": texts}
    runs.write_json(workdir / "pretraining.json", told)
    display.console.print(f"policy: {workdir / pretrained.FILE}", markup=False, soft_wrap=True)
    return told


def _check_carries_over(settings: Settings, named: list[tuple[str, ...]]) -> None:
    """Refuses parameters that are for one number of devices where there are several."""
    given = arguments.split(settings.method, "method")[1].get("specifications", "True")
    if given.lower() == "false" and len(set(map(len, named))) > 1:
        raise UserError(
            f"method={settings.method!r} learns for one number of devices, and "
            f"devices={settings.devices!r} has several; give as many in each set, or leave "
            "specifications=True"
        )


def _members(settings: Settings) -> list[str]:
    chosen = arguments.entries(settings.families)
    for family in chosen:
        arguments.check("family", family, families.names())
    if settings.members < 1:
        raise UserError(f"members={settings.members} leaves nothing to learn on; give members > 0")
    seeds = range(settings.seed, settings.seed + settings.members)
    return [families.draw(family, seed) for seed in seeds for family in chosen]


def _made(method: str, num_devices: int) -> learned.Method:
    over, _ = _LEARNED[_name(method)]
    return learned.make(method, num_devices, False, over=over)


def _name(method: str) -> str:
    return method.split(":")[0]


def _first(method: str, batches: list[several.Stack]) -> jraph.GraphsTuple:
    """The graphs that a state is made for: several, or one."""
    graphs, (over, _) = batches[0].graphs, _LEARNED[_name(method)]
    return graphs if over else jax.tree.map(lambda leaf: leaf[0], graphs)


def _begun(
    method: str, made: learned.Method, batches: list[several.Stack], seed: int
) -> base.State:
    state = made.learner.init(jax.random.PRNGKey(seed), _first(method, batches))
    return state._replace(walk=None)  # which is of one graph


def _batches(
    texts: list[str],
    constants: bool,
    named: list[tuple[str, ...]],
    made: learned.Method,
    display: progress.Display,
) -> list[several.Stack]:
    """The graphs on each set of devices, those of one size together."""
    of_size: dict[Any, list[Any]] = {}
    for text in texts:
        net = loading.without_weights(text, constants=constants)
        for names in named:
            costs = roofline.cost_model(net.graph, names)
            problem = loading.search_problem(net, costs, names, "makespan").coarse
            size = _size(problem)
            if size is None:
                display.detail(f"left out, too large: {text}")
                continue
            graph = made.read(problem, num_nodes=size[0], num_edges=size[1]).graph
            of_size.setdefault((size, len(names)), []).append(jax.device_get(graph))
    if not of_size:
        raise UserError(
            f"no member has fewer than {_SIZES[-1][0]} coarse operations; give other families, or "
            "more members"
        )
    batches = []
    for graphs in of_size.values():
        for first in range(0, len(graphs), _GRAPHS):
            some = graphs[first : first + _GRAPHS]
            # A batch that is not full takes graphs of others a second time.
            some += [graphs[i % len(graphs)] for i in range(_GRAPHS - len(some))]
            batches.append(several.stack(some))
    return batches


def _size(problem: Problem) -> tuple[int, int] | None:
    """The smallest padded size that holds a graph; None where none does."""
    graph = problem.graph
    num_edges = len(np.unique(np.stack([graph.senders, graph.receivers]), axis=1).T)
    fitting = (s for s in _SIZES if graph.num_ops < s[0] and num_edges < s[1])
    return next(fitting, None)


class _Progress(NamedTuple):
    """How far the learning is: saved, to go on from."""

    state: base.State
    batches: int  # that it has learned from
    spent_s: float
    evaluations: int


def _learned(
    settings: Settings,
    workdir: Path,
    made: learned.Method,
    batches: list[several.Stack],
    graphs: dict[str, Any],
    display: progress.Display,
) -> dict[str, Any]:
    """Goes through all batches, of these graphs, again and again, each time in another order."""
    learned.check_fits(settings.method, made.learner, _first(settings.method, batches))
    state = _begun(settings.method, made, batches, settings.seed)
    saved = _Saved(workdir / _STATE, settings)
    at, stop = saved.restore(_Progress(state, 0, 0.0, 0), display), threading.Event()
    with (
        display.phase(f"pretraining {settings.method}") as phase,
        metrics.Log(
            workdir, settings.method, settings.seed, step=at.batches, evaluations=at.evaluations
        ) as log,
        interrupts.asked(display, stop),
        processes.leading(
            "pretrain", lambda: {"method": settings.method, "state": _bytes(at.state), **graphs}
        ),
    ):
        phase.goal = progress.Goal(settings.budget, settings.time_limit_s, spent_s=at.spent_s)
        at, status, recent = _followed(made, settings, batches, at, (saved, log, phase, stop))
    saved.save(at)
    content = {"method": settings.method, "params": at.state.params}
    checkpoints.save(workdir / pretrained.FILE, content)
    return {
        "updates": int(at.state.updates),
        "evaluations": at.evaluations,
        # Of the last time through all batches: the best of each graph's samples over the fastest
        # single device, as a geometric mean.
        "ratio": float(np.exp(np.mean(np.log(recent)))) if recent else None,
        "elapsed_s": at.spent_s,
        "status": status,
    }


def _followed(
    made: learned.Method,
    settings: Settings,
    batches: list[several.Stack],
    at: _Progress,
    where: tuple["_Saved", metrics.Log, progress.Phase, threading.Event],
) -> tuple[_Progress, Status, list[float]]:
    """Learns until a limit is reached: progress, a status, and the last ratios."""
    saved, log, phase, stop = where
    _, learn = _LEARNED[_name(settings.method)]
    began_s = time.monotonic() - at.spent_s
    at = at._replace(state=made.learner.place(at.state))
    saved_s, ratios = time.monotonic(), list[float]()
    for number in _order(settings.seed, len(batches), at.batches):
        if at.evaluations >= settings.budget:
            return at, Status.FINISHED, ratios
        if stop.is_set():
            return at, Status.INTERRUPTED, ratios
        if at.spent_s > settings.time_limit_s:
            return at, Status.TIME_LIMIT, ratios
        shape = np.shape(batches[number].graphs.nodes["mask"])
        phase.note(f"compiling for {_GRAPHS} graphs of {shape[1]}" if not ratios else "")
        state, found = learn(made.learner, at.state, batches[processes.broadcast(number)])
        record = {name: float(value) for name, value in found.items()}
        evaluations = at.evaluations + int(record.pop("evaluated"))
        at = _Progress(state, at.batches + 1, time.monotonic() - began_s, evaluations)
        ratios = [*ratios, record["ratio"]][-len(batches) :]
        log.add({"step": at.batches, "evaluations": evaluations} | record, at.spent_s)
        phase.update(evaluations)
        if time.monotonic() - saved_s > _SAVED_S:
            saved_s = time.monotonic()
            saved.save(at)
    raise AssertionError("batches go on for ever")


def follow(job: dict[str, Any]) -> None:
    """Learns what process 0 learns.

    Raises:
      processes.Stopped: process 0 has stopped.
    """
    named = list(map(tuple, job["devices"]))
    made = _made(job["method"], len(named[0]))
    display = progress.Display(progress.WARNING)
    batches = _batches(job["graphs"], job["constants"], named, made, display)
    fresh = _begun(job["method"], made, batches, 0)
    _, learn = _LEARNED[_name(job["method"])]
    state = made.learner.place(flax.serialization.from_bytes(fresh, job["state"]))
    while True:
        state, _ = learn(made.learner, state, batches[processes.broadcast()])


def _bytes(state: base.State) -> bytes:
    return flax.serialization.to_bytes(jax.device_get(state))


def _order(seed: int, count: int, done: int) -> Iterator[int]:
    """Numbers of batches, from the update after `done` on; all once before any again."""
    epoch, position = divmod(done, count)
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(count)
        yield from order[position:].tolist()
        epoch, position = epoch + 1, 0


class _Saved:
    """The progress in a file that is whole or absent; of another configuration it is none."""

    def __init__(self, path: Path, settings: Settings):
        self._path = path
        kept = {key: value for key, value in settings.to_dict().items() if key not in _MAY_CHANGE}
        text = json.dumps(kept, sort_keys=True, default=str)
        self._key = hashlib.sha256(text.encode()).hexdigest()

    def restore(self, fresh: _Progress, display: progress.Display) -> _Progress:
        """Reads what was saved; without it returns what is given."""

        def made(content: dict[str, Any]) -> _Progress:
            if content["key"] != self._key:
                return fresh
            return restored(fresh, content["progress"])

        return checkpoints.restore(self._path, made, display) or fresh

    def save(self, at: _Progress) -> None:
        """Saves it."""
        checkpoints.save(self._path, {"key": self._key, "progress": at})
