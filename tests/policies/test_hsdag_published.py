import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from placement.errors import UserError
from placement.policies import hsdag_published
from placement.types import Params, Policy, Sample
from tests import helpers


def _start(policy: Policy, graph: jraph.GraphsTuple, num_samples: int) -> tuple[Params, Sample]:
    """Initial parameters, and samples under them."""

    @jax.jit
    def run() -> tuple[Params, Sample]:
        params = policy.init(jax.random.key(0), graph)
        return params, policy.sample(params, jax.random.key(1), graph, num_samples)

    return run()


def _norm(tree: Params) -> float:
    return float(np.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(tree))))


@pytest.mark.slow
def test_the_edge_scorer_learns_at_the_scale_of_the_rest():
    """The groups are trained by the scorer's gradient alone: it must not vanish."""
    policy = hsdag_published.make(num_devices=2, hidden_size=16, threshold=0.0)
    graph = helpers.batched(helpers.random_dag(np.random.default_rng(0), 10))
    params, drawn = _start(policy, graph, 16)

    @jax.jit
    @jax.grad
    def gradient(params: Params) -> jax.Array:
        log_prob = policy.log_prob(params, graph, drawn).log_prob
        return (jnp.linspace(-1, 1, 16)[:, None] * log_prob).sum()

    step = gradient(params)["params"]["Scan_Step_0"]
    assert _norm(step["MLP_0"]) > 1e-3 * _norm(step["GCN_0"])


@pytest.mark.slow
@pytest.mark.parametrize("restricted", [False, True])
def test_a_group_shares_a_device_that_can_run_all_its_members(restricted):
    """Without a threshold three levels join a chain of eight operations into one group."""
    policy = hsdag_published.make(num_devices=2, hidden_size=8, levels=3, threshold=0.0)
    allowed = np.ones((8, 2), bool)
    allowed[5, 1] = not restricted
    _, drawn = _start(policy, helpers.batched(helpers.chain(8), allowed=allowed), 32)
    placement = drawn.placement[:, 0, :8]
    assert (placement == placement[:, :1]).all()
    assert set(np.unique(placement)) == ({0} if restricted else {0, 1})


@pytest.mark.slow
def test_a_search_starts_near_the_uniform_policy():
    policy = hsdag_published.make(num_devices=3, hidden_size=64, levels=0)
    _, drawn = _start(policy, helpers.batched(helpers.chain(10), 3), 2)
    assert 0.95 * 10 * np.log(3) < float(drawn.entropy[0, 0]) <= 10 * np.log(3) + 1e-4


def test_more_levels_than_there_can_be_are_refused():
    with pytest.raises(UserError, match="give at most 64"):
        hsdag_published.make(num_devices=2, levels=65)
