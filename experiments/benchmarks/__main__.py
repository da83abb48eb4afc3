"""Timed claims, measured side by side in one run.

    python -m experiments.benchmarks policy
    python -m experiments.benchmarks search
    python -m experiments.benchmarks simulators
    python -m experiments.benchmarks learning
    python -m experiments.benchmarks devices
    python -m experiments.benchmarks scale [OPERATIONS ...]
    python -m experiments.benchmarks unseen POLICY
    python -m experiments.benchmarks documents [TABLE ...]

`policy`: on one CPU core, what one sample with its log-probability costs, what 64 at once cost, and
what a learning step (sample, simulate, update) with 64 samples costs, for HSDAG on the coarsened
full view of each zoo model. The costs are drawn at random: no device is needed and none is timed.

`search`: on costs profiled on the host devices, the best latency that HSDAG predicts within its
default budget over the best of 10,000 random placements of the coarsened graph and the single
devices, for each zoo model.

`simulators`: placements a second of each objective on a random graph of 800 operations, 1024 at
once and one at a time, and how the cost of an operation grows with their number.

`learning`: REINFORCE beside PPO, each as tuned, at the default budget: 5 seeds on the coarsened
graphs under two objectives, with three devices and random costs under which placing is a question.
A cell is the mean excess over the best that any of the searches found.

`devices`: placements a second of simulators and of training, on each platform that JAX has and on
one, two, four and eight devices of the CPU, see `experiments.benchmarks.jax_devices`.

`scale`: how time and memory of each phase grow with the number of operations, see
`experiments.benchmarks.scale`.

`unseen`: what a pretrained policy makes of graphs of families that it has never seen, see
`experiments.benchmarks.unseen`. POLICY is the policy.msgpack of a `--task=pretrain`.

`documents`: makes the tables of the pages again and says what moved, see
`experiments.benchmarks.documents`.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from placement.errors import UserError

_BATCH = 64
_NETWORKS = "bert_base", "inception_v3", "resnet50"


def policy() -> None:
    """Prints the table of HSDAG's times and ratios."""
    # Before JAX starts its threads: XLA takes as many as the process has cores.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from rich.console import Console
    from rich.table import Table

    from experiments import build

    table = Table(title=f"HSDAG on one CPU core, median ms; together: {_BATCH} samples at once")
    for column in ("graph", "operations", "alone", "together", "ratio", "learning step"):
        table.add_column(column, justify="left" if column == "graph" else "right")
    for name in _NETWORKS:
        network = build.network(_config(name))
        for graph in (network.coarsening.graph, network.graph):
            alone_ms, together_ms, step_ms = _times_ms(graph)
            label = "coarsened" if graph is network.coarsening.graph else "full view"
            table.add_row(
                f"{name}, {label}",
                str(graph.num_ops),
                f"{alone_ms:.2f}",
                f"{together_ms:.2f}",
                f"{_BATCH * alone_ms / together_ms:.1f}x",
                f"{step_ms:.2f}",
            )
    Console(width=100).print(table)


def _config(name: str) -> Any:
    from configs import common

    config = common.base()
    with config.unlocked():
        config.graph = name
    return config


def _times_ms(op_graph: Any) -> tuple[float, float, float]:
    """Medians of one sample, of a batch of samples, and of a learning step with such a batch."""
    import jax
    import jax.numpy as jnp

    from experiments import learned
    from placement import simulators

    problem = _problem(op_graph)
    method = learned.make("hsdag", len(problem.devices), False)
    graph, learner = method.read(problem).graph, method.learner
    evaluate = simulators.evaluator(problem)
    state = learner.init(jax.random.PRNGKey(0), graph)
    sample = jax.jit(method.policy.sample, static_argnums=3)

    def step() -> Any:
        advanced, drawn = learner.sample(state, graph)
        latency_s = evaluate(drawn.placement[:, 0, : op_graph.num_ops])
        return learner.update(advanced, graph, drawn, latency_s[:, None], jnp.float32(1.0))

    key = jax.random.PRNGKey(1)
    alone = median_ms(lambda: sample(state.params, key, graph, 1))
    together = median_ms(lambda: sample(state.params, key, graph, _BATCH))
    return alone, together, median_ms(step)


def _problem(graph: Any) -> Any:
    """Two devices with random costs."""
    import numpy as np

    from placement.types import CostModel, Problem

    generator = np.random.default_rng(0)
    apart = 1.0 - np.eye(2, dtype=np.float32)
    costs = CostModel(
        compute_s=generator.random((graph.num_ops, 2), np.float32) * 1e-3,
        transfer_latency_s=apart * 1e-5,
        transfer_s_per_byte=apart * 1e-10,
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
        memory_bytes=graph.weight_bytes.astype(np.float32),
        capacity_bytes=np.full(2, np.inf, np.float32),
        accelerator=np.arange(2, dtype=np.int32),
    )
    return Problem(graph, costs, "serial", ("a", "b"))


def median_ms(function: Callable[[], Any], repeats: int = 100) -> float:
    """The median time of a call, in milliseconds, after one that compiles."""
    import jax
    import numpy as np

    jax.block_until_ready(function())  # compilation
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def search() -> None:
    """Prints HSDAG's best predicted latency beside random search's, serial objective."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="serial objective, host devices, predicted ms")
    for column in ("graph", "best single", "best of 10,000 random", "HSDAG", "ratio", "search s"):
        table.add_column(column, justify="left" if column == "graph" else "right")
    for name in _NETWORKS:
        single_s, random_s, hsdag_s, search_s = _search_s(name)
        table.add_row(
            name,
            *(f"{1e3 * seconds:.3f}" for seconds in (single_s, random_s, hsdag_s)),
            f"{hsdag_s / min(single_s, random_s):.4f}",
            f"{search_s:.1f}",
        )
    Console(width=100).print(table)


def _search_s(name: str) -> tuple[float, float, float, float]:
    """Best predicted latencies of single devices, random placements and HSDAG; search time."""
    import tempfile
    from pathlib import Path

    import numpy as np

    from experiments import build
    from experiments import search as search_lib
    from experiments.console import progress
    from placement.costs import tables, transfers
    from placement.runtime import devices as devices_lib
    from placement.runtime.measurement.local import LocalMeasurer
    from placement.runtime.measurement.request import Profile, Transfers

    config = _config(name)
    network, devices = build.network(config), devices_lib.resolve("host")
    with LocalMeasurer(network.model, devices) as measurer:
        handed = transfers.matrices(measurer.ask(Transfers(devices)), len(devices))
        costs = tables.cost_model(network.graph, measurer.ask(Profile(devices)), handed)
    setting = build.search_problem(network, costs, tuple(d.name for d in devices), "serial")
    num_ops, num_devices = setting.coarse.costs.compute_s.shape
    singles = np.tile(np.arange(num_devices)[:, None], (1, num_ops))
    draws = np.random.default_rng(0).integers(0, num_devices, (10_000, num_ops))
    with tempfile.TemporaryDirectory() as workdir:
        found = search_lib.train(
            "hsdag",
            config,
            setting,
            setting.simulate,
            Path(workdir),
            seed=0,
            display=progress.Display(progress.WARNING),
        )
    return (
        float(np.min(setting.simulate(singles))),
        float(np.min(setting.simulate(draws))),
        found.solution.value_s,
        found.solution.search_s,
    )


def simulators() -> None:
    """Prints how fast the simulators are, and how that scales."""
    from rich.console import Console
    from rich.table import Table

    from placement.simulators import OBJECTIVES

    console = Console(width=100)
    table = Table(title="800 operations, 2 devices, all CPU cores: placements a second")
    for column in ("objective", "1024 at once", "one at a time", "ratio", "compilation s"):
        table.add_column(column, justify="left" if column == "objective" else "right")
    for name in OBJECTIVES:
        batch_s, compile_s = _simulate_s(name, 800, 1024)
        one_s, _ = _simulate_s(name, 800, 1)
        rates = 1024 / batch_s, 1 / one_s
        cells = f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", f"{rates[0] / rates[1]:.0f}x"
        table.add_row(name, *cells, f"{compile_s:.1f}")
    console.print(table)

    sizes = 1_000, 10_000, 100_000
    table = Table(title="ns for an operation of a placement, 2 devices, 128 at once")
    table.add_column("objective")
    for size in sizes:
        table.add_column(f"{size:,} operations", justify="right")
    for name in OBJECTIVES:
        costs = [1e9 * _simulate_s(name, size, 128)[0] / (size * 128) for size in sizes]
        table.add_row(name, *(f"{cost:.2f}" for cost in costs))
    console.print(table)


def problem_of_size(num_ops: int, objective: str) -> Any:
    """A random graph on two devices, of which one is a host under 'subgraph'."""
    import numpy as np

    problem = _problem(_layered(num_ops))._replace(objective=objective)
    if objective == "subgraph":
        costs = problem.costs._replace(accelerator=np.array([-1, 0], np.int32))
        problem = problem._replace(costs=costs)
    return problem


def _simulate_s(name: str, num_ops: int, batch: int) -> tuple[float, float]:
    """Seconds of a call to the simulator, the median, and of its compilation.

    Of the two devices, one is a host under 'subgraph', and the other holds one segment of the
    topological order: others would be infeasible.
    """
    import numpy as np

    from placement import simulators as simulators_lib

    problem = problem_of_size(num_ops, name)
    generator = np.random.default_rng(1)
    placements = generator.integers(0, 2, (batch, num_ops), np.int32)
    if name == "subgraph":
        ends = np.sort(generator.integers(0, num_ops, (batch, 2, 1)), axis=1)
        place = np.arange(num_ops)
        placements = ((place >= ends[:, 0]) & (place < ends[:, 1])).astype(np.int32)
    evaluate = simulators_lib.evaluator(problem)
    start = time.perf_counter()
    assert np.isfinite(np.asarray(evaluate(placements))).all()
    compile_s = time.perf_counter() - start
    import jax

    held = jax.device_put(placements)
    return median_ms(lambda: evaluate(held), repeats=20) / 1e3, compile_s


def _layered(num_ops: int) -> Any:
    """A random graph: every operation reads one or two of the eight before it."""
    import numpy as np

    from placement.graphs import opgraph

    generator = np.random.default_rng(0)
    receivers = np.repeat(np.arange(1, num_ops), generator.choice([1, 1, 1, 2], num_ops - 1))
    back = generator.integers(1, 9, len(receivers))
    senders = np.maximum(receivers - back, 0)
    return opgraph.make(
        name="layered",
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        senders=senders,
        receivers=receivers,
        edge_bytes=generator.integers(1, 100_000, num_ops)[senders],
    )


def learning() -> None:
    """Prints how far REINFORCE and PPO end from the best found, and how long they take."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    table = Table(title="mean (worst) excess over the best found, 5 seeds; seconds a search")
    for column in ("graph", "objective", "best ms", *_LEARNERS, "s", "s (ppo)"):
        table.add_column(column, justify="left" if column in ("graph", "objective") else "right")
    for name in _NETWORKS:
        for objective in ("serial", "makespan"):
            found = {kind: _learn(name, objective, kind) for kind in _LEARNERS}
            best_s = min(float(values.min()) for values, _ in found.values())
            excess = [100 * (values / best_s - 1) for values, _ in found.values()]
            table.add_row(
                name,
                objective,
                f"{1e3 * best_s:.3f}",
                *(f"{np.mean(e):.2f}% ({np.max(e):.2f}%)" for e in excess),
                *(f"{seconds:.1f}" for _, seconds in found.values()),
            )
    Console(width=100).print(table)


# Each with what measured best for it on these problems.
_LEARNERS = {
    "reinforce": "hsdag:algorithm=reinforce,num_samples=16,entropy_weight=0.8",
    "ppo": "hsdag",
}


def _learn(name: str, objective: str, kind: str) -> tuple[Any, float]:
    """Best latencies [5] that a learner finds, and the mean seconds of a compiled search."""
    import jax
    import numpy as np

    from experiments import build, learned
    from placement import simulators
    from placement.learning import trainer

    config = _config(name)
    problem = _question(build.network(config).coarsening.graph, objective)
    method = learned.make(_LEARNERS[kind], len(problem.devices), False)
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


def _question(graph: Any, objective: str) -> Any:
    """Three devices, each the fastest for some operations; a crossing costs about an operation."""
    import numpy as np

    problem = _problem(graph)
    generator = np.random.default_rng(0)
    size = np.exp(generator.uniform(np.log(1e-5), np.log(1e-3), (graph.num_ops, 1)))
    speed = np.exp(generator.normal(0, 0.7, (graph.num_ops, 3)))
    apart = 1.0 - np.eye(3, dtype=np.float32)
    rate = 2e-4 / max(float(graph.edge_bytes.mean()), 1.0)
    costs = problem.costs._replace(
        compute_s=(size / speed).astype(np.float32),
        transfer_latency_s=apart * np.float32(2e-5),
        transfer_s_per_byte=apart * np.float32(rate),
        capacity_bytes=np.full(3, np.inf, np.float32),
        accelerator=np.arange(3, dtype=np.int32),
    )
    return problem._replace(costs=costs, objective=objective, devices=("a", "b", "c"))


def devices() -> None:
    """Prints what sharing out over several JAX devices costs or gains."""
    from experiments.benchmarks import jax_devices

    jax_devices.devices()


def scale(*sizes: str) -> None:
    """Prints how time and memory grow with the number of operations, by default 1e4 to 1e6."""
    from experiments.benchmarks import scale as scale_lib

    if not all(size.isdecimal() and int(size) >= 2 for size in sizes):
        raise UserError(
            f"scale takes numbers of operations; given {' '.join(sizes)!r}: give such as 10000 "
            "100000"
        )
    scale_lib.scale(tuple(map(int, sizes)) or scale_lib.SIZES)


def unseen(*paths: str) -> None:
    """Prints what a pretrained policy makes of families of graphs that it has never seen."""
    from experiments.benchmarks import unseen as unseen_lib

    if len(paths) != 1:
        raise UserError("unseen takes one policy; give the policy.msgpack of a --task=pretrain")
    unseen_lib.run(paths[0])


def documents(*tables: str) -> None:
    """Makes tables of the pages again, by default all, and prints what moved."""
    from experiments.benchmarks import documents as documents_lib

    documents_lib.remake(tables)


BENCHMARKS: dict[str, Callable[..., None]] = {
    "policy": policy,
    "search": search,
    "simulators": simulators,
    "learning": learning,
    "devices": devices,
    "scale": scale,
    "unseen": unseen,
    "documents": documents,
}
_WITH_ARGUMENTS = ("scale", "unseen", "documents")


def main(argv: list[str]) -> None:
    """Runs the named benchmark, with what follows its name."""
    name, *given = argv[1:] or ["nothing"]
    try:
        if name not in BENCHMARKS or (given and name not in _WITH_ARGUMENTS):
            what = " ".join([name, *given])
            raise UserError(f"given {what!r}; give one of: {', '.join(BENCHMARKS)}")
        BENCHMARKS[name](*given)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv)
