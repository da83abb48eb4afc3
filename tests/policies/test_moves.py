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
    compute_s, unit_s = (
        np.asarray(graph.globals.compute_s),
        float(graph.globals.policy_tables.unit_s),
    )
    delay_s = np.asarray(graph.globals.delay_s)
    times = state.schedule
    latency_s = times.finish_s.max()
    edges = [
        (int(u), int(v), delay_s[e].sum() / 6, delay_s[e, before[u], before[v]])
        for e, (u, v) in enumerate(zip(graph.senders, graph.receivers, strict=True))
        if graph.edges["mask"][e]
    ]
    for k in range(4):
        ops = set(np.flatnonzero(member[k]).tolist())
        lasts_s = sum(times.finish_s[v] - times.start_s[v] for v in ops)
        crossing_s = sum(now for u, v, _, now in edges if ops & {u, v})
        assert np.expm1(group_features[k, 0]) == pytest.approx(len(ops), rel=1e-4)
        assert np.expm1(group_features[k, 1]) == pytest.approx(lasts_s / unit_s, rel=1e-3)
        assert group_features[k, 2] == pytest.approx(
            min(times.start_s[[*ops]]) / latency_s, abs=1e-5
        )
        assert group_features[k, 3] == pytest.approx(
            max(times.finish_s[[*ops]]) / latency_s, abs=1e-5
        )
        assert np.expm1(group_features[k, 8]) == pytest.approx(
            crossing_s / unit_s, rel=1e-3, abs=1e-3
        )
        border = [
            (before[v if u in ops else u], mean)
            for u, v, mean, _ in edges
            if (u in ops) != (v in ops)
        ]
        leaving_s = sum(mean for _, mean in border)
        assert np.expm1(group_features[k, 9]) == pytest.approx(
            leaving_s / unit_s, rel=1e-3, abs=1e-3
        )
        for device in range(3):
            takes_s = compute_s[[*ops], device].sum()
            traffic_s = sum(mean for there, mean in border if there == device)
            assert np.expm1(move_features[k, device, 0]) == pytest.approx(
                takes_s / unit_s, rel=1e-3
            )
            more = np.sign(takes_s - lasts_s) * np.log1p(abs(takes_s - lasts_s) / unit_s)
            assert move_features[k, device, 2] == pytest.approx(more, rel=1e-2, abs=1e-3)
            of_all = traffic_s / leaving_s if leaving_s else 0.0
            assert move_features[k, device, 4] == pytest.approx(of_all, rel=1e-2, abs=1e-3)
            share = np.mean(before[[*ops]] == device)
            assert move_features[k, device, 8] == pytest.approx(share, abs=1e-5)
