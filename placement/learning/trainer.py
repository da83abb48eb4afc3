"""The search loop of every learned method: sample, evaluate, update, remember the best.

`search` is a generator: it yields after every step what a caller needs to show progress, to save
and to stop. It reads no clock and writes no file, so the same loop trains in the simulator and on
devices; `evaluate` is all that differs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import chex
import jax.numpy as jnp
import jraph
import numpy as np

from placement.learning.reinforce import Learner, State
from placement.types import Evaluate


class Progress(NamedTuple):
    """A search after some steps: a pytree of arrays and numbers, complete enough to resume from."""

    state: State
    best: np.ndarray  # int32 [N], the fastest placement so far
    best_s: float  # its latency
    reference_s: float  # latency of the fastest single device, the unit of the rewards
    step: int
    evaluations: int
    found_at: int  # evaluations made when `best` was found


class Report(NamedTuple):
    """A step's progress and its metrics, ready for a log."""

    progress: Progress
    metrics: dict[str, float]


def start(
    learner: Learner,
    key: chex.PRNGKey,
    graph: jraph.GraphsTuple,
    evaluate: Evaluate,
    num_ops: int,
    num_devices: int,
) -> Progress:
    """Initial parameters, and the single-device placements, evaluated like any other.

    Their best is the unit of the rewards and the search's first incumbent, so that no search ends
    with a placement slower than the best single device.
    """
    singles = np.tile(np.arange(num_devices, dtype=np.int32)[:, None], (1, num_ops))
    latency_s = np.asarray(evaluate(singles))
    fastest = int(np.argmin(latency_s))
    best_s = float(latency_s[fastest])
    return Progress(
        state=learner.init(key, graph),
        best=singles[fastest],
        best_s=best_s,
        reference_s=best_s if np.isfinite(best_s) else 1.0,
        step=0,
        evaluations=num_devices,
        found_at=fastest + 1,
    )


def search(
    learner: Learner,
    graph: jraph.GraphsTuple,
    evaluate: Evaluate,
    progress: Progress,
    budget: int,
) -> Iterator[Report]:
    """Runs steps until `budget` evaluations are spent, yielding after each.

    Args:
      learner: from `reinforce.make`.
      graph: padded, see `placement.graphs.batching`.
      evaluate: latencies of placements int32 [b, N], without padding.
      progress: where to go on from: `start`, or a checkpoint.
      budget: placements evaluated in all, the single devices included. The last step may be cut
        short: its samples beyond the budget are neither evaluated nor learned from.
    """
    num_ops = progress.best.shape[0]
    while progress.evaluations < budget:
        state, drawn = learner.sample(progress.state, graph)
        batch, steps = drawn.log_prob.shape
        placements = np.asarray(drawn.placement)[..., :num_ops].reshape(-1, num_ops)
        allowance = budget - progress.evaluations
        latency_s = np.asarray(evaluate(placements[:allowance]))
        progress = _remember(progress, placements, latency_s)
        metrics = {"best_s": progress.best_s, "mean_s": _finite_mean(latency_s)}
        if len(latency_s) == batch * steps:
            state, learned = learner.update(
                state,
                graph,
                drawn,
                jnp.asarray(latency_s.reshape(batch, steps)),
                jnp.float32(progress.reference_s),
            )
            metrics |= {name: float(value) for name, value in learned.items()}
        progress = progress._replace(state=state, step=progress.step + 1)
        yield Report(progress, metrics)


def _remember(progress: Progress, placements: np.ndarray, latency_s: np.ndarray) -> Progress:
    fastest = int(np.argmin(latency_s))
    evaluations = progress.evaluations + len(latency_s)
    if not latency_s[fastest] < progress.best_s:
        return progress._replace(evaluations=evaluations)
    return progress._replace(
        best=placements[fastest],
        best_s=float(latency_s[fastest]),
        found_at=progress.evaluations + fastest + 1,
        evaluations=evaluations,
    )


def _finite_mean(latency_s: np.ndarray) -> float:
    finite = latency_s[np.isfinite(latency_s)]
    return float(finite.mean()) if finite.size else float("inf")
