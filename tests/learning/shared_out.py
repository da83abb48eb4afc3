"""Programs of learning whose numbers do not depend on how many JAX devices there are.

    python -m tests.learning.shared_out FOLDER

writes the numbers as JSON; `test_mesh` compares those of eight devices with those of one.
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
from placement.learning import base, batched, mesh, trainer, zero_shot
from placement.methods import learned
from placement.policies import colocrl, placeto, scheduler
from placement.types import Policy, Sample
from tests import helpers

SAMPLES, STEPS, RESUMED_AT = 16, 4, 2
_HSDAG = f"hsdag:variant=paper,hidden_size=4,episode_steps=1,num_samples={SAMPLES}"
SEARCH = f"{_HSDAG},algorithm=ppo,reward=log"
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
    """Starts the search."""
    problem_, method = problem(objective="subgraph"), learned.make(SEARCH, 3, False)
    evaluate, key = problem_.evaluate, jax.random.PRNGKey(0)
    return trainer.start(
        method.learner, key, method.read(problem_).graph, evaluate, problem_.graph.num_ops, 3
    )


def search(progress: trainer.Progress, until: int) -> list[trainer.Report]:
    """Continues the search up to step `until`."""
    problem_, method = problem(objective="subgraph"), learned.make(SEARCH, 3, False)
    budget = start().evaluations + until * SAMPLES
    graph, simulator = method.read(problem_).graph, trainer.Simulator.from_problem(problem_)
    return list(trainer.search_simulated(method.learner, graph, simulator, progress, budget))


def run_hsdag() -> dict[str, float]:
    """Runs a search by PPO and returns the record of its last step."""
    return search(start(), STEPS)[-1].records[-1]


def run_colocrl() -> dict[str, float]:
    """Samples from a policy with loops over operations, and computes the log-probability again."""
    policy = mesh.shard_policy(colocrl.make(num_devices=3, hidden_size=4))
    graph = helpers.batched(problem().graph, num_devices=3)

    def step(params: Any, key: jax.Array) -> dict[str, Any]:
        samples = jax.jit(policy.sample, static_argnums=3)(params, key, graph, SAMPLES)
        return _sums(samples) | {"again": policy.log_prob(params, graph, samples).log_prob.sum()}

    return _run_step(step, policy, graph)


def run_placeto() -> dict[str, float]:
    """Computes the gradient of a policy whose episodes have one step for each operation."""
    policy = mesh.shard_policy(placeto.make(num_devices=3, hidden_size=2, rounds=2))
    graph = placeto.read(problem()).graph

    def step(params: Any, key: jax.Array) -> dict[str, Any]:
        samples = policy.sample(params, key, graph, SAMPLES)
        weight = np.linspace(-1, 1, SAMPLES)[:, None]

        def gain(params: Any) -> Any:
            return (weight * policy.log_prob(params, graph, samples).log_prob).sum()

        grads = jax.tree.leaves(jax.grad(gain)(params))
        return _sums(samples) | {f"gradient {i}": (g**2).sum() ** 0.5 for i, g in enumerate(grads)}

    return _run_step(step, policy, graph)


def _sums(samples: Sample) -> dict[str, Any]:
    """Computes numbers that depend on all samples and on their order."""
    number = 1 + np.arange(SAMPLES)
    placed = (samples.placement * number[:, None, None]).sum()
    return {"placed": placed, "log_prob": (samples.log_prob * number[:, None]).sum()}


def _run_step(
    step: Callable[[Any, jax.Array], dict[str, Any]], policy: Policy, graph: jraph.GraphsTuple
) -> dict[str, float]:
    init_key, key = jax.random.split(jax.random.PRNGKey(0))
    params = base.initial_params(policy.init, init_key, graph)
    return {name: float(value) for name, value in jax.jit(step)(params, key).items()}


def run_several_graphs() -> dict[str, float]:
    """Learns on two graphs at once."""
    method = learned.make(SCHEDULER, 3, False, wrap_policy=batched.batch_policy)
    problems = [problem(branches) for branches in (2, 4)]
    stack = batched.stack([batched.prepare(scheduler.read(p, 12, 14).graph, p) for p in problems])
    state = method.learner.place(method.learner.init(jax.random.PRNGKey(0), stack.graphs))
    for _ in range(2):
        state, metrics = batched.train_step(method.learner, state, stack)
    return {name: float(value) for name, value in metrics.items()}


def run_zero_shot() -> dict[str, float]:
    """Places a graph without learning."""
    problem_, method = problem(), learned.make(SCHEDULER, 3, False)
    graph = method.read(problem_).graph
    params = base.initial_params(method.policy.init, jax.random.PRNGKey(0), graph)
    result = zero_shot.place(
        method.policy.improve, params, graph, trainer.Simulator.from_problem(problem_),
        jax.random.PRNGKey(1),
        num_samples=SAMPLES, steps=2,
    )  # fmt: skip
    return {f"after {i}": float(value) for i, value in enumerate(result.latency_s)}


PROGRAMS: dict[str, Callable[[], dict[str, float]]] = {
    "hsdag": run_hsdag,
    "colocrl": run_colocrl,
    "placeto": run_placeto,
    "several": run_several_graphs,
    "zero_shot": run_zero_shot,
}


def main(folder: Path) -> None:
    """Writes the numbers of all programs, and a search to resume."""
    jax.config.update("jax_disable_most_optimizations", True)
    result = {name: program() for name, program in PROGRAMS.items()}
    progress = search(start(), RESUMED_AT)[-1].progress
    saved = flax.serialization.to_bytes(mesh.fetch(progress))
    (folder / "progress.msgpack").write_bytes(saved)
    (folder / "found.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
