"""What placements ask of a machine, worked out by hand."""

import math

import numpy as np

from placement.instance import Instance
from placement.pipeline import loading
from placement.pipeline.results import rows
from placement.runtime.measurement.request import Candidate
from placement.types import Solution
from tests import helpers


def problem(num_ops: int, memory_bytes: list[float]) -> Instance:
    """A chain that takes 4 seconds on 'a', a host, and 2 on 'b'; crossing takes 5 and 'b' pays."""
    graph = helpers.chain(num_ops)
    costs = helpers.unit_costs(
        graph,
        compute_s=np.tile(np.array([4, 2], np.float32) / num_ops, (num_ops, 1)),
        transfer_latency_s=5 * (1 - np.eye(2, dtype=np.float32)),
        transfer_s_per_byte=np.zeros((2, 2), np.float32),
        memory_bytes=np.array(memory_bytes, np.float32),
        accelerator=np.array([-1, 0], np.int32),
    )
    return Instance(graph, costs, "serial", ("a", "b"))


FULL, COARSE = problem(4, [4, 2, 1, 1]), problem(2, [6, 2])
SETTING = loading.SearchProblem(
    FULL, COARSE, np.array([0, 0, 1, 1]), np.arange(2), lambda placements: placements
)


def make_row(where: str, value_s: float = 1.0, **others: bool) -> rows.Row:
    placements = np.array([["ab".index(device) for device in where]], np.int32)
    solution = Solution(placements[0], value_s, evaluations=1, elite=placements)
    return rows.Row("some", solution, (Candidate(None, ()),), (value_s,), **others)


def loads(
    *given: rows.Row, setting: loading.SearchProblem | None = None
) -> list[tuple[float, float]]:
    loaded = rows.add_loads(given, setting or SETTING)
    return [(row.max_load_s, row.memory_bytes) for row in loaded]


def test_the_pace_is_the_busiest_devices_and_the_memory_the_fullest_ones():
    found = loads(
        make_row("ab"),  # b computes for 1 and receives for 5; a holds 6
        make_row("aa"),
        make_row("abbb", is_full=True),  # b computes for 1.5
    )
    assert found == [(6.0, 6.0), (4.0, 8.0), (6.5, 4.0)]


def test_what_does_not_run_asks_nothing():
    found = loads(make_row("aa", math.inf), make_row("ab"), make_row("", is_reference=True))
    assert np.isfinite(found[1]).all()
    assert np.isnan([found[0], found[2]]).all()


def test_parts_of_one_accelerator_hold_theirs_together():
    costs = COARSE.costs._replace(accelerator=np.array([0, 0], np.int32))
    setting = SETTING._replace(coarse=COARSE._replace(costs=costs))
    assert loads(make_row("ab"), setting=setting)[0][1] == 8
