"""The time of a policy on one CPU core: `experiments.benchmarks policy`.

It times one sample with its log-probability, 64 at once, and a learning step (sample, simulate,
update) with 64 samples, for HSDAG on the coarsened and on the full graph of each network. The costs
are random: no device is needed and none is timed.
"""

from typing import Any

import jax
import jax.numpy as jnp
import psutil
from rich.console import Console

from experiments.benchmarks import problems
from experiments.benchmarks.timing import median_ms
from placement.errors import UserError
from placement.methods import learned
from placement.pipeline import loading
from placement.pipeline.settings import Settings
from placement.reporting.tables import grids
from placement.types import OpGraph

_BATCH = 64


def run() -> None:
    """Prints HSDAG's times and ratios."""
    # Before JAX starts its threads: XLA takes as many as the process has cores.
    process = psutil.Process()
    if not hasattr(process, "cpu_affinity"):
        raise UserError("this system cannot bind a process to a core; use Linux or Windows")
    process.cpu_affinity([min(process.cpu_affinity())])
    times = grids.new_table(
        f"HSDAG on one CPU core, median ms; together: {_BATCH} samples at once",
        ("graph",),
        ("operations", "alone", "together", "ratio", "learning step"),
    )
    for name in problems.NETWORKS:
        network = loading.load_network(Settings(graph=name))
        for graph in (network.coarsening.graph, network.graph):
            single_ms, batch_ms, step_ms = _measure_ms(graph)
            label = "coarsened" if graph is network.coarsening.graph else "full view"
            times.add_row(
                *(f"{name}, {label}", str(graph.num_ops), f"{single_ms:.2f}", f"{batch_ms:.2f}"),
                *(f"{_BATCH * single_ms / batch_ms:.1f}x", f"{step_ms:.2f}"),
            )
    Console(width=100).print(times)


def _measure_ms(op_graph: OpGraph) -> tuple[float, float, float]:
    """Returns the median times of one sample, of a batch, and of a learning step with a batch."""
    problem = problems.make_two_device_problem(op_graph)
    method = learned.make("hsdag", len(problem.devices), False)
    graph, learner = method.read(problem).graph, method.learner
    evaluate = problem.evaluate
    state = learner.init(jax.random.PRNGKey(0), graph)
    sample = jax.jit(method.policy.sample, static_argnums=3)

    def step() -> Any:
        sampled_state, samples = learner.sample(state, graph)
        latency_s = evaluate(samples.placement[:, 0, : op_graph.num_ops])
        return learner.update(sampled_state, graph, samples, latency_s[:, None], jnp.float32(1.0))

    key = jax.random.PRNGKey(1)
    single_ms = median_ms(lambda: sample(state.params, key, graph, 1))
    batch_ms = median_ms(lambda: sample(state.params, key, graph, _BATCH))
    return single_ms, batch_ms, median_ms(step)
