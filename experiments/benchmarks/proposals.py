"""Learned groups as proposals of the search: `experiments.benchmarks proposals`.

The chains of `search` draw a part of their blocks from random parses, in which an edge counts by
its delay. Here HSDAG's installed policy scores the edges instead: the weight of an edge is
exp(score), under the chains' best placement. The parses are drawn again every `_STEPS` steps. There
are three variants:

    prior      the weights of `search`, drawn again as often
    learned    the policy's
    shuffled   the policy's weights, each at a random edge: a control, equal in all but the learning

All start at the best of the single devices and HEFT's placement, keep HEFT's order, and are read
after 1, 5 and 30 s of the processor, without compilation. A score is a latency over the optimum
where it is known, else over the best one of all runs. A table shows interquartile means over graphs
and seeds, with 95% intervals; the last row is the ratio of two variants, run by run.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import chex
import jax
import numpy as np
from rich.console import Console

from experiments.benchmarks import parts
from placement import simulators
from placement.instance import Instance
from placement.methods import learned
from placement.policies import hsdag
from placement.reporting import statistics
from placement.reporting.tables import grids
from placement.search import block_orders, block_search, multistart, random_parsing
from placement.solvers.heuristics import list_scheduling
from placement.solvers.limits import SearchLimits

GRAPHS = (
    "rnnlm",
    "synthetic:family=fork_join,ops=1000",
    "synthetic:family=known_optimum,ops=200,devices=8",
    "synthetic:family=known_optimum,ops=500,devices=8",
)
VARIANTS = "prior", "learned", "shuffled"
_POINTS_S = 1.0, 5.0, 30.0
_SEEDS = range(10)
_STEPS = 400  # between two draws of parses: 25,600 evaluations
HEADER = "groups", *(f"{seconds:g} s" for seconds in _POINTS_S)
# Of edges: weights within these bounds of the median, so that powers of random numbers are finite.
_WEIGHT_RANGE = 0.01, 100.0

Weigh = Callable[[np.ndarray], np.ndarray]  # placement int32 [N] -> weights float64 [E] of edges


class Result(NamedTuple):
    """The latencies of one run."""

    variant: str
    graph: str
    seed: int
    reference_s: float  # the optimum, or nan
    best_s: tuple[float, ...]  # at each of `_POINTS_S`


def run() -> None:
    """Prints a row for each variant."""
    table = grids.new_table("latency over the optimum or the best known", (), HEADER)
    for row in make_rows(measure()):
        table.add_row(*row)
    Console(width=120).print(table)


def measure() -> list[Result]:
    """Returns the result of every run, and prints it to stderr as soon as it is known."""
    results = []
    for graph in GRAPHS:
        problem, reference_s = parts.make_problem(graph)
        weighers = make_weighers(problem, np.random.default_rng(0))
        for variant, weigh in weighers.items():
            _search(problem, weigh, 0, (0.0,))  # compiles
            for seed in _SEEDS:
                best_s = _search(problem, weigh, seed, _POINTS_S)
                results.append(Result(variant, graph, seed, reference_s, best_s))
                print(*results[-1], file=sys.stderr, flush=True)
        jax.clear_caches()
    return results


def make_rows(results: Iterable[Result]) -> list[list[str]]:
    """Returns a row of `HEADER` for each variant, and one for each ratio of two variants."""
    results = list(results)
    best_s = {
        graph: np.nanmin([(*r.best_s, r.reference_s) for r in results if r.graph == graph])
        for graph in dict.fromkeys(r.graph for r in results)
    }
    latencies_s = {(r.variant, r.graph, r.seed): np.array(r.best_s) for r in results}

    def make_row(name: str, scores: dict[tuple[str, int], np.ndarray]) -> list[str]:
        row = [name]
        for point in range(len(_POINTS_S)):
            runs = [
                np.array([values[point] for (g, _), values in scores.items() if g == graph])
                for graph in best_s
            ]
            mean = statistics.interquartile_mean(runs)
            row.append(f"{mean.value:.4f} [{mean.low:.4f}, {mean.high:.4f}]")
        return row

    def select(variant: str) -> dict[tuple[str, int], np.ndarray]:
        return {key[1:]: values for key, values in latencies_s.items() if key[0] == variant}

    rows = [
        make_row(variant, {k: v / best_s[k[0]] for k, v in select(variant).items()})
        for variant in VARIANTS
    ]
    for other in ("prior", "shuffled"):
        divisors = select(other)
        ratios = {key: values / divisors[key] for key, values in select("learned").items()}
        rows.append(make_row(f"learned / {other}", ratios))
    return rows


def make_weighers(problem: Instance, rng: np.random.Generator) -> dict[str, Weigh]:
    """Makes the functions that weigh the edges between pairs of operations, by variant.

    Args:
      problem: of the objective `makespan`, without co-location.
      rng: shuffles the control.
    """
    assert not problem.is_colocated
    graph, classes = problem.graph, problem.classes
    senders, receivers, delay_s = graph.senders, graph.receivers, problem.mean_edge_delay_s
    prior = block_orders.class_edges(senders, receivers, delay_s, classes.ids)[2]
    search = learned.Search.prepare("hsdag", problem)
    policy_graph = search.policy_input.graph
    params = search.method.policy.init(jax.random.key(0), policy_graph)
    score = jax.jit(hsdag.score_edges)
    num_nodes = len(policy_graph.nodes["mask"])
    is_pair = np.asarray(policy_graph.edges["mask"])

    def weigh_learned(placement: np.ndarray) -> np.ndarray:
        padded = np.zeros(num_nodes, np.int32)
        padded[: len(placement)] = placement
        scores = np.asarray(score(params, policy_graph, padded), np.float64)[is_pair]
        weights = np.exp(scores - np.median(scores))
        chex.assert_equal_shape([weights, prior])
        return np.clip(weights, *_WEIGHT_RANGE)

    return {
        "prior": lambda placement: prior,
        "learned": weigh_learned,
        "shuffled": lambda placement: rng.permutation(weigh_learned(placement)),
    }


def _search(
    problem: Instance, weigh: Weigh, seed: int, points_s: tuple[float, ...]
) -> tuple[float, ...]:
    """Searches until the last of some seconds of the processor; returns the latency at each."""
    start_s = time.process_time()
    rng = np.random.default_rng(seed)
    heft = list_scheduling.heft(problem, seed, SearchLimits(60.0, 10**12)).placement
    assert heft is not None
    placements = np.array([*problem.single_devices, heft], np.int32)
    simulate = simulators.get_objective("makespan").simulate_columns
    space, state = multistart.start_chains(problem, placements, seed)
    best_s = []
    while len(best_s) < len(points_s):
        best = np.asarray(state.chains.best_placement)[problem.classes.ids]
        orders = draw_groups(space.orders, problem, weigh(best), rng)
        state = block_search.advance(simulate, space._replace(orders=orders), state, _STEPS)
        jax.block_until_ready(state)
        elapsed_s, latency_s = time.process_time() - start_s, float(state.chains.best_latency_s)
        best_s += [latency_s] * (sum(p <= elapsed_s for p in points_s) - len(best_s))
    return tuple(best_s)


def draw_groups(
    orders: block_orders.Orders,
    problem: Instance,
    edge_weights: np.ndarray,
    rng: np.random.Generator,
) -> block_orders.Orders:
    """Draws the parses of a problem's orders again, with weights of the edges between classes."""
    graph, class_ids = problem.graph, problem.classes.ids
    num_orders = int(orders.num_orders[block_orders.GROUP])
    first_order = int(orders.first_order[block_orders.GROUP])
    pairs = block_orders.class_edges(
        graph.senders, graph.receivers, problem.mean_edge_delay_s, class_ids
    )[:2]
    size = orders.ranks.shape[1]
    parses = random_parsing.draw_parses(rng, size, *pairs, edge_weights, num_orders)
    ranks = np.array(orders.ranks)
    ranks[first_order : first_order + num_orders] = parses.ranks
    padding = ((0, 0), (0, size - parses.groups.shape[1]), (0, 0))
    return orders._replace(
        ranks=ranks,
        groups=np.pad(parses.groups, padding, mode="edge").astype(np.int32),
        num_groups=parses.num_groups.astype(np.int32),
    )


if __name__ == "__main__":
    print(json.dumps(measure()))
