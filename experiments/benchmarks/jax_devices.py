"""Placements a second by platform and number of JAX devices: `experiments.benchmarks devices`.

Every row is a process of its own, since JAX counts its devices when it starts. Several CPU
devices are forced ones, which share the cores that one device has to itself already: what their
rows tell is what it costs to share out, and not what is gained. Of another platform, such as a GPU,
all devices of this machine are one row, and one of them is another.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

import jax
from rich.console import Console

from experiments.benchmarks import problems, timing
from placement import simulators
from placement.learning import mesh, trainer
from placement.methods import learned

_FORCED = (1, 2, 4, 8)
_OPERATIONS, _SAMPLES = 200, 64
_SIMULATED = ("makespan", "subgraph")
_TRAINED = ("hsdag", "scheduler", "colocrl", "placeto")
_STEPS = 4


def run() -> None:
    """Prints what sharing out over several JAX devices costs or gains."""
    table = timing.table(
        f"placements a second: {_OPERATIONS} operations, {_SAMPLES} samples a step",
        ("platform",),
        ("devices", *_SIMULATED, *(f"train {name}" for name in _TRAINED)),
    )
    forced = [("cpu", count, {"JAX_PLATFORMS": "cpu", **_forced(count)}) for count in _FORCED]
    for platform, count, environment in (*forced, *_accelerators()):
        rates = _answer("rates", environment)
        table.add_row(platform, str(count), *(f"{rate:,.0f}" for rate in rates))
    Console(width=110).print(table)


def _forced(count: int) -> dict[str, str]:
    return {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}


def _accelerators() -> list[tuple[str, int, dict[str, str]]]:
    """Returns what JAX has beside the CPU: one of the devices, and all where there are several."""
    platform, count = _answer("present", {})
    if platform == "cpu":
        return []
    one = (platform, 1, {"CUDA_VISIBLE_DEVICES": "0"})
    return [one, (platform, count, {})] if count > 1 else [one]


def _answer(function: str, environment: dict[str, str]) -> Any:
    """Calls a function of this module in a process with this environment."""
    command = [sys.executable, "-m", "experiments.benchmarks.jax_devices", function]
    done = subprocess.run(
        command, env=os.environ | environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def present() -> tuple[str, int]:
    """Returns the platform that JAX takes by default, and how many devices of it there are."""
    return jax.default_backend(), len(jax.devices())


def rates() -> list[float]:
    """Returns placements a second of each simulator and of training each method, on all devices."""
    return [*map(_simulated, _SIMULATED), *map(_trained, _TRAINED)]


def _simulated(objective: str) -> float:
    tables = problems.of_size(_OPERATIONS, objective).tables
    batch = 16 * _SAMPLES
    placements = problems.segments(_OPERATIONS, batch)
    simulator = simulators.objective(objective).simulate
    simulate = jax.jit(lambda *given: mesh.shard_map(simulator, *given))
    held = mesh.replicate_to_mesh((tables, placements), batch)
    return batch / (1e-3 * timing.median_ms(lambda: simulate(*held), repeats=5))


def _trained(method: str) -> float:
    problem = problems.of_size(_OPERATIONS, "makespan")
    made = learned.make(f"{method}:num_samples={_SAMPLES}", len(problem.devices), False)
    graph, assignment = made.read(problem)
    progress = trainer.start(
        made.learner,
        jax.random.PRNGKey(0),
        graph,
        problem.evaluate,
        _OPERATIONS,
        len(problem.devices),
    )
    simulator = trainer.Simulator.of(problem)._replace(assignment=assignment)
    reports = trainer.search_simulated(
        made.learner, graph, simulator, progress, sys.maxsize, chunk=_STEPS
    )
    before = next(reports).progress.evaluations  # the first compiles
    began = time.perf_counter()
    evaluations = next(reports).progress.evaluations - before
    return evaluations / (time.perf_counter() - began)


if __name__ == "__main__":
    print(json.dumps({"present": present, "rates": rates}[sys.argv[1]]()))
