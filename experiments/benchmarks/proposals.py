"""Learned proposals of searches, against controls: `experiments.benchmarks proposals`.

*Groups.* The chains of `search` draw a part of their blocks from random parses, in which an edge
counts by its delay. Here HSDAG's installed policy scores the edges instead: an edge weighs
exp(score), under the chains' best placement. The parses are drawn again every `_STEPS` steps. There
are three variants:

    prior      the weights of `search`, drawn again as often
    learned    the policy's
    shuffled   the policy's weights, each at a random edge: a control, equal in all but the learning

They are read after 1, 5 and 30 s.

*Moves.* On large graphs, where simulations take long, HSDAG's installed policy proposes
`_NUM_MOVES` moves of groups in one forward pass and does not learn. A chain moves to the best one.
There are two variants:

    learned    the policy chooses the moves
    uniform    moves are drawn uniformly, from the same kind of groups

They are read after equal evaluations and after equal time.

All searches start at the best of the single devices and HEFT's placement, and keep HEFT's order.
Seconds are those of the processor, without compilation. A score is a latency over the optimum where
it is known, else over the best one of all runs. Tables show interquartile means over graphs and
seeds, with 95% intervals; the last rows are ratios of two variants, run by run.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from experiments.benchmarks import cells
from placement import simulators
from placement.instance import Instance
from placement.methods import learned
from placement.policies import hsdag
from placement.reporting import statistics
from placement.reporting.tables import grids
from placement.search import block_orders, block_search, multistart, random_parsing
from placement.solvers import iterated_local_search as ils
from placement.solvers.heuristics import list_scheduling
from placement.solvers.limits import SearchLimits
from placement.zoo import known_optimum

GRAPHS = (
    "rnnlm",
    "synthetic:family=fork_join,ops=1000",
    "synthetic:family=known_optimum,ops=200,devices=8",
)
_POINTS_S = 1.0, 5.0, 30.0
_DEVICES = "roofline:cpu,gpu,gpu"
_MOVE_GRAPHS = ("synthetic:family=fork_join,ops=3000",)
_MOVE_VARIANTS = {"learned": "hsdag", "uniform": "hsdag:uniform=1"}
_NUM_MOVES, _MOVE_EVALUATIONS, _MOVES_S = 512, 25_600, 20.0
_SEEDS = range(10)
_STEPS = 400  # between two draws of parses: 25,600 evaluations
HEADER = "groups", *(f"{seconds:g} s" for seconds in _POINTS_S)
MOVES_HEADER = "moves", f"{_MOVE_EVALUATIONS:,} evaluations", f"{_MOVES_S:g} s"
# Of edges: weights within these bounds of the median, so that powers of random numbers are finite.
_WEIGHT_RANGE = 0.01, 100.0

MoveStep = Callable[[chex.PRNGKey, ils.ChainState], tuple[chex.PRNGKey, ils.ChainState]]
Weigh = Callable[[np.ndarray], np.ndarray]  # placement int32 [N] -> weights float64 [E] of edges


class Result(NamedTuple):
    """The latencies of one run."""

    variant: str
    graph: str
    seed: int
    reference_s: float  # the optimum, or nan
    best_s: tuple[float, ...]  # at each point at which it is read


def run() -> None:
    """Prints both tables."""
    for header, results in ((HEADER, measure_groups()), (MOVES_HEADER, measure_moves())):
        table = grids.new_table("latency over the optimum or the best known", (), header)
        for row in make_rows(results):
            table.add_row(*row)
        Console(width=120).print(table)


def measure_groups() -> list[Result]:
    """Returns the results of all runs with groups, and prints each to stderr."""
    results = []
    for graph in GRAPHS:
        problem, reference_s = make_problem(graph)
        weighers = make_weighers(problem, np.random.default_rng(0))
        for variant, weigh in weighers.items():
            _search(problem, weigh, 0, (0.0,))  # compiles
            for seed in _SEEDS:
                best_s = _search(problem, weigh, seed, _POINTS_S)
                results.append(Result(variant, graph, seed, reference_s, best_s))
                print(*results[-1], file=sys.stderr, flush=True)
        jax.clear_caches()
    return results


def measure_moves() -> list[Result]:
    """Returns the results of all runs with moves, and prints each to stderr."""
    results = []
    for graph in _MOVE_GRAPHS:
        problem, reference_s = make_problem(graph)
        for variant, method in _MOVE_VARIANTS.items():
            step = _make_move_step(problem, method)
            for seed in _SEEDS:
                best_s = _search_moves(problem, step, seed)
                results.append(Result(variant, graph, seed, reference_s, best_s))
                print(*results[-1], file=sys.stderr, flush=True)
        jax.clear_caches()
    return results


def make_problem(graph: str) -> tuple[Instance, float]:
    """Returns the problem of a graph, and its optimum in seconds, or nan where it is not known."""
    if known_optimum.FAMILY not in graph:
        return cells.describe_problem(graph, _DEVICES, constants=True).coarse, np.nan
    workload = known_optimum.build(graph)
    problem = Instance(workload.graph, workload.costs, "makespan", workload.devices)
    return problem, known_optimum.OPTIMUM_S


def make_rows(results: Iterable[Result]) -> list[list[str]]:
    """Returns a row for each variant, and one for each ratio of 'learned' to another variant."""
    results = list(results)
    best_s = {
        graph: np.nanmin([(*r.best_s, r.reference_s) for r in results if r.graph == graph])
        for graph in dict.fromkeys(r.graph for r in results)
    }
    runs: dict[str, dict[tuple[str, int], np.ndarray]] = {}
    for result in results:
        latencies_s = np.array(result.best_s)
        runs.setdefault(result.variant, {})[result.graph, result.seed] = latencies_s

    def make_row(name: str, scores: dict[tuple[str, int], np.ndarray]) -> list[str]:
        row = [name]
        for point in range(len(results[0].best_s)):
            scores_of_graphs = [
                np.array([values[point] for (g, _), values in scores.items() if g == graph])
                for graph in best_s
            ]
            mean = statistics.interquartile_mean(scores_of_graphs)
            row.append(mean.write(4))
        return row

    rows = [
        make_row(variant, {key: values / best_s[key[0]] for key, values in scores.items()})
        for variant, scores in runs.items()
    ]
    for control in [variant for variant in runs if variant != "learned"]:
        ratios = {key: values / runs[control][key] for key, values in runs["learned"].items()}
        rows.append(make_row(f"learned / {control}", ratios))
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
    simulate = simulators.get_objective("makespan").simulate_columns
    space, state = multistart.start_chains(problem, _find_starts(problem), seed)
    best_s: list[float] = []
    while len(best_s) < len(points_s):
        best = np.asarray(state.chains.best_placement)[problem.classes.ids]
        orders = draw_groups(space.orders, problem, weigh(best), rng)
        state = block_search.advance(simulate, space._replace(orders=orders), state, _STEPS)
        jax.block_until_ready(state)
        elapsed_s, latency_s = time.process_time() - start_s, float(state.chains.best_latency_s)
        best_s += [latency_s] * (sum(p <= elapsed_s for p in points_s) - len(best_s))
    return tuple(best_s)


def _find_starts(problem: Instance) -> np.ndarray:
    heft = list_scheduling.heft(problem, 0, SearchLimits(60.0, 10**12)).placement
    assert heft is not None
    return np.array([*problem.single_devices, heft], np.int32)


def _make_move_step(problem: Instance, method: str) -> MoveStep:
    """Makes and compiles the step of a chain whose moves a method's policy proposes."""
    search = learned.Search.prepare(method, problem)
    policy, graph = search.method.policy, search.policy_input.graph
    params = policy.init(jax.random.key(0), graph)
    num_ops, num_nodes = problem.graph.num_ops, len(graph.nodes["mask"])
    simulate = simulators.get_objective("makespan").simulate_columns
    propose = policy.propose
    assert propose is not None

    @jax.jit
    def step(key: chex.PRNGKey, chain: ils.ChainState) -> tuple[chex.PRNGKey, ils.ChainState]:
        key, propose_key = jax.random.split(key)
        padded = jnp.pad(chain.placements[:, 0], (0, num_nodes - num_ops))
        samples = propose(params, propose_key, graph, padded, _NUM_MOVES)
        placements = samples.placement[:, 0, :num_ops].T
        is_changed = (placements != chain.placements).any(axis=0)
        latencies_s = simulate(problem.tables, placements).latency_s
        return key, ils.move_chains(
            chain,
            ils.Proposals(placements, is_changed),
            ils.Evaluation(latencies_s, latencies_s),
            patience=ils.default_patience(num_ops),
        )

    jax.block_until_ready(step(jax.random.key(0), _start_chain(problem)))
    return step


def _start_chain(problem: Instance) -> ils.ChainState:
    starts = _find_starts(problem)
    latencies_s = jnp.asarray(problem.evaluate(starts), jnp.float32)
    evaluation = ils.Evaluation(latencies_s, latencies_s)
    return ils.start(jnp.asarray(starts.T), evaluation, latencies_s.argmin()[None])


def _search_moves(problem: Instance, step: MoveStep, seed: int) -> tuple[float, float]:
    """Returns the latency after `_MOVE_EVALUATIONS`, and that after `_MOVES_S`."""
    key, chain = jax.random.key(seed), _start_chain(problem)
    start_s, evaluations, best_s = time.process_time(), 0, [np.inf, np.inf]
    is_open = [True, True]
    while any(is_open):
        key, chain = jax.block_until_ready(step(key, chain))
        evaluations += _NUM_MOVES
        best_s = [
            float(chain.best_latency_s) if still_open else value_s
            for still_open, value_s in zip(is_open, best_s, strict=True)
        ]
        elapsed_s = time.process_time() - start_s
        is_open = [evaluations < _MOVE_EVALUATIONS, elapsed_s < _MOVES_S]
    return best_s[0], best_s[1]


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
    print(json.dumps([measure_groups(), measure_moves()]))
