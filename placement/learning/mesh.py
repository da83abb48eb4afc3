"""Data parallelism: the JAX devices of this process share the B samples of a step.

K devices compute B / K samples each; parameters, graph and tables are on every device. With one
device, or if K does not divide B, the functions here add nothing to a program.

Simulators and log-probabilities are mapped over the devices (`shard_map`), so that the gradient is
summed once. If the compiler partitioned them, the simulator's loops would ask all devices at every
step whether to continue. The samples do not depend on K: the compiler partitions only their draw.
"""

from collections.abc import Callable
from typing import Any

import jax
import jraph
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from placement.types import LogProb, Params, Policy, Sample

_AXIS = "samples"


def shard_policy(policy: Policy) -> Policy:
    """Makes the policy whose log-probabilities the devices share."""

    def log_prob(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        def log_prob_part(inputs: tuple[Params, jraph.GraphsTuple], part: Sample) -> LogProb:
            return policy.log_prob(*inputs, part)

        return shard_map(log_prob_part, (params, graph), samples)

    def sample(*args: Any) -> Sample:
        samples = policy.sample(*args)
        # On several devices `log_prob` is differentiated, which they share, and not the draw.
        return samples if len(jax.local_devices()) == 1 else samples._replace(choices=None)

    return policy._replace(log_prob=log_prob, sample=sample)


def shard_map(function: Callable[[Any, Any], Any], replicated: Any, samples: Any) -> Any:
    """Calls `function(replicated, samples)`, on each device with its part of the samples.

    Args:
      function: treats samples independently; its results have the leading axis B, too.
      replicated: a pytree that every device has, such as parameters, graphs and tables.
      samples: a pytree whose leaves have the leading axis B.
    """
    devices = jax.local_devices()
    if len(devices) == 1 or len(jax.tree.leaves(samples)[0]) % len(devices):
        return function(replicated, samples)
    # The check would take the constants that loops start with to be equal on all devices for good.
    mapped = jax.shard_map(
        function,
        mesh=Mesh(np.array(devices), _AXIS, axis_types=(AxisType.Auto,)),
        in_specs=(PartitionSpec(), PartitionSpec(_AXIS)),
        out_specs=PartitionSpec(_AXIS),
        check_vma=False,
    )
    return mapped(replicated, samples)
