"""Rolling windows: a large schedule under `makespan`, searched a part of it at a time.

What a simulation costs grows with the graph, and what a block gains does not. So a window of some
hundred operations that follow one another in the order of priority is searched by itself, with the
same chains (`placement.search.chains`), until the next begins in its middle (large neighbourhoods
in time: Shaw 1998; rolling horizons). What stands outside of a window is a boundary of numbers
(`placement.search.sweeps`): before it finish(u) is known, which says when each operation could
start on each device; after it rest(w), the longest path to the end. So

    max over v in the window of finish(v) + onward(v, p[v]),
    onward(v, d) = max( rest of the first operation after the window on d,
                        max over edges e = (v, w) that leave it of delay(e) + rest(w) ),

is the makespan of the whole schedule but for paths that pass the window by, which it cannot change.
No window makes the whole worse, and none has to guess what is good for what follows.

A pass goes over all windows. Each has twice the steps of the one before and windows at other
places. All windows have one shape, whatever the graph, so that one compilation serves all: as many
steps of `placement.simulators.schedule`, of which those that are left over do nothing.

A class of co-located operations moves where one window holds all of it, and else stays; memory
beside what the operations outside occupy is the window's.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.instance import Instance
from placement.search import chains, orders, sweeps
from placement.simulators import makespan, schedule
from placement.solvers.limits import SearchLimits
from placement.types import Array, Solution, Status

SIZE = 512  # operations of a window, at most
_STEPS = SIZE * 3 // 2  # of its schedule, at most
_MOST = orders.Most(role=16, ball=16, group=4)
_ORDERS = 1 + sum(_MOST)
_CHAINS = 4
_EFFORT = 32  # steps of the chains in each window of the first pass
_LEAST_GAIN = 1e-3  # of a pass, or it is the last
_SIMULATE = simulators.objective("makespan").simulate_columns


class _Whole(NamedTuple):
    """A problem whose operations are numbered in the order of priority."""

    order: np.ndarray  # int32 [N]: the problem's own numbers
    names: tuple[str, ...]
    compute_s: np.ndarray  # float32 [N, D]
    into: sweeps.Side
    out: sweeps.Side
    links: makespan.Links
    mean_delay_s: np.ndarray  # float64 [E]
    allowed: np.ndarray  # bool [C, D]
    number: np.ndarray  # int32 [N]: the class of every operation
    first: np.ndarray  # int32 [C]: of each class
    last: np.ndarray  # int32 [C]
    memory: simulators.Memory | None


class _Window(NamedTuple):
    """Some operations that follow one another."""

    begin: int
    end: int
    settled: int  # where the next begins: what is before stays as it is until the next pass


class _Part(NamedTuple):
    """A window's space, its boundary aside."""

    space: chains.Space
    number: np.ndarray  # int32 [n]: of its operations, the class within
    first: np.ndarray  # int32 [c]: of the classes within, the first operation


def suit(problem: Instance) -> bool:
    """Whether windows hold most classes: one whose operations are far apart moves in none.

    So it is of a step of training whose gradients are on the devices of their operations.
    """
    classes, position = problem.classes, np.argsort(problem.priority_order)
    first = np.full(len(classes.first_ops), problem.graph.num_ops)
    np.minimum.at(first, classes.ids, position)
    last = np.zeros_like(first)
    np.maximum.at(last, classes.ids, position)
    return bool(np.median(last - first) < SIZE // 2)


def improve(
    problem: Instance,
    starts: np.ndarray,
    seed: int,
    limits: SearchLimits,
) -> Solution:
    """Searches the windows of a schedule, pass after pass, until one gains next to nothing.

    Args:
      problem: of the objective `makespan`.
      starts: int32 [M, N], of which it goes on from the best; nothing is found if none is feasible.
      seed: of all randomness.
      limits: until which it searches. A simulation of a window counts as the share of an evaluation
        that its operations are of all; a whole one, once a pass and of each start, as one.
    """
    chex.assert_shape(starts, (None, problem.graph.num_ops))
    chex.assert_type(starts, int)
    starts_s = [problem.value_s(start) for start in starts]
    nth = int(np.argmin(starts_s))
    best, best_s, evaluations = starts[nth], starts_s[nth], float(len(starts))
    if not np.isfinite(best_s):
        return Solution(None, evaluations=len(starts))
    limits.tell(len(starts), best_s, best)
    search = _Search(_whole(problem), best, np.random.default_rng(seed))
    effort, gained = _EFFORT, True
    while gained and not limits.over():
        windows = search.draw()
        per_step = _CHAINS * chains.CHILDREN * sum(w.end - w.begin for w in windows) / len(best)
        effort = min(effort, int((limits.budget - evaluations - 1) / per_step))
        if effort < 1:
            break
        for share in search.go(windows, effort):
            evaluations += share
            limits.tell(int(evaluations), best_s, best)
            if limits.over():
                break
        found = search.placement()
        found_s = problem.value_s(found)
        evaluations += 1
        gained = found_s < best_s * (1 - _LEAST_GAIN)
        if found_s < best_s:
            best, best_s = found, found_s
        limits.tell(int(evaluations), best_s, best)
        effort *= 2
    status = Status.TIME_LIMIT if limits.over() else Status.FINISHED
    return Solution(best, status=status, evaluations=int(evaluations))


class _Search:
    """A placement whose windows are searched; it stands in the order of priority."""

    def __init__(self, whole: _Whole, placement: np.ndarray, rng: np.random.Generator):
        self._whole, self._rng = whole, rng
        self._placed = placement[whole.order]
        self._gained = jnp.zeros(len(orders.KINDS))
        self._used_bytes = self._bytes(0, len(placement))

    def placement(self) -> np.ndarray:
        """The placement int32 [N] by the problem's own numbers."""
        placement = np.empty_like(self._placed)
        placement[self._whole.order] = self._placed
        return placement

    def draw(self) -> list[_Window]:
        """Windows of a pass."""
        return _windows(self._whole, int(self._rng.integers(1, SIZE // 2)))

    def go(self, windows: list[_Window], effort: int) -> Iterator[float]:
        """Goes over windows, some steps of the chains in each; yields evaluations of each."""
        whole, placement = self._whole, self._placed
        onward_s = self._onward_s(windows)
        before = sweeps.Sweep(whole.into, whole.compute_s, backwards=False)
        following = _part(whole, windows[0], self._rng)
        for nth, window in enumerate(windows):
            part, (begin, end, settled) = following, window
            ready_s = before.ready_s(begin, end, placement)
            start = np.zeros(SIZE, np.int32)
            start[: len(part.first)] = placement[begin:end][part.first]
            key = jax.random.key(int(self._rng.integers(2**31)), impl="rbg")
            space = self._bounded(part, window, ready_s, onward_s[nth])
            start_s, state = _advance(_SIMULATE, space, start, key, self._gained, effort)
            if end < len(placement):  # The device computes meanwhile.
                following = _part(whole, windows[nth + 1], self._rng)
            if state.best_s < start_s < np.inf:
                self._used_bytes -= self._bytes(begin, end)
                placement[begin:end] = np.asarray(state.best)[part.number]
                self._used_bytes += self._bytes(begin, end)
            self._gained = state.gained
            before.advance(begin, settled, placement)
            yield _CHAINS * chains.CHILDREN * effort * (end - begin) / len(placement)

    def _onward_s(self, windows: list[_Window]) -> list[np.ndarray]:
        """Of each window, the time from its operations' ends to that of all, [n, D]."""
        whole, end = self._whole, len(self._placed)
        after = sweeps.Sweep(whole.out, whole.compute_s, backwards=True)
        onward_s = []
        for window in reversed(windows):
            after.advance(window.end, end, self._placed)
            end = window.end
            onward_s.append(after.ready_s(window.begin, end, self._placed))
        return onward_s[::-1]

    def _bounded(
        self, part: _Part, window: _Window, ready_s: np.ndarray, onward_s: np.ndarray
    ) -> chains.Space:
        """The part's space with its boundary, of times [n, D] that only differences matter of."""
        limits, of_makespan = part.space.tables
        op = of_makespan.steps.op
        # A step that does nothing is never the last to end.
        least_s = float(np.finfo(np.float32).min)
        boundary = makespan.Boundary(
            _padded((ready_s - ready_s.max()).astype(np.float32), 0.0)[op],
            _padded((onward_s - onward_s.max()).astype(np.float32), least_s)[op],
        )
        if limits.memory is not None:
            own_bytes = self._bytes(window.begin, window.end)
            limits = limits._replace(memory=_left(limits.memory, self._used_bytes, own_bytes))
        return part.space._replace(
            tables=(limits, of_makespan._replace(boundary=boundary)),
            excess_s=np.asarray(ready_s.max() + onward_s.max(), np.float32),
        )

    def _bytes(self, begin: int, end: int) -> np.ndarray:
        """What some operations occupy on each device, float64 [D]."""
        memory = self._whole.memory
        num_devices = self._whole.compute_s.shape[1]
        if memory is None:
            return np.zeros(num_devices)
        some = slice(begin, end)
        return np.bincount(self._placed[some], memory.memory_bytes[some], num_devices)


@partial(jax.jit, static_argnums=0)
def _advance(
    simulate: Any, space: chains.Space, start: Array, key: chex.PRNGKey, gained: Array, count: Array
) -> tuple[Array, chains.State]:
    """What a placement int32 [C] costs, and chains that have gone so many steps from it."""
    space, state = chains.begin(simulate, space, start[:, None], 1, _CHAINS, key)
    return state.best_s, chains.advance(simulate, space, state._replace(gained=gained), count)


def _whole(problem: Instance) -> _Whole:
    graph, classes = problem.graph, problem.classes
    order = problem.priority_order
    position = np.empty_like(order)
    position[order] = np.arange(len(order), dtype=order.dtype)
    into, out = sweeps.sides(
        len(order), position[graph.senders], position[graph.receivers], problem.edge_delay_s
    )
    number = classes.ids[order]
    first = np.unique(number, return_index=True)[1]
    last = len(order) - 1 - np.unique(number[::-1], return_index=True)[1]
    memory = problem.limits.memory
    if memory is not None:
        # What is alive over time is judged of the whole alone.
        memory = memory._replace(memory_bytes=memory.memory_bytes[order], alive=None)
    return _Whole(
        order=order,
        names=tuple(graph.op_names[op] for op in order.tolist()),
        compute_s=np.asarray(problem.costs.compute_s, np.float32)[order],
        into=into,
        out=out,
        links=problem.links,
        mean_delay_s=problem.mean_edge_delay_s,
        allowed=classes.allowed,
        number=number,
        first=first,
        last=last,
        memory=memory,
    )


def _windows(whole: _Whole, settled: int) -> list[_Window]:
    """Windows over all operations, each to where its shape is full; the first settles so many."""
    num_ops, begin = len(whole.order), 0
    windows: list[_Window] = []
    while begin < num_ops:
        end = min(begin + SIZE, num_ops)
        own, other, _ = whole.into.of(begin, end)
        fan_in = np.bincount(own[other >= begin] - begin, minlength=end - begin)
        steps = np.cumsum(schedule.num_steps(fan_in))
        end = begin + int(np.searchsorted(steps, _STEPS, side="right"))
        half = begin + (end - begin + 1) // 2
        following = half if windows else min(begin + settled, half)
        windows.append(_Window(begin, end, following if end < num_ops else num_ops))
        begin = windows[-1].settled
    return windows


def _part(whole: _Whole, window: _Window, rng: np.random.Generator) -> _Part:
    """Makes what a window's search reads, but for what changes with the placement."""
    begin, end, _ = window
    num_ops = end - begin
    receivers, senders, edge = whole.into.of(begin, end)
    within = senders >= begin
    receivers, senders, edge = receivers[within] - begin, senders[within] - begin, edge[within]
    steps = schedule.steps(SIZE, senders, receivers, np.arange(num_ops, dtype=np.int32))
    steps = schedule.pad(steps, SIZE, len(edge), _STEPS)
    tables = makespan.Tables(
        steps,
        _padded(whole.compute_s[begin:end], 0.0)[steps.op],
        whole.links.kind,
        makespan.of_inputs(steps, whole.links.delay_s[edge]),
    )
    classes, first, number = _first_seen(whole.number[begin:end])
    movable = (whole.first[classes] >= begin) & (whole.last[classes] < end)
    memory, class_bytes = whole.memory, np.zeros(len(classes), np.float32)
    if memory is not None:
        op_bytes = np.asarray(memory.memory_bytes[begin:end])
        class_bytes = np.bincount(number, op_bytes).astype(np.float32)
        memory = memory._replace(memory_bytes=_padded(op_bytes, 0.0)[:SIZE])
    parts = orders.Parts(
        [whole.names[begin + op] for op in first.tolist()],
        *orders.edges_between(senders, receivers, whole.mean_delay_s[edge], number),
        None if memory is None else class_bytes,
    )
    drawn = orders.draw(parts, [np.arange(len(classes))], _MOST, rng)
    allowed = whole.allowed[classes] & movable[:, None]
    colocated = len(whole.first) < len(whole.number)
    space = chains.Space(
        tables=(simulators.Limits(memory, None), tables),
        number=_padded(number, 0)[:SIZE] if colocated else None,
        allowed=_padded(allowed, False)[:SIZE],
        memory_bytes=_padded(class_bytes, 0.0)[:SIZE],
        excess_s=np.zeros((), np.float32),
        orders=orders.pad(drawn, _ORDERS, SIZE),
    )
    return _Part(space, number, first)


def _first_seen(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct values as they come, where each is first, and which one each value is."""
    distinct, first, number = np.unique(values, return_index=True, return_inverse=True)
    by = np.argsort(first)
    return distinct[by], first[by], np.argsort(by)[number].astype(np.int32)


def _padded(rows: np.ndarray, value: float) -> np.ndarray:
    """Rows [n, ...] of a window's operations, up to SIZE; and one of what does nothing."""
    padded = np.full((SIZE + 1, *rows.shape[1:]), value, rows.dtype)
    padded[: len(rows)] = rows
    return padded


def _left(memory: simulators.Memory, used: np.ndarray, own: np.ndarray) -> simulators.Memory:
    """What operations beside a window's leave of each memory; no less than its own occupy now.

    Args:
      memory: of all.
      used: float64 [D], bytes of all operations on each device.
      own: float64 [D], of the window's among them.
    """
    room = np.asarray(memory.capacity_bytes, np.float64) - memory.shared @ (used - own)
    return memory._replace(capacity_bytes=np.maximum(room, memory.shared @ own).astype(np.float32))
