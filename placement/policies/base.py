"""Recipes: a policy's factory, its variants, and its reader."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from placement.policies.inputs import PolicyInput
from placement.types import Policy

# The learner of the 'tuned' variants of the recurrent policies.
PPO = {"algorithm": "ppo", "entropy_weight": 0.2}


class Variant(NamedTuple):
    """Hyper-parameters that differ from the defaults of `make`, `read` and the learner."""

    policy: Mapping[str, Any]  # keywords of `make` and `read`
    learner: Mapping[str, Any]  # 'algorithm', and keywords of it and of `learning.base.Settings`
    # Whether a placement on a single device counts as 1e10 seconds, as in HSDAG's released code.
    single_devices_fail: bool = False
    # The variant without the faults of its authors' code, which `faults=0` selects.
    corrected: "Variant | None" = None


class Recipe(NamedTuple):
    """A learned method: the factory of its policy, its variants, and its reader.

    `make(*, num_devices, ...) -> Policy`: the other keywords are hyper-parameters of the method,
    and so are those of `read` that have a default.
    `variants`: by name; the first one is the default. Of a published method that is 'paper': the
    sizes, the reward and the update of its authors, except for the departures that the policy's
    module lists. 'released' is the program of the authors where it differs from their text, and
    'tuned' is our change of the method, for networks that a CPU can train in seconds.
    `read(problem) -> PolicyInput`: if it has a keyword `features`, it takes names of
    `placement.graphs.features.BLOCKS`.
    `zero_shot`: whether a trained policy places other graphs, all operations in one step.
    """

    make: Callable[..., Policy]
    variants: Mapping[str, Variant]
    read: Callable[..., PolicyInput]
    zero_shot: bool = False
