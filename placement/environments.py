"""Placement as an environment for reinforcement learning: pure `reset`, `observe` and `step`.

These are functions of arrays, which jit, vmap and scan take. A problem is a pytree,
`ProblemArrays`, so that a batch may hold several problems of one bucket.

An action is the device of the next operation, in order of priority, and an episode has a step for
each operation. The reward of the last one is the negative value of the placement in units of the
problem's best single device, so that -1 is that device; all other rewards are zero. Whatever the
objective, observations tell when the operation would finish on each device in the list schedule of
`placement.simulators.makespan`. The environment advances that schedule by one operation of one
problem, while the simulator's scan advances a batch of placements that are complete.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement import simulators
from placement.errors import UserError
from placement.graphs import batching, features
from placement.problem import Problem
from placement.simulators import list_schedule
from placement.types import Array


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class ObjectiveName:
    """The name of an objective, which is static under jit."""

    name: str


class ProblemArrays(NamedTuple):
    """A problem of N operations and E pairs of neighbours, both padded, on D devices: a pytree."""

    graph: jraph.GraphsTuple  # see `placement.graphs.batching`
    tables: Any  # `Problem.padded_tables`
    compute_s: Array  # float32 [N, D]; inf where an operation is not allowed, zero for padding
    delay_s: Array  # float32 [E, D, D]: of the graph's edges; zero for padding
    order: Array  # int32 [N]: the operations in order of priority; 0 for padding
    decision: Array  # int32 [N]: the decision that places each operation
    num_ops: Array  # int32 []: without padding
    best_single: Array  # int32 [N]: everything on the best device, as far as it can run it
    unit_s: Array  # float32 []: the value of this placement, the unit of rewards
    objective: ObjectiveName

    def evaluate(self, placement: Array) -> tuple[Array, Array]:
        """Evaluates a placement int32 [N], padded, to float32 [] and bool [].

        They are the value in units, increased by the share by which memory is exceeded, and whether
        the placement is feasible.
        """
        simulate = simulators.get_objective(self.objective.name).simulate
        outcome = simulate(self.tables, placement[None])
        return outcome.penalised_s()[0] / self.unit_s, outcome.feasible[0]


def make_arrays(problem: Problem) -> ProblemArrays:
    """Makes the arrays of a problem.

    Problems with equal numbers of devices have arrays of equal shapes if their operations, edges
    and kinds of limits are as `Problem.padded_tables` says. `jax.tree.map` can stack them.

    Raises:
      UserError: no single device can run the problem, or as `Problem.padded_tables`.
    """
    single_s = np.asarray(problem.evaluate(problem.single_devices))
    if not np.isfinite(single_s).any():
        raise UserError(
            "an environment needs a device that can run the whole problem, as the unit of its "
            f"rewards; none of {', '.join(problem.devices)} can: set a device with more memory"
        )
    graph = batching.to_graphs_tuple(
        problem.graph.senders,
        problem.graph.receivers,
        features.node_features(problem.graph),
        problem.allowed,
    )
    num_ops, num_nodes = problem.graph.num_ops, problem.num_padded_ops
    arrays = ProblemArrays(
        graph=graph,
        tables=problem.padded_tables,
        compute_s=batching.pad(problem.allowed_compute_s.astype(np.float32), num_nodes, 0.0),
        delay_s=batching.pad(problem.dependencies.delay_s, len(graph.senders), 0.0),
        order=batching.pad(problem.priority_order, num_nodes, 0),
        decision=batching.pad(problem.decision, num_nodes, 0),
        num_ops=np.array(num_ops, np.int32),
        best_single=batching.pad(problem.single_devices[single_s.argmin()], num_nodes, 0),
        unit_s=single_s.min(),
        objective=ObjectiveName(problem.objective),
    )
    return jax.device_put(arrays)


class State(NamedTuple):
    """A partial placement and its list schedule."""

    problem: ProblemArrays
    placement: Array  # int32 [N]: the device of each decision, padded; -1 for those to be made
    num_placed: Array  # int32 []
    finish_s: Array  # float32 [N]: zero for operations that are not placed yet
    free_s: Array  # float32 [D]: when each device has run its operations

    @property
    def is_done(self) -> Array:
        """bool []: whether all operations are placed."""
        return self.num_placed >= self.problem.num_ops


class Observation(NamedTuple):
    """The next operation, and what each device means for it."""

    op: Array  # int32 []
    allowed: Array  # bool [D]
    arrival_s: Array  # float32 [D]: when all inputs have arrived
    finish_s: Array  # float32 [D]: the earliest finish; inf where not allowed


def reset(problem: ProblemArrays) -> State:
    """Begins an episode, without any operation placed."""
    num_ops, num_devices = problem.compute_s.shape
    unplaced = jnp.full(num_ops, -1, jnp.int32)
    return State(problem, unplaced, jnp.int32(0), jnp.zeros(num_ops), jnp.zeros(num_devices))


def observe(state: State) -> Observation:
    """Observes the next operation; after the end of the episode, the last one."""
    problem, graph = state.problem, state.problem.graph
    op = problem.order[jnp.minimum(state.num_placed, problem.num_ops - 1)]
    # A co-located operation follows the first one that was placed.
    device = state.placement[problem.decision[op]]
    devices = jnp.arange(len(state.free_s))
    allowed = graph.nodes["allowed"][op] & ((device < 0) | (devices == device))
    is_input = (graph.receivers == op) & graph.edges["mask"]
    arrival_s = list_schedule.arrival_from_edges(
        state.finish_s, state.placement[problem.decision], graph.senders, problem.delay_s, is_input
    )
    _, finish_s = list_schedule.run_op(arrival_s, state.free_s, problem.compute_s[op])
    return Observation(op, allowed, arrival_s, jnp.where(allowed, finish_s, jnp.inf))


def step(state: State, device: Array) -> tuple[State, Array]:
    """Places the next operation; returns the next state, and the reward float32 [].

    After the end of the episode nothing changes, and rewards are zero. A device, int32 [], that
    `Observation.allowed` excludes is replaced by the first one that it allows.
    """
    problem, (op, allowed, _, finish_s) = state.problem, observe(state)
    device = jnp.where(allowed[device], device, allowed.argmax())
    placed = State(
        problem,
        placement=jnp.asarray(state.placement).at[problem.decision[op]].set(device),
        num_placed=state.num_placed + 1,
        finish_s=jnp.asarray(state.finish_s).at[op].set(finish_s[device]),
        free_s=jnp.asarray(state.free_s).at[device].set(finish_s[device]),
    )
    value, _ = problem.evaluate(jnp.maximum(placed.placement, 0))  # padding is not placed
    reward = jnp.where(placed.is_done & ~state.is_done, -value, 0.0)
    fields = zip(placed[1:], state[1:], strict=True)
    return State(problem, *(jnp.where(state.is_done, old, new) for new, old in fields)), reward
