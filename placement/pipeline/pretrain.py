"""The `pretrain` task: training of one policy on many graphs, for unseen graphs.

Writes policy.msgpack, which the setting `init_from` reads: the method `zero_shot` places with it
directly, and learned methods start from it. The policy is trained on members of families
(`placement.zoo.families`) on described devices, under one objective, and sees no graph of any other
family. An update learns from one graph; the graphs take turns.
"""

import functools
import hashlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jraph
import numpy as np

from placement import arguments, simulators
from placement.costs import roofline
from placement.errors import UserError
from placement.graphs import batching
from placement.learning import base, mesh
from placement.methods import learned, pretrained
from placement.methods.checkpoints import restored
from placement.pipeline import checkpoints, loading, workdirs
from placement.pipeline.console import metrics, progress
from placement.pipeline.settings import Settings
from placement.reporting import runs
from placement.simulators import list_schedule
from placement.types import Array, Status
from placement.zoo import families

_METHOD, _OBJECTIVE = "scheduler", "makespan"  # that can be trained on many graphs
# Padded operations and edges: three sizes, each compiled once. Larger graphs are left out, because
# a policy trained on a thousand operations also works on more.
_SIZES = ((128, 256), (512, 1024), (1280, 2560))
_SAVE_INTERVAL_S = 20.0


class _Graph(NamedTuple):
    """A graph to learn from, padded."""

    graph: jraph.GraphsTuple
    tables: simulators.Tables
    reference_s: np.ndarray  # float32 []: latency of the fastest single device, the unit of rewards


class _Progress(NamedTuple):
    """The progress of training, saved to continue from."""

    state: base.State
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
    method = learned.make(settings.method, len(device_sets[0]))
    family_names = arguments.split_list(settings.families)
    for family in family_names:
        arguments.check_choice("family", family, families.names())
    arguments.check_range("members", settings.members, 1)
    seeds = range(settings.seed, settings.seed + settings.members)
    texts = [families.draw(family, seed) for seed in seeds for family in family_names]
    workdirs.claim(workdir, display)
    runs.write_json(workdir / "config.json", settings.to_dict())
    with display.phase("reading graphs"):
        graphs = _read_graphs(settings, texts, device_sets, method, display)
    record = _train(settings, workdir, method, graphs, display)
    record |= {
        "objective": settings.objective,
        "families": settings.families,
        "devices": device_texts,
        "graphs": texts,
    }
    runs.write_json(workdir / "pretraining.json", record)
    display.console.print(f"policy: {workdir / pretrained.FILE}", markup=False, soft_wrap=True)
    return record


def _read_graphs(
    settings: Settings,
    texts: list[str],
    device_sets: list[tuple[str, ...]],
    method: learned.Method,
    display: progress.Display,
) -> list[_Graph]:
    """Returns the graphs on each set of devices, without those that are too large."""
    graphs = []
    for text in texts:
        net = loading.build_graph_network(text, constants=settings.constants)
        for names in device_sets:
            costs = roofline.cost_model(net.graph, names)
            problem = loading.make_problem(net, costs, names, settings.objective)
            num_ops, num_edges = problem.graph.num_ops, problem.graph.num_edges
            fitting = [size for size in _SIZES if num_ops < size[0] and num_edges < size[1]]
            if not fitting:
                display.detail(f"left out, too large: {text}")
                continue
            num_nodes, num_edges = fitting[0]
            num_steps = num_nodes + num_edges // list_schedule.WIDTH
            sizes = batching.Sizes(num_ops, num_nodes, num_edges, num_steps)
            graph = method.read(problem, num_nodes=num_nodes, num_edges=num_edges).graph
            # Finite also where no single device has enough memory.
            reference_s = np.min(problem.evaluate_penalised(problem.single_devices))
            graphs.append(_Graph(graph, problem.build_tables(sizes), np.asarray(reference_s)))
    if not graphs:
        raise UserError(
            f"no member has fewer than {_SIZES[-1][0]} coarse operations; set other families, or "
            "more members"
        )
    return graphs


@functools.partial(jax.jit, static_argnums=(0, 1))
def _learn(
    learner: base.Learner,
    simulate: Callable[[simulators.Tables, Array], simulators.Outcome],
    state: base.State,
    graph: _Graph,
) -> tuple[base.State, dict[str, Any]]:
    """Draws placements of a graph, simulates them and learns from them once.

    Returns:
      The state, and the learner's metrics with `ratio`, the fastest sample's latency over that of
      the fastest single device, and `evaluated`, the number of simulated placements.
    """
    state, samples = learner.sample(state, graph.graph)
    placements = samples.placement.reshape(-1, samples.placement.shape[-1])
    outcome: simulators.Outcome = mesh.shard_map(simulate, graph.tables, placements)
    latency_s = outcome.penalised_s().reshape(samples.log_prob.shape)
    state, metrics = learner.update(state, graph.graph, samples, latency_s, graph.reference_s)
    ratio = latency_s.min() / graph.reference_s
    return state, metrics | {"ratio": ratio, "evaluated": len(placements)}


def _train(
    settings: Settings,
    workdir: Path,
    method: learned.Method,
    graphs: list[_Graph],
    display: progress.Display,
) -> dict[str, Any]:
    """Trains on all graphs again and again, in a new order each time, until a limit.

    Returns the outcome, for pretraining.json.
    """
    path = workdir / "pretraining.msgpack"
    limits = ("budget", "time_limit_s")  # may differ when a run continues another
    identity = {k: v for k, v in settings.to_dict().items() if k not in limits}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    state = method.learner.init(jax.random.PRNGKey(settings.seed), graphs[0].graph)
    simulate = simulators.get_objective(settings.objective).simulate
    fresh = _Progress(state, 0.0, 0)

    def restore(content: dict[str, Any]) -> _Progress:
        return restored(fresh, content["progress"]) if content["key"] == key else fresh

    current, stop = checkpoints.restore(path, restore, display) or fresh, threading.Event()
    with (
        display.phase(f"pretraining {settings.method}") as phase,
        metrics.Log(
            *(workdir, settings.method, settings.seed),
            step=int(current.state.updates),
            evaluations=current.evaluations,
        ) as log,
        progress.stop_on_interrupt(display, stop),
    ):
        phase.goal = progress.Goal(settings.budget, settings.time_limit_s, spent_s=current.spent_s)
        start_s = time.monotonic() - current.spent_s
        saved_s, ratios = time.monotonic(), list[float]()
        while not stop.is_set() and current.evaluations < settings.budget:
            if current.spent_s > settings.time_limit_s:
                break
            phase.note("" if ratios else "compiling")
            # Each pass visits all graphs once, in another order.
            epoch, position = divmod(int(current.state.updates), len(graphs))
            order = np.random.default_rng([settings.seed, epoch]).permutation(len(graphs))
            graph = graphs[order[position]]
            state, report = _learn(method.learner, simulate, current.state, graph)
            record = {name: float(value) for name, value in report.items()}
            evaluations = current.evaluations + int(record.pop("evaluated"))
            spent_s = time.monotonic() - start_s
            current = _Progress(state, spent_s, evaluations)
            ratios = [*ratios, record["ratio"]][-len(graphs) :]
            log.add({"step": int(state.updates), "evaluations": evaluations} | record, spent_s)
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
        # Over the last pass through all graphs: the geometric mean of each graph's best sample
        # over its fastest single device.
        "ratio": float(np.exp(np.mean(np.log(ratios)))) if ratios else None,
        "elapsed_s": current.spent_s,
        "status": Status.FINISHED if current.evaluations >= settings.budget else status,
    }
