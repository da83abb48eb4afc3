"""What learning comes to on this process's JAX devices: the same numbers however many there are.

    python -m tests.learning.shared_out FOLDER

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
from placement.policies import colocrl, placeto
from placement.types import Policy, Problem
from tests import helpers

SAMPLES, STEPS, RESUMED_AT = 16, 4, 2
SEARCH = f"hsdag:hidden_size=4,num_samples={SAMPLES}"  # by PPO
SCHEDULER = f"scheduler:hidden_size=4,episode_steps=1,num_samples={SAMPLES}"  # by REINFORCE


def problem(branches: int = 2, objective: str = "makespan") -> Problem:
    """Ten operations, three devices, random costs; under 'subgraph' one of them is a host."""
    graph = helpers.fork_join(branches, 8 // branches)
    costs = helpers.random_costs(np.random.default_rng(0), graph, 3)
    if objective == "subgraph":
        costs = costs._replace(accelerator=np.array([-1, 0, 1], np.int32))
    return helpers.as_problem(graph, costs, objective)


def search(
    steps: int, saved: bytes | None = None
) -> tuple[trainer.Progress, list[dict[str, float]]]:
    """Progress after so many steps in all, from the beginning or from what was saved."""
    of, made = problem(objective="subgraph"), learned.make(SEARCH, 3, False)
    graph, key = made.read(of).graph, jax.random.PRNGKey(0)
    evaluate = simulators.evaluator(of)
    progress = trainer.start(made.learner, key, graph, evaluate, of.graph.num_ops, 3)
    budget, records = progress.evaluations + steps * SAMPLES, []
    if saved is not None:
        progress = flax.serialization.from_bytes(progress, saved)
    simulator = trainer.Simulator.of(of)
    for report in trainer.search_simulated(
        made.learner, graph, simulator, progress, budget, chunk=4
    ):
        progress = report.progress
        records += report.records
    return progress, records


def gradient(policy: Policy, graph: Any) -> dict[str, float]:
    """What a policy draws, and the gradient of its log-probability, summed up."""

    def step(key: jax.Array) -> dict[str, Any]:
        init_key, key = jax.random.split(key)
        params = policy.init(init_key, graph)
        drawn = policy.sample(params, key, graph, SAMPLES)
        weight = np.linspace(-1, 1, SAMPLES)[:, None]

        def gain(params: Any) -> Any:
            now = policy.log_prob(params, graph, drawn)
            return (weight * now.log_prob + now.entropy).sum()

        grads = jax.tree.leaves(jax.grad(gain)(params))
        norms = {f"gradient {i}": (leaf**2).sum() ** 0.5 for i, leaf in enumerate(grads)}
        return norms | {"drawn": (drawn.placement * (1 + np.arange(SAMPLES))[:, None, None]).sum()}

    return {name: float(value) for name, value in jax.jit(step)(jax.random.PRNGKey(0)).items()}


def of_colocrl() -> dict[str, float]:
    """A sequence-to-sequence policy: its loops are over operations, forwards and backwards."""
    policy = mesh.over(colocrl.make(num_devices=3, hidden_size=4))
    return gradient(policy, helpers.batched(problem().graph, num_devices=3))


def of_placeto() -> dict[str, float]:
    """A policy whose episodes have as many steps as there are operations."""
    policy = mesh.over(placeto.make(num_devices=3, hidden_size=2, rounds=2))
    return gradient(policy, learned.with_schedule(problem()).graph)


def of_several_graphs() -> dict[str, float]:
    """Learning on two graphs at once."""
    made = learned.make(SCHEDULER, 3, False, over=several.over)
    graphs = [learned.with_board(problem(branches), (12, 14)).graph for branches in (2, 4)]
    stack = several.stack([jax.device_get(graph) for graph in graphs])
    state = made.learner.init(jax.random.PRNGKey(0), stack.graphs)
    for _ in range(2):
        state, metrics = several.step(made.learner, state, stack)
    return {name: float(value) for name, value in metrics.items()}


def unseen() -> dict[str, float]:
    """Placing without learning."""
    of, made = problem(), learned.make(SCHEDULER, 3, False)
    graph = made.read(of).graph
    params = jax.jit(made.policy.init)(jax.random.PRNGKey(0), graph)
    found = zero_shot.place(
        made.policy, params, graph, trainer.Simulator.of(of), jax.random.PRNGKey(1),
        num_ops=of.graph.num_ops, num_samples=SAMPLES, steps=2,
    )  # fmt: skip
    return {f"after {i}": float(value) for i, value in enumerate(found.latency_s)}


PROGRAMS: dict[str, Callable[[], dict[str, float]]] = {
    "hsdag": lambda: search(STEPS)[1][-1],
    "colocrl": of_colocrl,
    "placeto": of_placeto,
    "several": of_several_graphs,
    "zero_shot": unseen,
}


def main(folder: Path) -> None:
    """Writes what the programs come to, and a search to go on with."""
    jax.config.update("jax_disable_most_optimizations", True)
    found = {name: program() for name, program in PROGRAMS.items()}
    saved = flax.serialization.to_bytes(mesh.fetch(search(RESUMED_AT)[0]))
    (folder / "progress.msgpack").write_bytes(saved)
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
