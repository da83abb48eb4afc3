"""Latency of a placement, predicted: one pure, jittable, batched function per objective.

The functions below are batched over placements [B, N]; those of the objectives take them
transposed, [N, B], see `tensors`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from placement import arguments
from placement.errors import UserError
from placement.graphs import opgraph
from placement.simulators import makespan, max_load, residency, serial, subgraph
from placement.types import Array, CostModel, Evaluate, OpGraph, Problem


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
    """`tables(graph, costs)` runs on the host; `latency(tables, placement [N, B])` is pure."""

    tables: Callable[[OpGraph, CostModel], Any]
    latency: Callable[[Any, Array], Array]

    def simulate(self, tables_: tuple[Limits, Any], placements: Array) -> Outcome:
        """Simulates placements int32 [B, N] with arrays of `tables`: pure, jittable.

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


_OVER_TIME = ("makespan", "max_load")  # the objectives of which it is known what runs when
OBJECTIVES: dict[str, Objective] = {
    "serial": Objective(serial.tables, serial.latency),
    "makespan": Objective(makespan.tables, makespan.latency),
    "max_load": Objective(max_load.tables, max_load.latency),
    "subgraph": Objective(subgraph.tables, subgraph.latency),
}


def objective(name: str) -> Objective:
    """Returns the objective called `name`.

    Raises:
      UserError: there is none; it names the valid ones.
    """
    arguments.check("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def tables(problem: Problem) -> tuple[Limits, Any]:
    """Makes the arrays that `Objective.simulate` reads, on the host: pass them to jit as arguments.

    Raises:
      UserError: more devices than a set of bits holds.
    """
    num_devices = np.asarray(problem.costs.compute_s).shape[1]
    if num_devices > 31:
        raise UserError(f"{num_devices} devices; the simulators take at most 31: give fewer")
    of_objective = objective(problem.objective).tables(problem.graph, problem.costs)
    return jax.tree.map(jnp.asarray, (limits(problem), of_objective))


def limits(problem: Problem) -> Limits:
    """Makes what every placement of a problem must respect, on the host."""
    costs, graph = problem.costs, problem.graph
    accelerator, capacity = np.asarray(costs.accelerator), np.asarray(costs.capacity_bytes)
    one = (accelerator[:, None] == accelerator) & (accelerator >= 0)
    memory = Memory(
        memory_bytes=np.asarray(costs.memory_bytes, np.float32),
        capacity_bytes=capacity.astype(np.float32),
        shared=one | np.eye(len(accelerator), dtype=bool),
    )
    representative = opgraph.representatives(graph)
    # Where every device holds all operations, nothing is exceeded and nothing is to be summed.
    needed = np.asarray(costs.memory_bytes, np.float64).sum()
    alive = costs.tensor_bytes
    if alive is not None and problem.objective in _OVER_TIME:
        first = np.unique(graph.tensors, return_index=True)[1]
        needed += np.maximum(*(np.asarray(of, np.float64)[first] for of in alive)).sum()
        if needed > capacity.min():
            schedule = makespan.tables(graph, costs)
            memory = memory._replace(alive=residency.tables(graph, costs, schedule))
    return Limits(
        memory=memory if needed > capacity.min() else None,
        representative=None if graph.num_ops == len(set(representative)) else representative,
    )


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


def runs_out_of_memory(problem: Problem, placement: np.ndarray) -> bool:
    """Whether a placement int32 [N] could run if devices had more memory."""
    simulate = objective(problem.objective).simulate
    return bool(_runs_out_of_memory(simulate, tables(problem), jnp.asarray(placement)[None])[0])


@partial(jax.jit, static_argnums=0)
def _runs_out_of_memory(
    simulate: Callable[[Any, Array], Outcome], tables_: tuple[Limits, Any], placements: Array
) -> Array:
    outcome = simulate(tables_, placements)
    return jnp.isfinite(outcome.latency_s) & (outcome.overflow > 0)


def fullest_bytes(problem: Problem, placements: np.ndarray) -> np.ndarray:
    """Sums what operations always occupy on the fullest device, float64 [B], on the host.

    Parts of one accelerator hold theirs together.

    Args:
      problem: N operations.
      placements: int32 [B, N].
    """
    accelerator = np.asarray(problem.costs.accelerator)
    each = np.asarray(problem.costs.memory_bytes, np.float64)
    used = np.stack([(placements == d) @ each for d in range(len(accelerator))], axis=1)
    together = (accelerator[:, None] == accelerator) & (accelerator >= 0)
    return (used @ (together | np.eye(len(accelerator), dtype=bool))).max(axis=1)


def evaluator(problem: Problem, *, penalised: bool = False) -> Evaluate:
    """Compiles the simulator of a problem: int32 [B, N] -> float32 [B] seconds.

    One compilation a batch size; the problem's arrays are arguments of the compiled function, so
    problems whose tables have equal shapes share it: the same graph with other costs does.

    Args:
      problem: N operations.
      penalised: whether what is not feasible evaluates to `Outcome.penalised_s`, instead of inf.
    """
    simulate, held = objective(problem.objective).simulate, tables(problem)
    return lambda placements: _evaluate(
        simulate, penalised, held, jnp.asarray(placements, jnp.int32)
    )


@partial(jax.jit, static_argnums=(0, 1))
def _evaluate(
    simulate: Callable[[Any, Array], Outcome],
    penalised: bool,
    tables_: tuple[Limits, Any],
    placements: Array,
) -> Array:
    outcome = simulate(tables_, placements)
    other = outcome.penalised_s() if penalised else jnp.inf
    return jnp.where(outcome.feasible, outcome.latency_s, other)
