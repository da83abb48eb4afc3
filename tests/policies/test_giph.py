from typing import Any

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from placement.learning import trainer
from placement.methods import learned
from placement.policies import giph, inputs
from placement.problem import Problem
from placement.simulators import makespan
from placement.solvers.limits import SearchLimits
from placement.types import Array, Params
from tests import helpers
from tests.simulators import reference

SIZE = (10, 20, 14, 3)  # operations, edges (some parallel), tensors, devices


def _batched(problem: Problem, num_nodes: int = 11) -> jraph.GraphsTuple:
    return inputs.read(problem, giph.giph_view, num_nodes=num_nodes).graph


def _diamond() -> jraph.GraphsTuple:
    """Computing takes 1 on device 0 and 2 on device 1, transfers 110 (of op0), 130 and 140."""
    graph = helpers.diamond()
    return _batched(helpers.as_problem(graph, helpers.unit_costs(graph), "makespan"), num_nodes=5)


@jax.jit
def _read(graph: jraph.GraphsTuple, placement: Array) -> Any:
    graph = inputs.with_finite_costs(graph)
    schedule = makespan.compute_schedule(graph.globals.simulator, placement)
    return giph._read_state(graph, placement, schedule)


def test_diamond_features():
    """op0 ends at 1, op2 runs there from 1 to 2; op1 elsewhere from 1 + 110 to 113; op3 at 243."""
    graph = _diamond()
    x, forward, _ = _read(graph, jnp.array([0, 1, 0, 0, 0]))
    # Unscaled: size 1.5; rate 2/3 and 4/3; time 1 or 2; potential; criticality.
    latency_s = 244.0
    potential = np.array([[0, 0], [1 - 111, 0], [0, 111 - 1], [0, 142 - 243]])
    slack = np.array([0, 0, latency_s - 3, 0])
    expected = np.stack(
        [
            np.zeros((4, 2)),
            np.broadcast_to([-1, 1], (4, 2)),
            np.broadcast_to([-1, 1], (4, 2)),
            2 * (potential + 110) / 220 - 1,
            np.broadcast_to(2 * (slack.max() - slack)[:, None] / slack.max() - 1, (4, 2)),
        ],
        axis=-1,
    )
    np.testing.assert_allclose(x[:4], expected, rtol=1e-5, atol=1e-6)
    assert (np.asarray(x[4]) == 0).all()
    # The edges from op0 to op1, from its pivot to device 0 and 1: nothing to pay, or 110.
    transfer = 2 * np.array([0, 110]) / 140 - 1
    np.testing.assert_allclose(forward.to_devices[0, :, 2], transfer, rtol=1e-5)


def _topological_pass(params: Params, x: Array, m: giph._Messages, order: list[int]) -> np.ndarray:
    """Each node once, after all operations before it, one message at a time."""
    edge, before, after = (
        jax.tree.map(np.asarray, layer)
        for layer in (
            params["Dense_0"],
            params["Scan_Round_0"]["Dense_0"],
            params["Scan_Round_0"]["Dense_1"],
        )
    )
    y, pivot = np.array(x), np.asarray(m.pivot)

    def message(state: Array, features: Array) -> Array:
        at_edge = np.asarray(features) @ edge["kernel"] + edge["bias"]
        return np.maximum(state @ before["kernel"] + at_edge, 0)

    for op in order:
        edges = np.flatnonzero((np.asarray(m.target) == op) & np.asarray(m.is_edge))
        for device in range(y.shape[1]):
            received = []
            for e in edges:
                source = m.source[e]
                if device == pivot[op]:
                    received += [
                        message(y[source, d], m.from_devices[e, d])
                        for d in range(y.shape[1])
                        if m.is_node[source, d]
                    ]
                else:
                    received.append(message(y[source, pivot[source]], m.to_devices[e, device]))
            mean = np.mean(received, axis=0) if received else np.zeros(len(edge["bias"]))
            y[op, device] = x[op, device] + np.maximum(mean @ after["kernel"] + after["bias"], 0)
    return y


def test_rounds_equal_topological_pass():
    problem, _ = reference.random_problem(np.random.default_rng(3), "makespan", SIZE)
    graph = _batched(problem)
    rng = np.random.default_rng(0)
    placement = jnp.asarray(np.append(rng.integers(0, 3, 10), 0).astype(np.int32))
    x, forward, backward = _read(graph, placement)
    y = jnp.asarray(rng.normal(size=(*x.shape[:2], 5)).astype(np.float32))
    order = problem.topological_order.tolist()
    for m, ops in ((forward, order), (backward, order[::-1])):
        direction = giph._Direction(rounds=10)
        params = direction.init(jax.random.key(1), y, m)
        params = jax.tree.map(lambda p: p + 0.1, params)  # biases are not zero
        result = jax.jit(direction.apply)(params, y, m)
        expected = _topological_pass(params["params"], y, m, ops)
        is_node = np.asarray(m.is_node)
        np.testing.assert_allclose(np.asarray(result)[is_node], expected[is_node], rtol=1e-3)


@pytest.mark.slow
def test_steps_move_one_class():
    problem, _ = reference.random_problem(np.random.default_rng(3), "makespan", SIZE, colocated=0.5)
    graph = _batched(problem)
    # The parameters are of another problem: they fit any number of operations and devices.
    params = giph.make(num_devices=2).init(jax.random.key(0), _diamond())
    policy = giph.make(num_devices=3, start="random")
    sample = jax.jit(policy.sample, static_argnums=3)(params, jax.random.key(1), graph, 20)
    action: giph.Action = sample.latent
    before, after = np.asarray(action.placement), np.asarray(sample.placement)
    np.testing.assert_array_equal(before[:, 1:], after[:, :-1])
    assert (after[..., :10] == after[..., inputs.find_leaders(problem, 10)]).all()
    leaders = problem.decisions.first_ops
    num_moves = 2 * len(leaders)
    moved = (before != after)[..., leaders]
    assert (moved.sum(axis=2) == (np.arange(22) > 0) * (np.arange(22) <= num_moves)).all()
    moved_op = moved[:, 1 : 1 + num_moves].argmax(axis=2)
    assert (moved_op[:, 1:] != moved_op[:, :-1]).all()
    assert len(np.unique(before[:, 0], axis=0)) > 10  # random starts
    is_move = np.asarray(action.move) >= 0
    for quantity in (sample.log_prob, sample.entropy):
        np.testing.assert_array_equal(np.asarray(quantity) != 0, is_move)


@pytest.mark.nightly
def test_learning_joins_a_chain():
    """Computing takes 6 in all, a transfer at least 100; 12 moves have to be made."""
    graph = helpers.chain(6)
    compute_s = np.tile(np.float32([1.0, 1.0]), (6, 1))
    problem = helpers.as_problem(graph, helpers.unit_costs(graph, compute_s=compute_s), "makespan")
    search = learned.Search.prepare("giph:variant=tuned,start=random,num_samples=16", problem)

    def mean_latency(progress: trainer.Progress) -> float:
        state = progress.state._replace(key=jax.random.PRNGKey(9))
        _, sample = search.method.learner.sample(state, search.policy_input.graph)
        last = np.asarray(sample.placement)[:, 12, :6]
        return float(np.mean(problem.evaluate(last)))

    reports = []
    limits = SearchLimits(600.0, 120 * 16 * 14)
    search.run(search.start(0, limits), limits, lambda report, _: reports.append(report.progress))
    assert mean_latency(reports[-1]) < 0.6 * mean_latency(reports[0])
