"""The engine on a line of numbers: a placement is one class, its device is the number."""

import jax.numpy as jnp
import numpy as np

from placement import simulators
from placement.solvers import iterated_local_search as ils


def _evaluation(costs_s: list[float], feasible: list[bool] | None = None) -> ils.Evaluation:
    costs = np.float32(costs_s)
    return ils.Evaluation(
        costs, np.where(np.ones(len(costs), bool) if feasible is None else feasible, costs, np.inf)
    )


def _start(devices: list[int], costs_s: list[float]) -> ils.ChainState:
    return ils.start(np.int32([devices]), _evaluation(costs_s), np.arange(len(devices)))


def _move(state, devices: list[int], evaluation: ils.Evaluation, **options) -> ils.ChainState:
    return ils.move_chains(state, ils.Proposals(jnp.int32([devices])), evaluation, **options)


def test_chains_move_to_best_proposals():
    state = _start([0, 1, 2], [5.0, 5.0, 5.0])
    moved = _move(state, [3, 4, 5, 6, 7, 8], _evaluation([7, 4, 5, 6, 6, 9]), patience=99)
    assert moved.placements.tolist() == [[4, 5, 2]]
    assert moved.costs_s.tolist() == [4, 5, 5]
    assert moved.steps_since_improvement.tolist() == [0, 1, 1]
    assert (moved.best_placement.tolist(), float(moved.best_latency_s)) == ([4], 4)


def test_threshold_admits_worse_proposals():
    state = _start([0, 1], [5.0, 5.0])
    threshold_s = np.float32([2, 0])
    moved = _move(state, [3, 4], _evaluation([7, 7]), patience=99, threshold_s=threshold_s)
    assert moved.placements.tolist() == [[3, 1]]
    assert moved.steps_since_improvement.tolist() == [1, 1]


def test_unchanged_proposals_are_rejected():
    state = _start([0], [5.0])
    proposals = ils.Proposals(jnp.int32([[0, 1]]), np.array([False, True]))
    moved = ils.move_chains(state, proposals, _evaluation([5, 5]), patience=99)
    assert moved.placements.tolist() == [[1]]


def test_infeasible_placements_are_never_best():
    outcome = simulators.Outcome(
        jnp.float32([1, 1, 3]), jnp.float32([0.5, 2, 0]), jnp.array([False, False, True])
    )
    evaluation = ils.penalise(outcome, jnp.float32(10))
    assert evaluation.costs_s.tolist() == [16, 31, 3]
    moved = _move(_start([0], [20.0]), [1], _evaluation([16], [False]), patience=99)
    assert moved.placements.tolist() == [[1]]
    assert moved.best_placement.tolist() == [0]
    unknown = ils.start(np.int32([[4, 5]]), _evaluation([9, 8], [False, False]), np.array([1, 0]))
    assert unknown.best_placement.tolist() == [5]
    assert np.isinf(unknown.best_latency_s)


def test_stuck_chains_restart_near_best():
    state = ils.ChainState(
        placements=np.int32([[0], [0], [0]]),
        costs_s=np.float32([5]),
        steps_since_improvement=np.int32([3]),
        best_placement=np.int32([2, 2, 2]),
        best_latency_s=np.float32(1),
    )
    proposals = ils.Proposals(jnp.int32([[0, 1], [7, 0], [0, 0]]))
    restarted = ils.move_chains(state, proposals, _evaluation([6, 6]), patience=3)
    # The first proposal's only move, on the best placement.
    assert restarted.placements[:, 0].tolist() == [2, 7, 2]
    assert restarted.steps_since_improvement.tolist() == [0]
    moved = ils.move_chains(restarted, proposals, _evaluation([99, 100]), patience=3)
    assert moved.costs_s.tolist() == [99]


def test_improving_kinds_are_preferred():
    state = _start([0, 1], [5.0, 5.0])._replace(move_credit=jnp.zeros(3))
    proposals = ils.Proposals(jnp.int32([[2, 3, 4, 5]]), kinds=np.array([[0, 1], [2, 2]]))
    moved = ils.move_chains(state, proposals, _evaluation([6, 4, 6, 7]), patience=99)
    credit = np.asarray(moved.move_credit)
    assert credit[1] > 0 == credit[0] == credit[2]
    probabilities = np.asarray(ils.kind_probabilities(credit, np.array([True, True, False])))
    np.testing.assert_allclose(probabilities.sum(), 1, rtol=1e-6)
    assert probabilities[1] > probabilities[0] > 0 == probabilities[2]
