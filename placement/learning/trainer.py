"""The search loop of every learned method: sample, evaluate, update, remember the best.

A search is a generator: it yields what a caller needs to show progress, to save and to stop. It
reads no clock and writes no file. `search` evaluates on the host, one step at a time, and serves
devices and simulators alike; `search_simulated` compiles sampling, simulation and update into one
`scan` over a chunk of steps. Both take the same steps from the same key, within memory limits and,
if `search` is given `penalised`, beyond them.
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
from placement.graphs import coarsen
from placement.instance import Instance
from placement.learning import mesh
from placement.learning.base import Learner, Metrics, State
from placement.types import Array, Evaluate, Sample

ELITE = 4  # distinct placements that a search remembers: the few that are worth verifying


class Progress(NamedTuple):
    """A search after some steps: a pytree of arrays and numbers, complete enough to resume from."""

    state: State
    elite: np.ndarray  # int32 [ELITE, N], the fastest placements so far, fastest first
    elite_s: np.ndarray  # float32 [ELITE], their latencies; inf where there is none yet
    reference_s: float  # latency of the fastest single device, the unit of the rewards
    step: int
    evaluations: int
    found_at: int  # evaluations made when elite[0] was found

    @property
    def best_s(self) -> float:
        """Latency of the fastest placement so far."""
        return float(self.elite_s[0])


class Report(NamedTuple):
    """Progress to save and to resume from, and what to log of the steps that led there.

    A record is a step's metrics beside its number `step`, the `evaluations` made until its end,
    `best_s` so far, and `mean_s`, the mean of the placements that the step's episodes ended with
    and that can run.
    """

    progress: Progress
    records: tuple[dict[str, float], ...]
    # For each record, float32 [k]: of the placements that the step evaluated, those that can run.
    latencies_s: tuple[np.ndarray, ...]


class Simulator(NamedTuple):
    """What `search_simulated` evaluates with."""

    # `simulate(tables, placements int32 [B, N])`: static under jit, one of an objective.
    simulate: Callable[[Any, Array], simulators.Outcome]
    tables: Any  # of `Instance.tables`
    assignment: Array | None = None  # see `search`

    @classmethod
    def of(cls, problem: Instance) -> "Simulator":
        """Makes the simulator of a problem whose graph is the policy's."""
        return cls(simulators.objective(problem.objective).simulate, problem.tables)


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
    """Initial parameters, and the single-device placements, evaluated like any other.

    The fastest is the unit of the rewards and the search's first incumbent, so that no search ends
    with a placement slower than the best single device.

    Args:
      learner: from `reinforce.make` or `ppo.make`.
      key: consumed.
      graph: padded, see `placement.graphs.batching`.
      evaluate: latencies of placements int32 [b, N], without padding.
      num_ops: N.
      num_devices: D.
      keep_single_devices: False keeps the unit and forgets the incumbent, as the authors' released
        code of HSDAG does.
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
      learner: from `reinforce.make` or `ppo.make`.
      graph: padded, see `placement.graphs.batching`.
      evaluate: latencies of placements int32 [b, N], without padding.
      progress: where to go on from: `start`, or a checkpoint.
      budget: placements evaluated in all, the single devices included. The last step may be cut
        short: its samples beyond the budget are neither evaluated nor learned from.
      assignment: int32 [N], the node of the policy's graph that places each operation, as of
        `graphs.coarsen.lift`; None where the two have the same numbers.
      penalised: latencies to learn from, of the same placements as `evaluate` is given: finite
        beyond the memory's limits, as of `Instance.evaluate_penalised`. None:
        those of `evaluate`, as on devices, which say no more than that a placement failed.
    """
    num_ops = progress.elite.shape[1]
    progress = progress._replace(state=learner.place(progress.state))
    while progress.evaluations < budget:
        state, drawn = learner.sample(progress.state, graph)
        batch, steps = drawn.log_prob.shape
        placements = _lifted(mesh.fetch(drawn), assignment, num_ops)
        left = budget - progress.evaluations
        latency_s = np.asarray(evaluate(placements[:left]), np.float32)
        evaluated = len(latency_s)
        progress = _remember(progress, placements, latency_s, np.arange(evaluated), evaluated)
        metrics: Metrics = {}
        if evaluated == batch * steps:
            learned_s = latency_s if penalised is None else np.asarray(penalised(placements))
            state, metrics = learner.update(
                state,
                graph,
                drawn,
                jnp.asarray(learned_s.reshape(batch, steps), jnp.float32),
                jnp.float32(progress.reference_s),
                jnp.asarray(np.isfinite(latency_s).reshape(batch, steps)),
            )
            progress = progress._replace(state=state)
        progress = progress._replace(step=progress.step + 1)
        # Placements come episode by episode, and so do those of a step that is cut short.
        mean_s = _finite_mean(latency_s[steps - 1 :: steps])
        yield Report(progress, (_record(progress, mean_s, metrics),), (_finite(latency_s),))


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
    """As `search`, in the simulator and compiled, yielding after every `chunk` steps.

    Rewards are of penalised latencies, so that a placement beyond the limits is worse the further
    it is beyond them; what is remembered is each step's fastest placement within the limits.
    Compiles once, whatever the budget, and takes the same steps whatever the chunk.

    Args:
      learner, graph, progress, budget: as of `search`.
      simulator: of the operations of `progress.elite`.
      chunk: steps between two reports, for the caller to log, save and stop.
      pace: asked before each chunk how many of its steps to take, so that a caller with a clock
        gets its reports in time however long a step takes; None takes all.
    """
    reference_s = jnp.float32(progress.reference_s)
    num_ops = progress.elite.shape[1]
    progress = progress._replace(state=learner.place(progress.state))
    while progress.evaluations < budget:
        left = np.int32(min(budget - progress.evaluations, np.iinfo(np.int32).max))
        allowed = np.int32(chunk if pace is None else min(chunk, max(1, pace())))
        state, done = _steps(
            learner,
            simulator.simulate,
            num_ops,
            chunk,
            (graph, simulator.tables, simulator.assignment, reference_s),
            progress.state,
            left,
            allowed,
        )
        records, latencies_s = [], []
        for step in _unstacked(mesh.fetch(done)):
            progress = _remember(
                progress, step.best[None], step.best_s[None], step.best_at[None], step.evaluated
            )
            progress = progress._replace(step=progress.step + 1)
            metrics = step.metrics if step.learned else {}
            records.append(_record(progress, float(step.mean_s), metrics))
            latencies_s.append(_finite(np.asarray(step.latency_s)))
        progress = progress._replace(state=state)
        yield Report(progress, tuple(records), tuple(latencies_s))


class _Step(NamedTuple):
    """What the host learns of a compiled step."""

    evaluated: Array  # int32 []: placements evaluated; 0 of a step that was left out
    learned: Array  # bool []: all of them were
    best: Array  # int32 [N]
    best_s: Array  # float32 []; inf where no placement can run
    best_at: Array  # int32 []: its number within the step
    mean_s: Array  # float32 []: of what the episodes ended with
    latency_s: Array  # float32 [B T]; inf where a placement was not evaluated or cannot run
    metrics: Metrics


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _steps(
    learner: Learner,
    simulate: Callable[[Any, Array], simulators.Outcome],
    num_ops: int,
    length: int,
    inputs: tuple[Any, ...],
    state: State,
    left: Array,
    allowed: Array,
) -> tuple[State, _Step]:
    """Up to `allowed` steps, until `left` evaluations are spent; every leaf of `_Step` [length]."""

    def step(carry: tuple[State, Array], number: Array) -> tuple[tuple[State, Array], _Step]:
        taken = partial(_step, learner, simulate, num_ops, inputs)
        blank = _blank(jax.eval_shape(taken, *carry)[1])
        wanted = (carry[1] > 0) & (number < allowed)
        state, done = jax.lax.cond(wanted, taken, lambda state, _: (state, blank), *carry)
        return (state, carry[1] - done.evaluated), done

    (state, _), done = jax.lax.scan(step, (state, left), jnp.arange(length))
    return state, done


def _step(
    learner: Learner,
    simulate: Callable[[Any, Array], simulators.Outcome],
    num_ops: int,
    inputs: tuple[Any, ...],
    state: State,
    left: Array,
) -> tuple[State, _Step]:
    graph, tables, assignment, reference_s = inputs
    advanced, drawn = learner.sample(state, graph)
    placements = _lifted(drawn, assignment, num_ops)
    outcome = mesh.replicate(mesh.shard_map(simulate, tables, placements))
    evaluated = jnp.minimum(left, len(placements))
    counts = jnp.arange(len(placements)) < evaluated
    latency_s = jnp.where(counts & outcome.feasible, outcome.latency_s, jnp.inf)
    penalised_s = outcome.penalised_s().reshape(drawn.log_prob.shape)
    learned = evaluated == len(placements)
    feasible = outcome.feasible.reshape(drawn.log_prob.shape)
    update = partial(learner.update, advanced, graph, drawn, penalised_s, reference_s, feasible)
    blank = _blank(jax.eval_shape(update)[1])
    after, metrics = jax.lax.cond(learned, update, lambda: (state, blank))
    best_at = jnp.argmin(latency_s)
    last_s = latency_s.reshape(drawn.log_prob.shape)[:, -1]
    ran = jnp.isfinite(last_s)
    return after, _Step(
        evaluated=evaluated,
        learned=learned,
        best=placements[best_at],
        best_s=latency_s[best_at],
        best_at=best_at,
        mean_s=jnp.where(
            ran.any(), jnp.where(ran, last_s, 0.0).sum() / jnp.maximum(ran.sum(), 1), jnp.inf
        ),
        latency_s=latency_s,
        metrics=metrics,
    )


def _blank(shapes: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _lifted(drawn: Sample, assignment: Array | None, num_ops: int) -> Array:
    """The placements of all steps, int32 [B T, N]."""
    placements = drawn.placement.reshape(-1, drawn.placement.shape[-1])
    return placements[:, :num_ops] if assignment is None else coarsen.lift(assignment, placements)


def _unstacked(done: _Step) -> Iterator[_Step]:
    """The steps of a chunk that were taken."""
    for i in range(int((np.asarray(done.evaluated) > 0).sum())):
        yield jax.tree.map(lambda leaf, i=i: leaf[i], done)


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
    number: Array,
    evaluated: Array | int,
) -> Progress:
    """Counts evaluations and merges placements into the elite, duplicates left out.

    Args:
      progress: before.
      placements: int32 [K, N], the first of which have the latencies below.
      latency_s: float32 [k].
      number: int [k], of each among the evaluations counted here.
      evaluated: how many these are.
    """
    faster = np.flatnonzero(latency_s < progress.elite_s[-1])
    evaluations = progress.evaluations + int(evaluated)
    if not faster.size:
        return progress._replace(evaluations=evaluations)
    pool = np.concatenate([progress.elite, placements[faster]])
    pool_s = np.concatenate([progress.elite_s, latency_s[faster]])
    # Among equals the earlier one stays, so that a resumed search equals an uninterrupted one.
    order = np.argsort(pool_s, kind="stable")
    _, first = np.unique(pool[order], axis=0, return_index=True)
    keep = order[np.sort(first)][:ELITE]
    missing = ELITE - len(keep)
    improved = pool_s[keep[0]] < progress.elite_s[0]
    found_at = progress.evaluations + int(number[np.argmin(latency_s)]) + 1
    return progress._replace(
        elite=np.pad(pool[keep], ((0, missing), (0, 0))),
        elite_s=np.pad(pool_s[keep], (0, missing), constant_values=np.inf).astype(np.float32),
        evaluations=evaluations,
        found_at=found_at if improved else progress.found_at,
    )


def _finite(latency_s: np.ndarray) -> np.ndarray:
    return latency_s[np.isfinite(latency_s)]


def _finite_mean(latency_s: np.ndarray) -> float:
    finite = _finite(latency_s)
    return float(finite.mean()) if finite.size else float("inf")
