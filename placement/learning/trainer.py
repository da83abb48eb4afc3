"""The search loop of every learned method: sample, evaluate, update, remember the best.

A search is a generator. It yields reports, from which the caller shows progress, saves checkpoints
and decides when to stop. It reads no clock and writes no file. `search` evaluates on the host, one
step at a time, on devices or in the simulator. `search_simulated` compiles sampling, simulation and
update into one `scan` over a chunk of steps. Both take the same steps from the same key; where
memory is limited, `search` needs `penalised` for that.
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


class Progress(NamedTuple):
    """State of a search after some steps; a pytree from which a search resumes."""

    state: State
    elite: np.ndarray  # int32 [ELITE, N]: the fastest placements so far, fastest first
    elite_s: np.ndarray  # float32 [ELITE]: their latencies; inf where there is none yet
    reference_s: float  # latency of the fastest single device, the unit of the rewards
    step: int
    evaluations: int
    found_at: int  # number of evaluations until elite[0] was evaluated

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
    """The simulator of a problem, as `search_simulated` needs it."""

    # `simulate(tables, placements int32 [B, N])`: static under jit, one for each objective
    simulate: Callable[[Any, Array], simulators.Outcome]
    tables: Any  # the problem's `Instance.padded_tables`
    num_ops: int  # N with padding
    assignment: Array | None  # int32 [N] with padding, see `search`

    @classmethod
    def from_problem(cls, problem: Instance, assignment: Array | None = None) -> "Simulator":
        """Returns the simulator of a problem; the assignment is as in `search`."""
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
        found_at=0,
    )
    if keep_single_devices:
        return _remember(progress, singles, latency_s, np.arange(num_devices), num_devices)
    return progress._replace(evaluations=num_devices)


def search(
    learner: Learner,
    graph: jraph.GraphsTuple,
    evaluate: Evaluate,
    progress: Progress,
    budget: int,
    *,
    assignment: Array | None = None,
    penalised: Evaluate | None = None,
) -> Iterator[Report]:
    """Runs steps until `budget` evaluations are spent, yielding after each.

    Args:
      learner: from `reinforce.make_learner` or `ppo.make_learner`.
      graph: padded, see `placement.graphs.batching`.
      evaluate: computes latencies of placements int32 [b, N], without padding.
      progress: where the search continues, from `start` or a checkpoint.
      budget: largest number of evaluations in all, the single devices included. Samples of the last
        step beyond the budget are not evaluated, and the step is then not learned from.
      assignment: int32 [N], the policy's node that places each operation, see
        `graphs.coarsen.lift`; None where operations are nodes.
      penalised: computes the latencies to learn from, which are finite where a placement exceeds a
        memory, such as `Instance.evaluate_penalised`. None: those of `evaluate`, as on devices.
    """
    num_ops = progress.elite.shape[1]
    while progress.evaluations < budget:
        state, samples = learner.sample(progress.state, graph)
        batch, steps = samples.log_prob.shape
        placements = _flatten_and_lift(jax.device_get(samples), assignment, num_ops)
        remaining = budget - progress.evaluations
        latency_s = np.asarray(evaluate(placements[:remaining]), np.float32)
        evaluated = len(latency_s)
        progress = _remember(progress, placements, latency_s, np.arange(evaluated), evaluated)
        metrics: Metrics = {}
        if evaluated == batch * steps:
            learned_s = latency_s if penalised is None else np.asarray(penalised(placements))
            state, metrics = learner.update(
                state,
                graph,
                samples,
                jnp.asarray(learned_s.reshape(batch, steps), jnp.float32),
                jnp.float32(progress.reference_s),
                jnp.asarray(np.isfinite(latency_s).reshape(batch, steps)),
            )
            progress = progress._replace(state=state)
        progress = progress._replace(step=progress.step + 1)
        # The last placement of every complete episode.
        last_s = latency_s[steps - 1 :: steps]
        last_s = last_s[np.isfinite(last_s)]
        mean_s = float(last_s.mean()) if last_s.size else float("inf")
        finite_s = latency_s[np.isfinite(latency_s)]
        yield Report(progress, (_record(progress, mean_s, metrics),), (finite_s,))


def compile_search(learner: Learner, graph: jraph.GraphsTuple, progress: Progress) -> None:
    """Compiles the steps of `search` for such arguments, without changing anything."""
    state, samples = learner.sample(progress.state, graph)
    latency_s = jnp.ones(samples.log_prob.shape, jnp.float32)
    reference_s = jnp.float32(progress.reference_s)
    is_feasible = jnp.isfinite(latency_s)
    updated = learner.update(state, graph, samples, latency_s, reference_s, is_feasible)
    jax.block_until_ready(updated)


def compile_search_simulated(
    learner: Learner,
    graph: jraph.GraphsTuple,
    simulator: Simulator,
    progress: Progress,
    *,
    chunk: int = 16,
) -> None:
    """Compiles the steps of `search_simulated` for such arguments, without taking any."""
    inputs, state = _make_inputs(graph, simulator, progress), progress.state
    sizes, no_steps = (simulator.num_ops, chunk), np.int32(0)
    jax.block_until_ready(
        _run_steps(learner, simulator.simulate, *sizes, inputs, state, no_steps, no_steps)
    )


def search_simulated(
    learner: Learner,
    graph: jraph.GraphsTuple,
    simulator: Simulator,
    progress: Progress,
    budget: int,
    *,
    chunk: int = 16,
    pace: Callable[[], int] | None = None,
) -> Iterator[Report]:
    """Runs compiled steps in the simulator, yielding after every `chunk` steps.

    Rewards are of penalised latencies: the more a placement exceeds a memory, the lower its reward.
    The search remembers each step's fastest feasible placement. It compiles once, whatever the
    budget, and takes the same steps whatever the chunk.

    Args:
      learner, graph, progress, budget: see `search`.
      simulator: of the problem.
      chunk: largest number of steps between two reports.
      pace: called before each chunk, returns how many steps to take at most. A caller with a clock
        so gets reports in time however long a step takes. None: all.
    """
    inputs = _make_inputs(graph, simulator, progress)
    num_ops = progress.elite.shape[1]
    while progress.evaluations < budget:
        remaining = np.int32(min(budget - progress.evaluations, np.iinfo(np.int32).max))
        max_steps = np.int32(chunk if pace is None else min(chunk, max(1, pace())))
        state, results = _run_steps(
            learner,
            simulator.simulate,
            simulator.num_ops,
            chunk,
            inputs,
            progress.state,
            remaining,
            max_steps,
        )
        records, latencies_s = [], []
        results = jax.device_get(results)
        # Steps that were not taken come last and evaluated nothing.
        for i in range(np.count_nonzero(results.evaluated)):
            result: _StepResult = jax.tree.map(lambda leaf, i=i: leaf[i], results)
            progress = _remember(
                progress,
                result.best[None, :num_ops],
                result.best_s[None],
                result.best_index[None],
                result.evaluated,
            )
            progress = progress._replace(step=progress.step + 1)
            metrics = result.metrics if result.is_learned else {}
            records.append(_record(progress, float(result.mean_s), metrics))
            latency_s = np.asarray(result.latency_s)
            latencies_s.append(latency_s[np.isfinite(latency_s)])
        progress = progress._replace(state=state)
        yield Report(progress, tuple(records), tuple(latencies_s))


class _StepResult(NamedTuple):
    """Result of a compiled step for the host."""

    evaluated: Array  # int32 []: number of evaluations; 0 if the step was not taken
    is_learned: Array  # bool []: whether all samples were evaluated, and learned from
    best: Array  # int32 [N], with padding
    best_s: Array  # float32 []; inf if no placement is feasible
    best_index: Array  # int32 []: among the step's placements
    mean_s: Array  # float32 []: of the feasible placements that the episodes ended with
    latency_s: Array  # float32 [B T]; inf where a placement was not evaluated or is infeasible
    metrics: Metrics


class _Inputs(NamedTuple):
    """Arrays that all steps of a compiled search read."""

    graph: jraph.GraphsTuple
    tables: Any
    assignment: Array | None
    reference_s: Array


def _make_inputs(graph: jraph.GraphsTuple, simulator: Simulator, progress: Progress) -> _Inputs:
    reference_s = jnp.float32(progress.reference_s)
    return _Inputs(graph, simulator.tables, simulator.assignment, reference_s)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _run_steps(
    learner: Learner,
    simulate: Callable[[Any, Array], simulators.Outcome],
    num_ops: int,
    length: int,
    inputs: _Inputs,
    state: State,
    remaining: Array,
    max_steps: Array,
) -> tuple[State, _StepResult]:
    """Takes at most `max_steps` of `length` steps, until no evaluations are remaining.

    The number of operations includes padding, so that graphs of a bucket share the program.

    Every leaf of the result has the leading axis `length`.
    """

    def take_step(state: State, remaining: Array) -> tuple[State, _StepResult]:
        sampled_state, samples = learner.sample(state, inputs.graph)
        placements = _flatten_and_lift(samples, inputs.assignment, num_ops)
        outcome = mesh.shard_map(simulate, inputs.tables, placements)
        evaluated = jnp.minimum(remaining, len(placements))
        is_evaluated = jnp.arange(len(placements)) < evaluated
        latency_s = jnp.where(is_evaluated & outcome.feasible, outcome.latency_s, jnp.inf)
        shape = samples.log_prob.shape  # [B, T]

        updated_state, metrics = learner.update(
            sampled_state,
            inputs.graph,
            samples,
            outcome.penalised_s().reshape(shape),
            inputs.reference_s,
            outcome.feasible.reshape(shape),
        )
        is_learned = evaluated == len(placements)
        # A step that is cut short leaves the state as it was, so that a resumed search repeats it.
        # The update is outside of the branches: within one, XLA would compile its forward pass anew
        # instead of using that of the draw.
        next_state = jax.lax.cond(is_learned, lambda: updated_state, lambda: state)
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
            best_index=best_index,
            mean_s=jnp.where(is_finite.any(), mean_s, jnp.inf),
            latency_s=latency_s,
            metrics=metrics,
        )

    def step(carry: tuple[State, Array], index: Array) -> tuple[tuple[State, Array], _StepResult]:
        no_result = _zeros(jax.eval_shape(take_step, *carry)[1])
        is_taken = (carry[1] > 0) & (index < max_steps)
        state, result = jax.lax.cond(
            is_taken, take_step, lambda state, _: (state, no_result), *carry
        )
        return (state, carry[1] - result.evaluated), result

    (state, _), results = jax.lax.scan(step, (state, remaining), jnp.arange(length))
    return state, results


def _zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _flatten_and_lift(samples: Sample, assignment: Array | None, num_ops: int) -> Array:
    """Returns the placements of all operations in all steps, int32 [B T, N]."""
    placements = samples.placement.reshape(-1, samples.placement.shape[-1])
    return lift_to_ops(placements, assignment, num_ops)


def lift_to_ops(placements: Array, assignment: Array | None, num_ops: int) -> Array:
    """Returns the placements int32 [B, N] of N operations, given those of a policy's M nodes.

    Args:
      placements: int32 [B, M].
      assignment: int32 [N], see `search`.
      num_ops: N. Without an assignment, both N and M may include padding.
    """
    if assignment is not None:
        return coarsen.lift(assignment, placements)
    missing = num_ops - placements.shape[1]
    if missing > 0:
        return jnp.pad(placements, ((0, 0), (0, missing)))
    return placements[:, :num_ops]


def _record(progress: Progress, mean_s: float, metrics: Metrics) -> dict[str, float]:
    return {
        "step": progress.step,
        "evaluations": progress.evaluations,
        "best_s": progress.best_s,
        "mean_s": mean_s,
        **{name: float(value) for name, value in metrics.items()},
    }


def _remember(
    progress: Progress,
    placements: Array,
    latency_s: Array,
    index: Array,
    evaluated: Array | int,
) -> Progress:
    """Counts evaluations and merges placements into the elite, without duplicates.

    Args:
      progress: the progress before.
      placements: int32 [K, N]; the first k have the latencies below.
      latency_s: float32 [k].
      index: int [k], of each placement among the new evaluations.
      evaluated: number of new evaluations.
    """
    faster = np.flatnonzero(latency_s < progress.elite_s[-1])
    evaluations = progress.evaluations + int(evaluated)
    if not faster.size:
        return progress._replace(evaluations=evaluations)
    pool = np.concatenate([progress.elite, placements[faster]])
    pool_s = np.concatenate([progress.elite_s, latency_s[faster]])
    # Of equals the earlier one stays, so that a resumed search equals an uninterrupted one.
    order = np.argsort(pool_s, kind="stable")
    _, first = np.unique(pool[order], axis=0, return_index=True)
    elite = order[np.sort(first)][:ELITE]
    missing = ELITE - len(elite)
    is_improved = pool_s[elite[0]] < progress.elite_s[0]
    found_at = progress.evaluations + int(index[np.argmin(latency_s)]) + 1
    return progress._replace(
        elite=np.pad(pool[elite], ((0, missing), (0, 0))),
        elite_s=np.pad(pool_s[elite], (0, missing), constant_values=np.inf).astype(np.float32),
        evaluations=evaluations,
        found_at=found_at if is_improved else progress.found_at,
    )
