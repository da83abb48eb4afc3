"""Simulators: the latency of placements, one pure, jittable, batched function per objective.

`Objective.simulate` is batched over placements [B, K]. The objectives' modules take the devices of
all operations, transposed: [N, B]; `tensors` says why.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import arguments
from placement.graphs import batching
from placement.simulators import makespan, max_load, residency, serial, subgraph
from placement.types import Array


class Tables(NamedTuple):
    """The arrays of a problem that `Objective.simulate` reads."""

    decision: Array | None  # int32 [N]: the decision that places each operation; None: its own
    memory: "Memory | None"  # None if every device can hold all operations
    objective: Any  # those of the objective's module


class Memory(NamedTuple):
    """The memory that operations and tensors occupy, and that devices have."""

    memory_bytes: Array  # float32 [N]: memory that an operation permanently occupies
    capacity_bytes: Array  # float32 [D]
    shared: Array  # bool [D, D]: devices with one memory, as parts of one accelerator
    # The tensors that come and go, for `makespan` and `max_load`; None if their sizes are unknown
    # or every device can hold all of them.
    alive: residency.Tables | None = None
    schedule: makespan.Tables | None = None  # of the whole graph, where `alive` is not None
    copies: "ConstantCopies | None" = None  # None if no device copies a constant


class ConstantCopies(NamedTuple):
    """Constants that every device with a reader holds (`placement.graphs.constants`)."""

    sources: Array  # int32 [R]: the operation that holds the constant
    readers: Array  # int32 [R]: an operation that reads it
    constant: Array  # int32 [R]: the number of the constant, from 0 to K - 1, ascending
    constant_bytes: Array  # float32 [K]

    def used_bytes(self, placement: Array, device: int) -> Array:
        """float32 [B]: the bytes of the copies on a device under placements int32 [N, B]."""
        is_read = (placement[self.readers] == device) & (placement[self.sources] != device)
        is_copied = jnp.zeros((len(self.constant_bytes), placement.shape[1]), bool)
        is_copied = is_copied.at[self.constant].max(is_read)
        return jnp.asarray(self.constant_bytes) @ is_copied.astype(jnp.float32)


class Outcome(NamedTuple):
    """The results of B placements."""

    latency_s: Array  # float32 [B]: ignores the limits of memory
    overflow: Array  # float32 [B]: largest share by which a device's memory is exceeded, 0 if none
    feasible: Array  # bool [B]: whether the latency is finite and all limits are kept

    def penalised_s(self) -> Array:
        """float32 [B]: the latency, increased by the overflow's share: for learning only.

        As in Placeto (Addanki et al. 2019) the penalty grows with the excess, so that a search that
        starts outside the limits finds its way in.
        """
        return self.latency_s * (1 + self.overflow)


class Objective(NamedTuple):
    """An objective: three functions of its tables, which only its module knows."""

    build_tables: Callable[[Any], Any]  # of a `placement.problem.Problem`, on the host
    latency: Callable[[Any, Array], Array]  # of tables and devices int32 [N, B]; pure, jittable
    pad_tables: Callable[[Any, batching.Sizes], Any]  # see `makespan.pad_tables`

    def pad(self, tables: Tables, sizes: batching.Sizes) -> Tables:
        """Pads the tables of a problem, on the host, for placements of `sizes.padded_ops`.

        The tables of tensors in memory keep their sizes, except the schedule's.
        """
        decision, memory, objective_tables = tables
        if decision is not None:
            decision = batching.pad(decision, sizes.padded_ops, 0)
        if memory is not None:
            schedule = memory.schedule
            if schedule is not None:
                schedule = makespan.pad_tables(schedule, sizes)
            memory_bytes = batching.pad(memory.memory_bytes, sizes.padded_ops, 0.0)
            memory = memory._replace(memory_bytes=memory_bytes, schedule=schedule)
        return Tables(decision, memory, self.pad_tables(objective_tables, sizes))

    def simulate(self, tables_: Tables, placements: Array) -> Outcome:
        """Simulates placements int32 [B, K] with the arrays of `Problem.tables`: pure, jittable.

        For one objective it is always the same function, so jit can take it as a static argument.
        """
        return self.simulate_columns(tables_, placements.T)

    def simulate_columns(self, tables_: Tables, placement: Array) -> Outcome:
        """Simulates placements int32 [K, B], as `simulate` does."""
        chex.assert_rank(placement, 2)
        chex.assert_type(placement, int)
        decision, memory, objective_tables = tables_
        if decision is not None:
            placement = placement[decision]  # [N, B]
        latency_s = self.latency(objective_tables, placement)
        overflow: Array = jnp.zeros_like(latency_s)
        feasible = jnp.isfinite(latency_s)
        if memory is not None:
            capacity_bytes = memory.capacity_bytes[:, None]
            used_bytes = sum_bytes(
                memory.memory_bytes, placement, len(capacity_bytes), memory.copies
            )  # [D, B]

            def share(used_bytes: Array) -> Array:
                """Adds up the parts of each accelerator, [D, B]."""
                return jnp.where(memory.shared[:, :, None], used_bytes[:, None], 0.0).sum(axis=0)

            if memory.alive is not None:
                assert memory.schedule is not None
                alive, schedule = memory.alive, memory.schedule
                all_bytes = residency.bound_peak_bytes(alive, placement)
                may_exceed = jnp.any(share(used_bytes + all_bytes) > capacity_bytes, axis=0)

                def compute_peak_bytes() -> Array:
                    times = makespan.compute_times(schedule, placement)
                    return residency.compute_peak_bytes(alive, placement, *times, may_exceed)

                # The peaks need another simulation of the schedule, which is left out if all
                # tensors of every placement fit at once.
                peak_bytes = jax.lax.cond(may_exceed.any(), compute_peak_bytes, lambda: all_bytes)
                used_bytes += jnp.where(may_exceed, peak_bytes, all_bytes)
            excess = jnp.maximum(share(used_bytes) - capacity_bytes, 0.0)
            excess /= jnp.maximum(capacity_bytes, 1.0)  # a device may have no memory at all
            overflow = jnp.where(jnp.isinf(capacity_bytes), 0.0, excess).max(axis=0)
            feasible &= overflow <= 0
        return Outcome(latency_s, overflow, feasible)


OBJECTIVES: dict[str, Objective] = {
    "serial": Objective(
        lambda problem: serial.Tables(
            np.asarray(problem.costs.compute_s, np.float32), problem.tensor_blocks
        ),
        serial.latency,
        serial.pad_tables,
    ),
    "makespan": Objective(
        lambda problem: problem.makespan_tables, makespan.latency, makespan.pad_tables
    ),
    "max_load": Objective(
        lambda problem: max_load.build_tables(problem.costs, problem.tensor_blocks),
        max_load.latency,
        max_load.pad_tables,
    ),
    "subgraph": Objective(
        lambda problem: subgraph.build_tables(
            problem.graph, problem.costs, problem.topological_order, problem.tensor_blocks
        ),
        subgraph.latency,
        subgraph.pad_tables,
    ),
}


def get_objective(name: str) -> Objective:
    """Returns the objective called `name`.

    Raises:
      UserError: the objective does not exist; the message lists the valid names.
    """
    arguments.check_choice("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def sum_bytes(
    memory_bytes: Array, placement: Array, num_devices: int, copies: ConstantCopies | None = None
) -> Array:
    """Computes the bytes that operations always occupy on each device, float32 [D, B].

    Args:
      memory_bytes: float32 [N]: of each operation.
      placement: int32 [N, B].
      num_devices: D.
      copies: the constants of which devices have copies, which count too; None if there are none.
    """
    # A matrix product, because sums over the first axis do not vectorise.
    used_bytes = [
        jnp.asarray(memory_bytes) @ (placement == d).astype(jnp.float32) for d in range(num_devices)
    ]
    if copies is not None:
        used_bytes = [used + copies.used_bytes(placement, d) for d, used in enumerate(used_bytes)]
    return jnp.stack(used_bytes)
