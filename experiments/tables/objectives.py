"""Makespans of placements that partitioners find for their own objective (docs/QUESTIONS.md).

    python -m experiments.tables.objectives

It prints a JSON list of `Result`s. The devices are `roofline:cpu,gpu,gpu`. One placement of a
partitioner is improved by the moves of `search` under the partitioner's objective
(`balanced_cut`). From each placement, from the best single device and from the result of `search`
another search then minimises the makespan. All searches have equal evaluations.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from experiments.benchmarks.cells import describe_problem
from placement import simulators
from placement.instance import Instance
from placement.search import block_search, multistart
from placement.solvers.heuristics import partition
from placement.solvers.limits import SearchLimits

GRAPHS = (
    *("rnnlm", "nmt:layers=2"),
    *(f"synthetic:family={family},ops=300" for family in ("layered", "series_parallel")),
)
_BUDGET, _SEEDS = 8_000, range(5)
_IMBALANCE = 0.03  # METIS's and KaHIP's
_LIMITS = SearchLimits(3600.0, _BUDGET)


class Result(NamedTuple):
    """The makespan of placements that a method found for some objective; means over seeds."""

    graph: str
    title: str
    cut_bytes: float
    makespan_s: float
    refined_s: float  # the makespan after a search that starts from the placement
    single_s: float  # of the best single device


def compare() -> Iterator[Result]:
    """Yields the makespans of placements that were found for several objectives."""
    for name in GRAPHS:
        problem = describe_problem(name, "roofline:cpu,gpu,gpu", constants=True).coarse
        graph = problem.graph
        singles_s = [problem.value_s(placement) for placement in problem.single_devices]
        for title, place in _list_methods(problem, int(np.argmin(singles_s))).items():
            rows = []
            for seed in _SEEDS:
                placement = place(seed)
                is_cut = placement[graph.senders] != placement[graph.receivers]
                refined = multistart.run_chain(problem, placement[None], 1, seed, _LIMITS).placement
                assert refined is not None
                values_s = [problem.value_s(p) for p in (placement, refined)]
                rows.append([float(graph.edge_bytes[is_cut].sum()), *values_s])
            cut_bytes, makespan_s, refined_s = np.mean(rows, axis=0).tolist()
            yield Result(name, title, cut_bytes, makespan_s, refined_s, min(singles_s))


def _list_methods(problem: Instance, single: int) -> dict[str, Callable[[int], np.ndarray]]:
    """Returns functions from a seed to a placement, by title."""

    def min_cut(seed: int) -> np.ndarray:
        return partition.min_cut(problem, seed=seed)

    def improve_min_cut(seed: int) -> np.ndarray:
        # Only the chains of `search`: all of it would begin with an integer program of minutes.
        cut = balanced_cut(problem)
        simulate = simulators.get_objective(cut.objective).simulate_columns
        space, state = multistart.start_chain(cut, min_cut(seed)[None], seed)
        num_steps = _BUDGET // block_search.NUM_PROPOSALS
        chains = block_search.advance(simulate, space, state, num_steps).chains
        return np.asarray(chains.best_placement)

    return {
        "best single device": lambda seed: problem.single_devices[single],
        "`kahip`": lambda seed: partition.kahip(problem, seed=seed),
        "`metis`": lambda seed: partition.metis(problem, seed=seed),
        "`min_cut`": min_cut,
        "`min_cut`, then blocks": improve_min_cut,
        "`search`": lambda seed: multistart.search(problem, seed, _LIMITS).placement,
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


if __name__ == "__main__":
    print(json.dumps(list(compare())))
