"""Latency of a placement, predicted: one pure, jittable, batched function per objective.

The functions below are batched over placements [B, N]; those of the objectives take them
transposed, [N, B], see `tensors`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from placement import arguments
from placement.simulators import makespan, max_load, residency, serial, subgraph
from placement.types import Array


class Limits(NamedTuple):
    """What a placement must respect beside the objective; None where nothing limits it."""

    memory: "Memory | None"  # None also where each device holds all operations
    representative: Array | None  # int32 [N]: the first operation co-located with each


class Memory(NamedTuple):
    """What operations always occupy, what devices have, and what comes and goes."""

    memory_bytes: Array  # float32 [N]
    capacity_bytes: Array  # float32 [D]
    shared: Array  # bool [D, D]: devices whose memory is one: parts of an accelerator
    # What is alive over time beside, `makespan` and `max_load`; None where that is not known, or
    # each device holds all of it.
    alive: residency.Tables | None = None


class Outcome(NamedTuple):
    """What becomes of B placements."""

    latency_s: Array  # float32 [B]: as if memory were unlimited and co-location free
    overflow: Array  # float32 [B]: largest share by which a device's memory is exceeded, 0 if none
    feasible: Array  # bool [B]: finite, nothing exceeded, co-located operations together

    def penalised_s(self) -> Array:
        """float32 [B]: the latency, longer by the overflow's share: for learning, not for results.

        As in Placeto (Addanki et al. 2019) the penalty grows with the excess, so that a search that
        starts outside the limits finds its way in.
        """
        return self.latency_s * (1 + self.overflow)


class Objective(NamedTuple):
    """`latency(tables, placement [N, B])` is pure; `Instance.tables` are its tables."""

    latency: Callable[[Any, Array], Array]

    def simulate(self, tables_: tuple[Limits, Any], placements: Array) -> Outcome:
        """Simulates placements int32 [B, N] with arrays of `Instance.tables`: pure, jittable.

        Of one objective it is always the same function, which jit can take as a static argument.
        """
        return self.simulate_columns(tables_, placements.T)

    def simulate_columns(self, tables_: tuple[Limits, Any], placement: Array) -> Outcome:
        """Simulates placements int32 [N, B], as `simulate` does."""
        chex.assert_rank(placement, 2)
        chex.assert_type(placement, int)
        limits, of_objective = tables_
        latency_s = self.latency(of_objective, placement)
        overflow: Array = jnp.zeros_like(latency_s)
        feasible = jnp.isfinite(latency_s)
        if limits.memory is not None:
            overflow = _overflow(limits.memory, placement)
            feasible &= overflow <= 0
        if limits.representative is not None:
            feasible &= (placement == placement[limits.representative]).all(axis=0)
        return Outcome(latency_s, overflow, feasible)


OBJECTIVES: dict[str, Objective] = {
    "serial": Objective(serial.latency),
    "makespan": Objective(makespan.latency),
    "max_load": Objective(max_load.latency),
    "subgraph": Objective(subgraph.latency),
}


def objective(name: str) -> Objective:
    """Returns the objective called `name`.

    Raises:
      UserError: there is none; it names the valid ones.
    """
    arguments.check("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def _overflow(memory: Memory, placement: Array) -> Array:
    # Products of matrices: sums over the first axis do not vectorise.
    used = jnp.stack(
        [
            memory.memory_bytes @ (placement == d).astype(jnp.float32)
            for d in range(len(memory.capacity_bytes))
        ]
    )
    capacity = memory.capacity_bytes[:, None]
    if memory.alive is not None:
        used += _alive(memory.alive, placement, capacity - used)
    together = jnp.where(memory.shared[:, :, None], used[:, None], 0.0).sum(axis=0)
    excess = jnp.maximum(together - capacity, 0.0) / jnp.maximum(capacity, 1.0)
    return jnp.where(jnp.isinf(capacity), 0.0, excess).max(axis=0)


def _alive(t: residency.Tables, placement: Array, room: Array) -> Array:
    """What tensors occupy at most at once, [D, B]; where all fit into the room [D, B], all."""
    most = residency.most_bytes(t, placement)
    exceeds = jnp.any(most > room, axis=0)
    # The schedule is simulated once more, for times: only where a placement of the batch needs it.
    peak = jax.lax.cond(
        exceeds.any(), lambda: residency.peak_bytes(t, placement, exceeds), lambda: most
    )
    return jnp.where(exceeds, peak, most)
