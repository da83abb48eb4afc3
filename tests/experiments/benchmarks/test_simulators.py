"""The count of a simulator's work, for a loop whose work is counted by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import simulators
from placement.simulators import get_objective


def _simulate(rows: jax.Array, placements: jax.Array) -> jax.Array:
    columns = placements.T

    def step(carry, i):
        buffer, total = carry
        narrow = columns.astype(jnp.int8)[i] == 1  # reads 1 byte; a quarter of an operation
        total = jnp.where(narrow, total + buffer[i], total)  # reads 4 bytes; two operations
        return (jax.lax.dynamic_update_index_in_dim(buffer, total, i, 0), total), None

    initial = jnp.zeros((4, len(placements))), jnp.zeros(len(placements))
    return jax.lax.scan(step, initial, rows)[0][1]


def test_a_step_reads_and_writes_rows_and_computes_with_them():
    work = simulators.count_step(_simulate, np.arange(4), np.zeros((6, 4), np.int32))
    # It also writes a row and hands on the total, which the next step reads.
    assert work == simulators.Work(moved_bytes=1 + 4 + 4 + 2 * 4, operations=0.25 + 2)


def test_more_inputs_of_a_step_are_more_work_but_more_operations_are_not():
    simulate = get_objective("makespan").simulate
    works = []
    for num_ops in (100, 200):
        problem = simulators.make_problem(num_ops, "makespan")
        placements = np.zeros((8, problem.num_padded_ops), np.int32)
        works.append(simulators.count_step(simulate, problem.padded_tables, placements))
    assert works[0] == works[1]
    assert works[0].operations > 10
    # At least two inputs, the device and the finish, of 32 bits or 8.
    assert works[0].moved_bytes > 2 * 4 + 4
