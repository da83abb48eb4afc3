"""REINFORCE and PPO, each tuned, at the default budget: `experiments.benchmarks learning`.

Each is trained with 5 seeds on the coarsened networks of the zoo, under two objectives, with random
costs on three devices. A cell is the mean excess over the best latency that any search reached.
"""

import time

import numpy as np
from rich.console import Console

from experiments.benchmarks import problems
from placement.methods import learned
from placement.pipeline import loading
from placement.pipeline.settings import Settings
from placement.reporting.tables import grids

# Each with the hyper-parameters that were best on these problems.
_LEARNERS = {
    "reinforce": "hierarchical:algorithm=reinforce,num_samples=16,entropy_weight=0.8",
    "ppo": "hierarchical",
}


def run() -> None:
    """Prints the excess of REINFORCE and PPO over the best latency, and their seconds."""
    table = grids.new_table(
        "mean (worst) excess over the best found, 5 seeds; seconds a search",
        ("graph", "objective"),
        ("best ms", *_LEARNERS, "s", "s (ppo)"),
    )
    for name in problems.NETWORKS:
        for objective in ("serial", "makespan"):
            results = [_train(name, objective, method) for method in _LEARNERS.values()]
            best_s = min(float(values.min()) for values, _ in results)
            excess = [100 * (values / best_s - 1) for values, _ in results]
            table.add_row(
                *(name, objective, f"{1e3 * best_s:.3f}"),
                *(f"{np.mean(e):.2f}% ({np.max(e):.2f}%)" for e in excess),
                *(f"{seconds:.1f}" for _, seconds in results),
            )
    Console(width=100).print(table)


def _train(graph_name: str, objective: str, method_name: str) -> tuple[np.ndarray, float]:
    """Returns a method's best latencies [5] and the mean seconds of a compiled search."""
    settings = Settings(graph=graph_name)
    coarse = loading.load_network(settings).coarsening.graph
    problem = problems.make_three_device_problem(coarse, objective)
    search = learned.Search.prepare(method_name, problem)
    best_s, seconds = [], []
    for seed in (0, *range(5)):  # the first search compiles and is dropped
        progress = search.start(seed, problem.evaluate)
        start_s = time.perf_counter()
        for report in search.steps(progress, settings.budget, problem.evaluate):
            progress = report.progress
        seconds.append(time.perf_counter() - start_s)
        best_s.append(progress.best_s)
    return np.array(best_s[1:]), float(np.mean(seconds[1:]))
