"""Two of the questions of docs/QUESTIONS.md, asked of searches: roles, and objectives.

    python -m experiments.reproduction.questions roles
    python -m experiments.reproduction.questions objectives

Each prints a list of its cells, as JSON, which `table_readers` reads. Graphs are those with room of
docs/REPRODUCTION.md on `roofline:cpu,gpu,gpu`, of `roles` those that repeat; what is judged is
`makespan`. All searches have equal evaluations, so that a busy machine changes nothing.

`roles` searches with the graph's own names, with names that say nothing, and with names that are
the colours of `placement.graphs.roles`; and then with one decision for all operations of a role.

`objectives` takes what partitioners find, and what the blocks of `search` then gain of their
objective, which is one of ours: under `serial`, where computing takes no time and a byte a second,
latency is what is cut, and memory that is each operation's load, of which an accelerator has its
share, keeps the balance. Of each placement, of one device and of what `search` finds of makespan it
goes on to search for the shortest makespan.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from placement import simulators
from placement.costs import roofline
from placement.graphs import roles
from placement.instance import Instance
from placement.pipeline import loading
from placement.search import block_search, population
from placement.solvers.heuristics import large_neighbourhood, partition
from placement.solvers.limits import SearchLimits
from placement.types import OpGraph

RECURRENT = "rnnlm", "nmt:layers=2"
GRAPHS = (*RECURRENT, *(f"synthetic:family={f},ops=300" for f in ("layered", "series_parallel")))
BUDGETS = 2_000, 8_000
_DEVICES = "roofline:cpu,gpu,gpu"
_SEEDS, _FEW_SEEDS = range(8), range(3)
_IMBALANCE = 0.03  # METIS's and KaHIP's
_UNLIMITED_S = 3600.0

_Way = Callable[[int], np.ndarray]  # of a seed, to a placement


class OfRoles(NamedTuple):
    """What a search found with some roles; seconds."""

    graph: str
    told: str  # by what
    decisions: int  # placed apart
    budget: int
    best_s: list[float]  # of each seed


class OfObjective(NamedTuple):
    """What placements that something found of an objective are worth; means of seeds."""

    graph: str
    found_by: str
    cut_bytes: float
    makespan_s: float
    refined_s: float  # the makespan of the best that a search found from there
    single_s: float  # of the best single device


def ask_roles() -> Iterator[OfRoles]:
    """Yields what `search` finds with each kind of roles."""
    for text in RECURRENT:
        problem = _problem(text)
        for told, graph in _told(problem.graph):
            decisions = len(np.unique(graph.colocation))
            for budget in BUDGETS:
                found = [_found(problem._replace(graph=graph), s, budget) for s in _SEEDS]
                best_s = [problem.value_s(placement) for placement in found]
                yield OfRoles(text, told, decisions, budget, best_s)


def ask_objectives() -> Iterator[OfObjective]:
    """Yields what placements of several objectives are worth under `makespan`."""
    for text in GRAPHS:
        problem = _problem(text)
        singles = [np.full(problem.graph.num_ops, d, np.int32) for d in range(len(problem.devices))]
        single_s = [problem.value_s(row) for row in singles]
        fastest = singles[int(np.argmin(single_s))]
        for found_by, way in _ways(problem, fastest).items():
            rows = [_worth(problem, way(seed), seed) for seed in _FEW_SEEDS]
            cut_bytes, makespan_s, refined_s = np.mean(rows, axis=0).tolist()
            yield OfObjective(text, found_by, cut_bytes, makespan_s, refined_s, min(single_s))


def _ways(problem: Instance, single: np.ndarray) -> dict[str, _Way]:
    def min_cut(seed: int) -> np.ndarray:
        return partition.min_cut(problem, seed=seed)

    return {
        "best single device": lambda seed: single,
        "`kahip`": lambda seed: partition.kahip(problem, seed=seed),
        "`metis`": lambda seed: partition.metis(problem, seed=seed),
        "`min_cut`": min_cut,
        "`min_cut`, then blocks": lambda seed: _fewer_cut(problem, min_cut(seed), seed),
        "`search`": lambda seed: _found(problem, seed, BUDGETS[-1]),
    }


def balanced_cut(problem: Instance) -> Instance:
    """Makes the problem of `min_cut`: the fewest bytes cut, every accelerator with its share.

    Weights and shares are those of `placement.solvers.heuristics.partition`, without co-location,
    and of operations that all devices support.
    """
    graph, costs = problem.graph, problem.costs
    compute_s = np.asarray(costs.compute_s, np.float64)
    takes_part = np.asarray(costs.accelerator) >= 0
    load = compute_s[:, takes_part].mean(axis=1)
    speed = takes_part / compute_s.sum(axis=0)
    apart = 1 - np.eye(len(speed), dtype=np.float32)
    return problem._replace(
        graph=dataclasses.replace(graph, tensors=np.arange(graph.num_edges, dtype=np.int32)),
        costs=costs._replace(
            compute_s=np.zeros_like(compute_s, np.float32),
            transfer_latency_s=0 * apart,
            transfer_s_per_byte=apart,
            transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
            fusion_loss_s=np.zeros(graph.num_edges, np.float32),
            memory_bytes=(load / load.sum()).astype(np.float32),
            capacity_bytes=((1 + _IMBALANCE) * speed / speed.sum()).astype(np.float32),
        ),
        objective="serial",
    )


def _fewer_cut(problem: Instance, placement: np.ndarray, seed: int) -> np.ndarray:
    """What the chains of `search` find of a partitioner's problem, from what it found itself.

    Not all of `search`, which would begin with an integer program of minutes.
    """
    cut = balanced_cut(problem)
    simulate = simulators.objective(cut.objective).simulate_columns
    space, state = population.start_chains(cut, simulate, placement[None], seed)
    num_steps = BUDGETS[-1] // block_search.NUM_PROPOSALS
    chains = block_search.advance(simulate, space, state, num_steps).chains
    assert np.isfinite(chains.best_latency_s)
    return np.asarray(chains.best_placement)


def _worth(problem: Instance, placement: np.ndarray, seed: int) -> list[float]:
    """Bytes cut, the makespan, and that of what a search makes of it."""
    graph = problem.graph
    crosses = placement[graph.senders] != placement[graph.receivers]
    limits = SearchLimits(_UNLIMITED_S, BUDGETS[-1])
    refined = large_neighbourhood.polish(problem, placement, seed, limits).placement
    assert refined is not None
    return [
        float(graph.edge_bytes[crosses].sum()),
        *(problem.value_s(each) for each in (placement, refined)),
    ]


def _problem(text: str) -> Instance:
    devices = roofline.devices(_DEVICES)
    net = loading.without_weights(text, constants=True)
    costs = roofline.cost_model(net.graph, devices)
    return loading.search_problem(net, costs, devices, "makespan").coarse


def _told(graph: OpGraph) -> Iterator[tuple[str, OpGraph]]:
    """The graph with names and co-location that say as much of roles as their title does."""

    def named(names: list[str]) -> OpGraph:
        return dataclasses.replace(graph, op_names=tuple(names))

    number = [f"op{n}" for n in range(graph.num_ops)]
    colour = roles.by_neighbours(graph)
    coloured = [f"{c}/{n}" for c, n in zip(colour, number, strict=True)]
    yield "blocks of roles by name", graph
    yield "blocks of roles by neighbours", named(coloured)
    yield "no roles", named(number)
    for title, role in (("name", roles.by_name(graph)), ("neighbours", colour)):
        yield f"one decision a role, by {title}", dataclasses.replace(graph, colocation=role)


def _found(problem: Instance, seed: int, budget: int) -> np.ndarray:
    placement = population.find(problem, seed, SearchLimits(_UNLIMITED_S, budget)).placement
    assert placement is not None
    return placement.astype(np.int32)


_ASKED = {"roles": ask_roles, "objectives": ask_objectives}

if __name__ == "__main__":
    print(json.dumps(list(_ASKED[sys.argv[1]]())))
