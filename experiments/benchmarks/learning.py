"""REINFORCE beside PPO, each as tuned, at the default budget: `experiments.benchmarks learning`.

5 seeds on the coarsened graphs of the zoo under two objectives, with three devices and random costs
under which placing is a question. A cell is the mean excess over the best that any of the searches
found.
"""

import time

import jax
import numpy as np
from rich.console import Console

from experiments.benchmarks import problems, timing
from placement import simulators
from placement.learning import trainer
from placement.methods import learned
from placement.pipeline import loading

# Each with what measured best for it on these problems.
_LEARNERS = {
    "reinforce": "hierarchical:algorithm=reinforce,num_samples=16,entropy_weight=0.8",
    "ppo": "hierarchical",
}


def run() -> None:
    """Prints how far REINFORCE and PPO end from the best found, and how long they take."""
    table = timing.table(
        "mean (worst) excess over the best found, 5 seeds; seconds a search",
        ("graph", "objective"),
        ("best ms", *_LEARNERS, "s", "s (ppo)"),
    )
    for name in problems.NETWORKS:
        for objective in ("serial", "makespan"):
            results = [_learn(name, objective, method) for method in _LEARNERS.values()]
            best_s = min(float(values.min()) for values, _ in results)
            excess = [100 * (values / best_s - 1) for values, _ in results]
            table.add_row(
                name,
                objective,
                f"{1e3 * best_s:.3f}",
                *(f"{np.mean(e):.2f}% ({np.max(e):.2f}%)" for e in excess),
                *(f"{seconds:.1f}" for _, seconds in results),
            )
    Console(width=100).print(table)


def _learn(name: str, objective: str, text: str) -> tuple[np.ndarray, float]:
    """Returns the best latencies [5] of a learner, and the mean seconds of a compiled search."""
    config = problems.config(name)
    problem = problems.three_devices(loading.network(config).coarsening.graph, objective)
    method = learned.make(text, len(problem.devices), False)
    graph, learner = method.read(problem).graph, method.learner
    simulator, evaluate = trainer.Simulator.of(problem), simulators.evaluator(problem)
    best_s, seconds = [], []
    for seed in (0, *range(5)):  # the first compiles
        progress = trainer.start(
            learner, jax.random.PRNGKey(seed), graph, evaluate, problem.graph.num_ops, 3
        )
        start = time.perf_counter()
        steps = trainer.search_simulated(learner, graph, simulator, progress, config.budget)
        for report in steps:
            progress = report.progress
        seconds.append(time.perf_counter() - start)
        best_s.append(progress.best_s)
    return np.array(best_s[1:]), float(np.mean(seconds[1:]))
