import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

from placement.graphs import opgraph
from placement.instance import Instance
from placement.types import CostModel, OpGraph
from tests import helpers
from tests.helpers import unit_costs
from tests.simulators import reference

SEEDS = st.integers(0, 2**32 - 1)
few = hypothesis.settings(max_examples=25, deadline=None)


def _evaluate(
    graph: OpGraph, costs: CostModel, accelerator: list[int], placements: list[list[int]]
) -> list[float]:
    costs = costs._replace(accelerator=np.array(accelerator, np.int32))
    problem = helpers.as_problem(graph, costs, "subgraph")
    return np.asarray(problem.evaluate(np.array(placements))).tolist()


def _graph(num_ops: int, edges: list[tuple[int, int]]) -> OpGraph:
    return opgraph.make_graph(
        name="drawn",
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        senders=[sender for sender, _ in edges],
        receivers=[receiver for _, receiver in edges],
        edge_bytes=[10] * len(edges),
    )


def _random_problem(seed: int) -> tuple[Instance, np.ndarray]:
    rng = np.random.default_rng(seed)
    return reference.random_problem(rng, "subgraph", (8, 12, 6, 3), shared=True)


def _free(graph: OpGraph, num_devices: int) -> CostModel:
    costs = unit_costs(graph, num_devices)
    return jax.tree.map(np.zeros_like, costs)._replace(capacity_bytes=costs.capacity_bytes)


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0, 0], 3),  # the host runs both branches at once
        # Parts 1-243 and 1-254, then op3.
        ([0, 1, 2, 0], 1 + (110 + 3 + 140) + 1),
        # One part: it takes op0's tensor once, and both results leave it at its end.
        ([0, 1, 1, 0], 1 + (110 + 4 + 130 + 140) + 1),
        # The part ends at 4 + 110 + 130; though op0 was done long before, op2 starts only then.
        ([1, 1, 0, 0], 244 + 1 + 1),
        # op3's part waits for op2 at 2 on the host, and takes both results.
        ([0, 0, 0, 1], 2 + (130 + 140 + 2)),
        ([1, 2, 2, 2], (2 + 110) + (110 + 9)),
        ([1, 1, 2, 1], np.inf),
        ([1, 2, 0, 1], np.inf),
        ([1, 2, 1, 2], (4 + 110 + 140) + (110 + 140 + 6)),
        ([1, 2, 0, 2], (2 + 110) + 1 + (110 + 140 + 6)),  # op1 waits for op2, as its part does
    ],
)
def test_diamond_by_hand(placement, seconds):
    graph = helpers.diamond()
    assert _evaluate(graph, unit_costs(graph, 3), [-1, 0, 1], [placement]) == [seconds]


def test_parts_run_in_order():
    graph = _graph(3, [])
    costs = unit_costs(graph, 4)
    placements = [[1, 2, 3], [3, 2, 1], [1, 3, 3], [2, 2, 2], [0, 0, 3]]
    assert _evaluate(graph, costs, [-1, 0, 0, 0], placements) == [9, 9, 10, 9, 4]
    assert _evaluate(graph, costs, [-1, 0, 1, 0], placements) == [6, 6, 10, 9, 4]
    assert _evaluate(graph, costs, [-1, 0, 1, 2], placements) == [4, 4, 8, 9, 4]


def test_parts_wait_for_earlier_parts():
    # op0 on the host takes 1, op1 follows it in part 1; part 2 holds op2 alone, which op3 reads.
    graph = _graph(4, [(0, 1), (2, 3)])
    costs = unit_costs(graph, 3)
    one, two = [-1, 5, 5], [-1, 5, 6]
    assert _evaluate(graph, costs, one, [[0, 1, 2, 0]]) == [1 + (110 + 2) + (3 + 110) + 1]
    assert _evaluate(graph, costs, two, [[0, 1, 2, 0]]) == [(3 + 110) + 1]
    # In the other order op2 runs first.
    assert _evaluate(graph, costs, one, [[0, 2, 1, 0]]) == [max((2 + 110) + 1, 112 + 110 + 3)]


@pytest.mark.parametrize(
    ("accelerator", "placement"),
    [
        ([-1, 0, 1], [1, 0, 1]),  # a part feeds the host, which feeds it
        ([-1, 0, 1], [1, 2, 1]),  # two parts feed each other
        ([-1, 0, 0], [2, 1, 1]),  # the later part feeds the earlier
        ([-1, 0, 0], [2, 0, 1]),
        ([0, 0], [1, 0, 0]),
    ],
)
def test_cyclic_parts_are_infeasible(accelerator, placement):
    graph = helpers.chain(3)
    free = _free(graph, len(accelerator))
    assert _evaluate(graph, free, accelerator, [placement, sorted(placement)]) == [np.inf, 0]


def test_parts_may_reverse_device_order():
    graph = helpers.chain(10)
    forth, back = [1, 0, 2, 0, 3, 0, 4, 0, 5, 0], [5, 0, 4, 0, 3, 0, 2, 0, 1, 0]
    value = _evaluate(graph, unit_costs(graph, 6), [-1, 0, 1, 2, 3, 4], [forth, back])
    # Computing 2 + 3 + 4 + 5 + 6 and five times 1; the nine tensors have 10 to 90 bytes.
    assert value == [20 + 5 + 900 + 450] * 2


def test_hosts_pay_no_transfers():
    graph = helpers.diamond()
    costs = unit_costs(graph, 2, fusion_loss_s=np.full(4, 1000, np.float32))
    placements = [[0, 0, 0, 0], [0, 1, 0, 1], [1, 0, 1, 0]]
    assert _evaluate(graph, costs, [-1, -1], placements) == [3, 1 + 2 + 2, 2 + 2 + 1]


@few
@hypothesis.given(SEEDS)
def test_hosts_take_critical_path(seed):
    problem, placements = _random_problem(seed)
    hosts = problem.costs._replace(accelerator=np.full(3, -1, np.int32))
    end = np.zeros(placements.shape)
    for op in problem.topological_order:
        inputs = problem.graph.senders[problem.graph.receivers == op]
        end[:, op] = end[:, inputs].max(axis=1, initial=0)
        end[:, op] += problem.costs.compute_s[op, placements[:, op]]
    value = problem._replace(costs=hosts).evaluate(placements)
    np.testing.assert_array_equal(value, end.max(axis=1))


@few
@hypothesis.given(SEEDS)
def test_latency_is_bounded(seed):
    problem, placements = _random_problem(seed)
    p = reference.plain(problem)
    values = problem.evaluate(placements).tolist()
    for placement, seconds in zip(placements.tolist(), values, strict=True):
        loads = [reference.load(p, placement, device) for device in range(p.num_devices)]
        of_parts = [load for load, number in zip(loads, p.accelerator, strict=True) if number >= 0]
        assert max(of_parts, default=0) <= seconds
        assert seconds <= sum(loads) or seconds == reference.subgraph(p, placement) == np.inf
