"""The training loop of every learned method: sample, evaluate, update, remember the best.

A search is a generator. It yields reports, from which the caller shows progress, saves checkpoints
and decides when to stop. It reads no clock and writes no file. In the simulator, a chunk of steps
is one compiled `scan`. On devices, `evaluate` runs on the host between the two compiled halves of
each step, `_draw` and `_learn`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement import simulators
from placement.graphs import batching, coarsen
from placement.instance import Instance
from placement.learning import mesh
from placement.learning.base import Learner, Metrics, State
from placement.types import Array, Evaluate, Sample

ELITE = 4  # number of fastest distinct placements that a search remembers, to verify them
CHUNK = 16  # steps between two reports at most
RELEASED_SINGLE_DEVICE_S = np.float32(1e10)


class Progress(NamedTuple):
    """State of a search after some steps; a pytree from which a search resumes."""

    state: State
    elite: np.ndarray  # int32 [ELITE, N]: the fastest of the steps' best placements, fastest first
    elite_s: np.ndarray  # float32 [ELITE]: their latencies; inf where there is none yet
    reference_s: float  # latency of the fastest single device, the unit of the rewards
    step: int
    evaluations: int

    @property
    def best_s(self) -> float:
        """The latency of the fastest placement so far."""
        return float(self.elite_s[0])


class Report(NamedTuple):
    """The progress of a search, and records of the steps since the last report.

    A record has the step's metrics, its number `step`, the `evaluations` until its end, `best_s` so
    far, and `mean_s`, the mean latency of the feasible placements that its episodes ended with.
    """

    progress: Progress
    records: tuple[dict[str, float], ...]
    # For each record, float32 [k]: latencies of the step's feasible placements.
    latencies_s: tuple[np.ndarray, ...]


class Simulator(NamedTuple):
    """The simulator of a problem, as compiled steps need it."""

    # `simulate(tables, placements int32 [B, N])`: static under jit, one for each objective
    simulate: Callable[[Any, Array], simulators.Outcome]
    tables: Any  # the problem's `Instance.padded_tables`
    num_ops: int  # N with padding
    # int32 [N] with padding: the policy's node that places each operation, see
    # `graphs.coarsen.lift`; None where operations are nodes
    assignment: Array | None

    @classmethod
    def from_problem(cls, problem: Instance, assignment: Array | None = None) -> "Simulator":
        """Returns the simulator of a problem; the assignment has no padding here."""
        simulate = simulators.get_objective(problem.objective).simulate
        num_ops = problem.num_padded_ops
        if assignment is not None:
            assignment = batching.pad(np.asarray(assignment), num_ops, 0)
        return cls(simulate, problem.padded_tables, num_ops, assignment)


def start(
    learner: Learner,
    key: chex.PRNGKey,
    graph: jraph.GraphsTuple,
    evaluate: Evaluate,
    num_ops: int,
    num_devices: int,
    *,
    keep_single_devices: bool = True,
) -> Progress:
    """Initialises a learner and evaluates the single-device placements.

    The fastest single device is the unit of the rewards and the first incumbent, so that no search
    ends with a slower placement.

    Args:
      learner: from `reinforce.make_learner` or `ppo.make_learner`.
      key: consumed.
      graph: padded, see `placement.graphs.batching`.
      evaluate: computes latencies of placements int32 [b, N], without padding.
      num_ops: N.
      num_devices: D.
      keep_single_devices: False keeps the unit but not the incumbent, as HSDAG's released code.
    """
    singles = np.tile(np.arange(num_devices, dtype=np.int32)[:, None], (1, num_ops))
    latency_s = np.asarray(evaluate(singles), np.float32)
    fastest_s = float(latency_s.min())
    progress = Progress(
        state=learner.init(key, graph),
        elite=np.zeros((ELITE, num_ops), np.int32),
        elite_s=np.full(ELITE, np.inf, np.float32),
        reference_s=fastest_s if np.isfinite(fastest_s) else 1.0,
        step=0,
        evaluations=0,
    )
    if keep_single_devices:
        for single, single_s in zip(singles, latency_s, strict=True):
            progress = _remember(progress, single, float(single_s))
    return progress._replace(evaluations=num_devices)


def search(
    learner: Learner,
    graph: jraph.GraphsTuple,
    simulator: Simulator,
    progress: Progress,
    budget: int,
    *,
    evaluate: Evaluate | None = None,
    fail_single_devices: bool = False,
    pace: Callable[[], int] = lambda: CHUNK,
) -> Iterator[Report]:
    """Runs steps until `budget` evaluations are spent; yields first when the steps are compiled.

    The steps do not depend on the pace. Rewards of simulated placements are of penalised latencies:
    the more a placement exceeds a memory, the lower its reward.

    Args:
      learner: from `reinforce.make_learner` or `ppo.make_learner`.
      graph: padded, see `placement.graphs.batching`.
      simulator: of the problem.
      progress: where the search continues, from `start` or a checkpoint.
      budget: largest number of evaluations in all, the single devices included. Samples of the last
        step beyond the budget are not evaluated, and the step is then not learned from.
      evaluate: computes latencies of placements int32 [b, N], without padding, on the host; a
        report comes after each step. None: the simulator does, compiled with the steps.
      fail_single_devices: whether a single-device placement takes 1e10 seconds, as in HSDAG's
        released code.
      pace: called before each chunk, returns how many of its `CHUNK` steps to take at most. A
        caller with a clock so gets reports in time however long a step takes.
    """
    num_ops = progress.elite.shape[1]
    program = _Program(learner, simulator.simulate, simulator.num_ops, fail_single_devices)
    inputs = _Inputs(
        graph,
        simulator.tables,
        simulator.assignment,
        jnp.float32(progress.reference_s),
        jnp.int32(num_ops),
    )
    remaining = np.int32(0)  # evaluates nothing, but compiles
    while True:
        if evaluate is None:
            max_steps = np.int32(min(CHUNK, max(1, pace())) if remaining else 0)
            state, results = _run_steps(program, inputs, progress.state, remaining, max_steps)
        else:
            drawn_state, samples, placements = _draw_once(program, inputs, progress.state)
            latency_s = np.full(len(placements), np.inf, np.float32)
            if remaining:
                evaluated_s = evaluate(np.asarray(placements)[:remaining, :num_ops])
                latency_s[: len(evaluated_s)] = evaluated_s
            outcome = latency_s, latency_s, np.isfinite(latency_s)
            states = progress.state, drawn_state
            learned = _learn_once(program, inputs, states, samples, placements, outcome, remaining)
            state, results = learned[0], jax.tree.map(lambda leaf: leaf[None], learned[1])
        records, latencies_s = [], []
        results = jax.device_get(results)
        # Steps that were not taken come last and evaluated nothing.
        for i in range(np.count_nonzero(results.evaluated)):
            result: _StepResult = jax.tree.map(lambda leaf, i=i: leaf[i], results)
            progress = _remember(progress, result.best[:num_ops], float(result.best_s))
            evaluations = progress.evaluations + int(result.evaluated)
            progress = progress._replace(step=progress.step + 1, evaluations=evaluations)
            metrics = result.metrics if result.is_learned else {}
            records.append(
                {
                    "step": progress.step,
                    "evaluations": progress.evaluations,
                    "best_s": progress.best_s,
                    "mean_s": float(result.mean_s),
                    **{name: float(value) for name, value in metrics.items()},
                }
            )
            step_s = np.asarray(result.latency_s)
            latencies_s.append(step_s[np.isfinite(step_s)])
        progress = progress._replace(state=state)
        yield Report(progress, tuple(records), tuple(latencies_s))
        if progress.evaluations >= budget:
            return
        remaining = np.int32(min(budget - progress.evaluations, np.iinfo(np.int32).max))


class _Program(NamedTuple):
    """The static arguments of the compiled steps of a search."""

    learner: Learner
    simulate: Callable[[Any, Array], simulators.Outcome]
    num_ops: int  # N with padding, so that graphs of a bucket share the program
    fail_single_devices: bool


class _StepResult(NamedTuple):
    """Result of a step for the host."""

    evaluated: Array  # int32 []: number of evaluations; 0 if the step was not taken
    is_learned: Array  # bool []: whether all samples were evaluated, and learned from
    best: Array  # int32 [N], with padding
    best_s: Array  # float32 []; inf if no placement is feasible
    mean_s: Array  # float32 []: of the feasible placements that the episodes ended with
    latency_s: Array  # float32 [B T]; inf where a placement was not evaluated or is infeasible
    metrics: Metrics


class _Inputs(NamedTuple):
    """Arrays that all steps of a search read."""

    graph: jraph.GraphsTuple
    tables: Any
    assignment: Array | None
    reference_s: Array
    num_ops: Array  # int32 []: N without padding


def _draw(program: _Program, inputs: _Inputs, state: State) -> tuple[State, Sample, Array]:
    """Draws samples; returns them with the placements of all operations, int32 [B T, N]."""
    state, samples = program.learner.sample(state, inputs.graph)
    placements = samples.placement.reshape(-1, samples.placement.shape[-1])
    return state, samples, lift_to_ops(placements, inputs.assignment, program.num_ops)


def _learn(
    program: _Program,
    inputs: _Inputs,
    states: tuple[State, State],
    samples: Sample,
    placements: Array,
    outcome: tuple[Array, Array, Array],
    remaining: Array,
) -> tuple[State, _StepResult]:
    """Learns from a step's samples.

    Args:
      program, inputs: of the search.
      states: the state before the draw and after it.
      samples, placements: of `_draw`.
      outcome: latencies, penalised latencies, and whether a placement is feasible, [B T] each.
      remaining: int32 [], the number of evaluations that are left.
    """
    latency_s, penalised_s, is_feasible = outcome
    if program.fail_single_devices:
        is_padding = jnp.arange(placements.shape[1]) >= inputs.num_ops
        is_single = ((placements == placements[:, :1]) | is_padding).all(axis=1)
        latency_s = jnp.where(is_single, RELEASED_SINGLE_DEVICE_S, latency_s)
        penalised_s = jnp.where(is_single, RELEASED_SINGLE_DEVICE_S, penalised_s)
        is_feasible |= is_single
    evaluated = jnp.minimum(remaining, len(placements))
    is_evaluated = jnp.arange(len(placements)) < evaluated
    latency_s = jnp.where(is_evaluated & is_feasible, latency_s, jnp.inf)
    shape = samples.log_prob.shape  # [B, T]
    updated_state, metrics = program.learner.update(
        states[1],
        inputs.graph,
        samples,
        penalised_s.reshape(shape),
        inputs.reference_s,
        is_feasible.reshape(shape),
    )
    is_learned = evaluated == len(placements)
    # A step that is cut short leaves the state as it was, so that a resumed search repeats it. The
    # update is outside of the branches: within one, XLA would compile its forward pass anew instead
    # of using that of the draw.
    next_state = jax.lax.cond(is_learned, lambda: updated_state, lambda: states[0])
    best_index = jnp.argmin(latency_s)
    last_s = latency_s.reshape(shape)[:, -1]
    is_finite = jnp.isfinite(last_s)
    sum_s = jnp.where(is_finite, last_s, 0.0).sum()
    mean_s = sum_s / jnp.maximum(is_finite.sum(), 1)
    return next_state, _StepResult(
        evaluated=evaluated,
        is_learned=is_learned,
        best=placements[best_index],
        best_s=latency_s[best_index],
        mean_s=jnp.where(is_finite.any(), mean_s, jnp.inf),
        latency_s=latency_s,
        metrics=metrics,
    )


_draw_once = jax.jit(_draw, static_argnums=0)
_learn_once = jax.jit(_learn, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _run_steps(
    program: _Program, inputs: _Inputs, state: State, remaining: Array, max_steps: Array
) -> tuple[State, _StepResult]:
    """Takes at most `max_steps` of `CHUNK` steps, until no evaluations are remaining.

    Every leaf of the result has the leading axis `CHUNK`.
    """

    def take_step(state: State, remaining: Array) -> tuple[State, _StepResult]:
        drawn_state, samples, placements = _draw(program, inputs, state)
        simulated = mesh.shard_map(program.simulate, inputs.tables, placements)
        outcome = simulated.latency_s, simulated.penalised_s(), simulated.feasible
        states = state, drawn_state
        return _learn(program, inputs, states, samples, placements, outcome, remaining)

    def step(carry: tuple[State, Array], index: Array) -> tuple[tuple[State, Array], _StepResult]:
        shapes = jax.eval_shape(take_step, *carry)[1]
        no_result = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        is_taken = (carry[1] > 0) & (index < max_steps)
        state, result = jax.lax.cond(
            is_taken, take_step, lambda state, _: (state, no_result), *carry
        )
        return (state, carry[1] - result.evaluated), result

    (state, _), results = jax.lax.scan(step, (state, remaining), jnp.arange(CHUNK))
    return state, results


def lift_to_ops(placements: Array, assignment: Array | None, num_ops: int) -> Array:
    """Returns the placements int32 [B, N] of N operations, given those of a policy's M nodes.

    Args:
      placements: int32 [B, M].
      assignment: int32 [N], see `Simulator`.
      num_ops: N. Without an assignment, both N and M may include padding.
    """
    if assignment is not None:
        return coarsen.lift(assignment, placements)
    missing = num_ops - placements.shape[1]
    if missing > 0:
        return jnp.pad(placements, ((0, 0), (0, missing)))
    return placements[:, :num_ops]


def _remember(progress: Progress, placement: Array, latency_s: float) -> Progress:
    """Adds a placement int32 [N] to the elite, unless it is there."""
    elite, elite_s = progress.elite, progress.elite_s
    is_known = np.isfinite(elite_s) & (elite == placement).all(axis=1)
    if is_known.any() or not latency_s < elite_s[-1]:
        return progress
    # Of equals the earlier one stays first, so that a resumed search equals an uninterrupted one.
    position = int(np.searchsorted(elite_s, latency_s, side="right"))
    return progress._replace(
        elite=np.insert(elite, position, placement, axis=0)[:ELITE],
        elite_s=np.insert(elite_s, position, latency_s)[:ELITE],
    )
