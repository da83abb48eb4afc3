"""What learning comes to on this process's JAX devices: the same numbers however many there are.

    python -m tests.learning.shared_out FOLDER

writes them as JSON; `test_mesh` compares those of eight devices with those of one.
"""

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.serialization
import jax
import jraph
import numpy as np

from placement.instance import Instance
from placement.learning import base, mesh, several, trainer, zero_shot
from placement.methods import learned
from placement.policies import colocrl, placeto, scheduler
from placement.types import Policy, Sample
from tests import helpers

SAMPLES, STEPS, RESUMED_AT = 16, 4, 2
_OF_HSDAG = f"hsdag:variant=paper,hidden_size=4,episode_steps=1,num_samples={SAMPLES}"
SEARCH = f"{_OF_HSDAG},algorithm=ppo,reward=log"
SCHEDULER = f"scheduler:hidden_size=4,episode_steps=1,num_samples={SAMPLES}"  # by REINFORCE


def problem(branches: int = 2, objective: str = "makespan") -> Instance:
    """Ten operations, three devices, random costs; under 'subgraph' one of them is a host."""
    graph = helpers.fork_join(branches, 8 // branches)
    costs = helpers.random_costs(np.random.default_rng(0), graph, 3)
    if objective == "subgraph":
        costs = costs._replace(accelerator=np.array([-1, 0, 1], np.int32))
    return helpers.as_problem(graph, costs, objective)


@functools.cache
def start() -> trainer.Progress:
    """Before the first step of the search."""
    of, made = problem(objective="subgraph"), learned.make(SEARCH, 3, False)
    evaluate, key = of.evaluate, jax.random.PRNGKey(0)
    return trainer.start(made.learner, key, made.read(of).graph, evaluate, of.graph.num_ops, 3)


def search(progress: trainer.Progress, until: int) -> list[trainer.Report]:
    """The steps after some progress until so many are done in all."""
    of, made = problem(objective="subgraph"), learned.make(SEARCH, 3, False)
    budget = start().evaluations + until * SAMPLES
    graph, simulator = made.read(of).graph, trainer.Simulator.of(of)
    return list(trainer.search_simulated(made.learner, graph, simulator, progress, budget))


def of_hsdag() -> dict[str, float]:
    """The last step of a search by PPO."""
    return search(start(), STEPS)[-1].records[-1]


def of_colocrl() -> dict[str, float]:
    """What a policy draws whose loops are over operations, and its log-probability again."""
    policy = mesh.shard_policy(colocrl.make(num_devices=3, hidden_size=4))
    graph = helpers.batched(problem().graph, num_devices=3)

    def step(params: Any, key: jax.Array) -> dict[str, Any]:
        drawn = jax.jit(policy.sample, static_argnums=3)(params, key, graph, SAMPLES)
        return _sums(drawn) | {"again": policy.log_prob(params, graph, drawn).log_prob.sum()}

    return _called(step, policy, graph)


def of_placeto() -> dict[str, float]:
    """The gradient of a policy whose episodes have as many steps as there are operations."""
    policy = mesh.shard_policy(placeto.make(num_devices=3, hidden_size=2, rounds=2))
    graph = placeto.read(problem()).graph

    def step(params: Any, key: jax.Array) -> dict[str, Any]:
        drawn = policy.sample(params, key, graph, SAMPLES)
        weight = np.linspace(-1, 1, SAMPLES)[:, None]

        def gain(params: Any) -> Any:
            return (weight * policy.log_prob(params, graph, drawn).log_prob).sum()

        grads = jax.tree.leaves(jax.grad(gain)(params))
        return _sums(drawn) | {f"gradient {i}": (g**2).sum() ** 0.5 for i, g in enumerate(grads)}

    return _called(step, policy, graph)


def _sums(drawn: Sample) -> dict[str, Any]:
    """Numbers that differ where samples differ, or their order."""
    number = 1 + np.arange(SAMPLES)
    placed = (drawn.placement * number[:, None, None]).sum()
    return {"placed": placed, "log_prob": (drawn.log_prob * number[:, None]).sum()}


def _called(
    step: Callable[[Any, jax.Array], dict[str, Any]], policy: Policy, graph: jraph.GraphsTuple
) -> dict[str, float]:
    init_key, key = jax.random.split(jax.random.PRNGKey(0))
    params = base.initial_params(policy.init, init_key, graph)
    return {name: float(value) for name, value in jax.jit(step)(params, key).items()}


def of_several_graphs() -> dict[str, float]:
    """Learning on two graphs at once."""
    made = learned.make(SCHEDULER, 3, False, over=several.batch_policy)
    graphs = [scheduler.read(problem(branches), 12, 14).graph for branches in (2, 4)]
    stack = several.stack([jax.device_get(graph) for graph in graphs])
    state = made.learner.place(made.learner.init(jax.random.PRNGKey(0), stack.graphs))
    for _ in range(2):
        state, metrics = several.step(made.learner, state, stack)
    return {name: float(value) for name, value in metrics.items()}


def unseen() -> dict[str, float]:
    """Placing without learning."""
    of, made = problem(), learned.make(SCHEDULER, 3, False)
    graph = made.read(of).graph
    params = base.initial_params(made.policy.init, jax.random.PRNGKey(0), graph)
    found = zero_shot.place(
        made.policy.improve, params, graph, trainer.Simulator.of(of), jax.random.PRNGKey(1),
        num_ops=of.graph.num_ops, num_samples=SAMPLES, steps=2,
    )  # fmt: skip
    return {f"after {i}": float(value) for i, value in enumerate(found.latency_s)}


PROGRAMS: dict[str, Callable[[], dict[str, float]]] = {
    "hsdag": of_hsdag,
    "colocrl": of_colocrl,
    "placeto": of_placeto,
    "several": of_several_graphs,
    "zero_shot": unseen,
}


def main(folder: Path) -> None:
    """Writes what the programs come to, and a search to go on with."""
    jax.config.update("jax_disable_most_optimizations", True)
    found = {name: program() for name, program in PROGRAMS.items()}
    progress = search(start(), RESUMED_AT)[-1].progress
    saved = flax.serialization.to_bytes(mesh.fetch(progress))
    (folder / "progress.msgpack").write_bytes(saved)
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
