import jax
import jax.numpy as jnp
import numpy as np
import pytest

from placement.policies import hsdag
from tests import helpers


def _params_and_graph(policy, graph):
    return policy.init(jax.random.key(0), graph)


@pytest.mark.parametrize("decide", ["group", "operation"])
def test_the_edge_scorer_learns_at_the_scale_of_the_rest(decide):
    """The scorer's gradient must not vanish: nothing else trains the groups."""
    policy = hsdag.make(num_devices=2, hidden_size=16, threshold=0.0, decide=decide)
    graph = helpers.batched(helpers.random_dag(np.random.default_rng(0), 10))
    params = policy.init(jax.random.key(0), graph)
    drawn = policy.sample(params, jax.random.key(1), graph, 16)
    weights = jnp.linspace(-1, 1, 16)[:, None]
    gradient = jax.grad(lambda p: (weights * policy.log_prob(p, graph, drawn).log_prob).sum())(
        params
    )
    step = gradient["params"]["Scan_Step_0"]
    scorer, encoder = step["MLP_0"], step["GCN_0"]

    def norm(tree):
        return np.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(tree)))

    assert norm(scorer) > 1e-3 * norm(encoder)


def test_groups_share_a_device_when_groups_decide():
    """Without a threshold three levels join a chain of eight operations into one group."""
    policy = hsdag.make(
        num_devices=2, hidden_size=8, levels=3, threshold=0.0, decide="group"
    )
    graph = helpers.batched(helpers.chain(8))
    params = policy.init(jax.random.key(0), graph)
    placement = policy.sample(params, jax.random.key(1), graph, 32).placement[:, 0, :8]
    assert (placement == placement[:, :1]).all()
    assert set(np.unique(placement)) == {0, 1}


def test_a_search_starts_near_the_uniform_policy():
    policy = hsdag.make(num_devices=3, hidden_size=64)
    graph = helpers.batched(helpers.chain(10), 3)
    params = policy.init(jax.random.key(0), graph)
    drawn = policy.sample(params, jax.random.key(1), graph, 2)
    assert 0.95 * 10 * np.log(3) < float(drawn.entropy[0, 0]) <= 10 * np.log(3) + 1e-4
