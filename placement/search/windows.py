"""Rolling windows: large schedules under `makespan`, searched one part at a time.

The cost of a simulation grows with the graph, the gain of a block move does not. So a window of
some operations, consecutive in the order of priority, is searched by itself with the same chain
(`placement.search.block_search`); the next window begins in its middle (large neighbourhoods
in time: Shaw 1998; rolling horizons). The longest paths through the schedule that end with
operation v and that begin with it take

    finish(v) = compute_s[v, p[v]] + max( finish of the operation before v on p[v],
                                          max over edges e = (u, v) of finish(u) + delay(e) )
    rest(v)   = compute_s[v, p[v]] + max( rest of the operation after v on p[v],
                                          max over edges e = (v, w) of delay(e) + rest(w) ).

They are the boundary of a window: finish(u) of the operations before it says when each operation
could start on each device; rest(w) of those after it is the longest path to the end. So

    max over v in the window of finish(v) + tail(v, p[v]),
    tail(v, d) = max( rest of the first operation after the window on d,
                        max over edges e = (v, w) that leave the window of delay(e) + rest(w) ),

is the makespan of the whole schedule, except for paths around the window, which the window cannot
change. No window therefore makes the whole schedule worse.

A pass goes over all windows. Each pass has twice the steps of the one before, and windows at other
places. All windows have the same shapes whatever the graph, so that one compilation serves all:
steps of `placement.simulators.list_schedule` that a window does not need do nothing.

A decision can change only if one window holds all its operations. The memory of a window is what
the operations outside it leave free.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import chex
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.graphs import dag
from placement.problem import Problem
from placement.search import block_orders, block_search
from placement.simulators import list_schedule, makespan
from placement.solvers.limits import SearchLimits
from placement.stored_jit import StoredJit
from placement.types import Array, Solution, Status

# Largest number of operations of a window. The smaller it is, the more moves are made in a second;
# below this size the host would take most of the time.
SIZE = 128
_MAX_STEPS = SIZE * 3 // 2  # of a window's schedule
_NUM_BALLS, _NUM_GROUPS = 8, 2
_FIRST_PASS_STEPS = 64  # of the chain in each window
_LEAST_GAIN = 1e-3  # relative, of a pass; after a smaller gain the search ends
_SIMULATE = simulators.get_objective("makespan").simulate_columns


class IncidentEdges(NamedTuple):
    """The edges of each operation in one direction: all incoming or all outgoing ones."""

    first_edge: np.ndarray  # int64 [N + 1]: where each operation's edges begin in the arrays below
    neighbours: np.ndarray  # int32 [E]: the operation at the other end
    edge_ids: np.ndarray  # int32 [E]
    delay_s: np.ndarray  # float32 [E, D, D], by edge id: from the neighbour's device to the own

    def select(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns operations, neighbours and ids, int [Q] each, of the edges of a range."""
        edges = slice(self.first_edge[begin], self.first_edge[end])
        num_edges = np.diff(self.first_edge[begin : end + 1])
        return (
            np.repeat(np.arange(begin, end), num_edges),
            self.neighbours[edges],
            self.edge_ids[edges],
        )


class PathSweep:
    """Longest paths of the operations up to a position; only `advance` changes it.

    It follows the incoming edges forwards for finish(v), and the outgoing edges backwards for
    rest(v). The simulator could not go on with a changed placement after a range, and its float32
    sums would not join up with those of a window.
    """

    def __init__(self, edges: IncidentEdges, compute_s: np.ndarray, *, backwards: bool):
        """Starts before the first operation, or after the last.

        Args:
          edges: along which the paths go.
          compute_s: float32 [N, D].
          backwards: whether the sweep goes from the last operation to the first.
        """
        self.path_s = np.zeros(len(compute_s))  # the longest path to each operation swept so far
        # float64 [D]: the longest path to an operation on each device
        self.device_free_s = np.zeros(compute_s.shape[1])
        self._edges, self._compute_s, self._backwards = edges, compute_s, backwards

    def ready_s(self, begin: int, end: int, placement: np.ndarray) -> np.ndarray:
        """Computes when operations `begin` to `end` could start on each device.

        An operation is ready when the device is free of all operations swept so far, and the
        inputs from those have arrived. Inputs from the range itself do not count.

        Args:
          begin: first operation of the range. A forward sweep is there, a backward sweep at `end`.
          end: after the last operation of the range.
          placement: int32 [N], the devices of operations.

        Returns:
          float64 [end - begin, D].
        """
        ops, neighbours, edge_ids = self._edges.select(begin, end)
        is_outside = (neighbours < begin) | (neighbours >= end)
        ops, neighbours, edge_ids = ops[is_outside], neighbours[is_outside], edge_ids[is_outside]
        ready_s = np.tile(self.device_free_s, (end - begin, 1))
        if len(ops):
            delay_s = self._edges.delay_s[edge_ids, placement[neighbours]]
            arrival_s = self.path_s[neighbours, None] + delay_s
            first_edge = np.flatnonzero(np.diff(ops, prepend=-1))
            rows = ops[first_edge] - begin
            latest_s = np.maximum.reduceat(arrival_s, first_edge)
            ready_s[rows] = np.maximum(ready_s[rows], latest_s)
        return ready_s

    def advance(self, begin: int, end: int, placement: np.ndarray) -> None:
        """Sweeps over operations `begin` to `end`, which come next, on devices int32 [N]."""
        span = np.arange(begin, end)
        ready_s = self.ready_s(begin, end, placement)[span - begin, placement[span]].tolist()
        ops, neighbours, edge_ids = self._edges.select(begin, end)
        is_inside = (begin <= neighbours) & (neighbours < end)
        ops, neighbours, edge_ids = ops[is_inside], neighbours[is_inside], edge_ids[is_inside]
        delay_s = self._edges.delay_s[edge_ids, placement[neighbours], placement[ops]].tolist()
        first_edge = np.searchsorted(ops, np.arange(begin, end + 1)).tolist()
        neighbours = (neighbours - begin).tolist()
        compute_s = self._compute_s[span, placement[span]].tolist()
        devices = placement[span].tolist()
        device_free_s, path_s = self.device_free_s.tolist(), [0.0] * len(span)
        for op in reversed(range(len(span))) if self._backwards else range(len(span)):
            start_s = max(device_free_s[devices[op]], ready_s[op])
            for edge in range(first_edge[op], first_edge[op + 1]):
                start_s = max(start_s, path_s[neighbours[edge]] + delay_s[edge])
            device_free_s[devices[op]] = path_s[op] = start_s + compute_s[op]
        self.path_s[begin:end] = path_s
        self.device_free_s = np.array(device_free_s)


class _OrderedProblem(NamedTuple):
    """A problem whose operations are numbered in the order of priority."""

    compute_s: np.ndarray  # float32 [N, D]
    incoming: IncidentEdges
    outgoing: IncidentEdges
    links: makespan.Links
    mean_delay_s: np.ndarray  # float64 [E]
    allowed: np.ndarray  # bool [K, D]
    decision: np.ndarray  # int32 [N]
    first_ops: np.ndarray  # int32 [K]: first operation of each decision
    last_ops: np.ndarray  # int32 [K]
    memory: simulators.Memory | None


class _Window(NamedTuple):
    """Consecutive operations."""

    begin: int
    end: int
    next_begin: int  # of the next window; operations before it are final until the next pass


class _WindowSearch(NamedTuple):
    """A window's k decisions, without its boundary."""

    space: block_search.SearchSpace
    decisions: np.ndarray  # int [k]: their numbers in the problem


def is_suitable(problem: Problem) -> bool:
    """Returns whether windows hold all operations of most decisions, so that these can move.

    They do not in a training step whose gradients are computed where their operations are.
    """
    position = np.argsort(problem.priority_order)
    first = np.full(problem.num_decisions, problem.graph.num_ops)
    np.minimum.at(first, problem.decision, position)
    last = np.zeros_like(first)
    np.maximum.at(last, problem.decision, position)
    return bool(np.median(last - first) < SIZE // 2)


def improve(problem: Problem, starts: np.ndarray, seed: int, limits: SearchLimits) -> Solution:
    """Searches the windows of a schedule, pass after pass, until one gains next to nothing.

    Args:
      problem: of the objective `makespan`.
      starts: int32 [M, K]; the search begins at the best, and finds nothing if none is feasible.
      seed: of all randomness.
      limits: of the search. A simulation of a window counts as the window's share of all
        operations. A simulation of the whole graph, once a pass and of each start, counts as one.
    """
    chex.assert_shape(starts, (None, problem.num_decisions))
    chex.assert_type(starts, int)
    starts_s = [problem.value_s(start) for start in starts]
    best_start = int(np.argmin(starts_s))
    best, best_s, evaluations = starts[best_start], starts_s[best_start], float(len(starts))
    if not np.isfinite(best_s):
        return Solution(None, evaluations=len(starts))
    limits.report(len(starts), best_s, best)
    search = _Search(_order_problem(problem), best, np.random.default_rng(seed))
    num_steps, is_gaining = _FIRST_PASS_STEPS, True
    while is_gaining and not limits.is_over():
        windows = search.draw_windows()
        simulated_ops = sum(window.end - window.begin for window in windows)
        evaluations_per_step = block_search.NUM_PROPOSALS * simulated_ops / problem.graph.num_ops
        remaining = limits.budget - evaluations - 1
        num_steps = min(num_steps, int(remaining / evaluations_per_step))
        if num_steps < 1:
            break
        for window_evaluations in search.search_windows(windows, num_steps):
            evaluations += window_evaluations
            limits.report(int(evaluations), best_s, best)
            if limits.is_over():
                break
        placement = search.placement.copy()
        placement_s = problem.value_s(placement)
        evaluations += 1
        is_gaining = placement_s < best_s * (1 - _LEAST_GAIN)
        if placement_s < best_s:
            best, best_s = placement, placement_s
        limits.report(int(evaluations), best_s, best)
        num_steps *= 2
    status = Status.TIME_LIMIT if limits.is_over() else Status.FINISHED
    return Solution(best, status=status, evaluations=int(evaluations))


class _Search:
    """The current placement int32 [K], and the search of its windows."""

    def __init__(self, ordered: _OrderedProblem, placement: np.ndarray, rng: np.random.Generator):
        self._ordered, self._rng, self.placement = ordered, rng, placement.copy()
        self._move_credit = jnp.zeros(len(block_orders.KINDS))
        self._used_bytes = self._range_bytes(0, len(ordered.decision))

    def draw_windows(self) -> list[_Window]:
        """Draws the windows of a pass, as large as their shapes allow; they cover all operations.

        The second one begins at a random operation, or at the middle of the first.
        """
        num_ops, begin = len(self._ordered.decision), 0
        first_length = int(self._rng.integers(1, SIZE // 2))
        windows: list[_Window] = []
        while begin < num_ops:
            end = min(begin + SIZE, num_ops)
            ops, neighbours, _ = self._ordered.incoming.select(begin, end)
            fan_in = np.bincount(ops[neighbours >= begin] - begin, minlength=end - begin)
            num_steps = np.cumsum(list_schedule.num_steps(fan_in))
            end = begin + int(np.searchsorted(num_steps, _MAX_STEPS, side="right"))
            middle = begin + (end - begin + 1) // 2
            next_begin = middle if windows else min(begin + first_length, middle)
            windows.append(_Window(begin, end, next_begin if end < num_ops else num_ops))
            begin = windows[-1].next_begin
        return windows

    def search_windows(self, windows: list[_Window], num_steps: int) -> Iterator[float]:
        """Searches windows by `num_steps` steps each; yields the evaluations of each window."""
        ordered, placement, num_ops = self._ordered, self.placement, len(self._ordered.decision)
        tail_s = self._tails_s(windows)
        sweep = PathSweep(ordered.incoming, ordered.compute_s, backwards=False)
        next_search = _prepare(ordered, windows[0], self._rng)
        for i, window in enumerate(windows):
            window_search, (begin, end, next_begin) = next_search, window
            ready_s = sweep.ready_s(begin, end, placement[ordered.decision])
            start = _pad(placement[window_search.decisions], 0)[:SIZE]
            window_seed = np.uint32(self._rng.integers(2**32))
            space = self._add_boundary(window_search, window, ready_s, tail_s[i])
            start_s, chains = _advance(
                space, start, window_seed, self._move_credit, np.int32(num_steps)
            )
            if end < num_ops:  # Prepares the next window while the device computes.
                next_search = _prepare(ordered, windows[i + 1], self._rng)
            if chains.best_latency_s < start_s < np.inf:
                self._used_bytes -= self._range_bytes(begin, end)
                decisions = window_search.decisions
                placement[decisions] = np.asarray(chains.best_placement)[: len(decisions)]
                self._used_bytes += self._range_bytes(begin, end)
            self._move_credit = chains.move_credit
            sweep.advance(begin, next_begin, placement[ordered.decision])
            yield block_search.NUM_PROPOSALS * num_steps * (end - begin) / num_ops

    def _tails_s(self, windows: list[_Window]) -> list[np.ndarray]:
        """Computes each window's paths from its operations' ends to the schedule's, [n, D]."""
        ordered, devices = self._ordered, self.placement[self._ordered.decision]
        end = len(devices)
        sweep = PathSweep(ordered.outgoing, ordered.compute_s, backwards=True)
        tail_s = []
        for window in reversed(windows):
            sweep.advance(window.end, end, devices)
            end = window.end
            tail_s.append(sweep.ready_s(window.begin, end, devices))
        return tail_s[::-1]

    def _add_boundary(
        self,
        window_search: _WindowSearch,
        window: _Window,
        ready_s: np.ndarray,
        tail_s: np.ndarray,
    ) -> block_search.SearchSpace:
        """Returns the window's space with its boundary; only differences of the times matter."""
        tables = window_search.space.tables
        ops = tables.objective.steps.op
        # An operation that does not exist must not be the last to end.
        minimum_s = float(np.finfo(np.float32).min)
        boundary = makespan.Boundary(
            _pad((ready_s - ready_s.max()).astype(np.float32), 0.0)[ops],
            _pad((tail_s - tail_s.max()).astype(np.float32), minimum_s)[:SIZE],
        )
        memory = tables.memory
        if memory is not None:
            # The memory that operations outside leave free; at least what the window occupies now.
            window_bytes = self._range_bytes(window.begin, window.end)
            outside_bytes = memory.shared @ (self._used_bytes - window_bytes)
            free_bytes = np.asarray(memory.capacity_bytes, np.float64) - outside_bytes
            free_bytes = np.maximum(free_bytes, memory.shared @ window_bytes)
            memory = memory._replace(capacity_bytes=free_bytes.astype(np.float32))
        objective_tables = tables.objective._replace(boundary=boundary)
        return window_search.space._replace(
            tables=tables._replace(memory=memory, objective=objective_tables),
            penalty_s=np.asarray(ready_s.max() + tail_s.max(), np.float32),
        )

    def _range_bytes(self, begin: int, end: int) -> np.ndarray:
        """Computes the memory that a range of operations occupies on each device, float64 [D]."""
        memory = self._ordered.memory
        num_devices = self._ordered.compute_s.shape[1]
        if memory is None:
            return np.zeros(num_devices)
        devices = self.placement[self._ordered.decision[begin:end]]
        return np.bincount(devices, memory.memory_bytes[begin:end], num_devices)


@StoredJit
def _advance(
    space: block_search.SearchSpace,
    placement: Array,
    seed: Array,
    move_credit: Array,
    num_steps: Array,
) -> tuple[Array, Any]:
    """Returns the latency of a placement int32 [K], and a chain that searched from it."""
    space, state = block_search.start(_SIMULATE, space, placement, seed)
    start_s = state.chains.best_latency_s
    state = state._replace(chains=state.chains._replace(move_credit=move_credit))
    return start_s, block_search.advance(space, state, num_steps, objective="makespan").chains


def _order_problem(problem: Problem) -> _OrderedProblem:
    graph, order = problem.graph, problem.priority_order
    position = np.empty_like(order)
    position[order] = np.arange(len(order), dtype=order.dtype)
    senders, receivers = position[graph.senders], position[graph.receivers]
    delay_s = problem.edge_delay_s
    edge_ids = np.arange(graph.num_edges, dtype=np.int32)
    first_incoming, incoming = dag.successors(len(order), receivers, edge_ids)
    first_outgoing, outgoing = dag.successors(len(order), senders, edge_ids)
    decision, memory = problem.decision[order], problem.memory
    if memory is not None:
        # Windows do not know how long tensors stay alive, nor who copies constants.
        memory = memory._replace(
            memory_bytes=memory.memory_bytes[order], alive=None, schedule=None, copies=None
        )
    return _OrderedProblem(
        compute_s=np.asarray(problem.costs.compute_s, np.float32)[order],
        incoming=IncidentEdges(first_incoming, senders[incoming], incoming, delay_s),
        outgoing=IncidentEdges(
            first_outgoing, receivers[outgoing], outgoing, delay_s.transpose(0, 2, 1)
        ),
        links=problem.links,
        mean_delay_s=problem.mean_edge_delay_s,
        allowed=problem.decisions.allowed,
        decision=decision,
        first_ops=np.unique(decision, return_index=True)[1],
        last_ops=len(order) - 1 - np.unique(decision[::-1], return_index=True)[1],
        memory=memory,
    )


def _prepare(ordered: _OrderedProblem, window: _Window, rng: np.random.Generator) -> _WindowSearch:
    """Makes a window's search space, as far as it does not depend on the placement."""
    begin, end, _ = window
    num_ops = end - begin
    receivers, senders, edge_ids = ordered.incoming.select(begin, end)
    is_inside = senders >= begin
    receivers, senders = receivers[is_inside] - begin, senders[is_inside] - begin
    edge_ids = edge_ids[is_inside]
    steps = list_schedule.steps(SIZE, senders, receivers, np.arange(num_ops, dtype=np.int32))
    steps = list_schedule.pad(steps, SIZE, len(edge_ids), _MAX_STEPS)
    tables = makespan.Tables(
        steps,
        _pad(ordered.compute_s[begin:end], 0.0)[steps.op],
        ordered.links.kind,
        makespan.arrange_delays(steps, ordered.links.delay_s[edge_ids]),
    )
    # The window numbers its decisions by their first operation.
    decisions, first_ops, inverse = np.unique(
        ordered.decision[begin:end], return_index=True, return_inverse=True
    )
    order = np.argsort(first_ops)
    decisions, decision = decisions[order], np.argsort(order)[inverse].astype(np.int32)
    is_movable = (ordered.first_ops[decisions] >= begin) & (ordered.last_ops[decisions] < end)
    memory, decision_bytes = ordered.memory, np.zeros(len(decisions), np.float32)
    if memory is not None:
        op_bytes = np.asarray(memory.memory_bytes[begin:end])
        decision_bytes = np.bincount(decision, op_bytes).astype(np.float32)
        memory = memory._replace(memory_bytes=_pad(op_bytes, 0.0)[:SIZE])
    delay_s = ordered.mean_delay_s[edge_ids]
    window_orders = block_orders.draw_orders(
        [np.arange(len(decisions))],
        block_orders.weigh_edges(senders, receivers, delay_s, decision),
        None if memory is None else decision_bytes,
        rng,
        num_balls=_NUM_BALLS,
        num_groups=_NUM_GROUPS,
    )
    is_colocated = len(ordered.first_ops) < len(ordered.decision)
    padded_decision = _pad(decision, 0)[:SIZE] if is_colocated else None
    space = block_search.SearchSpace(
        tables=simulators.Tables(padded_decision, memory, tables),
        allowed=_pad(ordered.allowed[decisions] & is_movable[:, None], False)[:SIZE],
        memory_bytes=_pad(decision_bytes, 0.0)[:SIZE],
        penalty_s=np.zeros((), np.float32),
        orders=block_orders.pad_orders(window_orders, 1 + _NUM_BALLS + _NUM_GROUPS, SIZE),
    )
    return _WindowSearch(space, decisions)


def _pad(rows: np.ndarray, value: float) -> np.ndarray:
    """Pads rows [n, ...] of a window to SIZE + 1; the last row is of steps that do nothing."""
    padded = np.full((SIZE + 1, *rows.shape[1:]), value, rows.dtype)
    padded[: len(rows)] = rows
    return padded
