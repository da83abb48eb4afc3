"""Placement as an environment for reinforcement learning: pure `reset` and `step`.

The style is that of gymnax (Lange 2022) and jumanji (Bonnet et al. 2024): functions of arrays that
jit, vmap and scan take. A problem is a pytree, `ProblemArrays`, so that a batch may hold several
problems of one bucket.

An action is the device of the next operation, in order of priority, and an episode has a step for
each operation. The reward of the last one is the negative value of the placement in units of the
problem's best single device, so that -1 is that device; all other rewards are zero. Whatever the
objective, observations tell when the operation would finish on each device in the list schedule of
`placement.simulators.makespan`. The environment advances that schedule by one operation of one
problem, while the simulator's scan advances a batch of placements that are complete.
"""

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement import simulators
from placement.errors import UserError
from placement.graphs import batching, features
from placement.instance import Instance
from placement.policies.inputs import ObjectiveName
from placement.simulators import list_schedule
from placement.types import Array


class ProblemArrays(NamedTuple):
    """A problem of N operations and E pairs of neighbours, both padded, on D devices: a pytree."""

    graph: jraph.GraphsTuple  # see `placement.graphs.batching`
    tables: Any  # `Instance.padded_tables`
    compute_s: Array  # float32 [N, D]; inf where an operation is not allowed, zero for padding
    delay_s: Array  # float32 [E, D, D]: of the graph's edges; zero for padding
    order: Array  # int32 [N]: the operations in order of priority; 0 for padding
    representative: Array  # int32 [N]: the first operation co-located with each
    num_ops: Array  # int32 []: without padding
    single_devices: Array  # int32 [D, N]: all operations on each device, as far as it can run them
    single_s: Array  # float32 [D]: the values of these placements; inf if one is infeasible
    objective: ObjectiveName

    @property
    def unit_s(self) -> Array:
        """float32 []: the value of the best single device, the unit of rewards."""
        return self.single_s.min()

    def evaluate(self, placement: Array) -> tuple[Array, Array]:
        """Evaluates a placement int32 [N].

        Returns:
          float32 []: the value in units, increased by the share by which memory is exceeded.
          bool []: whether the placement is feasible.
        """
        simulate = simulators.get_objective(self.objective.name).simulate
        outcome = simulate(self.tables, placement[None])
        return outcome.penalised_s()[0] / self.unit_s, outcome.feasible[0]


def make_arrays(problem: Instance) -> ProblemArrays:
    """Makes the arrays of a problem.

    Problems with equal numbers of devices have arrays of equal shapes if their operations, edges
    and kinds of limits are as `Instance.padded_tables` says. `jax.tree.map` can stack them.

    Raises:
      UserError: no single device can run the problem, or as `Instance.padded_tables`.
    """
    single_s = np.asarray(problem.evaluate(problem.single_devices))
    if not np.isfinite(single_s).any():
        raise UserError(
            "an environment needs a device that can run the whole problem, as the unit of its "
            f"rewards; none of {', '.join(problem.devices)} can: give a device with more memory"
        )
    graph = batching.to_graphs_tuple(
        problem.graph.senders,
        problem.graph.receivers,
        features.node_features(problem.graph),
        problem.allowed,
    )
    num_ops, num_nodes = problem.graph.num_ops, problem.num_padded_ops
    padding = np.arange(num_ops, num_nodes)
    singles = np.pad(problem.single_devices, ((0, 0), (0, len(padding))))
    arrays = ProblemArrays(
        graph=graph,
        tables=problem.padded_tables,
        compute_s=batching.pad(problem.allowed_compute_s.astype(np.float32), num_nodes, 0.0),
        delay_s=batching.pad(problem.dependencies.delay_s, len(graph.senders), 0.0),
        order=batching.pad(problem.priority_order, num_nodes, 0),
        representative=np.concatenate([problem.leaders, padding]).astype(np.int32),
        num_ops=np.array(num_ops, np.int32),
        single_devices=singles,
        single_s=single_s,
        objective=ObjectiveName(problem.objective),
    )
    return jax.device_put(arrays)


class State(NamedTuple):
    """A partial placement and its list schedule."""

    problem: ProblemArrays
    placement: Array  # int32 [N]: the devices; zero for operations that are not placed yet
    num_placed: Array  # int32 []
    finish_s: Array  # float32 [N]: zero for operations that are not placed yet
    free_s: Array  # float32 [D]: when each device has run its operations


class Observation(NamedTuple):
    """The next operation, and what each device means for it."""

    op: Array  # int32 []
    allowed: Array  # bool [D]
    arrival_s: Array  # float32 [D]: when all inputs have arrived
    finish_s: Array  # float32 [D]: the earliest finish; inf where not allowed
    free_s: Array  # float32 [D]: when the device has run its operations
    placement: Array  # int32 [N]: the devices; -1 for operations that are not placed yet
    is_done: Array  # bool []


class Step(NamedTuple):
    """The result of an action."""

    state: State
    observation: Observation
    reward: Array  # float32 []
    is_done: Array  # bool []: whether all operations are placed


def reset(key: chex.PRNGKey, problem: ProblemArrays) -> tuple[State, Observation]:
    """Begins an episode. The key is not used: every episode begins without any operation placed."""
    del key
    num_ops, num_devices = problem.compute_s.shape
    state = State(
        problem=problem,
        placement=jnp.zeros(num_ops, jnp.int32),
        num_placed=jnp.zeros((), jnp.int32),
        finish_s=jnp.zeros(num_ops),
        free_s=jnp.zeros(num_devices),
    )
    return state, _observe(state)


def step(state: State, device: Array) -> Step:
    """Places the next operation.

    After the end of the episode nothing changes, and rewards are zero.

    Args:
      state: the state.
      device: int32 []. A device that `Observation.allowed` excludes is replaced by the first one
        that it allows.
    """
    observation = _observe(state)
    is_running = ~observation.is_done
    device = jnp.where(observation.allowed[device], device, observation.allowed.argmax())
    finish_s, op = observation.finish_s[device], observation.op
    next_state = state._replace(
        placement=_set(state.placement, op, device, is_running),
        num_placed=state.num_placed + is_running,
        finish_s=_set(state.finish_s, op, finish_s, is_running),
        free_s=_set(state.free_s, device, finish_s, is_running),
    )
    is_last = is_running & (next_state.num_placed == state.problem.num_ops)
    value, _ = state.problem.evaluate(next_state.placement)
    following = _observe(next_state)
    return Step(next_state, following, jnp.where(is_last, -value, 0.0), following.is_done)


def _set(array: Array, index: Array, value: Array, condition: Array) -> Array:
    """Returns the array with one element set, if the condition holds."""
    return jnp.asarray(array).at[index].set(jnp.where(condition, value, array[index]))


def _observe(state: State) -> Observation:
    problem, graph = state.problem, state.problem.graph
    op = problem.order[jnp.minimum(state.num_placed, problem.num_ops - 1)]
    is_placed = (
        jnp.zeros(len(problem.order), bool)
        .at[problem.order]
        .max(jnp.arange(len(problem.order)) < state.num_placed)
    )
    # An operation follows the one of its class that was placed first.
    is_same_class = problem.representative == problem.representative[op]
    first = (is_same_class & is_placed).argmax()
    is_bound = is_placed[first] & is_same_class[first]
    devices = jnp.arange(len(state.free_s))
    allowed = graph.nodes["allowed"][op] & (~is_bound | (devices == state.placement[first]))
    is_input = (graph.receivers == op) & graph.edges["mask"]
    arrival_s = list_schedule.arrival_from_edges(
        state.finish_s, state.placement, graph.senders, problem.delay_s, is_input
    )
    _, finish_s = list_schedule.run_op(arrival_s, state.free_s, problem.compute_s[op])
    return Observation(
        op=op,
        allowed=allowed,
        arrival_s=arrival_s,
        finish_s=jnp.where(allowed, finish_s, jnp.inf),
        free_s=state.free_s,
        placement=jnp.where(is_placed, state.placement, -1),
        is_done=state.num_placed >= problem.num_ops,
    )
