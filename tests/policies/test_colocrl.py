import functools

import jax
import numpy as np
import pytest

from placement.learning import base, reinforce, trainer
from placement.methods import learned
from placement.policies import colocrl
from placement.types import LogProb, Params, Sample
from tests import helpers

POLICY = colocrl.make(num_devices=2, hidden_size=8)
GRAPH = helpers.batched(helpers.diamond())
EVERY = helpers.all_placements(4, 2)


@functools.cache
def _params() -> Params:
    """Far enough from the initial ones that what was chosen before matters."""
    rng = np.random.default_rng(0)
    params = base.initial_params(POLICY.init, jax.random.key(0), GRAPH)
    return jax.tree.map(lambda x: x + 0.5 * rng.normal(size=x.shape).astype(np.float32), params)


_log_prob = jax.jit(POLICY.log_prob)
_sample = jax.jit(POLICY.sample, static_argnums=3)


def _score(placements: np.ndarray, graph=GRAPH) -> LogProb:
    """Of placements of the four operations [B, 4]."""
    padded = np.pad(placements, ((0, 0), (0, 12)))[:, None]
    return _log_prob(_params(), graph, Sample(padded, np.zeros(()), np.zeros(())))


def _probability(**devices: int) -> float:
    """That the operations get these devices; op0=1, op2=0 and the like."""
    probability = np.exp(_score(EVERY).log_prob[:, 0])
    agree = [EVERY[:, int(name[2:])] == device for name, device in devices.items()]
    return float(probability[np.all(agree, axis=0)].sum())


@pytest.mark.slow
def test_a_choice_depends_on_those_before_it():
    given = [_probability(op0=d, op3=0) / _probability(op0=d) for d in (0, 1)]
    assert abs(given[0] - given[1]) > 0.01


@pytest.mark.slow
def test_an_operation_that_follows_another_is_not_in_the_sequence():
    graph = jax.tree.map(np.copy, GRAPH)
    graph.nodes["mask"][1] = False
    graph.nodes["allowed"][1] = [False, True]
    scored = _score(EVERY, graph)
    assert (scored.log_prob[EVERY[:, 1] == 0] == scored.log_prob[EVERY[:, 1] == 1]).all()
    deciding = scored.log_prob[EVERY[:, 1] == 0, 0]
    assert np.exp(deciding).sum() == pytest.approx(1.0, abs=1e-5)
    drawn = _sample(_params(), jax.random.key(0), graph, 64)
    assert (drawn.placement[..., 1] == 1).all()  # the first device that it is allowed on
    assert (drawn.entropy <= 3 * np.log(2) + 1e-5).all()


def test_the_paper_variant_has_the_constants_of_the_planners_released_code():
    """Except the number of samples, K in the paper, and the learning rate; docstrings say why."""
    assert learned.hyper_parameters("colocrl:variant=paper") == {
        "hidden_size": 512,
        "aligned": False,
        "stay": 0.0,
        "features": "op_type+degrees+fractal+positional+output_shape",
        "algorithm": "reinforce",
        "num_samples": 16,
        "learning_rate": 1e-3,
        "learning_rate_decay": 0.95,
        "reward": "sqrt",
        "baseline": "moving_average",
        "failed": "constant",
        "discount": 0.95,
        "returns": "to_go",
        "entropy_weight": 0.0,
        "entropy_decay_updates": 0,
        "max_grad_norm": 1.0,
    }


@pytest.mark.slow
def test_a_search_starts_near_the_uniform_policy():
    policy = colocrl.make(num_devices=3, hidden_size=64)
    graph = helpers.batched(helpers.chain(10), 3)
    params = base.initial_params(policy.init, jax.random.key(0), graph)
    sample = jax.jit(policy.sample, static_argnums=3)
    entropy = sample(params, jax.random.key(1), graph, 1).entropy[0, 0]
    assert 0.95 * 10 * np.log(3) < float(entropy) <= 10 * np.log(3) + 1e-4


@pytest.mark.slow
def test_it_learns_the_best_placement_of_the_diamond():
    """Which is better than a single device, as most of what is drawn at first is not."""
    costs = helpers.random_costs(np.random.default_rng(3), helpers.diamond(), 2)
    evaluate = helpers.as_problem(helpers.diamond(), costs, "serial").evaluate
    latency_s = np.asarray(evaluate(EVERY))
    settings = base.Settings(num_samples=32, learning_rate=0.02, reward="sqrt")
    learner = reinforce.make_learner(POLICY, settings)
    start = trainer.start(learner, jax.random.key(0), GRAPH, evaluate, 4, 2)
    reports = trainer.search(learner, GRAPH, evaluate, start, budget=2 + 32 * 64)
    mean_s = [report.records[-1]["mean_s"] for report in reports]
    assert latency_s.min() < 0.7 * latency_s[[0, -1]].min()
    assert mean_s[0] > 1.2 * latency_s.min()
    assert np.mean(mean_s[-8:]) < 1.05 * latency_s.min()
