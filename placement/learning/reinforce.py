"""REINFORCE (Williams 1992) over any policy: one gradient step a batch.

The gradient of the expected return is estimated on B episodes of T steps as

    - 1/(B T) sum_b sum_t advantage[b, t] * grad log pi(placement[b, t])  -  grad bonus
"""

import jraph

from placement.learning import base
from placement.types import Array, Params, Policy


def make(policy: Policy, settings: base.Settings) -> base.Learner:
    """Makes the learner of a policy.

    Raises:
      UserError: settings that `base.make` refuses.
    """

    def loss(
        params: Params, graph: jraph.GraphsTuple, batch: base.Batch
    ) -> tuple[Array, base.Metrics]:
        now = policy.log_prob(params, graph, batch.drawn)
        value = -(batch.advantage * now.log_prob).mean() - base.bonus(settings, now)
        return value, {"entropy": now.entropy.mean()}

    return base.make(policy, settings, loss)
