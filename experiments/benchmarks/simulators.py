"""The speed of the simulators: `experiments.benchmarks simulators`.

For each objective it measures placements per second on a random graph of 800 operations, 1024 at
once and one at a time, and how the time per operation grows with the number of operations.

A roofline (Williams, Waterman and Patterson 2009) says how far `makespan` is from the machine's
limits. A step of its loop moves rows of placements and computes with them. Both are counted in the
traced program, so the counts follow from the shapes and types of the tables. Neither can be faster
than the bandwidth and the arithmetic that the same run measures on one core.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from experiments.benchmarks.timing import median_ms
from placement import simulators
from placement.graphs import opgraph
from placement.instance import Instance
from placement.reporting.tables import grids
from placement.types import CostModel

_NUM_OPS, _BATCH = 800, 1024
_READS = ("dynamic_slice", "gather")
_WRITE = "dynamic_update_slice"
# They only describe an array, or become a part of the operation that reads them.
_FREE = ("broadcast_in_dim", "reshape", "squeeze", "transpose", "slice", "convert_element_type")
_CHAIN = 4  # comparisons, additions and selections that are timed; longer chains are slower


class Work(NamedTuple):
    """The work of one step of a simulator's loop, for each placement."""

    moved_bytes: float  # rows read and written
    operations: float  # on 32-bit numbers; one on 8-bit numbers counts as a quarter


def run() -> None:
    """Prints the simulators' speed, how it scales, and the roofline of `makespan`."""
    console = Console(width=100)
    rates = grids.new_table(
        f"{_NUM_OPS} operations, 2 devices, all CPU cores: placements a second",
        ("objective",),
        (f"{_BATCH} at once", "one at a time", "ratio", "compilation s"),
    )
    seconds = {}
    for name in simulators.OBJECTIVES:
        batch_s, compile_s = _measure_s(name, _NUM_OPS, _BATCH)
        single_s, _ = _measure_s(name, _NUM_OPS, 1)
        batch_rate, single_rate = _BATCH / batch_s, 1 / single_s
        rates.add_row(
            *(name, f"{batch_rate:,.0f}", f"{single_rate:,.0f}"),
            *(f"{batch_rate / single_rate:.0f}x", f"{compile_s:.1f}"),
        )
        seconds[name] = batch_s
    console.print(rates)
    console.print(_make_roofline(seconds["makespan"]))

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


def count_step(simulate: Callable[[Any, Any], Any], tables: Any, placements: np.ndarray) -> Work:
    """Counts the work of one step of the loop over operations, from the traced program.

    Args:
      simulate: a simulator with one loop.
      tables: its tables.
      placements: int32 [B, N].
    """
    batch = len(placements)
    program = jax.make_jaxpr(simulate)(tables, placements)
    loop = next(e for e in _list_equations(program.jaxpr) if e.primitive.name in ("scan", "while"))
    body = loop.params["jaxpr" if loop.primitive.name == "scan" else "body_jaxpr"].jaxpr

    def count_bytes(variables: list[Any]) -> list[int]:
        """Returns the bytes of the variables that have a number for each placement."""
        avals = [variable.aval for variable in variables]
        return [a.size * a.dtype.itemsize for a in avals if a.ndim and a.shape[-1] == batch]

    moved_bytes, computed_bytes, buffer_shapes = 0, 0, set()
    for equation in _list_equations(body):
        name, sizes = equation.primitive.name, count_bytes(equation.outvars)
        if name in _READS:
            moved_bytes += sum(sizes)
        elif name == _WRITE:
            moved_bytes += sum(count_bytes(equation.invars[1:2]))
            buffer_shapes.add(equation.outvars[0].aval.shape)
        elif name not in _FREE and sizes:
            # A comparison of floats gives narrow flags, but reads wide numbers.
            widths = [v.aval.dtype.itemsize for v in [*equation.invars, *equation.outvars]]
            computed_bytes += equation.outvars[0].aval.size * max(widths)
    # What a step hands on to the next one, except buffers of which it writes a row.
    carried = [v for v in body.outvars if v.aval.shape not in buffer_shapes]
    moved_bytes += 2 * sum(count_bytes(carried))
    return Work(moved_bytes / batch, computed_bytes / 4 / batch)


def _list_equations(jaxpr: Any) -> Iterator[Any]:
    """Yields the equations of a program and of the functions it calls, but not of loops."""
    for equation in jaxpr.eqns:
        called = equation.params.get("jaxpr") if equation.primitive.name != "scan" else None
        if called is None:
            yield equation
        else:
            yield from _list_equations(getattr(called, "jaxpr", called))


def _make_roofline(batch_s: float) -> Any:
    """Makes the table of `makespan`, which simulates the batch in `batch_s`."""
    problem = make_problem(_NUM_OPS, "makespan")
    tables, num_steps = problem.padded_tables, len(problem.makespan_tables.steps.op)
    placements = np.zeros((_BATCH, problem.num_padded_ops), np.int32)
    work = count_step(simulators.get_objective("makespan").simulate, tables, placements)
    bytes_per_s, operations_per_s = _measure_limits()
    step_ns = 1e9 * batch_s / (num_steps * _BATCH)
    bounds_ns = 1e9 * work.moved_bytes / bytes_per_s, 1e9 * work.operations / operations_per_s
    table = grids.new_table(
        f"roofline of makespan: {step_ns:.2f} ns for a step of a placement, {num_steps} steps",
        ("limit of one core",),
        ("a step", "measured a second", "bound ns", "share of the bound"),
    )
    rows = (
        ("copies", f"{work.moved_bytes:.0f} bytes", f"{bytes_per_s / 1e9:.1f} GB"),
        ("arithmetic", f"{work.operations:.1f} operations", f"{operations_per_s / 1e9:.1f} G"),
    )
    for row, bound_ns in zip(rows, bounds_ns, strict=True):
        table.add_row(*row, f"{bound_ns:.2f}", f"{bound_ns / step_ns:.0%}")
    return table


def _measure_limits() -> tuple[float, float]:
    """Measures the bytes and the operations a second of one core on arrays as in the loop."""
    buffer = np.zeros((_NUM_OPS + 2, _BATCH), np.float32)
    target = np.empty_like(buffer)
    copy_s = median_ms(lambda: np.copyto(target, buffer)) / 1e3
    repeats = 1_000

    @jax.jit
    def compute(rows: jax.Array, low: jax.Array, added: jax.Array) -> jax.Array:
        def step(_: Any, rows: jax.Array) -> jax.Array:
            for _ in range(_CHAIN):
                rows = jnp.where(rows > low, rows + added, low)
            return rows

        return jax.lax.fori_loop(0, repeats, step, rows)

    rows = jnp.zeros((2, _BATCH))
    compute_s = median_ms(lambda: compute(rows, jnp.float32(0), jnp.float32(1)), repeats=20) / 1e3
    return 2 * buffer.nbytes / copy_s, 3 * _CHAIN * repeats * rows.size / compute_s


def _measure_s(objective: str, num_ops: int, batch: int) -> tuple[float, float]:
    """Returns the median seconds of a simulator's call, and those of its compilation."""
    if objective == "subgraph":
        placements = _draw_segments(num_ops, batch)
    else:
        placements = np.random.default_rng(1).integers(0, 2, (batch, num_ops), np.int32)
    problem = make_problem(num_ops, objective)
    jax.block_until_ready(problem.tables)  # not a part of what is timed
    evaluate = problem.evaluate
    start_s = time.perf_counter()
    assert np.isfinite(np.asarray(evaluate(placements))).all()
    compile_s = time.perf_counter() - start_s
    device_placements = jax.device_put(placements)
    return median_ms(lambda: evaluate(device_placements), repeats=20) / 1e3, compile_s


def make_problem(num_ops: int, objective: str) -> Instance:
    """Returns a random graph on two devices with random costs; under 'subgraph' with a host.

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
    return Instance(graph, costs, objective, ("a", "b"))


def _draw_segments(num_ops: int, batch: int) -> np.ndarray:
    """Returns random placements int32 [batch, N] on two devices that 'subgraph' allows.

    The second device holds one segment of the topological order; two would be infeasible.
    """
    ends = np.sort(np.random.default_rng(1).integers(0, num_ops, (batch, 2, 1)), axis=1)
    position = np.arange(num_ops)
    return ((position >= ends[:, 0]) & (position < ends[:, 1])).astype(np.int32)
