"""Features of moves, compared with plain sums over operations and edges."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.policies import inputs, moves
from placement.simulators import makespan
from tests.simulators import reference

SIZE = (14, 24, 24, 3)  # operations, edges, tensors, devices


@jax.jit
def _describe(graph, before, member):
    schedule = makespan.compute_schedule(graph.globals.simulator, before)
    unit_s = graph.globals.policy_tables.unit_s
    state = moves.describe_placement(graph, before, schedule, unit_s)
    is_valid = moves.find_valid_moves(graph, before, member)
    return state, is_valid, moves.move_features(graph, state, member)


@functools.cache
def _described(seed: int):
    """A problem, a placement, groups, and what is said of them."""
    rng = np.random.default_rng(seed)
    problem, _ = reference.random_problem(rng, "makespan", SIZE)
    graph = inputs.with_finite_costs(inputs.read_operations(problem).graph)
    size = len(graph.nodes["mask"])
    before = np.zeros(size, np.int32)
    before[: SIZE[0]] = rng.integers(0, 3, SIZE[0])
    member = (rng.random((5, size)) < 0.3) & np.asarray(graph.nodes["mask"])
    member[4] = member[3]
    described = jax.device_get(_describe(graph, jnp.asarray(before), member))
    state, is_valid, (group_features, move_features) = described
    return graph, before, member, state, is_valid, group_features, move_features


def test_valid_moves():
    graph, before, member, _, is_valid, _, _ = _described(0)
    allowed = np.asarray(graph.nodes["allowed"])
    for k in range(4):
        for device in range(3):
            can = member[: k + 1] & allowed[:, device] & (before != device)
            first = can[k].any() and not (can[:k] == can[k]).all(axis=1).any()
            assert is_valid[k, device] == first
    assert not is_valid[4].any()


@pytest.mark.parametrize("seed", range(3))
def test_features_are_plain_sums(seed):
    graph, before, member, state, _, group_features, move_features = _described(seed)
    compute_s, unit_s = np.asarray(graph.globals.compute_s), graph.globals.policy_tables.unit_s
    delay_s, times = np.asarray(graph.globals.delay_s), state.schedule
    latency_s, duration_s = times.finish_s.max(), times.finish_s - times.start_s
    edges = [
        (int(u), int(v), delay_s[e].sum() / 6, delay_s[e, before[u], before[v]])
        for e, (u, v) in enumerate(zip(graph.senders, graph.receivers, strict=True))
        if graph.edges["mask"][e]
    ]
    for k in range(4):
        ops = np.flatnonzero(member[k])
        border = [
            (before[v if u in ops else u], mean)
            for u, v, mean, _ in edges
            if (u in ops) != (v in ops)
        ]
        leaving_s, group_s = sum(mean for _, mean in border), duration_s[ops].sum()
        crossing_s = sum(now for u, v, _, now in edges if u in ops or v in ops)
        expected = [
            *(np.log1p(len(ops)), np.log1p(group_s / unit_s)),
            *(times.start_s[ops].min() / latency_s, times.finish_s[ops].max() / latency_s),
            *(np.log1p(crossing_s / unit_s), np.log1p(leaving_s / unit_s)),
        ]
        columns = [0, 1, 2, 3, 8, 9]
        np.testing.assert_allclose(group_features[k, columns], expected, rtol=1e-3, atol=1e-4)
        for device in range(3):
            device_s = compute_s[ops, device].sum()
            traffic_s = sum(mean for there, mean in border if there == device)
            expected = [
                np.log1p(device_s / unit_s),
                np.sign(device_s - group_s) * np.log1p(abs(device_s - group_s) / unit_s),
                traffic_s / leaving_s if leaving_s else 0.0,
                np.mean(before[ops] == device),
            ]
            columns = move_features[k, device, [0, 2, 4, 8]]
            np.testing.assert_allclose(columns, expected, rtol=1e-2, atol=1e-3)
