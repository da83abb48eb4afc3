"""A problem together with everything that follows from it, each computed once."""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.errors import UserError
from placement.graphs import batching, dag
from placement.simulators import (
    list_schedule,
    makespan,
    ranks,
    residency,
    tensors,
)
from placement.stored_jit import StoredJit
from placement.types import Array, CostModel, OpGraph

_MAX_DEVICES = 31  # the simulators represent sets of devices by the bits of an integer
# The cached properties of a problem that depend on the order of priority.
_ORDER_DERIVATIONS = (
    "priority_order",
    "makespan_tables",
    "memory",
    "tables",
    "padded_tables",
)
_TIMED_OBJECTIVES = ("makespan", "max_load")  # their schedule tells when each tensor is alive
_Tree = TypeVar("_Tree")


class Decisions(NamedTuple):
    """The K decisions of a placement: a device for each class of co-located operations.

    Decisions are numbered by their first operation, so that without co-location decision n is
    about operation n alone.
    """

    first_ops: np.ndarray  # int32 [K]: the first operation of each decision, ascending
    compute_s: np.ndarray  # float64 [K, D]: of all its operations; inf where one is not supported
    allowed: np.ndarray  # bool [K, D]: the devices that can run all its operations
    memory_bytes: np.ndarray  # float64 [K]


class MemoryLimits(NamedTuple):
    """The M memories with a limit; parts of one accelerator share theirs."""

    devices: np.ndarray  # bool [M, D]: the devices that use the memory
    capacity_bytes: np.ndarray  # float64 [M]


class Dependencies(NamedTuple):
    """The P distinct pairs of operations that edges join, sorted by sender, then receiver.

    Of parallel edges only the longest delay matters: tensors that arrive earlier hold up nothing.
    """

    senders: np.ndarray  # int32 [P]
    receivers: np.ndarray  # int32 [P]
    delay_s: np.ndarray  # float32 [P, D, D]: the longest delay of the edges that join the pair
    pair: np.ndarray  # int64 [E]: the pair that each edge joins


class _Data(NamedTuple):
    """The data of a problem."""

    graph: OpGraph
    costs: CostModel
    objective: str  # a key of `placement.simulators.OBJECTIVES`
    devices: tuple[str, ...]  # D names, in the order of the placement's indices
    # int32 [N], topological: the order of priority in which devices run their operations under
    # `makespan`. None: by HEFT's upward rank.
    order: np.ndarray | None = None


class Problem(_Data):
    """A placement problem: a graph, its costs and the objective to minimise, with what follows.

    A derivation is computed when it is first read and kept as long as the problem. Its arrays on
    the host are read-only, because all readers share them. `_replace` makes a problem that has
    none yet.
    """

    # Decisions, supported devices and memory.

    @functools.cached_property
    def decision(self) -> np.ndarray:
        """int32 [N]: the decision that places each operation."""
        return _read_only(dag.number_by_first(self.graph.colocation))

    @functools.cached_property
    def decisions(self) -> Decisions:
        """The decisions of a placement, with their costs."""
        _, first_ops = np.unique(self.decision, return_index=True)
        compute_s = dag.sum_by_part(self.decision, np.asarray(self.costs.compute_s, np.float64))
        memory_bytes = np.bincount(self.decision, np.asarray(self.costs.memory_bytes, np.float64))
        allowed = np.isfinite(compute_s)
        return _read_only(Decisions(first_ops.astype(np.int32), compute_s, allowed, memory_bytes))

    @property
    def num_decisions(self) -> int:
        """K."""
        return len(self.decisions.first_ops)

    @property
    def is_colocated(self) -> bool:
        """Whether a decision places several operations."""
        return self.num_decisions < self.graph.num_ops

    def expand(self, placement: np.ndarray) -> np.ndarray:
        """Returns the device of every operation, int32 [..., N], given those of the decisions."""
        return placement[..., self.decision]

    @functools.cached_property
    def allowed(self) -> np.ndarray:
        """bool [N, D]: whether a device can run an operation and all co-located with it."""
        return _read_only(self.decisions.allowed[self.decision])

    @functools.cached_property
    def allowed_compute_s(self) -> np.ndarray:
        """float64 [N, D]: the seconds of each operation; inf where the device is not `allowed`."""
        compute_s = np.asarray(self.costs.compute_s, np.float64)
        return _read_only(np.where(self.allowed, compute_s, np.inf))

    @functools.cached_property
    def single_devices(self) -> np.ndarray:
        """int32 [D, K]: everything on each device; what it cannot run, where it is fastest."""
        decisions, devices = self.decisions, np.arange(len(self.devices))[:, None]
        fastest = decisions.compute_s.argmin(axis=1)
        return _read_only(np.where(decisions.allowed.T, devices, fastest).astype(np.int32))

    @functools.cached_property
    def shares_memory(self) -> np.ndarray:
        """bool [D, D]: whether two devices are one, or parts of one accelerator."""
        accelerator = np.asarray(self.costs.accelerator)
        shares_accelerator = (accelerator[:, None] == accelerator) & (accelerator >= 0)
        return _read_only(shares_accelerator | np.eye(len(accelerator), dtype=bool))

    @functools.cached_property
    def memory_limits(self) -> MemoryLimits:
        """The memories with a limit; none where nothing is limited."""
        part_capacity = np.asarray(self.costs.capacity_bytes, np.float64)
        capacity = np.where(self.shares_memory, part_capacity, np.inf).min(axis=1)
        first = self.shares_memory.argmax(axis=1) == np.arange(len(capacity))
        rows = first & np.isfinite(capacity)
        return _read_only(MemoryLimits(self.shares_memory[rows], capacity[rows]))

    def sum_group_capacity(self, group: np.ndarray) -> np.ndarray:
        """Returns float64 [G]: the memory of all devices of a group, inf if one has no limit.

        `group`, int [D], has the group of each device, numbered from 0.
        """
        chex.assert_shape(group, (len(self.devices),))
        chex.assert_type(group, int)
        limited = self.memory_limits
        total = np.zeros(group.max() + 1)
        total[group[~limited.devices.any(axis=0)]] = np.inf
        for devices, capacity in zip(limited.devices, limited.capacity_bytes, strict=True):
            total[np.unique(group[devices])] += capacity
        return total

    @functools.cached_property
    def interchangeable_devices(self) -> np.ndarray:
        """int64 [D]: for each device the first one it can change places with at no change of costs.

        That is, with equal computing times, delays to all others, and memory limits.
        """
        memory = self.memory_limits

        def limits(devices: np.ndarray) -> list[tuple[list[bool], float]]:
            return sorted(zip(devices.tolist(), memory.capacity_bytes.tolist(), strict=True))

        def is_symmetric(swap: np.ndarray) -> bool:
            delay_s = self.dependencies.delay_s
            return (
                np.array_equal(self.allowed_compute_s[:, swap], self.allowed_compute_s)
                and np.array_equal(delay_s[:, swap][:, :, swap], delay_s)
                and limits(memory.devices[:, swap]) == limits(memory.devices)
            )

        return _read_only(_interchangeable(len(self.devices), is_symmetric))

    # Transfer delays.

    @functools.cached_property
    def edge_transfer_s(self) -> np.ndarray:
        """float32 [E, D, D]: one transfer of each edge's tensor between two devices."""
        costs, num_bytes = self.costs, self.graph.edge_bytes.astype(np.float64)
        latency_s = np.asarray(costs.transfer_latency_s)
        s_per_byte = np.asarray(costs.transfer_s_per_byte)
        fixed_s = np.asarray(costs.transfer_fixed_s, np.float64)
        transfer_s = np.zeros((self.graph.num_edges, *latency_s.shape), np.float32)
        for pair in itertools.permutations(range(len(latency_s)), 2):  # the diagonal stays zero
            transfer_s[:, *pair] = fixed_s + (latency_s[pair] + num_bytes * s_per_byte[pair])
        return _read_only(transfer_s)

    @functools.cached_property
    def edge_delay_s(self) -> np.ndarray:
        """float32 [E, D, D]: from the end of each edge's sender to the arrival at the receiver."""
        delay_s = self.edge_transfer_s.copy()
        # A cut edge loses its fusion, a neighbour on the same device does not.
        for pair in itertools.permutations(range(delay_s.shape[-1]), 2):
            delay_s[:, *pair] += np.asarray(self.costs.fusion_loss_s, np.float32)
        return _read_only(delay_s)

    @functools.cached_property
    def mean_edge_delay_s(self) -> np.ndarray:
        """float64 [E]: each edge's mean delay over the pairs of devices that are linked."""
        is_link = ~np.eye(self.edge_delay_s.shape[-1], dtype=bool)
        return _read_only(ranks.finite_mean(self.edge_delay_s.astype(np.float64)[:, is_link]))

    @functools.cached_property
    def dependencies(self) -> Dependencies:
        """The distinct pairs of operations that edges join, with their longest delays."""
        graph = self.graph
        keys = graph.senders.astype(np.int64) * graph.num_ops + graph.receivers
        _, first, pair = np.unique(keys, return_index=True, return_inverse=True)
        delay_s = np.zeros((len(first), *self.edge_delay_s.shape[1:]), np.float32)
        np.maximum.at(delay_s, pair, self.edge_delay_s)
        return _read_only(Dependencies(graph.senders[first], graph.receivers[first], delay_s, pair))

    # Orders of the operations and of the decisions.

    @functools.cached_property
    def topological_order(self) -> np.ndarray:
        """int32 [N]: the operations in topological order, see `dag.topological_order`."""
        return _read_only(dag.topological_order(self.graph))

    @functools.cached_property
    def upward_rank(self) -> np.ndarray:
        """float64 [N]: the longest path from each operation to the end, see `ranks`."""
        return _read_only(
            ranks.compute_upward_rank(
                self.graph, self.costs.compute_s, self.mean_edge_delay_s, self.topological_order
            )
        )

    @functools.cached_property
    def priority_order(self) -> np.ndarray:
        """int32 [N]: the order in which a device runs its operations under `makespan`.

        That is `order` if the problem has one. Otherwise it is by decreasing upward rank;
        operations of equal rank are in topological order.
        """
        if self.order is not None:
            return _read_only(np.array(self.order, np.int32))
        order = self.topological_order
        return _read_only(order[np.argsort(-self.upward_rank[order], kind="stable")])

    @functools.cached_property
    def decision_order(self) -> np.ndarray:
        """int32 [K]: the decisions by their first operation in topological order."""
        return _read_only(self.order_decisions(self.topological_order))

    def order_decisions(self, order: np.ndarray) -> np.ndarray:
        """Returns int32 [K]: the decisions by their first operation in an order int [N]."""
        decision = self.decision[order]
        return decision[np.sort(np.unique(decision, return_index=True)[1])]

    def with_order(self, order: np.ndarray | None) -> "Problem":
        """Returns the problem with another order of priority; None: this problem itself.

        Derivations that do not depend on the order are not computed again.
        """
        if order is None:
            return self
        problem = self._replace(order=order)
        derivations = vars(self).items()
        vars(problem).update({k: v for k, v in derivations if k not in _ORDER_DERIVATIONS})
        return problem

    def reverse(self) -> "Problem":
        """Returns the problem with all edges reversed; its upward ranks are the downward ranks."""
        graph = self.graph
        reverse = dataclasses.replace(graph, senders=graph.receivers, receivers=graph.senders)
        return self._replace(graph=reverse, order=None)

    # The simulator.

    @functools.cached_property
    def links(self) -> makespan.Links:
        """The transfer delays between kinds of devices; devices with equal links are of a kind."""
        delay_s = self.edge_delay_s

        def is_symmetric(swap: np.ndarray) -> bool:
            moved = np.flatnonzero(swap != np.arange(len(swap)))  # the other rows change alike
            rows, columns = delay_s[:, swap[moved]][:, :, swap], delay_s[:, swap][:, :, swap[moved]]
            return bool(
                (rows == delay_s[:, moved]).all() and (columns == delay_s[:, :, moved]).all()
            )

        representatives = _interchangeable(delay_s.shape[-1], is_symmetric)
        first, kind = np.unique(representatives, return_inverse=True)
        kind_delay_s = delay_s[:, first][:, :, first]
        # Between two devices of a kind; zero for a kind with one device.
        last = np.array([np.flatnonzero(kind == k)[-1] for k in range(len(first))])
        diagonal = np.arange(len(first))
        kind_delay_s[:, diagonal, diagonal] = delay_s[:, first, last]
        return _read_only(makespan.Links(kind.astype(np.int8), kind_delay_s))

    @functools.cached_property
    def tensor_blocks(self) -> tuple[tensors.TensorBlock, ...]:
        """All tensors that are read, grouped by their number of readers."""
        return tensors.make_blocks(self.graph, self.costs.fusion_loss_s, self.edge_transfer_s)

    @functools.cached_property
    def makespan_tables(self) -> makespan.Tables:
        """The schedule's tables on the host, whatever the objective."""
        compute_s = self.costs.compute_s
        return makespan.build_tables(self.graph, compute_s, self.priority_order, self.links)

    @functools.cached_property
    def constant_copies(self) -> simulators.ConstantCopies | None:
        """The constants of which devices have copies, on the host; None if there are none."""
        graph = self.graph
        if not len(graph.copy_sources):
            return None
        order = np.argsort(graph.copy_constants, kind="stable")
        _, first, constant = np.unique(
            graph.copy_constants[order], return_index=True, return_inverse=True
        )
        return simulators.ConstantCopies(
            sources=graph.copy_sources[order],
            readers=graph.copy_readers[order],
            constant=constant.astype(np.int32),
            constant_bytes=graph.copy_bytes[order][first].astype(np.float32),
        )

    @functools.cached_property
    def residency_tables(self) -> residency.Tables | None:
        """The tensors that occupy memory while they are alive, on the host; None if none count.

        They count under the objectives whose schedule says when they are alive.
        """
        tensor_bytes = self.costs.tensor_bytes
        if tensor_bytes is None or self.objective not in _TIMED_OBJECTIVES:
            return None
        return _read_only(
            residency.build_tables(self.graph, tensor_bytes, *self.links, self.tensor_blocks)
        )

    @functools.cached_property
    def memory(self) -> simulators.Memory | None:
        """The limits of memory, on the host; None if every device can hold all operations."""
        costs, graph, alive = self.costs, self.graph, self.residency_tables
        capacity = np.asarray(costs.capacity_bytes, np.float32)
        # The most that any placement needs on one device, and on each further part of the same
        # accelerator, which has copies. A device with copies of an operation's constants does not
        # hold the operation.
        held = np.unique([graph.copy_sources, graph.copy_constants, graph.copy_bytes], axis=1)
        copied_bytes = np.bincount(held[0], held[2], graph.num_ops)
        most_bytes = np.maximum(np.asarray(costs.memory_bytes, np.float64), copied_bytes).sum()
        part_bytes = copied_bytes.sum()
        if alive is not None:
            most_pages = np.maximum(alive.source_pages, alive.copy_pages).sum()
            most_bytes += float(alive.page_bytes) * most_pages
            part_bytes += float(alive.page_bytes) * alive.copy_pages.sum()
        if (most_bytes + (self.shares_memory.sum(axis=1) - 1) * part_bytes <= capacity).all():
            return None
        return simulators.Memory(
            memory_bytes=np.asarray(costs.memory_bytes, np.float32),
            capacity_bytes=capacity,
            shared=self.shares_memory,
            alive=alive,
            schedule=None if alive is None else self.makespan_tables,
            copies=self.constant_copies,
        )

    @functools.cached_property
    def tables(self) -> simulators.Tables:
        """The arrays that `Objective.simulate` reads: pass them to jit as arguments.

        Raises:
          UserError: the objective does not exist, or there are more devices than bits in a set.
        """
        # If a function is being traced, the arrays would be tracers, which must not be cached.
        with jax.ensure_compile_time_eval():
            return jax.device_put(self.build_tables())

    @functools.cached_property
    def padded_tables(self) -> simulators.Tables:
        """The `tables` for placements of `num_padded_ops` decisions.

        Graphs whose operations and pairs of neighbours are in the same buckets
        (`graphs.batching.bucket`) have tables of equal shapes. So they share compiled programs. The
        devices and the kinds of limits must be equal, too. Under objectives other than `makespan`,
        so must the bucket of edges, and the largest number of readers of a tensor within a factor
        of 4.

        Raises:
          UserError: as `tables`.
        """
        num_ops, padded_ops = self.graph.num_ops, self.num_padded_ops
        fan_in = np.bincount(self.graph.receivers, minlength=num_ops)
        num_steps = int(list_schedule.num_steps(fan_in).sum())
        # Without parallel edges the first number is greater: every second input adds a step.
        num_pairs = batching.bucket(len(self.dependencies.senders))
        length = max(padded_ops + num_pairs // list_schedule.WIDTH, batching.bucket(num_steps))
        num_edges = batching.bucket(self.graph.num_edges)
        sizes = batching.Sizes(num_ops, padded_ops, num_edges, length)
        with jax.ensure_compile_time_eval():
            return jax.device_put(self.build_tables(sizes))

    def build_tables(self, sizes: batching.Sizes | None = None) -> simulators.Tables:
        """Builds the `tables` on the host; with sizes, for placements of `sizes.padded_ops`."""
        num_devices = np.asarray(self.costs.compute_s).shape[1]
        if num_devices > _MAX_DEVICES:
            raise UserError(
                f"{num_devices} devices; the simulators take at most {_MAX_DEVICES}: give fewer"
            )
        objective = simulators.get_objective(self.objective)
        decision = self.decision if self.is_colocated else None
        tables = simulators.Tables(decision, self.memory, objective.build_tables(self))
        return tables if sizes is None else objective.pad(tables, sizes)

    @property
    def num_padded_ops(self) -> int:
        """The number of operations with padding: the bucket of N."""
        return batching.bucket(self.graph.num_ops)

    def evaluate(self, placements: Array) -> Array:
        """Evaluates placements int32 [B, K] to float32 [B] seconds; inf for infeasible placements.

        Compiles once for each batch size. The arrays are arguments of the compiled function, so
        that problems whose `padded_tables` have equal shapes share it.
        """
        return self._simulate(placements)[0]

    def evaluate_penalised(self, placements: Array) -> Array:
        """Evaluates as `evaluate`; infeasible placements evaluate to `Outcome.penalised_s`."""
        return self._simulate(placements)[1]

    def exceeds_memory(self, placement: np.ndarray) -> bool:
        """Returns whether a placement int [K] could run if devices had more memory."""
        return bool(self._simulate(placement[None])[2][0])

    def _simulate(self, placements: Array) -> tuple[Array, Array, Array]:
        # Padding on the host compiles nothing; a traced array cannot be padded there.
        is_traced = isinstance(placements, jax.core.Tracer)
        pad, placements = (jnp.pad, placements) if is_traced else (np.pad, np.asarray(placements))
        missing = self.num_padded_ops - self.num_decisions
        padded = pad(placements.astype(np.int32), ((0, 0), (0, missing)))
        return _evaluate(self.padded_tables, padded, objective=self.objective)

    def value_s(self, placement: np.ndarray) -> float:
        """Returns the objective's value of one placement int [K], by the simulator.

        Under `makespan` nothing is compiled if memory suffices for all tensors at once.
        """
        chex.assert_shape(placement, (self.num_decisions,))
        chex.assert_type(placement, int)
        devices = self.expand(np.asarray(placement))
        if self.objective == "makespan" and self._holds_all_tensors(devices):
            return float(makespan.sweep_on_host(self.makespan_tables, devices).max())
        return float(self.evaluate(placement[None])[0])

    def _holds_all_tensors(self, devices: np.ndarray) -> bool:
        """Whether memory suffices under devices int32 [N] even if all tensors are alive at once."""
        if self.memory is None or self.constant_copies is not None:
            return self.memory is None
        num_devices, alive = len(self.devices), self.residency_tables
        used_bytes = np.zeros(num_devices)
        used_bytes += np.bincount(devices, self.memory.memory_bytes, num_devices)
        if alive is not None:
            source, page_bytes = devices[alive.source], float(alive.page_bytes)
            used_bytes += page_bytes * np.bincount(source, alive.source_pages, num_devices)
            readers = np.unique([alive.tensor, devices[alive.receivers]], axis=1)
            tensor, device = readers[:, readers[1] != source[readers[0]]]
            used_bytes += page_bytes * np.bincount(device, alive.copy_pages[tensor], num_devices)
        # The simulator adds in single precision.
        return bool((self.shares_memory @ used_bytes < 0.999 * self.memory.capacity_bytes).all())

    def peak_bytes(self, placement: np.ndarray) -> np.ndarray:
        """Computes the bytes float64 [D] that a placement int [K] needs on the devices.

        Tensors count while they are alive, under the objectives whose schedule says when that is.
        Parts of one accelerator need their memory together.
        """
        chex.assert_shape(placement, (self.num_decisions,))
        chex.assert_type(placement, int)
        memory_bytes, alive = np.asarray(self.costs.memory_bytes, np.float32), self.residency_tables
        used_bytes = _used_bytes(
            len(self.devices),
            (memory_bytes, self.constant_copies),
            None if alive is None else (alive, self.makespan_tables),
            self.expand(np.asarray(placement, np.int32))[:, None],
        )
        return self.shares_memory @ np.asarray(used_bytes, np.float64).sum(axis=0)[:, 0]


@functools.partial(StoredJit, static_argnames=("objective",))
def _evaluate(
    tables: simulators.Tables, placements: Array, *, objective: str
) -> tuple[Array, Array, Array]:
    """Returns values, penalised values, and whether only the memory is too small, [B] each."""
    outcome = simulators.get_objective(objective).simulate(tables, placements)
    return (
        jnp.where(outcome.feasible, outcome.latency_s, jnp.inf),
        jnp.where(outcome.feasible, outcome.latency_s, outcome.penalised_s()),
        jnp.isfinite(outcome.latency_s) & (outcome.overflow > 0),
    )


@functools.partial(jax.jit, static_argnums=0)
def _used_bytes(
    num_devices: int,
    permanent: tuple[np.ndarray, simulators.ConstantCopies | None],
    temporary: tuple[residency.Tables, makespan.Tables] | None,
    placement: Array,
) -> Array:
    """Returns what operations always occupy, and the peak of tensors: float32 [1 or 2, D, 1]."""
    memory_bytes, copies = permanent
    used_bytes = [simulators.sum_bytes(memory_bytes, placement, num_devices, copies)]
    if temporary is not None:
        alive, schedule = temporary
        times = makespan.compute_times(schedule, placement)
        is_needed = jnp.ones(1, bool)
        used_bytes.append(residency.compute_peak_bytes(alive, placement, *times, is_needed))
    return jnp.stack(used_bytes)


def find_equal_devices(columns: np.ndarray) -> np.ndarray:
    """Returns int [D]: for each device the first one with an equal column of [*, D] numbers."""
    chex.assert_rank(columns, 2)
    rows = np.ascontiguousarray(columns.T)
    return np.array(
        [next(d for d, first in enumerate(rows) if (first == row).all()) for row in rows]
    )


def _interchangeable(num_devices: int, is_symmetric: Callable[[np.ndarray], bool]) -> np.ndarray:
    """Returns for each device the first one that it can change places with, int64 [D].

    `is_symmetric` returns whether nothing changes under a permutation int [D] of the devices.
    """
    first = np.arange(num_devices)
    for device in range(num_devices):
        for candidate in np.unique(first[:device]).tolist():
            swap = np.arange(num_devices)
            swap[[candidate, device]] = device, candidate
            if is_symmetric(swap):
                first[device] = candidate
                break
    return first


def _read_only(tree: _Tree) -> _Tree:
    """Returns the arrays, which nobody else may hold, after forbidding to write to them."""
    for array in jax.tree.leaves(tree):
        array.setflags(write=False)
    return tree
