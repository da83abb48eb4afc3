"""The learned methods: a policy and a learner, each hyper-parameter an argument of the name.

`hsdag` alone is this project's default; `hsdag:variant=paper` is the authors' method, and
`hierarchical:grouping=random,num_samples=16` changes single hyper-parameters. What they mean stands
at the policy's `make`, at `learning.base.Settings` and at `learning.ppo.make`; variants stand at
the end of the policy's file. `features` are blocks of `graphs.features` joined by '+': some left
out are an ablation.
"""

import dataclasses
import functools
import inspect
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jraph
import numpy as np

import configs
from experiments import build, checkpoints
from placement import arguments
from placement.errors import UserError
from placement.learning import base, mesh, ppo, reinforce
from placement.policies import colocrl, hierarchical, hsdag, placeto, scheduler
from placement.policies.base import FEATURES, PolicyInput, Recipe
from placement.types import Array, Evaluate, Params, Policy, Problem

RELEASED_SINGLE_DEVICE_S = 1e10
PRETRAINED = "policy.msgpack"
# What `--task=pretrain --config=pretrain` makes.
SHIPPED = Path(configs.__file__).parent / "pretrained" / PRETRAINED
_GIVE = f"give --config.init_from the {PRETRAINED} of a"
RECIPES: dict[str, Recipe] = {
    "hsdag": hsdag.RECIPE,
    "hierarchical": hierarchical.RECIPE,
    "colocrl": colocrl.RECIPE,
    "placeto": placeto.RECIPE,
    "scheduler": scheduler.RECIPE,
}
_ALGORITHMS: dict[str, Callable[..., base.Learner]] = {
    "reinforce": reinforce.make,
    "ppo": ppo.make,
}
# Whole numbers that may be 0; the other hyper-parameters that are whole numbers are at least 1.
_LEAST = {"levels": 0}


class Method(NamedTuple):
    """A learned method with its hyper-parameters, for some number of devices."""

    policy: Policy
    learner: base.Learner
    read: Callable[[Problem], PolicyInput]
    # As in HSDAG's released code: single devices count as 1e10 seconds and are no incumbents.
    released: bool


def is_learned(method: str) -> bool:
    """Whether a method's name, arguments included, is that of a learned one."""
    return method.split(":")[0] in RECIPES


@functools.cache  # the same objects again compile nothing again
def make(
    method: str,
    num_devices: int,
    measured: bool,
    over: Callable[[Policy], Policy] | None = None,
) -> Method:
    """Makes the method that a name and its arguments describe.

    Args:
      method: such as 'hsdag' or 'hierarchical:num_groups=32,variant=paper'.
      num_devices: D.
      measured: whether placements are evaluated on devices, which takes seconds each: a step then
        has few samples by default.
      over: what the learner's policy is made of the method's; None: it is the same.

    Raises:
      UserError: no such method, variant, algorithm, feature or hyper-parameter, or an impossible
        value.
    """
    name, given = arguments.split(method, "method")
    build.among("method", name, tuple(RECIPES))
    recipe = RECIPES[name]
    variant = given.pop("variant", "tuned")
    build.among("variant", variant, tuple(recipe.variants))
    of_policy, of_learner = recipe.variants[variant]
    reads_features = "features" in inspect.signature(recipe.read).parameters
    algorithm = given.pop("algorithm", of_learner["algorithm"])
    build.among("algorithm", algorithm, tuple(_ALGORITHMS))
    policy_defaults = {**_defaults(recipe.make), **of_policy}
    learner_defaults = {
        **dataclasses.asdict(base.Settings()),
        **_defaults(_ALGORITHMS[algorithm]),
        **({"num_samples": 8} if measured else {}),
        **{key: value for key, value in of_learner.items() if key != "algorithm"},
    }
    shared = {"features": "+".join(FEATURES)} if reads_features else {}
    chosen = arguments.values(
        method, given, shared | policy_defaults | learner_defaults, least=_LEAST, kind="method"
    )
    policy = mesh.shard_policy(
        recipe.make(num_devices=num_devices, **{k: chosen[k] for k in policy_defaults})
    )
    own = {key: chosen[key] for key in _defaults(_ALGORITHMS[algorithm])}
    settings = {key: chosen[key] for key in learner_defaults if key not in own}
    learns = policy if over is None else over(policy)
    learner = _ALGORITHMS[algorithm](learns, base.Settings(**settings), **own)
    read = recipe.read
    if reads_features:
        blocks = tuple(filter(None, chosen["features"].split("+")))
        for block in blocks:
            build.among("feature", block, FEATURES)
        read = functools.partial(read, features=blocks)
    return Method(policy, learner, read, variant == "released")


def check_fits(method: str, learner: base.Learner, graph: jraph.GraphsTuple) -> None:
    """Refuses hyper-parameters whose arrays this machine's memory cannot hold.

    JAX does not: it ends the process. Defaults are not looked at, as that takes up to a second.

    Raises:
      UserError: in one line.
    """
    if ":" not in method:
        return
    has_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        state = jax.eval_shape(learner.init, jax.random.PRNGKey(0), graph)
        sample = jax.eval_shape(learner.sample, state, graph)[1]
        # Twice, as an update makes a state of another.
        needs_bytes: float = 2 * _bytes(state) + _bytes(sample)
    except OverflowError:  # of a size that no array has
        needs_bytes = math.inf
    if needs_bytes > has_bytes:
        raise UserError(
            f"method={method!r} needs {needs_bytes / 2**30:,.0f} GiB at least, and this machine "
            f"has {has_bytes / 2**30:,.0f}; give smaller hyper-parameters"
        )


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _defaults(make_: Callable[..., Any]) -> dict[str, arguments.Value]:
    parameters = inspect.signature(make_).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def of_checkpoint(path: str) -> str:
    """Reads the method, with its arguments, whose parameters a checkpoint holds.

    Raises:
      UserError: it cannot be read: one line.
    """
    return checkpoints.read(
        Path(path), lambda content: str(content["method"]), remedy=f"{_GIVE} --task=pretrain"
    )


def load(path: str, method: str, params: Params) -> Params:
    """Reads the parameters in a checkpoint, in the shape of a method's own.

    Args:
      path: of a file that `experiments.tasks.pretrain` wrote.
      method: with its arguments.
      params: of that method, such as its initial ones.

    Raises:
      UserError: it cannot be read, or holds another method's parameters: one line.
    """
    return checkpoints.read(
        Path(path),
        lambda content: checkpoints.restored(params, content["params"]),
        remedy=f"{_GIVE} --task=pretrain with {method!r}",
    )


def penalised(evaluate: Evaluate) -> Evaluate:
    """Evaluates as HSDAG's released code does: a single-device placement takes 1e10 seconds."""

    def wrapped(placements: Array) -> Array:
        placements = np.asarray(placements)
        single = (placements == placements[:, :1]).all(axis=1)
        return np.where(
            single, np.float32(RELEASED_SINGLE_DEVICE_S), np.asarray(evaluate(placements))
        )

    return wrapped
