import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from placement.learning import base
from placement.policies import inputs, placeto
from placement.problem import Problem
from tests import helpers
from tests.simulators import reference

SIZE = (10, 20, 14, 3)  # operations, edges (some parallel), tensors, devices


def _batched(problem: Problem, num_nodes: int = 16, num_edges: int = 25) -> jraph.GraphsTuple:
    """As experiments make it: of co-located operations the first decides."""
    graph, (num_ops, num_devices) = problem.graph, problem.costs.compute_s.shape
    batched = helpers.batched(graph, num_devices, num_nodes=num_nodes, num_edges=num_edges)
    batched.nodes["mask"][:num_ops] = np.isin(np.arange(num_ops), problem.decisions.first_ops)
    return helpers.with_costs(batched, problem)


def _diamond() -> jraph.GraphsTuple:
    """Computing takes 1 or 2, transfers 110 (of op0), 130 and 140: op2 is due before op1."""
    graph = helpers.diamond()
    return _batched(helpers.as_problem(graph, helpers.unit_costs(graph), "serial"))


@pytest.mark.slow
def test_diamond_features():
    """op0 ends at 1, op2 runs there from 1 to 2; op1 elsewhere from 1 + 110 to 113; op3 at 243."""
    costs = jax.device_put(_diamond().globals)
    t = costs.policy_tables
    assert t.order[:4].tolist() == [0, 2, 1, 3]
    placement = np.zeros((16, 2), np.int32)
    placement[1, 0] = 1
    start_s = jax.jit(placeto.compute_start_s)(costs, jnp.asarray(placement))
    assert start_s[:4, 0].tolist() == [0, 111, 1, 243]
    assert start_s[:4, 1].tolist() == [0, 2, 1, 3]
    seen = jax.jit(placeto.step_features)(t, jnp.asarray(placement), start_s, step=1)
    late = 243.0
    expected = [  # cost, output, current, done, device, start
        [0.5, 1.0, 10 / 40, 0, 1, 1, 0, -1 / late],
        [0.5, 1.0, 30 / 40, 0, 0, 0, 1, 110 / late],
        [0.5, 1.0, 40 / 40, 1, 0, 1, 0, 0],
        [0.5, 1.0, 0, 0, 0, 1, 0, 242 / late],
    ]
    np.testing.assert_allclose(seen[:4, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(seen[:4, 1, -1], [-1 / 3, 1 / 3, 0, 2 / 3], rtol=1e-6)
    np.testing.assert_allclose(seen[:4, 1, 5:7], [[1, 0]] * 4)


def test_diamond_relations():
    none, own, ancestor, descendant, parallel = range(5)
    relation = _diamond().globals.policy_tables.relation
    np.testing.assert_array_equal(
        relation[:4, :4],
        [
            [own, descendant, descendant, descendant],
            [ancestor, own, parallel, descendant],
            [ancestor, parallel, own, descendant],
            [ancestor, ancestor, ancestor, own],
        ],
    )
    assert (relation[4:] == none).all()
    assert (relation[:, 4:] == none).all()


def test_episodes_start_on_fastest_device():
    problem = helpers.as_problem(
        helpers.diamond(), helpers.unit_costs(helpers.diamond(), 3), "serial"
    )
    compute_s = np.ones((4, 3), np.float32)
    compute_s[:, 2] = 0.5
    compute_s[:, 1] = 0.1
    compute_s[1, 1] = np.inf  # what cannot run everything is not the fastest
    problem = problem._replace(costs=problem.costs._replace(compute_s=compute_s))
    graph = _batched(problem)
    assert placeto.initial_placement(graph)[:4].tolist() == [2, 2, 2, 2]
    graph.nodes["allowed"][:4] = [[1, 1, 1], [0, 1, 0], [1, 0, 1], [1, 1, 0]]
    assert placeto.initial_placement(graph)[:4].tolist() == [2, 1, 2, 0]


@pytest.mark.slow
def test_steps_move_visited_operations():
    problem, _ = reference.random_problem(np.random.default_rng(3), "makespan", SIZE, colocated=0.5)
    graph = _batched(problem)
    graph.nodes["mask"][:10] = True  # followers decide nothing all the same
    policy = placeto.make(num_devices=3, rounds=2)
    params = base.initial_params(policy.init, jax.random.key(0), graph)
    drawn = jax.jit(policy.sample, static_argnums=3)(params, jax.random.key(1), graph, 20)
    start = np.broadcast_to(placeto.initial_placement(graph), (20, 1, 16))
    placement = np.concatenate([start, drawn.placement], axis=1)
    moved = (np.diff(placement, axis=1) != 0).any(axis=0)
    steps = np.arange(problem.num_decisions + 6)  # of padding
    assert (moved <= (graph.globals.policy_tables.visit == steps[:, None])).all()
    np.testing.assert_array_equal(moved.any(axis=1), steps < problem.num_decisions)
    assert (placement[..., :10] == placement[..., inputs.find_leaders(problem, 10)]).all()
    np.testing.assert_array_equal(
        (np.asarray(drawn.entropy) != 0).all(axis=0), steps < problem.num_decisions
    )
