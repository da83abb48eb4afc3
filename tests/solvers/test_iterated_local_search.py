"""The engine on a line of numbers: a placement is one class, its device is the number."""

import jax
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


def test_each_chain_moves_to_its_best_proposal_unless_that_is_worse():
    state = _start([0, 1, 2], [5.0, 5.0, 5.0])
    moved = _move(state, [3, 4, 5, 6, 7, 8], _evaluation([7, 4, 5, 6, 6, 9]), patience=None)
    assert moved.placements.tolist() == [[4, 5, 2]]
    assert moved.costs_s.tolist() == [4, 5, 5]
    assert moved.steps_since_improvement.tolist() == [0, 1, 1]
    assert (moved.best_placement.tolist(), float(moved.best_latency_s)) == ([4], 4)


def test_a_proposal_equal_to_its_parent_is_not_accepted():
    state = _start([0], [5.0])
    proposals = ils.Proposals(jnp.int32([[0, 1]]), np.array([False, True]))
    moved = ils.move_chains(state, proposals, _evaluation([5, 5]), patience=None)
    assert moved.placements.tolist() == [[1]]


def test_chains_cross_infeasible_placements_that_never_become_the_best():
    outcome = simulators.Outcome(
        jnp.float32([1, 1, 3]), jnp.float32([0.5, 2, 0]), jnp.array([False, False, True])
    )
    evaluation = ils.penalise(outcome, jnp.float32(10))
    assert evaluation.costs_s.tolist() == [16, 31, 3]
    moved = _move(_start([0], [20.0]), [1], _evaluation([16], [False]), patience=None)
    assert moved.placements.tolist() == [[1]]
    assert moved.best_placement.tolist() == [0]
    unknown = ils.start(np.int32([[4, 5]]), _evaluation([9, 8], [False, False]), np.array([1, 0]))
    assert unknown.best_placement.tolist() == [5]
    assert np.isinf(unknown.best_latency_s)


def test_a_stuck_chain_restarts_near_the_best_and_then_accepts_anything():
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


def test_kinds_that_improve_chains_are_drawn_more_often():
    state = _start([0, 1], [5.0, 5.0])._replace(move_credit=jnp.zeros(3))
    proposals = ils.Proposals(jnp.int32([[2, 3, 4, 5]]), kinds=np.array([[0, 1], [2, 2]]))
    moved = ils.move_chains(state, proposals, _evaluation([6, 4, 6, 7]), patience=None)
    credit = np.asarray(moved.move_credit)
    assert credit[1] > 0 == credit[0] == credit[2]
    probabilities = np.asarray(ils.kind_probabilities(credit, np.array([True, True, False])))
    np.testing.assert_allclose(probabilities.sum(), 1, rtol=1e-6)
    assert probabilities[1] > probabilities[0] > 0 == probabilities[2]


def test_steps_find_the_best_number():
    def propose(key: jax.Array, state: ils.ChainState) -> ils.Proposals:
        offsets = jax.random.randint(key, (2 * 4,), -3, 4)
        return ils.Proposals(jnp.repeat(state.placements, 4, axis=1) + offsets)

    def evaluate(placements: jax.Array) -> ils.Evaluation:
        costs_s = jnp.abs(placements[0] - 17).astype(jnp.float32)
        return ils.Evaluation(costs_s, costs_s)

    key, state = jax.random.key(0), _start([0, 90], [17.0, 73.0])
    for _ in range(40):
        key, state = ils.step(key, state, propose, evaluate, patience=5)
    assert state.best_placement.tolist() == [17]
    assert float(state.best_latency_s) == 0
