"""Sampling, simulation and gradients shared out over all JAX devices: each has B / K of B samples.

The mesh has one axis, the samples; parameters and graph are on every device. On one device, and
where K does not divide B, there is no mesh and the functions here add nothing to a program.

What follows from the draw is mapped over the shares (`shard_map`): a device runs it on its samples
as if there were no others, and the gradient is summed over the devices once, at the end. Left to
the compiler, loops over the steps of an LSTM would sum theirs at every step, and the simulator's
loops would ask all devices whether one goes on. The draw itself is left to the compiler
(`shard_policy`), since random numbers have to be those of all B samples, whatever K: the generator
is partitionable, and each device makes its share of them. No loop over operations then waits for
another device, but for Placeto's draw, whose network merges operations and samples into one axis:
it is gathered at every step.
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
from placement.types import Array, Improve, LogProb, Params, Policy, Sample

_AXIS = "samples"


def sample_mesh(num_samples: int) -> Mesh | None:
    """Makes a mesh of all hosts' JAX devices, if several share so many samples equally."""
    devices = jax.devices()
    if len(devices) == 1 or num_samples % len(devices):
        return None
    return Mesh(np.array(devices), _AXIS, axis_types=(AxisType.Auto,))


def check(num_samples: int, num_minibatches: int = 1) -> None:
    """Refuses samples that the JAX devices cannot share equally.

    Fewer samples than devices are let pass: every device then makes all of them.

    Args:
      num_samples: B, of one graph.
      num_minibatches: into which an update cuts them; each is shared out.

    Raises:
      UserError: one line, with numbers of samples that would do.
    """
    count = len(jax.devices())
    least = count * num_minibatches
    if count == 1 or num_samples < count or num_samples % least == 0:
        return
    below = num_samples - num_samples % least
    cut = f" in num_minibatches={num_minibatches}" if num_minibatches > 1 else ""
    raise UserError(
        f"num_samples={num_samples}{cut} cannot be shared equally by {count} JAX devices; give "
        + " or ".join(f"num_samples={n}" for n in (below, below + least) if n)
    )


def shard_policy(policy: Policy) -> Policy:
    """Shares a policy's samples out; where there is no mesh its programs are the same."""

    def log_prob(params: Params, graph: jraph.GraphsTuple, drawn: Sample) -> LogProb:
        def own(held: tuple[Params, jraph.GraphsTuple], drawn: Sample) -> LogProb:
            return policy.log_prob(*held, drawn)

        return shard_map(own, (params, graph), drawn)

    def sample(
        params: Params, key: chex.PRNGKey, graph: jraph.GraphsTuple, num_samples: int
    ) -> Sample:
        return _shard(policy.sample(params, key, graph, num_samples), num_samples)

    improve = None if policy.improve is None else _shard_improve(policy.improve)
    return policy._replace(sample=sample, log_prob=log_prob, improve=improve)


def _shard_improve(improve: Improve) -> Improve:
    def sharded(
        params: Params,
        key: chex.PRNGKey,
        graph: jraph.GraphsTuple,
        before: Array | None,
        num_samples: int,
    ) -> Sample:
        return _shard(improve(params, key, graph, before, num_samples), num_samples)

    return sharded


def shard_map(function: Callable[[Any, Any], Any], replicated: Any, samples: Any) -> Any:
    """Calls `function(replicated, samples)`, each device on its share of the samples.

    Args:
      function: of one sample at a time, in its results' leading axis B as in its arguments'.
      replicated: a pytree that every device has: parameters, graphs, tables.
      samples: a pytree whose leaves have the leading axis B.
    """
    mesh = sample_mesh(len(jax.tree.leaves(samples)[0]))
    if mesh is None:
        return function(replicated, samples)
    by_sample = PartitionSpec(_AXIS)
    # Loops begin with constants, which the check takes to be the same on all devices for ever.
    mapped = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(PartitionSpec(), by_sample),
        out_specs=by_sample,
        check_vma=False,
    )
    return mapped(replicated, samples)


def replicate(samples: Any) -> Any:
    """Puts samples that were shared out on every device, to compare a few numbers of each."""
    mesh = sample_mesh(len(jax.tree.leaves(samples)[0]))
    if mesh is None:
        return samples
    return jax.lax.with_sharding_constraint(samples, NamedSharding(mesh, PartitionSpec()))


def replicate_to_mesh(tree: Any, num_samples: int) -> Any:
    """Puts a pytree on every device of the mesh for so many samples, where there is one.

    Programs are compiled for where their arguments are: once, if these are there from the first.
    """
    mesh = sample_mesh(num_samples)
    if mesh is None:
        return tree
    return jax.jit(lambda leaves: leaves, out_shardings=NamedSharding(mesh, PartitionSpec()))(tree)


def fetch(tree: Any) -> Any:
    """Returns NumPy arrays of a pytree, whole on every host; all hosts have to ask.

    A device of another host is out of reach, so that what is shared out has to be gathered.
    """
    return jax.tree.map(_fetched, tree)


def _fetched(leaf: Any) -> Any:
    at_hand = not isinstance(leaf, jax.Array) or leaf.is_fully_addressable
    if at_hand or leaf.is_fully_replicated:
        return jax.device_get(leaf)
    return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))


def _shard(samples: Any, num_samples: int) -> Any:
    mesh = sample_mesh(num_samples)
    if mesh is None:
        return samples
    return jax.lax.with_sharding_constraint(samples, NamedSharding(mesh, PartitionSpec(_AXIS)))
