"""From a configuration to the objects of an experiment: the one place that wires everything."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jraph
import numpy as np
from ml_collections import ConfigDict

from placement import simulators, zoo
from placement.costs import tables, workloads
from placement.graphs import batching, coarsen, features, opgraph
from placement.learning import base, ppo, reinforce
from placement.policies import hsdag
from placement.runtime import extract, frontend
from placement.types import Array, CostModel, Evaluate, OpGraph, Policy, Problem
from placement.zoo import synthetic

EVALUATE = ("simulate", "measure", "simulate+verify")
FEATURES = ("op_type", "degrees", "fractal", "positional", "output_shape")

# HSDAG's hyper-parameters: of the policy, and of the learner. 'paper' and 'released' have episodes
# of 20 steps, discount 0.95, reward 1/latency and Adam at 1e-3, as the authors; both place groups.
# 'released' keeps what its update does otherwise: one rollout, no baseline, no clipping, and
# single-device placements that take 1e10 seconds. 'tuned' is what measures best here: one step,
# many samples, a device for every operation, which sees its own embedding and its group's, and PPO:
# `python -m experiments.benchmark learning` prints it beside REINFORCE.
_EPISODE = {"levels": 8, "threshold": 0.5, "decide": "group", "episode_steps": 20}
_INVERSE = {
    "algorithm": "reinforce",
    "learning_rate": 1e-3,
    "reward": "inverse",
    "discount": 0.95,
    "entropy_weight": 0.0,
}
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tuned": (
        {"levels": 1, "threshold": 0.5, "decide": "operation"},
        {"algorithm": "ppo", "entropy_weight": 0.2},
    ),
    "paper": (_EPISODE, _INVERSE | {"num_samples": 8}),
    "released": (
        _EPISODE,
        _INVERSE | {"num_samples": 1, "baseline": "none", "max_grad_norm": float("inf")},
    ),
}
RELEASED_SINGLE_DEVICE_S = 1e10
ALGORITHMS: dict[str, Callable[..., base.Learner]] = {
    "reinforce": reinforce.make,
    "ppo": ppo.make,
}
PPO_ALONE = ("epochs", "num_minibatches", "clip")


class Network(NamedTuple):
    """A model and its graphs."""

    model: Any  # ov.Model: static, folded, uniquely named; None of a workload or synthetic graph
    graph: OpGraph  # as configured: the full view or the one without constants
    coarsening: coarsen.Coarsening
    estimated: dict[str, int]  # operation type -> operations whose FLOPs are an estimate
    workload: workloads.Workload | None = None  # with devices and costs of its own


class Setting(NamedTuple):
    """What searches work on: the problem in full and coarsened, and its simulator."""

    full: Problem
    coarse: Problem
    assignment: np.ndarray  # int32 [N]
    simulate: Evaluate  # of coarse placements


def check(config: ConfigDict) -> None:
    """Refuses what no experiment can be run with, before anything is loaded.

    Raises:
      ValueError: one line: what was given, what is valid.
    """
    among("objective", config.objective, tuple(simulators.OBJECTIVES))
    among("evaluate", config.evaluate, EVALUATE)
    among("variant", config.variant, tuple(VARIANTS))
    for name in feature_names(config):
        among("feature", name, FEATURES)
    for key in ("budget", "time_limit_s", "measure_s"):
        if not config[key] > 0:
            raise ValueError(f"{key}={config[key]} leaves nothing to run; give {key} > 0")


def among(kind: str, value: str, valid: tuple[str, ...]) -> None:
    """Refuses a value that is not among the valid ones, with a ValueError that names them."""
    if value not in valid:
        raise ValueError(f"unknown {kind} {value!r}; valid: {', '.join(valid)}")


def names(text: str) -> tuple[str, ...]:
    """The entries of a comma list."""
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


def graph_names(text: str) -> tuple[str, ...]:
    """The entries of a comma list of graphs, whose arguments may hold commas themselves.

    'resnet50,nmt:layers=2,steps=30' is two: what looks like KEY=VALUE belongs to the one before.
    """
    found: list[str] = []
    for entry in names(text):
        if found and ":" in found[-1] and re.fullmatch(r"\w+=[^:/]*", entry):
            found[-1] += f",{entry}"
        else:
            found.append(entry)
    return tuple(found)


def feature_names(config: ConfigDict) -> tuple[str, ...]:
    """The blocks of node features that are switched on."""
    return names(config.features)


def network(config: ConfigDict) -> Network:
    """Loads or builds the configured model, or reads the configured workload.

    Raises:
      ValueError: no such graph, an unreadable file, dynamic inputs without shapes.
    """
    if config.graph.endswith(".json"):
        return _workload(config)
    if config.graph.split(":")[0] == synthetic.NAME:
        graph = synthetic.build(config.graph)
        return Network(None, graph, coarsen.coarsen(graph), {})
    model = frontend.prepare(_source(config.graph), config.input_shapes)
    name = os.path.splitext(os.path.basename(config.graph))[0]
    extraction = extract.op_graph(model, name=name, constants=config.constants)
    return Network(model, extraction.graph, coarsen.coarsen(extraction.graph), extraction.estimated)


def _workload(config: ConfigDict) -> Network:
    """A workload file's graph is not coarsened: that would lose placements, and optima with them.

    Its co-located operations follow the first of them instead (`coarsen.lift` by representatives).
    """
    path = Path(config.graph)
    try:
        data = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"cannot read workload {config.graph!r}: {error}") from error
    read = workloads.from_json(data, name=path.stem, objective=config.objective)
    graph = read.graph
    representatives = opgraph.representatives(graph)
    edges = np.arange(graph.num_edges, dtype=np.int32)
    return Network(None, graph, coarsen.Coarsening(graph, representatives, edges), {}, read)


def _source(graph: str) -> Any:  # ov.Model
    is_path = os.sep in graph or os.path.splitext(graph)[1] != ""
    if graph in zoo.names() or not is_path:
        return zoo.build(graph)
    return frontend.load(graph)


def setting(
    net: Network,
    costs: CostModel,
    devices: tuple[str, ...],
    objective: str,
) -> Setting:
    """The problem that the searches of a run share."""
    coarsening = net.coarsening
    full = Problem(net.graph, costs, objective, devices)
    if coarsening.graph is net.graph:
        representatives, simulate = coarsening.assignment, simulators.evaluator(full)
        return Setting(full, full, representatives, lambda p: simulate(p[..., representatives]))
    coarse_costs = tables.coarse_costs(costs, coarsening.assignment, coarsening.edges)
    coarse = Problem(coarsening.graph, coarse_costs, objective, devices)
    return Setting(full, coarse, coarsening.assignment, simulators.evaluator(coarse))


def allowed(problem: Problem) -> np.ndarray:
    """bool [N, D]: the devices that can run an operation and all that are co-located with it."""
    finite = np.isfinite(np.asarray(problem.costs.compute_s))
    representatives = opgraph.representatives(problem.graph)
    together = np.ones_like(finite)
    np.logical_and.at(together, representatives, finite)
    return together[representatives]


def policy_graph(problem: Problem, config: ConfigDict) -> jraph.GraphsTuple:
    """The padded graph with features that policies read.

    Of co-located operations only the first decides.
    """
    chosen = feature_names(config)
    node_features = features.node_features(
        problem.graph, **{name: name in chosen for name in FEATURES}
    )
    graph = batching.to_graphs_tuple(problem.graph, node_features, allowed(problem))
    num_ops = problem.graph.num_ops
    decides = opgraph.representatives(problem.graph) == np.arange(num_ops)
    graph.nodes["mask"][:num_ops] = decides
    return jax.device_put(graph)


def learner(config: ConfigDict, num_devices: int) -> tuple[Policy, base.Learner]:
    """HSDAG in the configured variant, single hyper-parameters overridden.

    Raises:
      ValueError: no such algorithm, a hyper-parameter that it does not have, an impossible value.
    """
    policy_defaults, learner_defaults = VARIANTS[config.variant]
    policy = hsdag.make(num_devices=num_devices, **policy_defaults | _given(config.policy))
    if config.evaluate == "measure":  # a step must fit into the budget that devices allow
        learner_defaults = {"num_samples": 8} | learner_defaults
    chosen = learner_defaults | _given(config.learner)
    algorithm = chosen.pop("algorithm")
    among("algorithm", algorithm, tuple(ALGORITHMS))
    own = {key: chosen.pop(key) for key in PPO_ALONE if key in chosen}
    if own and algorithm != "ppo":
        raise ValueError(
            f"learner.{next(iter(own))} is a hyper-parameter of ppo; leave it out, or give "
            "learner.algorithm=ppo"
        )
    return policy, ALGORITHMS[algorithm](policy, base.Settings(**chosen), **own)


def _given(overrides: ConfigDict) -> dict[str, Any]:
    return {key: value for key, value in overrides.items() if value is not None}


def penalised(evaluate: Evaluate) -> Evaluate:
    """Evaluation as in HSDAG's released code: a single-device placement takes 1e10 seconds."""

    def wrapped(placements: Array) -> Array:
        placements = np.asarray(placements)
        single = (placements == placements[:, :1]).all(axis=1)
        return np.where(
            single, np.float32(RELEASED_SINGLE_DEVICE_S), np.asarray(evaluate(placements))
        )

    return wrapped


def affinity(setting_: Setting, placement: np.ndarray) -> dict[str, str]:
    """Operation name -> device name, of a coarse placement int32 [M]."""
    lifted = coarsen.lift(setting_.assignment, placement)
    return {
        name: setting_.full.devices[device]
        for name, device in zip(setting_.full.graph.op_names, lifted, strict=True)
    }
