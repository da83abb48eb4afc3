import functools

import jax
import numpy as np
import pytest

from placement.learning import base
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


@pytest.mark.slow
def test_followers_are_not_decided():
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
