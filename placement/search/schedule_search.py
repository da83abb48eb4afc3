"""Tabu search over schedules: moves operations to other devices and other places in the order.

Under `makespan` a placement and an order of priority define a schedule. For a fixed order, most
moves of one operation only make its device wait. Here an operation is inserted directly before
another one, or at the end of a device, whichever shortens the schedule most. One step

1. draws some operations on a longest path that have not moved lately,
2. estimates the insertion of each before every operation and at the end of every device, where the
   memory suffices and no input comes after its reader in the order,
3. simulates the best insertions of the most promising operations,
4. makes the best of them unless the schedule becomes much longer than the best one known,
5. sorts all operations by their start, so that positions in the order are instants again, and
6. returns to the best schedule after many steps without improvement.

The simulation differs from that of `placement.simulators.makespan` in two ways: each schedule of a
batch has an order as well, and operations before the first change are not simulated again. The
arrays are arguments of the compiled functions, so that no order compiles anything. The search knows
the memory that operations always occupy. It does not know copies of constants, nor how long tensors
are alive: `improve` simulates the result. Co-located operations keep their device.

The neighbourhood is that of Mastrolilli and Gambardella (2000) for the flexible job shop, with
transfer delays. They move only on proven optimal positions and take the best move by its estimate.
Here positions are limited by the current order instead, and moves are simulated.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from placement.graphs import dag
from placement.problem import Problem
from placement.search import block_search
from placement.simulators import list_schedule, makespan
from placement.solvers.limits import SearchLimits
from placement.stored_jit import StoredJit
from placement.types import Array, Solution

# Time of a step over the operations, in device steps of the batched simulator (measured: 7 to 30).
WORK_PER_OP = 16
PROPOSALS_PER_STEP = 8  # insertions that a step simulates
_MAX_DRAWN = 32  # operations whose insertions a step estimates
# Estimating an operation at all places reads as many numbers as a simulation, and counts as one.
EVALUATIONS_PER_STEP = PROPOSALS_PER_STEP + _MAX_DRAWN
_EDGES_PER_READ = 16  # edges of an operation that are read at once
_NOISE = 2.0**-7  # relative, of estimates: equal ones are many
_TABU_STEPS = 10  # an operation that moved stays for so many steps, or up to twice as many
_THRESHOLD = 0.06  # relative to the best schedule: the length of the longest that is accepted
_PATIENCE = 1_000  # steps without improvement
_REPORT_INTERVAL_S = 0.2  # approximate duration of a compiled call
_ROUNDING = 2.0**-22  # relative, more than that of the two sums that give a start
_PRECISION = 1e-6  # relative, below which lengths of paths are equal


class AdjacentEdges(NamedTuple):
    """The P pairs of neighbours, sorted by the operation at one end; a last row is padding."""

    first: Array  # int32 [N]: the first pair of each operation
    num_edges: Array  # int32 [N]
    neighbours: Array  # int32 [P + 1]: the operation at the other end
    delay_s: Array  # float32 [P + 1, M, M]: from the kind of the neighbour's device to the own


class Tables(NamedTuple):
    """The arrays of a problem with N operations on D devices of M kinds, with R memories."""

    incoming: AdjacentEdges
    outgoing: AdjacentEdges
    compute_s: Array  # float32 [N, D]
    kind: Array  # int32 [D]: see `makespan.Links`
    can_move: Array  # bool [N, D]: whether an operation alone may move to a device
    memory_bytes: Array  # float32 [N]
    memory_devices: Array  # bool [R, D]: the devices that use each memory
    capacity_bytes: Array  # float32 [R]


class Schedule(NamedTuple):
    """A schedule of N operations."""

    order: Array  # int32 [N]: the order of priority, topological
    position: Array  # int32 [N]: of each operation in the order
    placement: Array  # int32 [N]: the device of every operation
    finish_s: Array  # float32 [N]: the longest path that ends with each operation
    rest_s: Array  # float32 [N]: the longest path that begins with it

    @property
    def latency_s(self) -> Array:
        """float32 []."""
        return self.finish_s.max()


class State(NamedTuple):
    """State of a search; a pytree of arrays."""

    seed: Array  # uint32 []: of the draws of all steps
    current: Schedule
    best: Schedule
    tabu_until: Array  # int32 [N]: the step from which each operation may move again
    num_steps: Array  # int32 []
    steps_since_improvement: Array  # int32 []


class _Insertions(NamedTuple):
    """B insertions of one operation each into a schedule."""

    op: Array  # int32 [B]
    begin: Array  # int32 [B]: the operation's position before
    end: Array  # int32 [B]: its position afterwards
    device: Array  # int32 [B]
    exists: Array  # bool [B]: False if the operation has no valid insertion


def make_tables(problem: Problem) -> Tables:
    """Makes the tables of a problem on the default device."""
    num_ops, (kind, edge_delay_s) = problem.graph.num_ops, problem.links
    senders, receivers, _, pair = problem.dependencies
    delay_s = np.zeros((len(senders), *edge_delay_s.shape[1:]), np.float32)
    np.maximum.at(delay_s, pair, edge_delay_s)

    def sort(ends: np.ndarray, neighbours: np.ndarray, delay_s: np.ndarray) -> AdjacentEdges:
        first, pairs = dag.successors(num_ops, ends, np.arange(len(ends), dtype=np.int32))
        return AdjacentEdges(
            first[:-1].astype(np.int32),
            np.diff(first).astype(np.int32),
            np.append(neighbours[pairs], 0).astype(np.int32),
            np.concatenate([delay_s[pairs], np.zeros_like(delay_s, shape=(1, *delay_s.shape[1:]))]),
        )

    memory = problem.memory_limits
    is_alone = np.bincount(problem.decision)[problem.decision] == 1
    return jax.device_put(
        Tables(
            incoming=sort(receivers, senders, delay_s),
            outgoing=sort(senders, receivers, delay_s.transpose(0, 2, 1)),
            compute_s=np.asarray(problem.costs.compute_s, np.float32),
            kind=kind.astype(np.int32),
            can_move=problem.allowed & is_alone[:, None],
            memory_bytes=np.asarray(problem.costs.memory_bytes, np.float32),
            memory_devices=memory.devices,
            capacity_bytes=memory.capacity_bytes.astype(np.float32),
        )
    )


def begin(problem: Problem, placement: np.ndarray, seed: int) -> State:
    """Begins a search at a placement int32 [K] that can run, in the problem's order.

    The paths are computed on the host, so that this compiles nothing.
    """
    devices, order = problem.expand(np.asarray(placement, np.int32)), problem.priority_order
    finish_s = makespan.sweep_on_host(problem.makespan_tables, devices)
    rest_s = makespan.sweep_on_host(problem.makespan_tables, devices, backwards=True)
    position = np.argsort(order).astype(np.int32)
    schedule = Schedule(order, position, devices, finish_s, rest_s)
    zero = np.zeros((), np.int32)
    return State(
        np.array(seed % 2**32, np.uint32), schedule, schedule, np.zeros_like(order), zero, zero
    )


def improve(
    problem: Problem,
    tables: Tables,
    state: State,
    incumbent: Solution,
    num_evaluations: int,
    limits: SearchLimits,
) -> tuple[Solution, State]:
    """Searches for a better schedule than an incumbent.

    Args:
      problem: of the objective `makespan`; its order of priority is that of the incumbent.
      tables: of the problem; they do not depend on the order.
      state: of a search that began at the incumbent.
      incumbent: a placement that can run, with its value.
      num_evaluations: simulations and estimates; fewer within the limits.
      limits: of the search.

    Returns:
      The incumbent or a better placement, with its value in the problem's simulator, its order of
      priority and the evaluations of this call; and the state from which the search goes on.
    """
    remaining_steps = min(num_evaluations, limits.budget) // EVALUATIONS_PER_STEP
    evaluations, num_steps = 0, 1
    while remaining_steps > 0 and not limits.is_over():
        num_steps = min(num_steps, remaining_steps)
        began_s = limits.elapsed_s()
        state = jax.device_get(advance(tables, state, np.int32(num_steps)))
        step_s = (limits.elapsed_s() - began_s) / num_steps
        remaining_steps -= num_steps
        evaluations += num_steps * EVALUATIONS_PER_STEP
        latency_s = float(state.best.latency_s)
        if problem.memory is None and latency_s < incumbent.value_s:
            best = np.asarray(state.best.placement)[problem.decisions.first_ops]
            limits.report(evaluations, latency_s, best)
        else:
            limits.report(evaluations, incumbent.value_s, incumbent.placement)
        num_steps = max(1, min(2 * num_steps, int(_REPORT_INTERVAL_S / step_s)))
    order = np.asarray(state.best.order)
    placement = np.asarray(state.best.placement)[problem.decisions.first_ops]
    value_s = problem.with_order(order).value_s(placement)
    if value_s < incumbent.value_s:
        return Solution(placement, value_s, evaluations=evaluations, order=order), state
    return incumbent._replace(evaluations=evaluations, order=problem.order), state


# With these kernels the program compiles in half of the time, and is as fast. Without optimisations
# it takes three times as long for a step, but computes the same numbers: all products that are
# added are with powers of two, so that nothing changes if a product and a sum are rounded at once.
@partial(
    StoredJit,
    compiler_options={"xla_cpu_use_fusion_emitters": False},
    begins_unoptimised=True,
)
def advance(tables: Tables, state: State, num_steps: Array) -> State:
    """Advances a search by `num_steps` steps."""

    def step(_: Array, state: State) -> State:
        current = state.current
        seed = state.seed + state.num_steps.astype(jnp.uint32) * block_search.SEED_STEP
        op, begin, end, device, exists = _propose(tables, state, seed)

        # B changed schedules: orders, positions, and devices by position, int32 [N, B].
        row, position = jnp.arange(len(current.order))[:, None], current.position[:, None]
        source = jnp.where((begin <= row) & (row < end), row + 1, row)
        source = jnp.where((end < row) & (row <= begin), row - 1, source)
        orders = current.order[jnp.where(row == end, begin, source)]
        positions = jnp.where((begin < position) & (position <= end), position - 1, position)
        positions = jnp.where((end <= position) & (position < begin), position + 1, positions)
        positions = jnp.where(position == begin, end, positions)
        devices = jnp.where(row == end, device, current.placement[orders])
        path_s = _sweep(
            tables,
            tables.incoming,
            orders,
            positions,
            devices,
            current.finish_s[current.order],
            jnp.minimum(begin, end).min(),
        )

        latencies_s = jnp.where(exists, path_s.max(axis=0), jnp.inf)
        best, best_s = latencies_s.argmin(), state.best.latency_s
        is_accepted = latencies_s[best] <= jnp.maximum(current.latency_s, best_s * (1 + _THRESHOLD))
        is_moved = jnp.arange(len(current.order)) == op[best]

        def move() -> Schedule:
            placement = jnp.where(is_moved, device[best], current.placement)
            return _complete(
                tables, orders[:, best], positions[:, best], placement, path_s[:, best]
            )

        moved = jax.lax.cond(is_accepted, move, lambda: current)
        is_better = moved.latency_s < best_s * (1 - _PRECISION)
        stale = jnp.where(is_better, 0, state.steps_since_improvement + 1)
        # Conditionals compile faster than selections from each array.
        best_schedule = jax.lax.cond(is_better, lambda: moved, lambda: state.best)
        is_stuck = stale > _PATIENCE
        tabu_steps = (_TABU_STEPS * (1 + block_search.draw_uniform(seed ^ 1, ()))).astype(int)
        return State(
            seed=state.seed,
            current=jax.lax.cond(is_stuck, lambda: best_schedule, lambda: moved),
            best=best_schedule,
            # A rejected operation waits too, so that other operations are drawn.
            tabu_until=jnp.where(is_moved, state.num_steps + tabu_steps, state.tabu_until),
            num_steps=state.num_steps + 1,
            steps_since_improvement=jnp.where(is_stuck, 0, stale),
        )

    return jax.lax.fori_loop(0, num_steps, step, state)


def _propose(tables: Tables, state: State, seed: Array) -> _Insertions:
    """Draws operations and returns the best insertions of the most promising ones by estimate.

    Let finish(u) be the longest path of the schedule that ends with operation u, and rest(w) the
    longest that begins with w. If v is inserted on device d between a and b, the longest path
    through v takes

        max( finish(a), max over edges (u, v) of finish(u) + delay )
            + compute_s[v, d] + max( rest(b), max over edges (v, w) of delay + rest(w) ).

    A path that v itself is on changes when v moves, so that this is an estimate.
    """
    schedule, (num_ops, num_devices) = state.current, tables.compute_s.shape
    order, position, placement, finish_s, rest_s = schedule
    devices, ops = jnp.arange(num_devices), jnp.arange(num_ops)
    compute_s = tables.compute_s[ops, placement]
    path_through_s = finish_s + rest_s - compute_s
    is_open = path_through_s >= schedule.latency_s * (1 - _PRECISION)
    is_open &= state.tabu_until <= state.num_steps
    priority = is_open + block_search.draw_uniform(seed, (num_ops,))
    drawn_ops = jax.lax.top_k(priority, min(_MAX_DRAWN, num_ops))[1]  # int32 [R]

    # The operation before each one on its device, and the last operation of each device; N: none.
    by_device = order[jnp.argsort(placement[order], stable=True)]
    is_first = jnp.diff(placement[by_device], prepend=-1) > 0
    predecessor = jnp.zeros(num_ops, jnp.int32)
    predecessor = predecessor.at[by_device].set(
        jnp.where(is_first, num_ops, jnp.roll(by_device, 1))
    )
    last = jnp.where(placement[:, None] == devices, position[:, None], -1).max(axis=0)
    last_op = jnp.append(order, num_ops)[last]  # -1: the last entry

    # The N + D places: before each operation, and at the end of each device. The rows below are
    # drawn operations, the columns places.
    op, place_device = drawn_ops[:, None], jnp.concatenate([placement, devices])
    place_before = jnp.concatenate([predecessor, last_op])
    rest_after_s = jnp.concatenate([rest_s, jnp.zeros(num_devices)])
    arrival_s, last_input = _reach(tables, tables.incoming, drawn_ops, schedule, finish_s)
    departure_s, last_reader = _reach(tables, tables.outgoing, drawn_ops, schedule, rest_s)
    first_reader = num_ops - 1 - last_reader
    # Positions count all operations, the inserted one included.
    end_position = jnp.maximum(last, last_input[:, None]) + 1
    place_position = jnp.concatenate(
        [jnp.broadcast_to(position, (len(drawn_ops), num_ops)), end_position], axis=1
    )
    is_same_device = place_device == placement[op]
    used_bytes = tables.memory_bytes @ (placement[:, None] == devices).astype(jnp.float32)
    free_bytes = tables.capacity_bytes - tables.memory_devices @ used_bytes  # of each memory
    device_bytes = jnp.where(tables.memory_devices, free_bytes[:, None], jnp.inf)
    free_bytes = device_bytes.min(axis=0, initial=jnp.inf)  # on each device
    fits = tables.memory_bytes[op] <= free_bytes[place_device]
    is_valid = (place_position > last_input[:, None]) & (place_position <= first_reader[:, None])
    is_valid &= is_same_device | (tables.can_move[op, place_device] & fits)
    # Where the operation is already: before itself, and directly after itself.
    is_here = jnp.append(ops, jnp.full(num_devices, num_ops)) == op
    is_valid &= is_open[op] & ~is_here & ~(is_same_device & (place_before == op))
    begin_s = jnp.maximum(jnp.append(finish_s, 0.0)[place_before], arrival_s[:, place_device])
    rest_of_path_s = jnp.maximum(rest_after_s, departure_s[:, place_device])
    estimate_s = begin_s + tables.compute_s[drawn_ops][:, place_device] + rest_of_path_s
    noise = 1 + _NOISE * block_search.draw_uniform(seed ^ 2, estimate_s.shape)
    estimate_s = jnp.where(is_valid, estimate_s * noise, jnp.inf)
    place, min_estimate_s = estimate_s.argmin(axis=1), estimate_s.min(axis=1)

    row = jax.lax.top_k(-min_estimate_s, min(PROPOSALS_PER_STEP, len(drawn_ops)))[1]  # int32 [B]
    op, place = drawn_ops[row], place[row]
    begin, end = position[op], place_position[row, place]
    end = jnp.where(end > begin, end - 1, end)  # the operation leaves its place
    return _Insertions(op, begin, end, place_device[place], jnp.isfinite(min_estimate_s[row]))


def _reach(
    tables: Tables, edges: AdjacentEdges, ops: Array, schedule: Schedule, path_s: Array
) -> tuple[Array, Array]:
    """Computes the longest paths to operations from their neighbours, on each device.

    Args:
      tables: of the problem.
      edges: incoming or outgoing.
      ops: int32 [R].
      schedule: the current one.
      path_s: float32 [N]: the longest path that ends with each operation along these edges.

    Returns:
      The paths float32 [R, D], and the last position int32 [R] of a neighbour along these edges,
      counted from where paths begin; -1 if there is none.
    """
    num_devices = tables.compute_s.shape[1]
    position = schedule.position
    if edges is tables.outgoing:
        position = len(position) - 1 - position
    devices = jnp.arange(num_devices)

    def read(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        arrival_s, last = carry
        edge, is_edge = _select_edges(edges, ops, i)
        neighbour = edges.neighbours[edge]
        source = schedule.placement[neighbour][..., None]
        delay_s = _delay_s(tables, edges, edge[..., None], source, devices)
        paths_s = jnp.where(is_edge[..., None], path_s[neighbour][..., None] + delay_s, 0.0)
        positions = jnp.where(is_edge, position[neighbour], -1)
        return (
            jnp.maximum(arrival_s, paths_s.max(axis=1)),
            jnp.maximum(last, positions.max(axis=1)),
        )

    initial = jnp.zeros((len(ops), num_devices)), jnp.full(len(ops), -1, jnp.int32)
    return jax.lax.fori_loop(0, _num_reads(edges, ops), read, initial)


def _complete(
    tables: Tables, order: Array, position: Array, placement: Array, path_s: Array
) -> Schedule:
    """Returns a schedule with its operations sorted by start; `path_s` [N] is by position."""
    # An estimate that is never before the start nor after the end, in spite of rounding. So an
    # operation stays after its inputs, even if these take no time.
    compute_s = tables.compute_s[order, placement[order]]
    start_s = path_s - jnp.maximum(compute_s - path_s * _ROUNDING, 0.0)
    finish_s = path_s[position]
    # Stable, so that operations that take no time keep their order.
    order = order[jnp.argsort(start_s, stable=True)]
    reverse = order[::-1]
    reverse_position = _invert(reverse)
    rest_s = _sweep(
        tables,
        tables.outgoing,
        reverse[:, None],
        reverse_position[:, None],
        placement[reverse][:, None],
    )
    position = len(order) - 1 - reverse_position
    return Schedule(order, position, placement, finish_s, rest_s[reverse_position, 0])


def _sweep(
    tables: Tables,
    edges: AdjacentEdges,
    orders: Array,
    positions: Array,
    devices: Array,
    known_path_s: Array | None = None,
    num_known: Array | int = 0,
) -> Array:
    """Computes the longest paths through B schedules, operation by operation.

    Args:
      tables: of the problem.
      edges: incoming, for paths that end with each operation; outgoing, with the orders reversed,
        for paths that begin with it.
      orders: int32 [N, B], operations by position.
      positions: int32 [N, B], the positions of operations.
      devices: int32 [N, B], by position.
      known_path_s: float32 [N], by position; the same in all schedules.
      num_known: int32 []: the paths before this position are known.

    Returns:
      float32 [N, B], by position.
    """
    num_ops, batch = orders.shape
    num_devices = tables.compute_s.shape[1]
    column, all_devices = jnp.arange(batch)[:, None], jnp.arange(num_devices)
    path_s = jnp.zeros((num_ops, batch))
    device_path_s = jnp.zeros((batch, num_devices))  # of the latest operation on each device
    if known_path_s is not None:
        is_known = (jnp.arange(num_ops) < num_known)[:, None]
        path_s = jnp.where(is_known, known_path_s[:, None], path_s)
        is_own = devices[..., None] == all_devices
        device_path_s = jnp.where(is_own, path_s[..., None], 0.0).max(axis=0)

    def visit(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        path_s, device_path_s = carry
        op, device = orders[i], devices[i]

        def read(j: Array, ready_s: Array) -> Array:
            edge, is_edge = _select_edges(edges, op, j)
            row = positions[edges.neighbours[edge], column]
            delay_s = _delay_s(tables, edges, edge, devices[row, column], device[:, None])
            arrival_s = jnp.where(is_edge, path_s[row, column] + delay_s, 0.0)
            return jnp.maximum(ready_s, arrival_s.max(axis=1))

        ready_s = jax.lax.fori_loop(0, _num_reads(edges, op), read, jnp.zeros(batch))
        is_own = device[:, None] == all_devices
        free_s = jnp.where(is_own, device_path_s, 0.0).max(axis=1)
        _, op_path_s = list_schedule.run_op(ready_s, free_s, tables.compute_s[op, device])
        return (
            jax.lax.dynamic_update_index_in_dim(path_s, op_path_s, i, 0),
            jnp.where(is_own, op_path_s[:, None], device_path_s),
        )

    return jax.lax.fori_loop(num_known, num_ops, visit, (path_s, device_path_s))[0]


def _invert(order: Array) -> Array:
    """Returns the position of each operation in an order int32 [N]."""
    return jnp.zeros_like(order).at[order].set(jnp.arange(len(order), dtype=order.dtype))


def _num_reads(edges: AdjacentEdges, ops: Array) -> Array:
    return -(-edges.num_edges[ops].max() // _EDGES_PER_READ)


def _select_edges(edges: AdjacentEdges, ops: Array, read: Array) -> tuple[Array, Array]:
    """Returns edges of operations int32 [R] at one read, int32 [R, W], and whether they exist."""
    index = read * _EDGES_PER_READ + jnp.arange(_EDGES_PER_READ)
    edge = edges.first[ops][:, None] + index
    return jnp.minimum(edge, len(edges.neighbours) - 1), index < edges.num_edges[ops][:, None]


def _delay_s(
    tables: Tables, edges: AdjacentEdges, edge: Array, source: Array, device: Array
) -> Array:
    """Returns the delays of edges from device `source` to `device`; the arguments broadcast."""
    if edges.delay_s.shape[-1] == 1:  # devices of one kind: most of the gathers are not needed
        delay_s = edges.delay_s[edge, 0, 0]
    else:
        delay_s = edges.delay_s[edge, tables.kind[source], tables.kind[device]]
    return jnp.where(source == device, 0.0, delay_s)
