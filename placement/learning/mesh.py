"""Data parallelism: K JAX devices share B samples, each with B / K of them.

The mesh has one axis, the samples; parameters and graph are on every device. With one device, or if
K does not divide B, there is no mesh, and the functions here add nothing to a program.

The programs after the draw are mapped over the devices (`shard_map`): a device runs them on its own
samples, and the gradient is summed over the devices once, at the end. If the compiler partitioned
them, loops over the steps of an LSTM would sum gradients at every step, and the simulator's loops
would ask all devices whether to continue. The compiler does partition the draw (`shard_policy`),
because its random numbers must be those of all B samples whatever K is: the generator is
partitionable, and each device makes its part of them. No loop over operations then waits for
another device, except in Placeto's draw. Its network merges operations and samples into one axis,
which is gathered at every step.
"""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jraph
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from placement.errors import UserError
from placement.types import Array, LogProb, Params, Policy, Sample

_AXIS = "samples"


def sample_mesh(num_samples: int) -> Mesh | None:
    """Makes a mesh of all hosts' JAX devices; None if they cannot share the samples equally."""
    devices = jax.devices()
    if len(devices) == 1 or num_samples % len(devices):
        return None
    return Mesh(np.array(devices), _AXIS, axis_types=(AxisType.Auto,))


def check_num_samples(num_samples: int, num_minibatches: int = 1) -> None:
    """Refuses a number of samples that the JAX devices cannot share equally.

    Fewer samples than devices are allowed: every device then makes all of them.

    Args:
      num_samples: of one graph.
      num_minibatches: number of parts that an update cuts them into; the devices share each part.

    Raises:
      UserError: with valid numbers of samples nearby.
    """
    num_devices = len(jax.devices())
    divisor = num_devices * num_minibatches
    if num_devices == 1 or num_samples < num_devices or num_samples % divisor == 0:
        return
    lower = num_samples - num_samples % divisor
    minibatches = f" in num_minibatches={num_minibatches}" if num_minibatches > 1 else ""
    raise UserError(
        f"num_samples={num_samples}{minibatches} cannot be shared equally by {num_devices} JAX "
        "devices; give " + " or ".join(f"num_samples={n}" for n in (lower, lower + divisor) if n)
    )


def shard_policy(policy: Policy) -> Policy:
    """Makes the policy whose samples the devices of the mesh share."""

    def log_prob(params: Params, graph: jraph.GraphsTuple, samples: Sample) -> LogProb:
        def device_log_prob(inputs: tuple[Params, jraph.GraphsTuple], samples: Sample) -> LogProb:
            return policy.log_prob(*inputs, samples)

        return shard_map(device_log_prob, (params, graph), samples)

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        return _shard(policy.sample(params, key, graph, num_samples), num_samples)

    def improve(
        params: Params,
        key: chex.PRNGKey,
        graph: jraph.GraphsTuple,
        placements: Array | None,
        num_samples: int,
    ) -> Sample:
        assert policy.improve is not None
        return _shard(policy.improve(params, key, graph, placements, num_samples), num_samples)

    def propose(
        params: Params,
        key: chex.PRNGKey,
        graph: jraph.GraphsTuple,
        placement: Array,
        num_samples: int,
    ) -> Sample:
        assert policy.propose is not None
        return _shard(policy.propose(params, key, graph, placement, num_samples), num_samples)

    return policy._replace(
        sample=sample,
        log_prob=log_prob,
        improve=policy.improve and improve,
        propose=policy.propose and propose,
    )


def shard_map(function: Callable[[Any, Any], Any], replicated: Any, samples: Any) -> Any:
    """Calls `function(replicated, samples)`, on each device with its part of the samples.

    Args:
      function: treats samples independently; its results have the leading axis B, too.
      replicated: a pytree that every device has, such as parameters, graphs and tables.
      samples: a pytree whose leaves have the leading axis B.
    """
    mesh = sample_mesh(len(jax.tree.leaves(samples)[0]))
    if mesh is None:
        return function(replicated, samples)
    # The check would take the constants that loops start with to be equal on all devices for good.
    mapped = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec(_AXIS)),
        out_specs=PartitionSpec(_AXIS),
        check_vma=False,
    )
    return mapped(replicated, samples)


def replicate(samples: Any) -> Any:
    """Copies shared samples to every device, for comparisons between a few numbers of each."""
    mesh = sample_mesh(len(jax.tree.leaves(samples)[0]))
    if mesh is None:
        return samples
    return jax.lax.with_sharding_constraint(samples, NamedSharding(mesh, PartitionSpec()))


def replicate_to_mesh(tree: Any, num_samples: int) -> Any:
    """Puts a pytree on every device of the mesh for `num_samples` samples, if there is a mesh.

    A program is compiled for the devices of its arguments. With the arguments there from the first
    call it is compiled once.
    """
    mesh = sample_mesh(num_samples)
    if mesh is None:
        return tree
    return jax.jit(lambda leaves: leaves, out_shardings=NamedSharding(mesh, PartitionSpec()))(tree)


def fetch(tree: Any) -> Any:
    """Returns complete NumPy arrays of a pytree on every host; all hosts must call it.

    A host cannot read the devices of other hosts, so that shared samples are gathered first.
    """

    def fetch_leaf(leaf: Any) -> Any:
        is_local = not isinstance(leaf, jax.Array) or leaf.is_fully_addressable
        if is_local or leaf.is_fully_replicated:
            return jax.device_get(leaf)
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))

    return jax.tree.map(fetch_leaf, tree)


def _shard(samples: Any, num_samples: int) -> Any:
    mesh = sample_mesh(num_samples)
    if mesh is None:
        return samples
    return jax.lax.with_sharding_constraint(samples, NamedSharding(mesh, PartitionSpec(_AXIS)))
