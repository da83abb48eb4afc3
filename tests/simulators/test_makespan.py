import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

from placement.graphs import opgraph
from placement.simulators import list_schedule, makespan
from placement.types import CostModel, OpGraph
from tests import helpers
from tests.helpers import unit_costs
from tests.simulators import reference

SEEDS = st.integers(0, 2**32 - 1)
SIZE = (8, 12, 6, 3)
TIMED_SIZE = (10, 20, 14, 3)  # operations, edges (some parallel), tensors, devices
few = hypothesis.settings(max_examples=25, deadline=None)
_latency = jax.jit(makespan.latency)
_timing = jax.jit(makespan.compute_schedule)


def _evaluate(graph: OpGraph, costs: CostModel, placements: np.ndarray) -> np.ndarray:
    problem = helpers.as_problem(graph, costs, "makespan")
    return np.asarray(problem.evaluate(placements))


def _two_apart(graph: OpGraph, num_devices: int = 2, **changes: np.ndarray) -> CostModel:
    """As `unit_costs`, but transfers take 2, whatever crosses."""
    apart = 1 - np.eye(num_devices, dtype=np.float32)
    links = {"transfer_latency_s": 2 * apart, "transfer_s_per_byte": 0 * apart}
    return unit_costs(graph, num_devices, **links | changes)


def _graph(num_ops: int, edges: list[tuple[int, int]], num_bytes: int = 10) -> OpGraph:
    return opgraph.make_graph(
        name="drawn",
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=["MatMul"] * num_ops,
        senders=[sender for sender, _ in edges],
        receivers=[receiver for _, receiver in edges],
        edge_bytes=[num_bytes] * len(edges),
    )


@pytest.mark.slow
@pytest.mark.parametrize("size", reference.SIZES, ids=str)
def test_equals_an_event_driven_reference_on_random_problems(size):
    for problem, placements in reference.random_problems("makespan", size):
        expected = reference.latencies(problem, placements)
        np.testing.assert_array_equal(problem.evaluate(placements), expected)


@pytest.mark.parametrize("size", reference.SIZES, ids=str)
def test_operations_end_when_what_follows_them_says_and_the_last_is_the_latency(size):
    problem, placements = next(iter(reference.random_problems("makespan", size)))
    graph, t = problem.graph, problem.makespan_tables
    finish_s = np.asarray(jax.jit(makespan.finish_s)(t, placements.T))
    assert finish_s.shape == placements.T.shape
    np.testing.assert_array_equal(finish_s.max(axis=0), reference.latencies(problem, placements))
    took_s = np.take_along_axis(problem.costs.compute_s, placements.T, axis=1)
    ran = np.isfinite(finish_s[graph.senders])
    with np.errstate(invalid="ignore"):  # of what never starts
        waited_s = (finish_s - took_s)[graph.receivers] - finish_s[graph.senders]
    assert not (waited_s[ran] < -1e-3).any()


def test_random_problems_cover_what_the_objective_must_get_right():
    expected = {
        *("reordered", "not the topological order", "overlap", "waiting", "busy throughout"),
        *("unsupported", "never arrives", "order matters"),
    }
    seen = set()
    for problem, placements in reference.problems_of_sizes("makespan", reference.SIZES):
        p = reference.plain(problem)
        topological = problem.topological_order.tolist()
        seen |= {"reordered"} if sorted(p.order) != p.order else set()
        seen |= {"not the topological order"} if p.order != topological else set()
        for placement in placements.tolist():
            latency_s = reference.makespan(p, placement)
            computing = [0.0] * p.num_devices
            for op, device in enumerate(placement):
                computing[device] += p.compute_s[op][device]
            seen |= {"overlap"} if latency_s < sum(computing) else set()
            seen |= {"waiting"} if np.inf > latency_s > sum(computing) else set()
            seen |= {"busy throughout"} if 0 < latency_s == max(computing) else set()
            seen |= {"unsupported"} if max(computing) == np.inf else set()
            seen |= {"never arrives"} if latency_s == np.inf > max(computing) else set()
            # In index order the devices would run into a deadlock or take another time.
            other = reference.makespan(p._replace(order=sorted(p.order)), placement)
            seen |= {"order matters"} if other != latency_s else set()
        if seen == expected:
            break
    assert seen == expected


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0], 3),
        ([1, 1, 1], 6),
        ([0, 0, 1], 2 + 120 + 2),
        ([0, 1, 0], 1 + 110 + 2 + 120 + 1),  # a chain has nothing that overlaps
        ([2, 1, 0], 3 + 110 + 2 + 120 + 1),
    ],
)
def test_chain_by_hand(placement, seconds):
    graph = helpers.chain(3)
    assert _evaluate(graph, unit_costs(graph, 3), np.array([placement])).tolist() == [seconds]


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0, 0], 4),
        ([1, 1, 1, 1], 8),
        # op0 0-1; op1 on device 1 3-5 while op2 on device 0 1-2; op3 waits for op1 until 7.
        ([0, 1, 0, 0], 8),
        # op0's tensor is at both branches at 3: op1 3-5, op2 3-6; op3 waits for op2 until 8.
        ([0, 1, 2, 0], 9),
        # Both branches on device 1: op1 3-5, op2 5-7; op3 waits for op2 until 9.
        ([0, 1, 1, 0], 10),
        ([0, 1, 1, 1], 9),  # op3 follows op2 at once
        ([1, 0, 0, 0], 2 + 2 + 3),
    ],
)
def test_diamond_by_hand(placement, seconds):
    graph = helpers.diamond()
    assert _evaluate(graph, _two_apart(graph, 3), np.array([placement])).tolist() == [seconds]


@pytest.mark.parametrize(
    ("placement", "seconds"),
    [
        ([0, 0, 0, 0, 0, 0, 0, 0], 8),
        # op0 0-1. Branch 1-2 on device 0 1-3, branch 3-4 on device 1 3-7, branch 5-6 on device 2
        # 3-9; op7 waits for the last until 11.
        ([0, 0, 0, 1, 1, 2, 2, 0], 12),
        # Branches 1-2 and 3-4 on device 0 1-5; branch 5-6 on device 1 3-7, its result there at 9.
        ([0, 0, 0, 0, 0, 1, 1, 0], 10),
    ],
)
def test_fork_join_by_hand(placement, seconds):
    graph = helpers.fork_join(branches=3, length=2)
    assert _evaluate(graph, _two_apart(graph, 3), np.array([placement])).tolist() == [seconds]


def test_a_device_waits_for_its_next_operation_though_another_is_ready():
    # op0 -> op1, and op2 alone. Ranks 11, 4 and 3: device 0 runs op1 before op2.
    graph = _graph(3, [(0, 1)])
    compute_s = np.array([[5, 5], [4, 4], [3, 3]], np.float32)
    costs = _two_apart(graph, compute_s=compute_s)
    # op0 on device 1 0-5, op1 7-11, op2 11-14; with op2 first the end would be at 11.
    assert _evaluate(graph, costs, np.array([[1, 0, 0]])).tolist() == [14]
    # With op2 longer than op1 it goes first: op2 0-5, op0 0-5, op1 7-11.
    longer = costs._replace(compute_s=np.array([[5, 5], [4, 4], [5, 5]], np.float32))
    assert _evaluate(graph, longer, np.array([[1, 0, 0]])).tolist() == [11]


def test_an_operation_starts_at_its_last_arrival_whichever_edge_brings_it():
    # Six inputs of one operation, the k-th of them delayed by another cut.
    graph = _graph(7, [(i, 6) for i in range(6)])
    for last in range(6):
        fusion_loss_s = np.where(np.arange(6) == last, 100, 1).astype(np.float32)
        value = _evaluate(
            graph, _two_apart(graph, 7, fusion_loss_s=fusion_loss_s), np.array([[*range(6), 6]])
        )
        # Operation i takes i + 1 on device i: the others are there by 6 + 2 + 1.
        assert value.tolist() == [last + 1 + 2 + 100 + 7]


def test_of_parallel_edges_the_slower_counts_and_a_tensor_crosses_for_each_alike():
    graph = _graph(2, [(0, 1), (0, 1), (0, 1)])
    costs = _two_apart(graph, fusion_loss_s=np.array([3, 40, 5], np.float32))
    assert _evaluate(graph, costs, np.array([[0, 1], [0, 0]])).tolist() == [1 + 42 + 2, 2]


def test_a_crossing_takes_latency_bytes_its_own_cost_and_the_cut():
    graph = helpers.chain(2)
    costs = unit_costs(
        graph,
        transfer_latency_s=np.array([[0, 5], [7, 0]], np.float32),
        transfer_s_per_byte=np.array([[0, 2], [3, 0]], np.float32),
        transfer_fixed_s=np.array([1000], np.float32),
        fusion_loss_s=np.array([20000], np.float32),
    )
    value = _evaluate(graph, costs, helpers.all_placements(2, 2))
    assert value.tolist() == [2, 3 + 5 + 20 + 21000, 3 + 7 + 30 + 21000, 4]


def test_what_never_ends_or_never_arrives_makes_only_its_placements_infinite():
    graph = helpers.chain(2)
    costs = unit_costs(
        graph,
        compute_s=np.array([[1, 2], [1, np.inf]], np.float32),
        transfer_latency_s=np.array([[0, 100], [np.inf, 0]], np.float32),
    )
    value = _evaluate(graph, costs, helpers.all_placements(2, 2))
    assert value.tolist() == [2, np.inf, np.inf, np.inf]
    linked = costs._replace(transfer_latency_s=np.array([[0, 100], [100, 0]], np.float32))
    value = _evaluate(graph, linked, helpers.all_placements(2, 2))
    assert value.tolist() == [2, np.inf, 3 + 110, np.inf]


def test_operations_without_edges_share_their_device():
    graph = _graph(4, [])
    value = _evaluate(
        graph, unit_costs(graph), np.array([[0, 0, 0, 0], [0, 0, 0, 1], [1, 1, 1, 0]])
    )
    assert value.tolist() == [4, 3, 6]


@few
@hypothesis.given(SEEDS)
def test_lies_between_the_busiest_device_and_everything_in_turn(seed):
    problem, placements = reference.random_problem(np.random.default_rng(seed), "makespan", SIZE)
    p = reference.plain(problem)
    for placement, seconds in zip(
        placements.tolist(), problem.evaluate(placements).tolist(), strict=True
    ):
        computing = [0.0] * p.num_devices
        for op, device in enumerate(placement):
            computing[device] += p.compute_s[op][device]
        under_way = 0.0
        for sender, receiver, tensor, fusion_loss_s in p.edges:
            source, device = placement[sender], placement[receiver]
            if source != device:
                under_way += reference.transfer(p, tensor, source, device) + fusion_loss_s
        assert max(computing) <= seconds <= sum(computing) + under_way


@few
@hypothesis.given(SEEDS)
def test_is_never_below_the_critical_path_on_the_fastest_devices(seed):
    problem, placements = reference.random_problem(np.random.default_rng(seed), "makespan", SIZE)
    fastest = problem.costs.compute_s.min(axis=1)
    end: dict[int, float] = {}
    for op in problem.topological_order:
        inputs = problem.graph.senders[problem.graph.receivers == op]
        end[op] = max((end[before] for before in inputs), default=0) + fastest[op]
    assert (problem.evaluate(placements) >= max(end.values())).all()


@few
@hypothesis.given(SEEDS)
def test_without_crossings_overlap_only_helps(seed):
    problem, placements = reference.random_problem(np.random.default_rng(seed), "makespan", SIZE)
    costs = problem.costs
    free = costs._replace(
        transfer_latency_s=np.zeros_like(costs.transfer_latency_s),
        transfer_s_per_byte=np.zeros_like(costs.transfer_s_per_byte),
        transfer_fixed_s=np.zeros_like(costs.transfer_fixed_s),
        fusion_loss_s=np.zeros_like(costs.fusion_loss_s),
    )
    alone = problem._replace(costs=free, objective="serial").evaluate(placements)
    overlapped = problem._replace(costs=free).evaluate(placements)
    assert (overlapped <= alone).all()


# Of every device the number of the kind that its links are of.
KINDS = (0, 1, 1), (0, 1, 0, 1), (0, 0, 0), (0, 1, 2), (0, 1, 1, 2, 1, 1)


@pytest.mark.parametrize("kinds", KINDS)
def test_devices_with_equal_links_are_of_a_kind_and_wait_as_others_do(kinds):
    num_devices, rng = len(kinds), np.random.default_rng(0)
    between = rng.integers(1, 30, (3, 3)).astype(np.float32)
    apart = 1 - np.eye(num_devices, dtype=np.float32)
    graph = helpers.random_dag(rng, 12, edge_probability=0.3)
    costs = unit_costs(
        graph,
        num_devices,
        compute_s=rng.integers(1, 9, (12, num_devices)).astype(np.float32),
        transfer_latency_s=apart * between[np.ix_(kinds, kinds)],
        transfer_s_per_byte=apart * between.T[np.ix_(kinds, kinds)],
    )
    problem = helpers.as_problem(graph, costs, "makespan")
    tables = problem.makespan_tables
    assert tables.kind.tolist() == list(kinds)
    assert tables.delay_s.shape[-1] == max(kinds) + 1
    placements = rng.integers(0, num_devices, (64, 12)).astype(np.int32)
    expected = reference.latencies(problem, placements)
    np.testing.assert_array_equal(problem.evaluate(placements), expected)


def test_a_link_that_differs_in_one_direction_makes_a_kind_of_its_own():
    graph = helpers.diamond()
    latency_s = 5 * (1 - np.eye(3, dtype=np.float32))
    latency_s[0, 2] = 6
    costs = unit_costs(graph, 3, transfer_latency_s=latency_s)
    tables = helpers.as_problem(graph, costs, "makespan").makespan_tables
    assert tables.kind.tolist() == [0, 1, 2]


def _with_boundary(graph: OpGraph, costs: CostModel, **rows: list[list[float]]) -> makespan.Tables:
    """Tables whose boundary is given for each operation on each device."""
    tables = helpers.as_problem(graph, costs, "makespan").makespan_tables
    times = {name: np.float32(row)[tables.steps.op] for name, row in rows.items()}
    return tables._replace(boundary=makespan.Boundary(**times))


def test_a_part_starts_when_what_is_before_lets_it_and_ends_with_what_follows():
    graph = helpers.chain(3)
    tables = _with_boundary(
        graph,
        _two_apart(graph),
        ready_s=[[5, 0], [0, 0], [0, 9]],
        tail_s=[[1, 1], [4, 20], [0, 3]],
    )
    placements = np.array([[0, 0, 0], [1, 1, 1], [0, 0, 1], [1, 0, 0]], np.int32).T
    # Operations take 1 or 2. The second ends at 7, 4 follow. | It ends at 4, 20 follow. | The third
    # starts at 9, 3 follow. | The first ends at 2, the second starts at 4, 4 follow.
    np.testing.assert_array_equal(_latency(tables, placements), [11, 24, 14, 9])


def test_what_is_before_a_part_may_lie_before_zero():
    graph = helpers.chain(2)
    tables = _with_boundary(graph, _two_apart(graph), ready_s=[[-8, -8]] * 2, tail_s=[[-3, -3]] * 2)
    np.testing.assert_array_equal(_latency(tables, np.zeros((2, 1), np.int32)), [-9])


def test_steps_that_pad_do_nothing():
    problem = helpers.random_problem()
    num_ops, num_edges = problem.graph.num_ops, problem.graph.num_edges
    tables = problem.makespan_tables
    length = len(tables.steps.op)
    rest = list_schedule.pad(tables.steps, num_ops, num_edges, length + 7)
    assert len(rest.op) == length + 7
    padding = ((0, 7), (0, 0))
    padded = tables._replace(
        steps=rest,
        compute_s=np.pad(tables.compute_s, padding),
        delay_s=np.pad(tables.delay_s, (*padding, (0, 0), (0, 0))),
    )
    placements = np.random.default_rng(0).integers(0, 3, (num_ops, 20), np.int32)
    np.testing.assert_array_equal(_latency(padded, placements), _latency(tables, placements))


def _timed_cases(count: int):
    drawn = reference.random_problems("makespan", TIMED_SIZE)
    for problem, placements in itertools.islice(drawn, count):
        finite = np.isfinite(problem.costs.compute_s)
        compute_s = np.where(finite, problem.costs.compute_s, 1.0)
        problem = problem._replace(costs=problem.costs._replace(compute_s=compute_s))
        tables = problem.makespan_tables
        for placement in placements[:3]:
            latency_s = float(_latency(tables, placement[:, None])[0])
            if np.isfinite(latency_s):  # there may be no way between two devices
                yield tables, placement, latency_s


def test_the_last_operation_ends_when_the_simulator_says():
    for tables, placement, latency_s in _timed_cases(20):
        times = _timing(tables, placement)
        assert float(times.latency_s) == pytest.approx(latency_s, rel=1e-6)
        compute_s = np.zeros(10)
        compute_s[tables.steps.op] = tables.compute_s[
            np.arange(len(tables.steps.op)), placement[tables.steps.op]
        ]
        np.testing.assert_allclose(times.finish_s - times.start_s, compute_s, rtol=1e-4)


def test_operations_may_last_their_slack():
    for tables, placement, latency_s in _timed_cases(5):
        times = _timing(tables, placement)
        assert np.min(times.slack_s) == pytest.approx(0, abs=1e-5 * latency_s)
        for op, slack_s in enumerate(np.asarray(times.slack_s).tolist()):
            for longer_s, later_s in ((slack_s, 0.0), (slack_s + latency_s, latency_s)):
                # The order of priority stays as it is.
                compute_s = tables.compute_s + np.where(tables.steps.op == op, longer_s, 0)[:, None]
                changed = tables._replace(compute_s=compute_s.astype(np.float32))
                assert float(_latency(changed, placement[:, None])[0]) == pytest.approx(
                    latency_s + later_s, rel=1e-4
                )
