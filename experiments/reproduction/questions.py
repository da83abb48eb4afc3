"""Searches that answer two questions of docs/QUESTIONS.md: on roles, and on objectives.

    python -m experiments.reproduction.questions roles
    python -m experiments.reproduction.questions objectives

Each prints its results as a JSON list, which `table_readers` reads. The graphs are those of
docs/REPRODUCTION.md with headroom, on `roofline:cpu,gpu,gpu`; `roles` uses the recurrent ones. All
latencies are `makespan`. All searches have equal evaluations, so a busy machine changes nothing.

`roles` searches with the graph's own operation names, with meaningless names, and with names made
of the colours of `placement.graphs.roles`; and then with one decision for all operations of a role.

`objectives` compares the makespan of placements that partitioners find. One of them is improved by
the moves of `search` under the partitioner's own objective (`balanced_cut`). From each placement,
from the best single device and from the result of `search` another search then minimises makespan.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from experiments.benchmarks.cells import describe_problem
from placement import simulators
from placement.graphs import roles
from placement.instance import Instance
from placement.search import block_search, multistart
from placement.solvers.heuristics import large_neighbourhood, partition
from placement.solvers.limits import SearchLimits
from placement.types import OpGraph

RECURRENT = "rnnlm", "nmt:layers=2"
GRAPHS = (*RECURRENT, *(f"synthetic:family={f},ops=300" for f in ("layered", "series_parallel")))
BUDGETS = 2_000, 8_000
_DEVICES = "roofline:cpu,gpu,gpu"
_ROLES_SEEDS, _OBJECTIVES_SEEDS = range(8), range(5)
_IMBALANCE = 0.03  # METIS's and KaHIP's
_UNLIMITED_S = 3600.0


class RolesResult(NamedTuple):
    """The latencies that `search` reached with some roles."""

    graph: str
    roles: str  # how operations of a role are recognised
    decisions: int  # operations, or groups of them, that are placed independently
    budget: int
    best_s: list[float]  # of each seed


class ObjectiveResult(NamedTuple):
    """The makespan of placements that a method found for some objective; means over seeds."""

    graph: str
    found_by: str
    cut_bytes: float
    makespan_s: float
    refined_s: float  # the makespan after a search that starts from the placement
    single_s: float  # of the best single device


def compare_roles() -> Iterator[RolesResult]:
    """Yields the results of `search` for each kind of roles."""
    for graph_name in RECURRENT:
        problem = describe_problem(graph_name, _DEVICES, constants=True).coarse
        for title, graph in label_roles(problem.graph):
            decisions = len(np.unique(graph.colocation))
            labelled = problem._replace(graph=graph)
            for budget in BUDGETS:
                placements = [_search(labelled, seed, budget) for seed in _ROLES_SEEDS]
                best_s = [problem.value_s(placement) for placement in placements]
                yield RolesResult(graph_name, title, decisions, budget, best_s)


def compare_objectives() -> Iterator[ObjectiveResult]:
    """Yields the makespans of placements that were found for several objectives."""
    for graph_name in GRAPHS:
        problem = describe_problem(graph_name, _DEVICES, constants=True).coarse
        num_ops, num_devices = problem.costs.compute_s.shape
        singles = [np.full(num_ops, device, np.int32) for device in range(num_devices)]
        singles_s = [problem.value_s(placement) for placement in singles]
        fastest = singles[int(np.argmin(singles_s))]
        for title, place in _placers(problem, fastest).items():
            rows = [_evaluate(problem, place(seed), seed) for seed in _OBJECTIVES_SEEDS]
            cut_bytes, makespan_s, refined_s = np.mean(rows, axis=0).tolist()
            yield ObjectiveResult(
                graph_name, title, cut_bytes, makespan_s, refined_s, min(singles_s)
            )


def _placers(
    problem: Instance, single_device: np.ndarray
) -> dict[str, Callable[[int], np.ndarray]]:
    """Returns functions from a seed to a placement, by title."""

    def min_cut(seed: int) -> np.ndarray:
        return partition.min_cut(problem, seed=seed)

    def improve_min_cut(seed: int) -> np.ndarray:
        # Only the chains of `search`: all of it would begin with an integer program of minutes.
        cut = balanced_cut(problem)
        simulate = simulators.get_objective(cut.objective).simulate_columns
        space, state = multistart.start_chains(cut, min_cut(seed)[None], seed)
        num_steps = BUDGETS[-1] // block_search.NUM_PROPOSALS
        chains = block_search.advance(simulate, space, state, num_steps).chains
        assert np.isfinite(chains.best_latency_s)
        return np.asarray(chains.best_placement)

    return {
        "best single device": lambda seed: single_device,
        "`kahip`": lambda seed: partition.kahip(problem, seed=seed),
        "`metis`": lambda seed: partition.metis(problem, seed=seed),
        "`min_cut`": min_cut,
        "`min_cut`, then blocks": improve_min_cut,
        "`search`": lambda seed: _search(problem, seed, BUDGETS[-1]),
    }


def balanced_cut(problem: Instance) -> Instance:
    """Expresses the problem of `min_cut`: fewest bytes cut, each accelerator with its load share.

    It is an instance of `serial`: computing takes no time and a byte one second, so the latency is
    the number of bytes cut. An operation's memory is its load, and a device's capacity its share of
    all loads. Weights and shares are those of `placement.solvers.heuristics.partition`, without
    co-location, for operations that all devices support.
    """
    graph, costs = problem.graph, problem.costs
    compute_s = np.asarray(costs.compute_s, np.float64)
    is_accelerator = np.asarray(costs.accelerator) >= 0
    load = compute_s[:, is_accelerator].mean(axis=1)
    speed = is_accelerator / compute_s.sum(axis=0)
    no_copies = np.zeros(0, np.int32)
    off_diagonal = 1 - np.eye(len(speed), dtype=np.float32)
    return problem._replace(
        graph=dataclasses.replace(
            graph,
            tensors=np.arange(graph.num_edges, dtype=np.int32),
            # The memory of copied constants is no load.
            copy_sources=no_copies,
            copy_readers=no_copies,
            copy_constants=no_copies,
            copy_bytes=no_copies,
        ),
        costs=costs._replace(
            compute_s=np.zeros_like(compute_s, np.float32),
            transfer_latency_s=0 * off_diagonal,
            transfer_s_per_byte=off_diagonal,
            transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
            fusion_loss_s=np.zeros(graph.num_edges, np.float32),
            memory_bytes=(load / load.sum()).astype(np.float32),
            capacity_bytes=((1 + _IMBALANCE) * speed / speed.sum()).astype(np.float32),
        ),
        objective="serial",
    )


def _evaluate(problem: Instance, placement: np.ndarray, seed: int) -> list[float]:
    """Returns the bytes cut, the makespan, and the makespan after a search from there."""
    graph = problem.graph
    is_cut = placement[graph.senders] != placement[graph.receivers]
    limits = SearchLimits(_UNLIMITED_S, BUDGETS[-1])
    refined = large_neighbourhood.polish(problem, placement, seed, limits).placement
    assert refined is not None
    cut_bytes = float(graph.edge_bytes[is_cut].sum())
    return [cut_bytes, problem.value_s(placement), problem.value_s(refined)]


def label_roles(graph: OpGraph) -> Iterator[tuple[str, OpGraph]]:
    """Yields the graph with names and co-location that tell as much about roles as each title."""
    numbers = tuple(f"op{n}" for n in range(graph.num_ops))
    colours = roles.find_roles_by_neighbours(graph)
    colour_names = tuple(f"{c}/{n}" for c, n in zip(colours, numbers, strict=True))
    yield "blocks of roles by name", graph
    yield "blocks of roles by neighbours", dataclasses.replace(graph, op_names=colour_names)
    yield "no roles", dataclasses.replace(graph, op_names=numbers)
    for title, ids in (("name", roles.find_roles_by_name(graph)), ("neighbours", colours)):
        yield f"one decision a role, by {title}", dataclasses.replace(graph, colocation=ids)


def _search(problem: Instance, seed: int, budget: int) -> np.ndarray:
    placement = multistart.search(problem, seed, SearchLimits(_UNLIMITED_S, budget)).placement
    assert placement is not None
    return placement.astype(np.int32)


if __name__ == "__main__":
    questions = {"roles": compare_roles, "objectives": compare_objectives}
    print(json.dumps(list(questions[sys.argv[1]]())))
