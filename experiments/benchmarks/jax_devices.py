"""Placements per second by platform and number of JAX devices: `experiments.benchmarks devices`.

Every row is measured in a process of its own, since JAX fixes its devices when it starts. Several
CPU devices are forced: they share the cores that one CPU device would use alone, so their rows show
the cost of sharding and no gain. For another platform, such as a GPU, there is a row for one device
and a row for all.
"""

import json
import sys
import time

import jax
from rich.console import Console

from experiments.benchmarks import problems, timing
from placement import simulators
from placement.learning import mesh, trainer
from placement.methods import learned

_FORCED_COUNTS = (1, 2, 4, 8)
_NUM_OPS, _NUM_SAMPLES = 200, 64
_SIMULATED = ("makespan", "subgraph")
_TRAINED = ("hsdag", "scheduler", "colocrl", "placeto")
_STEPS = 4
_MODULE = "experiments.benchmarks.jax_devices"


def run() -> None:
    """Prints placements per second by number of devices."""
    table = timing.table(
        f"placements a second: {_NUM_OPS} operations, {_NUM_SAMPLES} samples a step",
        ("platform",),
        ("devices", *_SIMULATED, *(f"train {name}" for name in _TRAINED)),
    )
    cases: list[tuple[str, int, dict[str, str]]] = []
    for count in _FORCED_COUNTS:
        flags = f"--xla_force_host_platform_device_count={count}"
        cases.append(("cpu", count, {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}))
    platform, count = timing.run_module(_MODULE, "describe_platform")
    if platform != "cpu":
        cases.append((platform, 1, {"CUDA_VISIBLE_DEVICES": "0"}))
        cases += [(platform, count, {})] if count > 1 else []
    for platform, count, environment in cases:
        rates = timing.run_module(_MODULE, "measure_rates", environment)
        table.add_row(platform, str(count), *(f"{rate:,.0f}" for rate in rates))
    Console(width=110).print(table)


def describe_platform() -> tuple[str, int]:
    """Returns JAX's default platform and the number of its devices."""
    return jax.default_backend(), len(jax.devices())


def measure_rates() -> list[float]:
    """Returns placements per second of each simulator, then of training each method."""
    return [*map(_simulation_rate, _SIMULATED), *map(_training_rate, _TRAINED)]


def _simulation_rate(objective: str) -> float:
    tables = problems.make_layered_problem(_NUM_OPS, objective).tables
    batch = 16 * _NUM_SAMPLES
    placements = problems.draw_segments(_NUM_OPS, batch)
    simulator = simulators.get_objective(objective).simulate
    simulate = jax.jit(lambda *arrays: mesh.shard_map(simulator, *arrays))
    arrays = mesh.replicate_to_mesh((tables, placements), batch)
    return batch / (1e-3 * timing.median_ms(lambda: simulate(*arrays), repeats=5))


def _training_rate(name: str) -> float:
    problem = problems.make_layered_problem(_NUM_OPS, "makespan")
    method = learned.make(f"{name}:num_samples={_NUM_SAMPLES}", len(problem.devices), False)
    graph, assignment = method.read(problem)
    progress = trainer.start(
        method.learner,
        jax.random.PRNGKey(0),
        graph,
        problem.evaluate,
        _NUM_OPS,
        len(problem.devices),
    )
    simulator = trainer.Simulator.from_problem(problem, assignment)
    reports = trainer.search_simulated(
        method.learner, graph, simulator, progress, sys.maxsize, chunk=_STEPS
    )
    compiled_evaluations = next(reports).progress.evaluations
    start_s = time.perf_counter()
    evaluations = next(reports).progress.evaluations - compiled_evaluations
    return evaluations / (time.perf_counter() - start_s)


if __name__ == "__main__":
    functions = {f.__name__: f for f in (describe_platform, measure_rates)}
    print(json.dumps(functions[sys.argv[1]]()))
