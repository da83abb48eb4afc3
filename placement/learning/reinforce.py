"""REINFORCE (Williams 1992) over any policy: one gradient step a batch.

The gradient of the loss on B episodes of T steps is

    - 1/(B T) sum_b sum_t advantage[b, t] * grad log pi(placement[b, t])  -  grad entropy bonus
"""

import jraph

from placement.learning import base
from placement.types import Array, Params, Policy


def make_learner(policy: Policy, settings: base.Settings) -> base.Learner:
    """Makes the learner of a policy.

    Raises:
      UserError: `base.make_learner` refuses the settings.
    """

    def loss(
        params: Params, graph: jraph.GraphsTuple, batch: base.Batch, num_updates: Array
    ) -> tuple[Array, base.Metrics]:
        current = policy.log_prob(params, graph, batch.samples)
        gain = (batch.advantage * current.log_prob).mean()
        value = -gain - base.entropy_bonus(settings, current, num_updates)
        return value, {"entropy": current.entropy.mean()}

    return base.make_learner(policy, settings, loss)
