"""The learned methods: a policy and a learner, each hyper-parameter an argument of the name.

`hsdag` alone is this project's default; `hsdag:variant=paper` is the authors' method, and
`hierarchical:grouping=random,num_samples=16` changes single hyper-parameters. What they mean stands
at the policy's `make`, at `learning.base.Settings` and at `learning.ppo.make`. `features` are
blocks of `graphs.features` joined by '+': some left out are an ablation.
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
from placement.costs import tables
from placement.errors import UserError
from placement.graphs import batching, coarsen, features, intervals, opgraph
from placement.learning import base, mesh, ppo, reinforce
from placement.policies import colocrl, hierarchical, hsdag, placeto, scheduler, scheduler_tables
from placement.simulators import makespan
from placement.types import Array, Evaluate, Params, Policy, Problem

FEATURES = ("op_type", "degrees", "fractal", "positional", "output_shape")
RELEASED_SINGLE_DEVICE_S = 1e10
PRETRAINED = "policy.msgpack"
# What `--task=pretrain --config=pretrain` makes.
SHIPPED = Path(configs.__file__).parent / "pretrained" / PRETRAINED
LARGEST = 16_000  # operations that a policy looks at one by one; of more, at groups
GROUPS = 64  # these, at most: as many as a search of a minute learns to place
_GIVE = f"give --config.init_from the {PRETRAINED} of a"
_ALGORITHMS: dict[str, Callable[..., base.Learner]] = {
    "reinforce": reinforce.make,
    "ppo": ppo.make,
}
_Values = dict[str, Any]
# Whole numbers that may be 0; the other hyper-parameters that are whole numbers are at least 1.
_LEAST = {"levels": 0}


class PolicyInput(NamedTuple):
    """A problem as a policy reads it."""

    graph: jraph.GraphsTuple  # padded
    # int32 [N], the node that places each of the problem's operations; None: that of its number.
    assignment: np.ndarray | None


class Recipe(NamedTuple):
    """A policy, what it reads, and how it is trained.

    The variants are departures of the policy's and of the learner's hyper-parameters from the
    defaults where these are defined.
    """

    make: Callable[..., Policy]
    variants: dict[str, tuple[_Values, _Values]]
    read: Callable[..., PolicyInput]


class Method(NamedTuple):
    """A learned method with its hyper-parameters, for some number of devices."""

    policy: Policy
    learner: base.Learner
    read: Callable[[Problem], PolicyInput]
    # As in HSDAG's released code: single devices count as 1e10 seconds and are no incumbents.
    released: bool


def operations(problem: Problem, blocks: tuple[str, ...]) -> PolicyInput:
    """A node for every operation; of co-located ones only the first decides.

    Of more than `LARGEST` operations a node for each of some groups, see `graphs.intervals`.
    """
    if problem.graph.num_ops > LARGEST and _assignment(problem) is None:
        return _merged(problem, _intervals(problem), blocks)
    graph = _graph(problem, _features(problem, blocks))
    return PolicyInput(graph, _assignment(problem))


def groups(problem: Problem, blocks: tuple[str, ...]) -> PolicyInput:
    """A node for every group of ColocRL's heuristic, see `coarsen.sole_consumers`.

    Where operations are co-located from the start, these are its groups, and nothing is merged.
    """
    if _assignment(problem) is not None:
        return operations(problem, blocks)
    return _merged(problem, coarsen.sole_consumers(problem.graph), blocks)


def placeto_input(problem: Problem) -> PolicyInput:
    """A node for every operation with Placeto's tables, and one of padding.

    Not a whole bucket: a step for each node of padding would be evaluated and change nothing.
    """
    num_nodes = problem.graph.num_ops + 1
    graph = _graph(problem, np.zeros((problem.graph.num_ops, 0)), num_nodes)
    read = placeto.tables(problem, num_nodes, len(graph.senders))
    return PolicyInput(graph._replace(globals=jax.device_put(read)), _assignment(problem))


def scheduler_input(problem: Problem, size: tuple[int, int] | None = None) -> PolicyInput:
    """A node for every operation, with the scheduler's tables.

    `size` is the padded number of nodes and of edges, by default those of the bucket.
    """
    nothing = np.zeros((problem.graph.num_ops, 0))
    num_nodes, num_edges = size or (None, None)
    graph = _graph(problem, nothing, num_nodes, num_edges)
    read = scheduler_tables.tables(problem, len(graph.nodes["mask"]), len(graph.senders))
    return PolicyInput(graph._replace(globals=jax.device_put(read)), _assignment(problem))


def _merged(problem: Problem, of: coarsen.Coarsening, blocks: tuple[str, ...]) -> PolicyInput:
    costs = tables.coarse_costs(problem.costs, of.assignment, of.edges)
    merged = problem._replace(graph=of.graph, costs=costs)
    return PolicyInput(_graph(merged, _features(merged, blocks)), of.assignment)


def _intervals(problem: Problem) -> coarsen.Coarsening:
    """Groups that take about as long as each other, of operations that the same devices run."""
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    weight = makespan.finite_mean(compute_s)
    kinds = np.unique(np.isfinite(compute_s), axis=0, return_inverse=True)[1]
    return intervals.group(problem.graph, weight + weight.mean(), kinds.ravel(), GROUPS)


def _features(problem: Problem, blocks: tuple[str, ...]) -> np.ndarray:
    return features.node_features(problem.graph, **{name: name in blocks for name in FEATURES})


def _assignment(problem: Problem) -> np.ndarray | None:
    """Operations follow the first of their class; None where each is alone in its own."""
    first = opgraph.representatives(problem.graph)
    return None if (first == np.arange(len(first))).all() else first


def _graph(
    problem: Problem,
    node_features: np.ndarray,
    num_nodes: int | None = None,
    num_edges: int | None = None,
) -> jraph.GraphsTuple:
    graph = batching.to_graphs_tuple(
        problem.graph,
        node_features,
        build.allowed(problem),
        num_nodes=num_nodes,
        num_edges=num_edges,
    )
    num_ops = problem.graph.num_ops
    decides = opgraph.representatives(problem.graph) == np.arange(num_ops)
    graph.nodes["mask"][:num_ops] = decides
    return jax.device_put(graph)


# 'tuned' is what measures best here, and the default: PPO, which `python -m experiments.benchmarks
# learning` prints beside REINFORCE; networks that a CPU trains in seconds. 'paper' has the sizes,
# the reward and the update of the authors.
#
# HSDAG's 'paper' and 'released' have episodes of 20 steps, discount 0.95, reward 1/latency and Adam
# at 1e-3, and place groups; 'released' keeps what the authors' update does otherwise: one rollout,
# no baseline, no clipping, and single-device placements that take 1e10 seconds. 'tuned' decides in
# one step, from many samples, for every operation, which sees its own embedding and its group's.
#
# The Hierarchical Planner's 'paper': 256 groups, LSTMs of 512 and Adam with decay, the authors'
# published constants (tensorflow/python/grappler/hierarchical_controller.py) but for the learning
# rate, which is 1e-3: on inception_v3 the Planner at their 0.1 and ColocRL at 0.01 saturated within
# a dozen updates, on placements worse than those they began with. The paper leaves ColocRL's open;
# they are taken to be the same. In 'tuned' groups start as slices.
#
# Placeto's 'paper': one episode an update, and a moving average for every step. 'tuned' has two
# episodes, each the other's baseline: every step costs an evaluation, so a batch is expensive.
_EPISODE = {"levels": 8, "threshold": 0.5, "decide": "group", "episode_steps": 20}
_INVERSE = {
    "algorithm": "reinforce",
    "reward": "inverse",
    "entropy_weight": 0.0,
}
_TUNED = {"algorithm": "ppo", "entropy_weight": 0.2}
_MIRHOSEINI = {
    "algorithm": "reinforce",
    "num_samples": 16,
    "learning_rate_decay": 0.95,
    "reward": "sqrt",
    "baseline": "moving_average",
    "failed": "constant",
    "entropy_weight": 0.0,
}
_IMPROVEMENT = {
    "algorithm": "reinforce",
    "reward": "improvement",
    "discount": 0.99,
    "entropy_weight": 0.01,
}
_BEST_OF_MANY = {
    "algorithm": "reinforce",
    "num_samples": 32,
    "baseline": "risk_seeking",
    "discount": 0.0,
    "entropy_weight": 0.0,
}
_SMALL_LSTM = {"hidden_size": 64}
_LSTM = {"hidden_size": 512, "tanh_constant": 1.0, "aligned": False}
RECIPES: dict[str, Recipe] = {
    "hsdag": Recipe(
        hsdag.make,
        {
            "tuned": ({"levels": 1, "threshold": 0.5, "decide": "operation"}, _TUNED),
            "paper": (_EPISODE, _INVERSE | {"num_samples": 8}),
            "released": (
                _EPISODE,
                _INVERSE | {"num_samples": 1, "baseline": "none", "max_grad_norm": float("inf")},
            ),
        },
        operations,
    ),
    "hierarchical": Recipe(
        hierarchical.make,
        {
            "tuned": (_SMALL_LSTM | {"num_groups": 32, "slices": 4.0}, _TUNED),
            "paper": (_LSTM, _MIRHOSEINI),
        },
        operations,
    ),
    "colocrl": Recipe(
        colocrl.make,
        {"tuned": (_SMALL_LSTM, _TUNED), "paper": (_LSTM, _MIRHOSEINI)},
        groups,
    ),
    "placeto": Recipe(
        placeto.make,
        {
            "tuned": ({}, _IMPROVEMENT | {"num_samples": 2, "learning_rate": 0.03}),
            "paper": ({}, _IMPROVEMENT | {"num_samples": 1, "baseline": "moving_average"}),
        },
        placeto_input,
    ),
    "scheduler": Recipe(scheduler.make, {"tuned": ({}, _BEST_OF_MANY)}, scheduler_input),
}
# These read costs, and no features of operations.
_WITHOUT_FEATURES = (placeto_input, scheduler_input)


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
    """The method that a name and its arguments describe.

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
    arguments.check("method", name, RECIPES)
    recipe = RECIPES[name]
    variant = given.pop("variant", "tuned")
    arguments.check("variant", variant, recipe.variants)
    of_policy, of_learner = recipe.variants[variant]
    algorithm = given.pop("algorithm", of_learner["algorithm"])
    arguments.check("algorithm", algorithm, _ALGORITHMS)
    policy_defaults = _defaults(recipe.make) | of_policy
    learner_defaults = {
        **dataclasses.asdict(base.Settings()),
        **_defaults(_ALGORITHMS[algorithm]),
        **({"num_samples": 8} if measured else {}),
        **{key: value for key, value in of_learner.items() if key != "algorithm"},
    }
    shared = {"features": "+".join(FEATURES)} if recipe.read not in _WITHOUT_FEATURES else {}
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
    if shared:
        blocks = tuple(filter(None, chosen["features"].split("+")))
        for block in blocks:
            arguments.check("feature", block, FEATURES)
        read = functools.partial(read, blocks=blocks)
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
    """The method, with its arguments, whose parameters a checkpoint holds.

    Raises:
      UserError: it cannot be read: one line.
    """
    return checkpoints.read(
        Path(path), lambda content: str(content["method"]), remedy=f"{_GIVE} --task=pretrain"
    )


def load(path: str, method: str, params: Params) -> Params:
    """The parameters in a checkpoint, in the shape of a method's own.

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
    """Evaluation as in HSDAG's released code: a single-device placement takes 1e10 seconds."""

    def wrapped(placements: Array) -> Array:
        placements = np.asarray(placements)
        single = (placements == placements[:, :1]).all(axis=1)
        return np.where(
            single, np.float32(RELEASED_SINGLE_DEVICE_S), np.asarray(evaluate(placements))
        )

    return wrapped
