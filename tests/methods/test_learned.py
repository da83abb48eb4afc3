"""Learned methods by their names: hyper-parameters, and what their policies read."""

import jax
import numpy as np
import pytest

from experiments import build
from placement.methods import learned
from placement.errors import UserError
from placement.graphs import coarsen
from placement.learning import base
from placement.policies import placeto
from placement.types import Problem
from tests import helpers

NAMED = [(name, variant) for name in learned.RECIPES for variant in learned.RECIPES[name].variants]


def _problem(colocated: float = 0.0) -> Problem:
    rng = np.random.default_rng(0)
    graph = helpers.random_dag(rng, 20, colocated=colocated)
    return helpers.as_problem(graph, helpers.random_costs(rng, graph, 3), "makespan")


@pytest.mark.parametrize(("name", "variant"), NAMED)
def test_every_variant_decides_for_every_operation(name, variant):
    """Abstractly: nothing is compiled."""
    problem = _problem()
    method = learned.make(f"{name}:variant={variant}", 3, False)
    graph, assignment = method.read(problem)

    def drawn():
        params = method.policy.init(jax.random.key(0), graph)
        return method.policy.sample(params, jax.random.key(1), graph, 2)

    num_nodes = jax.eval_shape(drawn).placement.shape[-1]
    assert num_nodes > (problem.graph.num_ops - 1 if assignment is None else assignment.max())
    assert method.released == (variant == "released")


def test_of_many_operations_policies_look_at_groups_that_the_same_devices_run(monkeypatch):
    monkeypatch.setattr(learned, "LARGEST", 19)
    monkeypatch.setattr(learned, "GROUPS", 4)
    problem = _problem()
    compute_s = np.array(problem.costs.compute_s)
    compute_s[::3, 1] = np.inf
    problem = problem._replace(costs=problem.costs._replace(compute_s=compute_s))
    graph, assignment = learned.make("hsdag", 3, False).read(problem)
    num_groups = int(graph.nodes["mask"].sum())
    assert assignment.shape == (20,)
    assert sorted(set(assignment.tolist())) == list(range(num_groups))
    assert num_groups < 20
    allowed = np.asarray(graph.nodes["allowed"])[assignment]
    np.testing.assert_array_equal(allowed, np.isfinite(compute_s))
    # Co-located operations are never in different groups: such problems are read whole.
    graph, _ = learned.make("hsdag", 3, False).read(_problem(colocated=0.5))
    assert len(graph.nodes["mask"]) > 20


def test_the_same_method_is_made_once():
    again = learned.make("hsdag:num_samples=4", 3, False)
    assert learned.make("hsdag:num_samples=4", 3, False) is again
    assert learned.make("hsdag:num_samples=4", 2, False) is not again


def test_arguments_reach_the_policy_and_the_learner(monkeypatch):
    made = {}

    def make(**given):
        made["policy"] = given
        return helpers.independent_policy()

    def learner(policy, settings, **own):
        made["settings"], made["own"] = settings, own

    recipe = learned.RECIPES["hsdag"]._replace(make=make)
    monkeypatch.setattr(
        learned, "_defaults", lambda f: {"levels": 1} if f is make else {"clip": 0.2}
    )
    monkeypatch.setitem(learned.RECIPES, "hsdag", recipe)
    monkeypatch.setitem(learned._ALGORITHMS, "ppo", learner)
    learned.make.__wrapped__("hsdag:levels=0,clip=0.3,reward=sqrt,max_grad_norm=inf", 5, True)
    assert made["policy"]["levels"] == 0
    assert made["policy"]["num_devices"] == 5
    assert made["own"] == {"clip": 0.3}
    assert made["settings"] == base.Settings(
        num_samples=8, reward="sqrt", max_grad_norm=np.inf, entropy_weight=0.2
    )


def test_features_are_left_out_by_name():
    problem = _problem()
    every = learned.make("hsdag", 3, False).read(problem).graph.nodes["features"]
    two = learned.make("hsdag:features=degrees+fractal", 3, False).read(problem).graph
    assert two.nodes["features"].shape[1] == 3 < every.shape[1]


def test_colocrl_places_groups():
    problem = _problem()
    graph, assignment = learned.make("colocrl", 3, False).read(problem)
    expected = coarsen.sole_consumers(problem.graph).assignment
    np.testing.assert_array_equal(assignment, expected)
    assert graph.nodes["mask"].sum() == expected.max() + 1 < problem.graph.num_ops


@pytest.mark.parametrize("name", learned.RECIPES)
def test_of_co_located_operations_the_first_decides(name):
    problem = _problem(colocated=0.5)
    graph, assignment = learned.make(name, 3, False).read(problem)
    leaders = np.unique(assignment)
    np.testing.assert_array_equal(np.flatnonzero(graph.nodes["mask"]), leaders)
    assert len(leaders) < problem.graph.num_ops
    allowed = np.asarray(graph.nodes["allowed"])[: problem.graph.num_ops]
    np.testing.assert_array_equal(allowed, build.allowed(problem))


def test_placeto_reads_costs_and_is_padded_by_one_node():
    problem = _problem()
    graph, assignment = learned.make("placeto", 3, False).read(problem)
    assert isinstance(graph.globals, placeto.Tables)
    assert len(graph.nodes["mask"]) == problem.graph.num_ops + 1
    assert assignment is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alexrl", "unknown method 'alexrl'; valid: hsdag, hierarchical, colocrl, placeto"),
        ("colocrl:variant=released", "unknown variant 'released'; valid: tuned, paper"),
        ("hsdag:algorithm=sgd", "unknown algorithm 'sgd'; valid: reinforce, ppo"),
        ("placeto:features=degrees", "unknown argument 'features'"),
        ("hsdag:features=degrees+colour", "unknown feature 'colour'"),
        ("hsdag:reward=speed", "unknown reward 'speed'"),
        ("hierarchical:grouping=some", "unknown grouping 'some'"),
        ("hsdag:algorithm=reinforce,num_samples=1", "leave_one_out baseline needs at least 2"),
    ],
)
def test_mistakes_are_answered_in_one_line(text, said):
    with pytest.raises(UserError, match=said) as error:
        learned.make(text, 3, False)
    assert "\n" not in str(error.value)
