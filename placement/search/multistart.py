"""One compiled, anytime search for all objectives, from the results of fast methods.

Chains of block moves (`placement.search.block_search`) start from the best of `starts`: single
devices, and what fast methods find (`placement.solvers.starts`). A large problem under `makespan`
is first searched window by window (`placement.search.windows`), until a pass gains next to nothing;
the chains then start from that result.

Under `makespan` the order of priority can be a decision too. The chains then take turns with a
search that changes placement and order together (`placement.search.schedule_search`), which has the
first round to itself, while their program compiles. Turns of equal work take about equal time; they
are counted in steps, so that the clock decides nothing. A turn twice as long follows one that
gained, half as long one that did not. The first turns are short and try several orders; after each
round the worst order leaves. The search ends when it has worked for twice as long without a gain as
it took to the last one. The tables are arguments of compiled functions, so that no order compiles
anything. Large problems keep their order.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures

import chex
import jax
import numpy as np

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
_NUM_BEST_STARTS = 4  # which every order is tried with
_LEAST_STEPS = 256  # for which a small budget is divided
# The work of a turn, where two searches take turns: the first, the shortest later, the longest. Its
# unit is a device in a step of the batched simulator, some tenths of a microsecond.
_FIRST_TURN, _LONGEST_TURN = 2**16, 2**23
_SHORTEST_TURN, _SHORTEST_ORDER_TURN = 2**18, 2**20  # of the chain, and of the other search
# A search ends after `_PATIENCE` times the work that led to its last gain, and at least some.
_PATIENCE, _LEAST_WORK, _LEAST_GAIN = 2, 2**22, 1e-4  # the last is relative
_TURN_SHARE = 1 / 16  # the most evaluations of a turn, as a share of the budget


def search(
    problem: Problem, seed: int, limits: SearchLimits, *, improve_order: bool = False
) -> Solution:
    """Local search at the simulator's speed, from the results of heuristics.

    Args:
      problem: the problem to place.
      seed: of all randomness.
      limits: of the search. The starts count as evaluations, and estimates of insertions as
        `schedule_search.EVALUATIONS_PER_STEP` says. A simulation of a window counts as the window's
        share of all operations.
      improve_order: whether the result may have another order of priority than the problem, under
        `makespan`; False where placements are compared under one order.

    Returns:
      The best placement, or none if no feasible placement is known. The status is 'optimal' if all
      placements were enumerated or a start is proven optimal, and no other order is better.
    """
    is_large = problem.objective == "makespan" and problem.num_decisions > _LARGE
    improve_order &= problem.objective == "makespan" and not is_large
    proven: Solution | None = None  # an optimum in the problem's order
    if np.log(problem.decisions.allowed.sum(axis=1)).sum() <= np.log(_ENUMERATION_LIMIT):
        proven = trivial.brute_force(problem, seed, limits)
        if not improve_order or proven.placement is None or proven.status != Status.OPTIMAL:
            return proven
        begun = [proven._replace(value_s=problem.value_s(proven.placement))]
    else:
        # The starts, until one is proven optimal.
        begun = []
        for start in starts.evaluate_starts(problem, seed, limits, with_diagram=not improve_order):
            begun.append(start)
            is_optimal = start.status == Status.OPTIMAL and start.scope != base.CONTIGUOUS
            if is_optimal and np.isfinite(start.value_s):
                proven = start
                break
    evaluations = begun[-1].evaluations
    # The best first; of equally fast ones the first, which may be a single device.
    begun.sort(key=lambda start: start.value_s)
    placements = np.array([start.placement for start in begun[:_NUM_BEST_STARTS]])
    if proven is not None:
        proven = proven._replace(placement=placements[0], value_s=begun[0].value_s)
        if not improve_order:
            return proven
    if is_large and windows.is_suitable(problem):
        window_limits = limits.take_share(1.0, limits.budget - evaluations, evaluations)
        result = windows.improve(problem, placements, seed, window_limits)
        evaluations += result.evaluations
        if limits.is_over() or limits.budget - evaluations < block_search.NUM_SETS:
            return result._replace(evaluations=evaluations)
        if result.placement is not None:
            placements = result.placement[None]
    if not improve_order:
        return run_chain(problem, placements, evaluations, seed, limits)

    make_run = functools.partial(
        _Run,
        make_space=functools.cache(lambda: block_search.make_space(problem, seed)),
        seed=seed,
        budget=limits.budget,
        tables=schedule_search.make_tables(problem),
    )
    # An iterator, so that the first order is searched before the others are computed.
    orders = (problem.with_order(order) for order in _find_orders(problem))
    runs: Iterable[_Run] = (make_run(ordered, placements) for ordered in orders)
    compiler = futures.ThreadPoolExecutor(1)
    compiled: futures.Future | None = None  # the chains' program
    searched: list[_Run] = []
    start_evaluations, first_evaluations = -1, evaluations
    work, gain_work, best_s = 0, 0, np.inf  # the work in total, and when the best value came
    while evaluations > start_evaluations and not limits.is_over():
        if work - gain_work > max(_PATIENCE * gain_work, _LEAST_WORK):
            break  # no gain is likely
        is_first = evaluations == first_evaluations
        start_evaluations, searched = evaluations, []
        for run in runs:
            work -= run.work  # counted again below, when it has grown
            evaluations = run.move_operations(limits, evaluations)
            searched.append(run)
            if compiled is None:  # by a step of another run
                other, step = make_run(problem, placements[:1]), block_search.NUM_PROPOSALS
                compiled = compiler.submit(other.move_blocks, SearchLimits(np.inf, step), 0)
                compiler.submit(schedule_search.advance.optimise)
        if not is_first or not np.isfinite(searched[0].value_s):
            assert compiled is not None
            compiled.result()
            for run in searched:
                evaluations = run.move_blocks(limits, evaluations)
        work += sum(run.work for run in searched)
        if is_first and proven is None:
            # A diagram takes longer than this round, but may prove a placement optimal.
            diagram = starts.narrow_diagram(problem, seed, limits.take_share(0.1, limits.budget))
            if diagram.placement is not None:
                searched.append(make_run(problem, diagram.placement[None]))
                if diagram.status == Status.OPTIMAL:
                    proven = diagram._replace(value_s=searched[-1].value_s)
        # Successive halving: turns become longer, and fewer orders are left.
        runs = searched = sorted(searched, key=lambda run: run.value_s)[: max(1, len(searched) - 1)]
        if searched[0].value_s < best_s * (1 - _LEAST_GAIN) or best_s == np.inf:
            best_s, gain_work = searched[0].value_s, work
    compiler.shutdown(cancel_futures=True)  # so that nothing compiles while devices are measured
    status = Status.TIME_LIMIT if limits.is_over() else Status.FINISHED
    if not searched:  # no time was left
        placement = placements[0] if np.isfinite(begun[0].value_s) else None
        return Solution(placement, status=status, evaluations=evaluations)
    best = searched[0]
    if proven is not None and best.value_s >= proven.value_s:
        return proven._replace(evaluations=evaluations)
    return best.result(status, evaluations)


def _find_orders(problem: Problem) -> Iterator[np.ndarray]:
    """Yields orders of priority that single moves do not lead from one to another.

    Besides the problem's own, which is by default that of HEFT's upward rank, they are that of the
    downward rank and a depth-first one, which keeps each branch together.
    """
    yield problem.priority_order
    yield problem.reverse().priority_order[::-1]
    graph = problem.graph
    yield dag.depth_first_order(graph.num_ops, graph.senders, graph.receivers)


def lns(problem: Problem, seed: int, limits: SearchLimits) -> Solution:
    """Searches large neighbourhoods of the best start: the chain of `search`, in a given order."""
    begun = [*starts.evaluate_starts(problem, seed, limits)]
    placements = np.array([start.placement for start in begun])
    return run_chain(problem, placements, begun[-1].evaluations, seed, limits)


def run_chain(
    problem: Problem, placements: np.ndarray, evaluations: int, seed: int, limits: SearchLimits
) -> Solution:
    """Searches by block moves alone; `evaluations` were made before."""
    make_space = functools.partial(block_search.make_space, problem, seed)
    run = _Run(problem, placements, make_space, seed, limits.budget)
    evaluations = run.move_blocks(limits, evaluations, is_turn=False)
    return run.result(Status.TIME_LIMIT if limits.is_over() else Status.FINISHED, evaluations)


class _Run:
    """A search in one order of priority, which `move_operations` changes."""

    def __init__(
        self,
        problem: Problem,
        placements: np.ndarray,
        make_space: Callable[[], block_search.SearchSpace],
        seed: int,
        budget: int,
        tables: schedule_search.Tables | None = None,
    ):
        """Begins at the best of placements int32 [M, K].

        If none is feasible, the chain first moves to its best proposal, whatever that costs. There
        is one chain, because each of several would make fewer steps.
        """
        chex.assert_shape(placements, (None, problem.num_decisions))
        costs_s = values_s = np.array([problem.value_s(row) for row in placements], np.float32)
        if not np.isfinite(values_s).any():
            rows = placements[:, None]
            costs_s = np.array([problem.evaluate_penalised(row)[0] for row in rows], np.float32)
        best_row = int(np.argmin(costs_s))
        self.problem, self.placement = problem, placements[best_row]
        self.value_s = float(values_s[best_row])
        self._penalty_s = costs_s[np.isfinite(costs_s)].max(initial=0.0)
        self._make_space, self._seed, self._tables = make_space, seed, tables
        self._space: block_search.SearchSpace | None = None
        self._chain: block_search.SearchState | None = None
        self._schedule: schedule_search.State | None = None  # None: begins at the incumbent
        self.work = 0  # so far
        self._block_work = self._order_work = _FIRST_TURN
        self._step_work = len(problem.makespan_tables.steps.op) * len(problem.devices)
        # Fewer proposals share an order where more steps gain more: in large graphs, whose
        # simulation takes as long per proposal whatever their number, and with a budget for few
        # steps. The size is a power of two, so that few sizes are compiled. A step that checks
        # memory over time takes long in any case.
        is_timed = problem.memory is not None and problem.memory.alive is not None
        has_small_sets = problem.num_decisions > _LARGE and not is_timed
        max_size = _LARGE_SET_SIZE if has_small_sets else block_search.SET_SIZE
        affordable = budget // (block_search.NUM_SETS * _LEAST_STEPS)
        self._set_size = min(max_size, 2 ** max(1, affordable.bit_length() - 1))

    def result(self, status: Status, evaluations: int) -> Solution:
        """Returns the best placement with its order; none if none is feasible."""
        placement = self.placement if np.isfinite(self.value_s) else None
        return Solution(placement, status=status, evaluations=evaluations, order=self.problem.order)

    def move_operations(self, limits: SearchLimits, evaluations: int) -> int:
        """Takes a turn of the search over schedules; returns the evaluations of all runs so far."""
        if self._tables is None or not np.isfinite(self.value_s):
            return evaluations
        if self._schedule is None:
            self._schedule = schedule_search.begin(self.problem, self.placement, self._seed)
        step_work = schedule_search.WORK_PER_OP * self.problem.graph.num_ops
        turn_steps = int(_TURN_SHARE * limits.budget) // schedule_search.EVALUATIONS_PER_STEP
        turn_steps = max(1, min(turn_steps, self._order_work // step_work))
        result, self._schedule = schedule_search.improve(
            self.problem,
            self._tables,
            self._schedule,
            Solution(self.placement, self.value_s),
            turn_steps * schedule_search.EVALUATIONS_PER_STEP,
            limits.take_share(1.0, limits.budget - evaluations, evaluations),
        )
        self.work += result.evaluations // schedule_search.EVALUATIONS_PER_STEP * step_work
        has_gained = result.value_s < self.value_s
        self._order_work = _next_turn(self._order_work, _SHORTEST_ORDER_TURN, has_gained=has_gained)
        if has_gained:
            assert result.placement is not None
            self.problem = self.problem.with_order(result.order)
            self.placement, self.value_s, self._chain = result.placement, result.value_s, None
        elif float(self._schedule.best.latency_s) < self.value_s * (1 - base.ROUNDING):
            # A schedule that is faster, but was not taken, does not keep all limits.
            self._schedule = None
        return evaluations + result.evaluations

    def move_blocks(self, limits: SearchLimits, evaluations: int, *, is_turn: bool = True) -> int:
        """Takes a turn of the chain, or all that is left; returns the evaluations of all runs."""
        if self._space is None:
            self._space = jax.device_put(self._make_space()._replace(penalty_s=self._penalty_s))
            self._move_credit: Array = np.zeros(len(KINDS), np.float32)
        space = self._space._replace(tables=self.problem.tables)
        if self._chain is None:
            latency_s = np.array(self.value_s, np.float32)
            chain = ils.ChainState(
                placements=np.asarray(self.placement, np.int32)[:, None],
                costs_s=latency_s[None],
                steps_since_improvement=np.zeros(1, np.int32),
                best_placement=np.asarray(self.placement, np.int32),
                best_latency_s=latency_s,
                move_credit=self._move_credit,
            )
            chain_seed = np.array((self._seed + evaluations) % 2**32, np.uint32)
            self._chain = block_search.SearchState(chain_seed, chain)
        batch_size = block_search.NUM_SETS * self._set_size
        remaining_steps = (limits.budget - evaluations) // batch_size
        if is_turn:
            turn_steps = max(1, int(_TURN_SHARE * limits.budget) // batch_size)
            turn_steps = min(turn_steps, max(1, self._block_work // self._step_work))
            remaining_steps = min(remaining_steps, turn_steps)
        options = {"objective": self.problem.objective, "set_size": self._set_size}
        start_s, num_steps = self.value_s, 1
        while remaining_steps > 0 and not limits.is_over():
            num_steps = min(num_steps, remaining_steps)
            began_s = limits.elapsed_s()
            self._chain = jax.block_until_ready(
                block_search.advance(space, self._chain, np.int32(num_steps), **options)
            )
            step_s = (limits.elapsed_s() - began_s) / num_steps
            evaluations += num_steps * batch_size
            remaining_steps -= num_steps
            self.work += num_steps * self._step_work
            num_steps = max(1, min(2 * num_steps, int(_REPORT_INTERVAL_S / step_s)))
            chains = self._chain.chains
            assert chains.move_credit is not None
            self.value_s, self._move_credit = float(chains.best_latency_s), chains.move_credit
            if self.value_s < start_s:
                self.placement, self._schedule = np.asarray(chains.best_placement), None
            best = self.placement if np.isfinite(self.value_s) else None
            shares = ils.kind_probabilities(
                np.asarray(self._move_credit), np.asarray(space.orders.num_orders) > 0
            )
            numbers = {f"share_{k}": p for k, p in zip(KINDS, shares.tolist(), strict=True)}
            limits.report(evaluations, self.value_s, best, numbers)
        has_gained = self.value_s < start_s
        self._block_work = _next_turn(self._block_work, _SHORTEST_TURN, has_gained=has_gained)
        return evaluations


def _next_turn(turn: int, shortest: int, *, has_gained: bool) -> int:
    """Returns the work of a search's next turn, at most four times that of the one before."""
    next_turn = max(2 * turn if has_gained else turn // 2, min(shortest, 4 * turn))
    return min(next_turn, _LONGEST_TURN)
