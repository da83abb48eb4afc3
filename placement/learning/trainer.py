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
    *,
    keep_single_devices: bool = True,
) -> Progress:
    """Initial parameters, and the single-device placements, evaluated like any other.

    The fastest is the unit of the rewards and the search's first incumbent, so that no search ends
    with a placement slower than the best single device. `keep_single_devices=False` keeps the unit
    and forgets the incumbent, as the authors' released code of HSDAG does.
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
        return _remember(progress, singles, latency_s)
    return progress._replace(evaluations=num_devices)


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
    num_ops = progress.elite.shape[1]
    while progress.evaluations < budget:
        state, drawn = learner.sample(progress.state, graph)
        batch, steps = drawn.log_prob.shape
        placements = np.asarray(drawn.placement)[..., :num_ops].reshape(-1, num_ops)
        allowance = budget - progress.evaluations
        latency_s = np.asarray(evaluate(placements[:allowance]), np.float32)
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
            progress = progress._replace(state=state)
        progress = progress._replace(step=progress.step + 1)
        yield Report(progress, metrics)


def _remember(progress: Progress, placements: np.ndarray, latency_s: np.ndarray) -> Progress:
    """Counts the evaluations and merges the placements into the elite, duplicates left out."""
    evaluations = progress.evaluations + len(latency_s)
    faster = np.flatnonzero(latency_s < progress.elite_s[-1])
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
    found_at = progress.evaluations + int(np.argmin(latency_s)) + 1
    return progress._replace(
        elite=np.pad(pool[keep], ((0, missing), (0, 0))),
        elite_s=np.pad(pool_s[keep], (0, missing), constant_values=np.inf).astype(np.float32),
        evaluations=evaluations,
        found_at=found_at if improved else progress.found_at,
    )


def _finite_mean(latency_s: np.ndarray) -> float:
    finite = latency_s[np.isfinite(latency_s)]
    return float(finite.mean()) if finite.size else float("inf")
