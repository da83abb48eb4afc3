"""The training loop of every learned method: a step samples, evaluates and updates.

A search is a generator. It yields reports, from which the caller shows progress, saves checkpoints
and decides when to stop. It writes no file, and reads only the clock that it is given. In the
simulator, a chunk of steps is one compiled `scan` of the three functions.

On devices, `evaluate` runs on the host between the compiled `sample` and the compiled `update`.
Measuring a placement takes about a second, so a step measures only the `PROMISING` samples that
the simulator predicts to be fastest and that were not measured before. The others count with their
prediction, times the median error of the step's predictions, but never as faster than the slowest
measured one: the policy learns from the simulator which placements are slow, and from the devices
which promising ones are fast.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement import simulators
from placement.graphs import batching
from placement.learning import mesh
from placement.learning.base import Learner, Metrics, State
from placement.policies.inputs import PolicyInput
from placement.problem import Problem
from placement.types import Array, Evaluate, Sample, Solution

ELITE = 4  # number of fastest distinct placements that a search remembers, to verify them
CHUNK = 16  # steps between two reports at most
PROMISING = 8  # samples of a step that are evaluated on devices at most
REPORT_INTERVAL_S = 1.0
RELEASED_SINGLE_DEVICE_S = np.float32(1e10)


class Progress(NamedTuple):
    """State of a search after some steps; a pytree from which a search resumes."""

    state: State
    elite: np.ndarray  # int32 [ELITE, K]: the fastest of the steps' best placements, fastest first
    elite_s: np.ndarray  # float32 [ELITE]: their latencies; inf where there is none yet
    reference_s: float  # latency of the fastest single device, the unit of the rewards
    own_best_s: float  # latency of the fastest placement that the policy drew, without the starts
    step: int
    evaluations: int

    @property
    def best_s(self) -> float:
        """The latency of the fastest placement so far."""
        return float(self.elite_s[0])

    def remember(self, placement: Array, latency_s: float) -> "Progress":
        """Adds a placement int32 [K] to the elite, unless it is there."""
        is_known = np.isfinite(self.elite_s) & (self.elite == placement).all(axis=1)
        if is_known.any() or not latency_s < self.elite_s[-1]:
            return self
        # Of equals the earlier one stays first, so that a resumed search equals an uninterrupted
        # one.
        position = int(np.searchsorted(self.elite_s, latency_s, side="right"))
        return self._replace(
            elite=np.insert(self.elite, position, placement, axis=0)[:ELITE],
            elite_s=np.insert(self.elite_s, position, latency_s)[:ELITE],
        )


class Report(NamedTuple):
    """The progress of a search, and records of the steps since the last report.

    A record has the step's metrics, its number `step`, the `evaluations` until its end, `best_s` so
    far, the starts included, and two numbers of the step's samples: `mean_s`, the mean latency of
    the feasible placements that its episodes ended with, and `step_best_s`, the lowest one.
    """

    progress: Progress
    records: tuple[dict[str, float], ...]
    # For each record, float32 [k]: latencies of the step's feasible placements.
    latencies_s: tuple[np.ndarray, ...]


def start(
    learner: Learner,
    key: chex.PRNGKey,
    policy_input: PolicyInput,
    problem: Problem,
    starts: Sequence[Solution],
    *,
    keep_starts: bool = True,
) -> Progress:
    """Initialises a learner and remembers the starts, so that no search ends with a slower one.

    The fastest single device is the unit of the rewards.

    Args:
      learner: of `base.make_reinforce_learner` or `ppo.make_learner`.
      key: consumed.
      policy_input: the problem as the policy reads it.
      problem: the problem to place.
      starts: evaluated placements, the single devices first.
      keep_starts: False keeps the unit but not the incumbent, as HSDAG's released code.
    """
    fastest_s = min(start.value_s for start in starts[: len(problem.devices)])
    state = learner.init(key, policy_input.graph)
    progress = Progress(
        state=state,
        elite=np.zeros((ELITE, problem.num_decisions), np.int32),
        elite_s=np.full(ELITE, np.inf, np.float32),
        reference_s=fastest_s if np.isfinite(fastest_s) else 1.0,
        own_best_s=np.inf,
        step=0,
        evaluations=starts[-1].evaluations,
    )
    for start in starts if keep_starts else ():
        progress = progress.remember(np.asarray(start.placement), start.value_s)
    return progress


def search(
    learner: Learner,
    policy_input: PolicyInput,
    problem: Problem,
    progress: Progress,
    budget: int,
    *,
    evaluate: Evaluate | None = None,
    fail_single_devices: bool = False,
    clock_s: Callable[[], float] = lambda: 0.0,
) -> Iterator[Report]:
    """Runs steps until `budget` evaluations are spent; yields first when the steps are compiled.

    Rewards of simulated placements are of penalised latencies: the more a placement exceeds a
    memory, the lower its reward.

    Args:
      learner, policy_input, problem: as of `start`.
      progress: where the search continues, from `start` or a checkpoint.
      budget: largest number of evaluations in all, the starts included. Samples of the last step
        beyond the budget are not evaluated, and in the simulator the step is then not learned from.
        On devices a step counts as one evaluation at least.
      evaluate: measures latencies of distinct placements int32 [b, K], without padding, on the
        host; a report comes after each step. It is asked for the elite again in every step, because
        repeated measurements may change its latencies. None: the simulator evaluates, compiled with
        the steps.
      fail_single_devices: whether a single-device placement takes 1e10 seconds, as in HSDAG's
        released code.
      clock_s: returns seconds since any fixed time. Reports come about every second of it, and
        after `CHUNK` steps at the latest. The steps do not depend on it.
    """
    objective = simulators.get_objective(problem.objective)
    sample, predict, update, run_chunk = _make_steps(
        *learner[1:], objective.simulate, fail_single_devices
    )
    tables, deciding_nodes = prepare_tables(policy_input, problem)
    inputs = _Inputs(policy_input.graph, tables, jnp.float32(progress.reference_s))
    remaining, chunk = np.int32(0), 0  # the first turn evaluates nothing, but compiles
    # The placements that were evaluated on devices; of those before a checkpoint only the elite.
    known = {elite.tobytes() for elite in progress.elite[np.isfinite(progress.elite_s)]}
    while True:
        began_s = clock_s()
        if evaluate is None:
            state, results = run_chunk(inputs, progress.state, remaining, np.int32(chunk))
        else:
            drawn_state, samples, placements = sample(inputs, progress.state)
            outcome = jax.device_get(predict(inputs, placements))
            num_new, measured_s = 0, np.full(len(placements), np.inf, np.float32)
            if remaining:
                rows = np.ascontiguousarray(np.asarray(placements)[:, deciding_nodes])
                max_new = min(PROMISING, int(remaining))
                progress, outcome, measured_s, num_new = _measure_promising(
                    problem, progress, rows, outcome, known, max_new, evaluate, fail_single_devices
                )
            states = progress.state, drawn_state
            num_learned = np.int32(len(placements) if remaining else 0)
            state, results = update(inputs, states, samples, placements, outcome, num_learned)
            results = results._replace(
                num_evaluated=np.int32(max(1, num_new) if remaining else 0),
                latency_s=measured_s.reshape(samples.log_prob.shape),
            )
            results = jax.tree.map(lambda leaf: np.asarray(leaf)[None], results)
        records, latencies_s, results = [], [], jax.device_get(results)
        # Steps that were not taken come last and evaluated nothing.
        for i in range(np.count_nonzero(results.num_evaluated)):
            result: _StepResult = jax.tree.map(lambda leaf, i=i: leaf[i], results)
            latency_s = np.asarray(result.latency_s)
            step_best_s = float(latency_s.min())
            if evaluate is None:
                progress = progress.remember(result.best[deciding_nodes], step_best_s)
            progress = progress._replace(
                own_best_s=min(progress.own_best_s, step_best_s),
                step=progress.step + 1,
                evaluations=progress.evaluations + int(result.num_evaluated),
            )
            last_s = latency_s[:, -1] if evaluate is None else latency_s
            last_s = last_s[np.isfinite(last_s)]
            record = {
                "step": progress.step,
                "evaluations": progress.evaluations,
                "best_s": progress.best_s,
                "mean_s": float(last_s.mean()) if len(last_s) else np.inf,
                "step_best_s": step_best_s,
            }
            # Otherwise it was not learned from.
            if evaluate is not None or result.num_evaluated == latency_s.size:
                record |= {name: float(value) for name, value in result.metrics.items()}
            records.append(record)
            latencies_s.append(latency_s[np.isfinite(latency_s)])
        progress = progress._replace(state=state)
        # The first step is timed alone.
        step_s = (clock_s() - began_s) / chunk if chunk else REPORT_INTERVAL_S
        chunk = int(np.clip(REPORT_INTERVAL_S / max(step_s, 1e-9), 1, CHUNK))
        yield Report(progress, tuple(records), tuple(latencies_s))
        if progress.evaluations >= budget:
            return
        remaining = np.int32(min(budget - progress.evaluations, np.iinfo(np.int32).max))


def _measure_promising(
    problem: Problem,
    progress: Progress,
    rows: np.ndarray,
    predicted: simulators.Outcome,
    known: set[bytes],
    max_new: int,
    evaluate: Evaluate,
    fail_single_devices: bool,
) -> tuple[Progress, simulators.Outcome, np.ndarray, int]:
    """Measures the most promising samples of a step on devices, and the elite again.

    Args:
      problem, progress, evaluate, fail_single_devices: as of `search`.
      rows: int32 [B T, K], the samples.
      predicted: their outcome in the simulator.
      known: the placements that were measured before; new ones are added.
      max_new: the largest number of new placements.

    Returns:
      The progress with the elite's new latencies; the outcome of all samples to learn from;
      float32 [B T], the latencies of the measured samples, inf of the others; the number of new
      placements.
    """
    keys = [row.tobytes() for row in rows]
    singles = {row.tobytes(): row for row in problem.single_devices}
    elite = progress.elite[np.isfinite(progress.elite_s)]
    asked, num_new = singles | {row.tobytes(): row for row in elite}, 0
    for i in np.argsort(predicted.latency_s, kind="stable"):
        is_new = keys[i] not in known
        if not predicted.feasible[i] or (is_new and num_new == max_new):
            continue
        num_new += is_new
        known.add(keys[i])
        asked[keys[i]] = rows[i]
    evaluated = np.array(list(asked.values()))
    evaluated_s = np.asarray(evaluate(evaluated), np.float32)
    latencies = dict(zip(asked, evaluated_s.tolist(), strict=True))
    if fail_single_devices:
        is_single = (evaluated == evaluated[:, :1]).all(axis=1)
        evaluated_s = np.where(is_single, np.inf, evaluated_s)
    progress = progress._replace(elite_s=np.full(ELITE, np.inf, np.float32))
    for placement, placement_s in zip(evaluated, evaluated_s, strict=True):
        progress = progress.remember(placement, float(placement_s))

    # Samples that were not measured count with their prediction, times the step's median error.
    measured_s = np.array([latencies.get(key, np.nan) for key in keys], np.float32)
    ran, predicted_s = np.isfinite(measured_s), predicted.latency_s
    if ran.any():
        error = np.median(measured_s[ran] / predicted_s[ran])
        predicted_s = np.maximum(error * predicted_s, measured_s[ran].max())
    latency_s = np.where(np.isnan(measured_s), predicted_s, measured_s)
    # The machine's speed drifts from step to step, but not what the policy learns from.
    single_s = min(latencies[key] for key in singles)
    drift = single_s / progress.reference_s if np.isfinite(single_s) else 1.0
    outcome = simulators.Outcome(
        (latency_s / drift).astype(np.float32),
        predicted.overflow,
        predicted.feasible & np.isfinite(latency_s),
    )
    return progress, outcome, np.where(ran, measured_s, np.float32(np.inf)), num_new


class _Inputs(NamedTuple):
    """Arrays that all steps of a search read."""

    graph: jraph.GraphsTuple
    tables: simulators.Tables  # for placements of the graph's nodes
    reference_s: Array


class _StepResult(NamedTuple):
    """Result of a step for the host."""

    num_evaluated: Array  # int32 []: 0 if the step was not taken
    best: Array  # int32 [M], of the M nodes
    latency_s: Array  # float32 [B, T]; inf where a placement was not evaluated or is infeasible
    metrics: Metrics


@functools.cache  # so that searches of a learner on problems of a bucket share the programs
def _make_steps(
    draw: Callable[..., tuple[State, Sample]],
    learn_from: Callable[..., tuple[State, Metrics]],
    draw_to_learn: Callable[..., tuple[State, Sample, Any]],
    simulate: Callable[[simulators.Tables, Array], simulators.Outcome],
    fail_single_devices: bool,
) -> tuple[Callable[..., Any], ...]:
    """Returns `sample`, `predict`, `update` and `run_chunk`, compiled.

    The first arguments are the functions of a `Learner` but for `init`: learners that differ only
    in that one share the programs.
    """

    def sample(inputs: _Inputs, state: State) -> tuple[State, Sample, Array]:
        """Draws samples; returns them with the placements of all nodes, int32 [B T, M]."""
        state, samples = draw(state, inputs.graph)
        return state, samples, samples.placement.reshape(-1, samples.placement.shape[-1])

    def predict(inputs: _Inputs, placements: Array) -> simulators.Outcome:
        outcome: simulators.Outcome = mesh.shard_map(simulate, inputs.tables, placements)
        return outcome

    def update(
        inputs: _Inputs,
        states: tuple[State, State],  # before the draw and after it
        samples: Sample,
        placements: Array,
        outcome: simulators.Outcome,  # of the placements
        remaining: Array,  # int32 []: the number of evaluations that are left
        learn: Callable[..., tuple[State, Metrics]] | None = None,  # of `Learner.sample_to_learn`
    ) -> tuple[State, _StepResult]:
        if fail_single_devices:
            decides = inputs.graph.nodes["mask"]  # the first node always does
            is_single = ((placements == placements[:, :1]) | ~decides).all(axis=1)
            outcome = simulators.Outcome(
                jnp.where(is_single, RELEASED_SINGLE_DEVICE_S, outcome.latency_s),
                jnp.where(is_single, 0.0, outcome.overflow),
                outcome.feasible | is_single,
            )
        shape = samples.log_prob.shape  # [B, T]
        learn = learn or functools.partial(learn_from, states[1], inputs.graph, samples)
        updated_state, metrics = learn(
            outcome.penalised_s().reshape(shape),
            inputs.reference_s,
            outcome.feasible.reshape(shape),
        )
        num_evaluated = jnp.minimum(remaining, len(placements))
        # A step that is cut short leaves the state as it was, so that a resumed search repeats it.
        # The update is outside of the branches: within one, XLA would compile its forward pass anew
        # instead of using that of the draw.
        is_complete = num_evaluated == len(placements)
        state = jax.lax.cond(is_complete, lambda: updated_state, lambda: states[0])
        is_evaluated = jnp.arange(len(placements)) < num_evaluated
        latency_s = jnp.where(is_evaluated & outcome.feasible, outcome.latency_s, jnp.inf)
        best = placements[latency_s.argmin()]
        return state, _StepResult(num_evaluated, best, latency_s.reshape(shape), metrics)

    def run_chunk(
        inputs: _Inputs, state: State, remaining: Array, max_steps: Array
    ) -> tuple[State, _StepResult]:
        """Takes at most `max_steps` of `CHUNK` steps, until no evaluations are remaining.

        Every leaf of the result has the leading axis `CHUNK`.
        """

        @jax.jit  # so that it is traced once
        def take_step(state: State, remaining: Array) -> tuple[State, _StepResult]:
            drawn_state, samples, learn = draw_to_learn(state, inputs.graph)
            placements = samples.placement.reshape(-1, samples.placement.shape[-1])
            states, outcome = (state, drawn_state), predict(inputs, placements)
            return update(inputs, states, samples, placements, outcome, remaining, learn)

        def step(carry: tuple[State, Array], index: Array) -> tuple[Any, _StepResult]:
            shapes = jax.eval_shape(take_step, *carry)[1]
            no_result = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
            is_taken = (carry[1] > 0) & (index < max_steps)
            state, result = jax.lax.cond(
                is_taken, take_step, lambda state, _: (state, no_result), *carry
            )
            return (state, carry[1] - result.num_evaluated), result

        (state, _), results = jax.lax.scan(step, (state, remaining), jnp.arange(CHUNK))
        return state, results

    return jax.jit(sample), jax.jit(predict), jax.jit(update), jax.jit(run_chunk)


def prepare_tables(
    policy_input: PolicyInput, problem: Problem
) -> tuple[simulators.Tables, np.ndarray]:
    """Prepares a problem for placements of a policy's nodes, on the host.

    Returns:
      The problem's `padded_tables`, where each operation takes the device of its node.
      int32 [K]: the node of each decision.
    """
    node, num_nodes = policy_input.node, len(policy_input.graph.nodes["mask"])
    tables, num_padded_ops = problem.padded_tables, problem.num_padded_ops
    if num_nodes != num_padded_ops or (node != np.arange(len(node))).any():
        tables = tables._replace(decision=batching.pad(node, num_padded_ops, 0))
    return tables, node[problem.decisions.first_ops]
