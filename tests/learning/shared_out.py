"""What learning comes to on this process's JAX devices: the same numbers however many there are.

    python -m tests.learning.shared_out FILE

writes them as JSON; `test_mesh` compares those of eight devices with those of one.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.serialization
import jax
import numpy as np

from experiments import learned
from placement import simulators
from placement.learning import mesh, several, trainer, zero_shot
from placement.types import Problem
from tests import helpers

SAMPLES, STEPS, RESUMED_AT = 16, 4, 2
# Every policy, each learner, each objective, and several steps an episode.
METHODS = {
    "hsdag:hidden_size=4,num_samples=16": "makespan",
    "hierarchical:hidden_size=4,num_groups=3,num_samples=16,num_minibatches=1,epochs=1": "serial",
    "colocrl:hidden_size=4,num_samples=16,algorithm=reinforce": "subgraph",
    "placeto:hidden_size=2,rounds=2,num_samples=16": "max_load",
    "scheduler:hidden_size=4,num_samples=16": "makespan",
}
RESUMED = "scheduler:hidden_size=4,num_samples=16"


def problem(objective: str, branches: int = 2) -> Problem:
    """Ten operations, three devices, random costs."""
    graph = helpers.fork_join(branches, 8 // branches)
    return helpers.as_problem(
        graph, helpers.random_costs(np.random.default_rng(0), graph, 3), objective
    )


def search(
    method: str, steps: int, progress: trainer.Progress | None = None
) -> tuple[trainer.Progress, list[dict[str, float]]]:
    """Progress after some steps of a method, and their records."""
    of = problem(METHODS[method])
    made = learned.make(method, 3, False)
    graph, assignment = made.read(of)
    if progress is None:
        progress = fresh(method)
    simulator = trainer.Simulator.of(of)._replace(assignment=assignment)
    shape = jax.eval_shape(made.learner.sample, progress.state, graph)[1].log_prob.shape
    budget = progress.evaluations + (steps - progress.step) * int(np.prod(shape))
    reports = trainer.search_simulated(made.learner, graph, simulator, progress, budget, chunk=4)
    records = []
    for report in reports:
        progress = report.progress
        records += report.records
    return progress, records


def fresh(method: str) -> trainer.Progress:
    """Progress before the first step."""
    of = problem(METHODS[method])
    made = learned.make(method, 3, False)
    evaluate = simulators.evaluator(of)
    key = jax.random.PRNGKey(0)
    return trainer.start(made.learner, key, made.read(of).graph, evaluate, of.graph.num_ops, 3)


def share() -> dict[str, Any]:
    """How many of the samples the first device holds."""
    method = learned.make(RESUMED, 3, False)
    graph = method.read(problem("makespan")).graph
    _, drawn = method.learner.sample(fresh(RESUMED).state, graph)
    return {"held": drawn.placement.addressable_shards[0].data.shape[0]}


def on_several_graphs() -> dict[str, Any]:
    """Learning on two graphs at once."""
    made = learned.make(RESUMED, 3, False, over=several.over)
    graphs = [learned.with_board(problem("makespan", n), (12, 14)).graph for n in (2, 4)]
    stack = several.stack([jax.device_get(graph) for graph in graphs])
    state = made.learner.init(jax.random.PRNGKey(0), stack.graphs)
    for _ in range(2):
        state, metrics = several.step(made.learner, state, stack)
    return {name: float(value) for name, value in metrics.items()}


def unseen() -> dict[str, Any]:
    """Placing without learning."""
    of = problem("makespan")
    made = learned.make(RESUMED, 3, False)
    graph = made.read(of).graph
    params = jax.jit(made.policy.init)(jax.random.PRNGKey(0), graph)
    found = zero_shot.place(
        made.policy, params, graph, trainer.Simulator.of(of), jax.random.PRNGKey(1),
        num_ops=of.graph.num_ops, num_samples=16, steps=2,
    )  # fmt: skip
    return {"latency_s": found.latency_s.tolist(), "placement": found.placement.tolist()}


CLAIMS: dict[str, Callable[[], Any]] = {
    **{method: lambda method=method: search(method, STEPS)[1] for method in METHODS},
    "share": share,
    "several": on_several_graphs,
    "zero_shot": unseen,
}


def main(folder: Path) -> None:
    """Writes what the claims come to, and a search that can be gone on with."""
    jax.config.update("jax_disable_most_optimizations", True)
    found = {name: claim() for name, claim in CLAIMS.items()}
    progress = mesh.fetch(search(RESUMED, RESUMED_AT)[0])
    (folder / "progress.msgpack").write_bytes(flax.serialization.to_bytes(progress))
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
