"""The speed of the simulators: `experiments.benchmarks simulators`.

For each objective it measures placements per second on a random graph of 800 operations, 1024 at
once and one at a time, and how the time per operation grows with the number of operations. For
`makespan` it also prints the roofline: the rate that memory and vector units would allow.
"""

import time
import timeit
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from placement import simulators
from placement.graphs import opgraph
from placement.problem import Problem
from placement.reporting.tables import grids
from placement.types import CostModel

_NUM_OPS, _BATCH = 800, 1024
# A step of one placement under `makespan`, with two equal devices. It reads the finish times of two
# inputs, three devices, the arrival and the times when two devices are free, and writes all but the
# inputs. For each input it compares, selects, adds and takes the maximum; then it selects the
# arrival, the free time and the duration, takes the maximum, adds, and updates two devices.
_STEP_BYTES, _STEP_OPERATIONS = 4 * (2 + 1 + 2 + 1 + 1 + 2) + 3, 2 * 4 + 1 + 2 + 2 + 2 + 2 * 3
_CHAIN = 32  # pairs of operations on each element, by which the vector units are measured


def run() -> None:
    """Prints the simulators' speed and how it scales."""
    console = Console(width=100)
    rates = grids.new_table(
        f"{_NUM_OPS} operations, 2 devices, all CPU cores: placements a second",
        ("objective",),
        (f"{_BATCH} at once", "one at a time", "ratio", "compilation s"),
    )
    for name in simulators.OBJECTIVES:
        batch_s, compile_s = _measure_s(name, _NUM_OPS, _BATCH)
        single_s, _ = _measure_s(name, _NUM_OPS, 1)
        batch_rate, single_rate = _BATCH / batch_s, 1 / single_s
        rates.add_row(
            *(name, f"{batch_rate:,.0f}", f"{single_rate:,.0f}"),
            *(f"{batch_rate / single_rate:.0f}x", f"{compile_s:.1f}"),
        )
        if name == "makespan":
            makespan_rate = batch_rate
    console.print(rates)

    # The memory is measured on an array as large as all finish times, operations on a small one.
    values = jnp.ones((_NUM_OPS, _BATCH))
    bytes_rate = 2 * values.nbytes / _time_s(jax.jit(lambda x: x + 1), values)

    def compute_chain(x: jax.Array) -> jax.Array:
        for i in range(_CHAIN):
            x = jnp.maximum(x + 1.0, float(i))
        return x

    small = jnp.ones(2**16)
    operations_rate = 2 * _CHAIN * small.size / _time_s(jax.jit(compute_chain), small)
    limit = min(bytes_rate / _STEP_BYTES, operations_rate / _STEP_OPERATIONS)
    limit /= _NUM_OPS  # no operation has more than two inputs, so each takes one step
    console.print(
        f"makespan: {_STEP_BYTES} bytes and {_STEP_OPERATIONS} operations for a step of a "
        f"placement; at {bytes_rate / 1e9:.1f} GB/s and {operations_rate / 1e9:.1f} billion "
        f"operations/s at most {limit:,.0f} placements a second: {makespan_rate / limit:.0%} of it"
    )

    sizes = 1_000, 10_000, 100_000
    growth = grids.new_table(
        "ns for an operation of a placement, 2 devices, 128 at once",
        ("objective",),
        tuple(f"{size:,} operations" for size in sizes),
    )
    for name in simulators.OBJECTIVES:
        times_ns = [1e9 * _measure_s(name, size, 128)[0] / (size * 128) for size in sizes]
        growth.add_row(name, *(f"{time_ns:.2f}" for time_ns in times_ns))
    console.print(growth)


def _measure_s(objective: str, num_ops: int, batch: int) -> tuple[float, float]:
    """Returns the median seconds of a simulator's call, and those of its compilation.

    The graph is random, with random costs on two devices; under 'subgraph' the first is a host.
    Every operation reads one or two of the eight operations before it.
    """
    generator = np.random.default_rng(0)
    receivers = np.repeat(np.arange(1, num_ops), generator.choice([1, 1, 1, 2], num_ops - 1))
    senders = np.maximum(receivers - generator.integers(1, 9, len(receivers)), 0)
    graph = opgraph.make_graph(
        name="layered",
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        senders=senders,
        receivers=receivers,
        edge_bytes=generator.integers(1, 100_000, num_ops)[senders],
    )
    off_diagonal = 1.0 - np.eye(2, dtype=np.float32)
    costs = CostModel(
        compute_s=np.random.default_rng(0).random((num_ops, 2), np.float32) * 1e-3,
        transfer_latency_s=off_diagonal * 1e-5,
        transfer_s_per_byte=off_diagonal * 1e-10,
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
        memory_bytes=graph.weight_bytes.astype(np.float32),
        capacity_bytes=np.full(2, np.inf, np.float32),
        accelerator=np.array([-1, 0] if objective == "subgraph" else [0, 1], np.int32),
    )
    problem = Problem(graph, costs, objective, ("a", "b"))
    generator = np.random.default_rng(1)
    if objective == "subgraph":
        # The second device holds one segment of the topological order; two would be infeasible.
        start, end = np.sort(generator.integers(0, num_ops, (batch, 2, 1)), axis=1).swapaxes(0, 1)
        position = np.arange(num_ops)
        placements = ((position >= start) & (position < end)).astype(np.int32)
    else:
        placements = generator.integers(0, 2, (batch, num_ops), np.int32)

    jax.block_until_ready(problem.tables)  # not a part of what is timed
    start_s = time.perf_counter()
    assert np.isfinite(np.asarray(problem.evaluate(placements))).all()
    compile_s = time.perf_counter() - start_s
    return _time_s(problem.evaluate, jax.device_put(placements)), compile_s


def _time_s(function: Callable[[jax.Array], object], argument: jax.Array) -> float:
    """Returns the median seconds of a call, without compilation."""

    def call() -> None:
        jax.block_until_ready(function(argument))

    call()
    return float(np.median(timeit.repeat(call, number=1, repeat=20)))
