"""The `pretrain` task: training of one policy on many graphs, for unseen graphs.

Writes policy.msgpack, which the setting `init_from` reads: the method `zero_shot` places with it
directly, and learned methods start from it. The policy is trained on members of families
(`placement.zoo.families`) on described devices, under one objective, and sees no graph of any other
family.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jraph
import numpy as np

from placement import arguments
from placement.costs import roofline
from placement.errors import UserError
from placement.learning import base, batched
from placement.methods import learned, pretrained
from placement.methods.checkpoints import restored
from placement.pipeline import checkpoints, loading, workdirs
from placement.pipeline.console import metrics, progress
from placement.pipeline.settings import Settings
from placement.reporting import runs
from placement.simulators import OBJECTIVES
from placement.types import Policy, Status
from placement.zoo import families


class _Training(NamedTuple):
    """The pretraining of a policy."""

    batch_policy: Callable[[Policy], Policy] | None  # None: it places one graph at a time
    learn: Callable[..., tuple[base.State, base.Metrics]]  # from a batch
    objectives: tuple[str, ...]


_POLICIES = {
    "scheduler": _Training(batched.batch_policy, batched.train_step, ("makespan",)),
    "hsdag": _Training(None, batched.train_by_local_search, tuple(OBJECTIVES)),
}
# Padded operations and edges of a batch. Larger graphs are left out: a batch takes as long as its
# largest graph, and a policy trained on a thousand operations also works on more.
_SIZES = ((128, 256), (512, 1024), (1280, 2560))
_BATCH_SIZE = 4  # graphs
_SAVE_INTERVAL_S = 20.0


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Trains until the budget or the time is spent, or Ctrl-C; the same command continues."""
    loading.check_settings(settings)
    name, _ = arguments.split_arguments(settings.method, "method")
    arguments.check_choice("method to pretrain", name, tuple(_POLICIES))
    objectives = _POLICIES[name].objectives
    arguments.check_choice(f"objective to pretrain {name} for", settings.objective, objectives)
    device_texts = tuple(filter(None, settings.devices.split(";")))
    device_sets = [roofline.parse_devices(devices) for devices in device_texts]
    method = _make_method(settings.method, len(device_sets[0]))
    family_names = arguments.split_list(settings.families)
    for family in family_names:
        arguments.check_choice("family", family, families.names())
    arguments.check_range("members", settings.members, 1)
    seeds = range(settings.seed, settings.seed + settings.members)
    texts = [families.draw(family, seed) for seed in seeds for family in family_names]
    workdirs.claim(workdir, display)
    runs.write_json(workdir / "config.json", settings.to_dict())
    job = {
        "method": settings.method,
        "graphs": texts,
        "constants": settings.constants,
        "devices": list(map(list, device_sets)),
        "objective": settings.objective,
    }
    with display.phase("reading graphs"):
        batches = _make_batches(job, method, display)
    record = _train(settings, workdir, method, batches, display)
    record |= {
        "objective": settings.objective,
        "families": settings.families,
        "devices": device_texts,
        "graphs": texts,
    }
    runs.write_json(workdir / "pretraining.json", record)
    display.console.print(f"policy: {workdir / pretrained.FILE}", markup=False, soft_wrap=True)
    return record


def _make_method(text: str, num_devices: int) -> learned.Method:
    batch_policy = _POLICIES[text.split(":")[0]].batch_policy
    return learned.make(text, num_devices, False, wrap_policy=batch_policy)


def _example(text: str, batches: list[batched.Stack]) -> jraph.GraphsTuple:
    """Returns an input of the policy, for its initialisation: a batch of graphs, or one graph."""
    graphs, training = batches[0].graphs, _POLICIES[text.split(":")[0]]
    return graphs if training.batch_policy else jax.tree.map(lambda leaf: leaf[0], graphs)


def _initialise(
    text: str, method: learned.Method, batches: list[batched.Stack], seed: int
) -> base.State:
    state = method.learner.init(jax.random.PRNGKey(seed), _example(text, batches))
    return state._replace(local_search=None)  # belongs to a single graph


def _make_batches(
    job: dict[str, Any], method: learned.Method, display: progress.Display
) -> list[batched.Stack]:
    """Returns batches of the job's graphs on each set of devices, grouped by padded shapes."""
    graphs_by_shape: dict[str, list[batched.Stack]] = {}
    for text in job["graphs"]:
        net = loading.build_graph_network(text, constants=job["constants"])
        for names in map(tuple, job["devices"]):
            costs = roofline.cost_model(net.graph, names)
            problem = loading.make_search_problem(net, costs, names, job["objective"]).coarse
            num_ops, num_edges = problem.graph.num_ops, problem.graph.num_edges
            sizes = [size for size in _SIZES if num_ops < size[0] and num_edges < size[1]]
            if not sizes:
                display.detail(f"left out, too large: {text}")
                continue
            size = sizes[0]
            graph = method.read(problem, num_nodes=size[0], num_edges=size[1]).graph
            prepared = batched.prepare(graph, problem)
            graphs_by_shape.setdefault(prepared.shapes, []).append(prepared)
    if not graphs_by_shape:
        raise UserError(
            f"no member has fewer than {_SIZES[-1][0]} coarse operations; set other families, or "
            "more members"
        )
    batches = []
    for graphs in graphs_by_shape.values():
        for first in range(0, len(graphs), _BATCH_SIZE):
            batch = graphs[first : first + _BATCH_SIZE]
            # An incomplete batch is filled with graphs of other batches.
            batch += [graphs[i % len(graphs)] for i in range(_BATCH_SIZE - len(batch))]
            batches.append(batched.stack(batch))
    return batches


class _Progress(NamedTuple):
    """The progress of training, saved to continue from."""

    state: base.State
    batches: int  # learned from
    spent_s: float
    evaluations: int


def _train(
    settings: Settings,
    workdir: Path,
    method: learned.Method,
    batches: list[batched.Stack],
    display: progress.Display,
) -> dict[str, Any]:
    """Trains on all batches again and again, in a new order each time, until a limit.

    Returns:
      The outcome, for pretraining.json.
    """
    learn = _POLICIES[settings.method.split(":")[0]].learn
    path = workdir / "pretraining.msgpack"
    limits = ("budget", "time_limit_s")  # may differ when a run continues another
    identity = {k: v for k, v in settings.to_dict().items() if k not in limits}
    text = json.dumps(identity, sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()
    fresh = _Progress(_initialise(settings.method, method, batches, settings.seed), 0, 0.0, 0)

    def restore(content: dict[str, Any]) -> _Progress:
        return restored(fresh, content["progress"]) if content["key"] == key else fresh

    def save(current: _Progress) -> None:
        checkpoints.save(path, {"key": key, "progress": current})

    current, stop = checkpoints.restore(path, restore, display) or fresh, threading.Event()
    with (
        display.phase(f"pretraining {settings.method}") as phase,
        metrics.Log(
            *(workdir, settings.method, settings.seed),
            step=current.batches,
            evaluations=current.evaluations,
        ) as log,
        progress.stop_on_interrupt(display, stop),
    ):
        phase.goal = progress.Goal(settings.budget, settings.time_limit_s, spent_s=current.spent_s)
        start_s = time.monotonic() - current.spent_s
        saved_s, ratios, status = time.monotonic(), list[float](), None
        order = _batch_order(settings.seed, len(batches), current.batches)
        while status is None:
            if current.evaluations >= settings.budget:
                status = Status.FINISHED
            elif stop.is_set():
                status = Status.INTERRUPTED
            elif current.spent_s > settings.time_limit_s:
                status = Status.TIME_LIMIT
            else:
                index = next(order)
                size = np.shape(batches[index].graphs.nodes["mask"])[1]
                phase.note(f"compiling for {_BATCH_SIZE} graphs of {size}" if not ratios else "")
                batch = batches[index]
                state, report = learn(method.learner, current.state, batch)
                record = {name: float(value) for name, value in report.items()}
                evaluations = current.evaluations + int(record.pop("evaluated"))
                current = _Progress(
                    state, current.batches + 1, time.monotonic() - start_s, evaluations
                )
                ratios = [*ratios, record["ratio"]][-len(batches) :]
                step = {"step": current.batches, "evaluations": evaluations}
                log.add(step | record, current.spent_s)
                phase.update(evaluations)
                if time.monotonic() - saved_s > _SAVE_INTERVAL_S:
                    saved_s = time.monotonic()
                    save(current)
    save(current)
    checkpoints.save_policy(workdir / pretrained.FILE, settings.method, current.state.params)
    return {
        "updates": int(current.state.updates),
        "evaluations": current.evaluations,
        # Over the last pass through all batches: the geometric mean of each graph's best sample
        # over its fastest single device.
        "ratio": float(np.exp(np.mean(np.log(ratios)))) if ratios else None,
        "elapsed_s": current.spent_s,
        "status": status,
    }


def _batch_order(seed: int, count: int, num_done: int) -> Iterator[int]:
    """Yields indices of batches after the first `num_done`; each pass visits all of them once."""
    epoch, position = divmod(num_done, count)
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(count)
        yield from order[position:].tolist()
        epoch, position = epoch + 1, 0
