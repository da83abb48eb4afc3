"""One compiled, anytime search for all objectives, from the results of fast methods.

Chains of block moves (`placement.search.block_search`) start from the best of `starts`: single
devices, and what fast methods find (`placement.solvers.starts`). A large problem under `makespan`
is first searched window by window (`placement.search.windows`), until a pass gains next to nothing;
the chains then start from that result.

Under `makespan` the order of priority can be a decision too. The chains then take turns with a
search that changes placement and order together (`placement.search.schedule_search`). Turns of
equal work take about equal time; they are counted in steps, so that the clock decides nothing. A
turn twice as long follows one that gained, half as long one that did not. The first turns try
several orders, and the search continues from the best. The tables are arguments of compiled
functions, so that the chains continue under a new order without compilation. Large problems keep
their order.
"""

import chex
import jax
import numpy as np

from placement import simulators
from placement.graphs import dag
from placement.problem import Problem
from placement.search import block_search, schedule_search, windows
from placement.search.block_orders import KINDS
from placement.solvers import base, starts
from placement.solvers import iterated_local_search as ils
from placement.solvers.heuristics import trivial
from placement.solvers.limits import SearchLimits
from placement.types import Array, Solution, Status

_REPORT_INTERVAL_S = 0.2  # approximate duration of a compiled call
_ENUMERATION_LIMIT = 4096  # a problem with at most so many placements is enumerated
_LARGE = 2_000  # decisions, above which windows are searched first
_LARGE_SET_SIZE = 8  # proposals of a set there, where memory over time is not limited
_LEAST_STEPS = 256  # for which a small budget is divided
# The work of a turn, where two searches take turns: the first, the longest and the shortest. Its
# unit is a device in a step of the batched simulator, some tenths of a microsecond.
_FIRST_TURN, _LONGEST_TURN = 2**20, 2**23
_SHORTEST_TURN, _SHORTEST_ORDER_TURN = 2**18, 2**20  # of the chains, and of the other search
# The most evaluations of a turn, as a share of the budget. A trial of an order is one turn of each
# search, and there are three trials.
_TURN_SHARE, _TRIAL_TURN_SHARE = 1 / 8, 1 / 32


def search(
    problem: Problem, seed: int, limits: SearchLimits, *, improve_order: bool = False
) -> Solution:
    """Local search at the simulator's speed, from the results of heuristics.

    Args:
      problem: the problem to place.
      seed: of all randomness.
      limits: of the search. The starts count as evaluations, estimates of insertions
        (`placement.search.schedule_search`) do not. A simulation of a window counts as the window's
        share of all operations.
      improve_order: whether the result may have another order of priority than the problem, under
        `makespan`; False where placements are compared under one order.

    Returns:
      The best placement, or none if no feasible placement is known. The status is 'optimal' if all
      placements were enumerated or a start is proven optimal, and no other order is better.
    """
    is_large = problem.objective == "makespan" and problem.num_decisions > _LARGE
    improve_order &= problem.objective == "makespan" and not is_large
    if np.log(problem.decisions.allowed.sum(axis=1)).sum() <= np.log(_ENUMERATION_LIMIT):
        enumerated = trivial.brute_force(problem, seed, limits)
        return _improve_proven(problem, enumerated, seed, limits) if improve_order else enumerated

    # The starts, until one is proven optimal.
    begun: list[Solution] = []
    optimum: Solution | None = None
    for start in starts.evaluate_starts(problem, seed, limits):
        begun.append(start)
        is_optimal = start.status == Status.OPTIMAL and start.scope != base.CONTIGUOUS
        if is_optimal and np.isfinite(start.value_s):
            # Of equally fast placements the first one, which may be a single device.
            fastest = min(begun, key=lambda start: start.value_s)
            optimum = start._replace(placement=fastest.placement)
            break
    placements, evaluations = np.array([s.placement for s in begun]), begun[-1].evaluations
    if optimum is not None:
        if improve_order:
            optimum = _improve_proven(problem, optimum, seed, limits)
        if optimum.status != Status.FINISHED:
            return optimum
        # Another order is better, in which other placements may be better still.
        assert optimum.placement is not None
        problem, evaluations = problem.with_order(optimum.order), optimum.evaluations
        placements = optimum.placement[None]
    if is_large and windows.is_suitable(problem):
        window_limits = limits.take_share(1.0, limits.budget - evaluations, evaluations)
        result = windows.improve(problem, placements, seed, window_limits)
        evaluations += result.evaluations
        if limits.is_over() or limits.budget - evaluations < block_search.NUM_SETS:
            return result._replace(evaluations=evaluations)
        if result.placement is not None:
            placements = result.placement[None]
    if improve_order:
        # Besides the problem's order, which is by default that of HEFT's upward rank, the trials
        # are that of the downward rank and a depth-first one, each for one turn of both searches.
        # Single moves do not lead from one to another.
        graph, best = problem.graph, Solution(None)
        for order in (
            problem.priority_order,
            problem.reverse().priority_order[::-1],
            dag.depth_first_order(graph.num_ops, graph.senders, graph.receivers),
        ):
            trial = run_chain(
                problem.with_order(order),
                placements,
                evaluations,
                seed,
                limits,
                improve_order=True,
                is_trial=True,
            )
            evaluations = trial.evaluations
            if trial.placement is not None:
                value_s = problem.with_order(trial.order).value_s(trial.placement)
                if best.placement is None or value_s < best.value_s:
                    best = trial._replace(value_s=value_s)
            if limits.is_over():
                break
        problem = problem.with_order(best.order)
        if best.placement is not None:
            placements = best.placement[None]
    return run_chain(problem, placements, evaluations, seed, limits, improve_order=improve_order)


def lns(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Searches large neighbourhoods of the best start: the chain of `search`, in a given order."""
    begun = [*starts.evaluate_starts(problem, seed, limits)]
    placements = np.array([start.placement for start in begun])
    return run_chain(problem, placements, begun[-1].evaluations, seed, limits)


def run_chain(
    problem: Problem,
    placements: np.ndarray,
    evaluations: int,
    seed: int,
    limits: SearchLimits,
    *,
    improve_order: bool = False,
    is_trial: bool = False,
) -> Solution:
    """Searches with one chain from placements int32 [M, K]; `evaluations` were made before.

    There is one chain, because each of several would make fewer steps. A trial ends after one turn
    of both searches, or of the chains if they find no placement.
    """
    chex.assert_shape(placements, (None, problem.num_decisions))
    simulate = simulators.get_objective(problem.objective).simulate_columns

    # The chain starts at the best placement. They are simulated one at a time, because the
    # simulator is compiled for one placement in any case. If none is feasible, the chain first
    # moves to its best proposal, whatever that costs.
    latencies_s = np.array([problem.value_s(placement) for placement in placements], np.float32)
    costs_s = latencies_s
    if not np.isfinite(latencies_s).any():
        rows = placements[:, None]
        costs_s = np.array([float(problem.evaluate_penalised(row)[0]) for row in rows], np.float32)
    penalty_s = costs_s[np.isfinite(costs_s)].max(initial=0.0)
    space = block_search.make_space(problem, seed)._replace(penalty_s=penalty_s)
    space = jax.device_put(space)
    best_row = int(np.argmin(costs_s))
    no_credit = np.zeros(len(KINDS), np.float32)
    chain = _make_chain(placements[best_row], latencies_s[best_row], no_credit)
    # This generator compiles and draws faster than Threefry.
    state = block_search.SearchState(jax.random.key(seed, impl="rbg"), chain)

    # Fewer proposals share an order where more steps gain more: in large graphs, whose simulation
    # takes as long per proposal whatever their number, and with a budget for few steps. The size is
    # a power of two, so that few sizes are compiled. A step that checks memory over time takes long
    # in any case.
    is_timed = problem.memory is not None and problem.memory.alive is not None
    has_small_sets = problem.num_decisions > _LARGE and not is_timed
    max_size = _LARGE_SET_SIZE if has_small_sets else block_search.SET_SIZE
    affordable = limits.budget // (block_search.NUM_SETS * _LEAST_STEPS)
    set_size = min(max_size, 2 ** max(1, affordable.bit_length() - 1))
    batch_size = block_search.NUM_SETS * set_size
    num_steps, status = 1, Status.FINISHED
    turn_end = np.inf  # the evaluations after which the turn of the chains ends
    if improve_order:
        tables, rng = schedule_search.make_tables(problem), np.random.default_rng(seed)
        chain_work = order_work = _FIRST_TURN
        step_work = len(problem.makespan_tables.steps.op) * len(problem.devices)
        max_evaluations = int((_TRIAL_TURN_SHARE if is_trial else _TURN_SHARE) * limits.budget)
        num_evaluations = max(1, chain_work // step_work) * batch_size
        turn_end = evaluations + min(num_evaluations, max_evaluations)
        turn_start_s = np.inf  # the best latency at the beginning of the turn
        schedule: schedule_search.State | None = None  # None: begins at the incumbent

    def report() -> np.ndarray | None:
        chains = state.chains
        latency_s = float(chains.best_latency_s)
        best = np.asarray(chains.best_placement) if np.isfinite(latency_s) else None
        probabilities = np.asarray(block_search.kind_probabilities(space, chains)).tolist()
        numbers = {f"share_{k}": p for k, p in zip(KINDS, probabilities, strict=True)}
        limits.report(evaluations, latency_s, best, numbers)
        return best

    best = report()
    while (remaining_steps := (limits.budget - evaluations) // batch_size) > 0:
        if limits.is_over():
            status = Status.TIME_LIMIT
            break
        if evaluations >= turn_end and (is_trial or best is not None):
            if best is None:
                break
            # A turn of the search over schedules, and the lengths of the next turns.
            best_s = float(state.chains.best_latency_s)
            has_gained = best_s < turn_start_s
            chain_work = _next_turn(chain_work, _SHORTEST_TURN, has_gained=has_gained)
            if schedule is None or has_gained:
                schedule = schedule_search.begin(problem, tables, best, rng)
            result, schedule = schedule_search.improve(
                problem,
                tables,
                schedule,
                Solution(best, best_s),
                min(_count_order_evaluations(problem, order_work), max_evaluations),
                limits.take_share(1.0, limits.budget - evaluations, evaluations),
            )
            evaluations += result.evaluations
            has_gained = result.value_s < best_s
            order_work = _next_turn(order_work, _SHORTEST_ORDER_TURN, has_gained=has_gained)
            if not has_gained and schedule.best.latency_s < best_s * (1 - base.ROUNDING):
                # A schedule that is faster, but was not taken, does not keep all limits.
                schedule = None
            if has_gained:
                problem = problem.with_order(result.order)
                space = space._replace(tables=problem.tables)
                assert result.placement is not None
                credit = state.chains.move_credit
                assert credit is not None
                chain = _make_chain(result.placement, result.value_s, credit)
                state = state._replace(chains=chain)
                best, best_s = report(), result.value_s
            if is_trial:
                break
            num_evaluations = max(1, chain_work // step_work) * batch_size
            turn_end, turn_start_s = evaluations + min(num_evaluations, max_evaluations), best_s
            continue
        num_steps = min(num_steps, remaining_steps)
        if improve_order:
            num_steps = min(num_steps, max(1, int(-(-(turn_end - evaluations) // batch_size))))
        began_s = limits.elapsed_s()
        state = jax.block_until_ready(
            block_search.advance(simulate, space, state, num_steps, set_size)
        )
        evaluations += num_steps * batch_size
        step_s = (limits.elapsed_s() - began_s) / num_steps
        best = report()
        num_steps = max(1, min(2 * num_steps, int(_REPORT_INTERVAL_S / step_s)))
    return Solution(best, status=status, evaluations=evaluations, order=problem.order)


def _make_chain(placement: np.ndarray, latency_s: float, move_credit: Array) -> ils.ChainState:
    """Makes a chain at a placement int32 [K] of a known latency."""
    latencies_s = np.array([latency_s], np.float32)
    evaluation = ils.Evaluation(latencies_s, latencies_s)
    chain = ils.start(placement[:, None], evaluation, np.arange(1))
    return chain._replace(move_credit=move_credit)


def _count_order_evaluations(problem: Problem, work: int) -> int:
    """Returns the evaluations of a turn of the search over schedules."""
    num_steps = max(1, work // (schedule_search.WORK_PER_OP * problem.graph.num_ops))
    return num_steps * schedule_search.PROPOSALS_PER_STEP


def _next_turn(turn: int, shortest: int, *, has_gained: bool) -> int:
    """Returns the work of a search's next turn."""
    return int(np.clip(2 * turn if has_gained else turn // 2, shortest, _LONGEST_TURN))


def _improve_proven(
    problem: Problem, optimum: Solution, seed: int, limits: SearchLimits
) -> Solution:
    """Improves the order of an optimum of the given order, until a turn gains nothing.

    Returns:
      The optimum itself, with its proof, where no other order is better.
    """
    if optimum.placement is None or optimum.status != Status.OPTIMAL:
        return optimum
    tables, rng = schedule_search.make_tables(problem), np.random.default_rng(seed)
    best, status = optimum, Status.FINISHED
    best = best._replace(value_s=problem.value_s(optimum.placement))
    start_s, is_gaining = best.value_s, True
    state = schedule_search.begin(problem, tables, optimum.placement, rng)
    while is_gaining and best.evaluations + schedule_search.PROPOSALS_PER_STEP <= limits.budget:
        if limits.is_over():
            status = Status.TIME_LIMIT
            break
        turn_limits = limits.take_share(1.0, limits.budget - best.evaluations, best.evaluations)
        num_evaluations = _count_order_evaluations(problem, _LONGEST_TURN)
        num_evaluations = min(num_evaluations, int(_TURN_SHARE * limits.budget))
        result, state = schedule_search.improve(
            problem, tables, state, best, num_evaluations, turn_limits
        )
        is_gaining = result.value_s < best.value_s
        problem = problem.with_order(result.order)
        best = result._replace(evaluations=best.evaluations + result.evaluations)
    if best.value_s < start_s:
        return best._replace(status=status, scope=base.ALL)
    return optimum._replace(evaluations=best.evaluations)
