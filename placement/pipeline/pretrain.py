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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
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
from placement.types import Status
from placement.zoo import families

_METHOD, _OBJECTIVE = "scheduler", "makespan"  # that can be trained on many graphs
# Padded operations and edges of a batch. Larger graphs are left out: a batch takes as long as its
# largest graph, and a policy trained on a thousand operations also works on more.
_SIZES = ((128, 256), (512, 1024), (1280, 2560))
_BATCH_SIZE = 4  # graphs
_SAVE_INTERVAL_S = 20.0


class _Progress(NamedTuple):
    """The progress of training, saved to continue from."""

    state: base.State
    batches: int  # learned from
    spent_s: float
    evaluations: int


def run(
    settings: Settings, workdir: Path, display: progress.Display = progress.DEFAULT_DISPLAY
) -> dict[str, Any]:
    """Trains until the budget or the time is spent, or Ctrl-C; the same command continues."""
    loading.check_settings(settings)
    name, _ = arguments.split_arguments(settings.method, "method")
    arguments.check_choice("method to pretrain", name, (_METHOD,))
    arguments.check_choice("objective to pretrain for", settings.objective, (_OBJECTIVE,))
    device_texts = tuple(filter(None, settings.devices.split(";")))
    device_sets = [roofline.parse_devices(devices) for devices in device_texts]
    method = learned.make(settings.method, len(device_sets[0]), wrap_policy=batched.batch_policy)
    family_names = arguments.split_list(settings.families)
    for family in family_names:
        arguments.check_choice("family", family, families.names())
    arguments.check_range("members", settings.members, 1)
    seeds = range(settings.seed, settings.seed + settings.members)
    graphs = [families.draw(family, seed) for seed in seeds for family in family_names]
    workdirs.claim(workdir, display)
    runs.write_json(workdir / "config.json", settings.to_dict())
    with display.phase("reading graphs"):
        batches = _make_batches(settings, graphs, device_sets, method, display)
    record = _train(settings, workdir, method, batches, display)
    record |= {
        "objective": settings.objective,
        "families": settings.families,
        "devices": device_texts,
        "graphs": graphs,
    }
    runs.write_json(workdir / "pretraining.json", record)
    display.console.print(f"policy: {workdir / pretrained.FILE}", markup=False, soft_wrap=True)
    return record


def _make_batches(
    settings: Settings,
    graphs: list[str],
    device_sets: list[tuple[str, ...]],
    method: learned.Method,
    display: progress.Display,
) -> list[batched.Stack]:
    """Returns batches of the graphs on each set of devices, grouped by padded shapes."""
    graphs_by_shape: dict[str, list[batched.Stack]] = {}
    for text in graphs:
        net = loading.build_graph_network(text, constants=settings.constants)
        for names in device_sets:
            costs = roofline.cost_model(net.graph, names)
            problem = loading.make_problem(net, costs, names, settings.objective)
            num_ops, num_edges = problem.graph.num_ops, problem.graph.num_edges
            sizes = [size for size in _SIZES if num_ops < size[0] and num_edges < size[1]]
            if not sizes:
                display.detail(f"left out, too large: {text}")
                continue
            graph = method.read(problem, num_nodes=sizes[0][0], num_edges=sizes[0][1]).graph
            prepared = batched.prepare(graph, problem)
            shapes = str(jax.tree.map(np.shape, prepared))
            graphs_by_shape.setdefault(shapes, []).append(prepared)
    if not graphs_by_shape:
        raise UserError(
            f"no member has fewer than {_SIZES[-1][0]} coarse operations; set other families, or "
            "more members"
        )
    batches = []
    for members in graphs_by_shape.values():
        for first in range(0, len(members), _BATCH_SIZE):
            batch = members[first : first + _BATCH_SIZE]
            # An incomplete batch is filled with graphs of other batches.
            batch += [members[i % len(members)] for i in range(_BATCH_SIZE - len(batch))]
            batches.append(batched.stack(batch))
    return batches


def _train(
    settings: Settings,
    workdir: Path,
    method: learned.Method,
    batches: list[batched.Stack],
    display: progress.Display,
) -> dict[str, Any]:
    """Trains on all batches again and again, in a new order each time, until a limit.

    Returns the outcome, for pretraining.json.
    """
    path = workdir / "pretraining.msgpack"
    limits = ("budget", "time_limit_s")  # may differ when a run continues another
    identity = {k: v for k, v in settings.to_dict().items() if k not in limits}
    text = json.dumps(identity, sort_keys=True, default=str)
    key = hashlib.sha256(text.encode()).hexdigest()
    state = method.learner.init(jax.random.PRNGKey(settings.seed), batches[0].graphs)
    fresh = _Progress(state, 0, 0.0, 0)

    def restore(content: dict[str, Any]) -> _Progress:
        return restored(fresh, content["progress"]) if content["key"] == key else fresh

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
        saved_s, ratios = time.monotonic(), list[float]()
        order = _batch_order(settings.seed, len(batches), current.batches)
        while not stop.is_set() and current.evaluations < settings.budget:
            if current.spent_s > settings.time_limit_s:
                break
            batch = batches[next(order)]
            size = np.shape(batch.graphs.nodes["mask"])[1]
            phase.note(f"compiling for {_BATCH_SIZE} graphs of {size}" if not ratios else "")
            state, report = batched.train_step(method.learner, current.state, batch)
            record = {name: float(value) for name, value in report.items()}
            evaluations = current.evaluations + int(record.pop("evaluated"))
            spent_s = time.monotonic() - start_s
            current = _Progress(state, current.batches + 1, spent_s, evaluations)
            ratios = [*ratios, record["ratio"]][-len(batches) :]
            log.add({"step": current.batches, "evaluations": evaluations} | record, spent_s)
            phase.update(evaluations)
            if time.monotonic() - saved_s > _SAVE_INTERVAL_S:
                saved_s = time.monotonic()
                checkpoints.save(path, {"key": key, "progress": current})
    checkpoints.save(path, {"key": key, "progress": current})
    policy = {"method": settings.method, "params": current.state.params}
    checkpoints.save(workdir / pretrained.FILE, policy)
    status = Status.INTERRUPTED if stop.is_set() else Status.TIME_LIMIT
    return {
        "updates": int(current.state.updates),
        "evaluations": current.evaluations,
        # Over the last pass through all batches: the geometric mean of each graph's best sample
        # over its fastest single device.
        "ratio": float(np.exp(np.mean(np.log(ratios)))) if ratios else None,
        "elapsed_s": current.spent_s,
        "status": Status.FINISHED if current.evaluations >= settings.budget else status,
    }


def _batch_order(seed: int, count: int, num_done: int) -> Iterator[int]:
    """Yields indices of batches after the first `num_done`; each pass visits all of them once."""
    epoch, position = divmod(num_done, count)
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(count)
        yield from order[position:].tolist()
        epoch, position = epoch + 1, 0
