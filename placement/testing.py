"""The rules that every policy must follow, checked on small random problems.

    check_policy(my_policy.make(num_devices=2))

A policy that breaks a rule trains on wrong gradients, or fails on the first graph that is padded,
co-located or only partly supported by a device.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jraph
import numpy as np

from placement.graphs import opgraph
from placement.learning.base import initial_params
from placement.policies import inputs
from placement.problem import Problem
from placement.types import CostModel, LogProb, Params, Policy, Sample

_NUM_SAMPLES, _NUM_DRAWS = 64, 32
_SIZE, _WIDE_SIZE = (16, 32), (23, 45)  # padded nodes and edges


def check_policy(
    policy: Policy,
    read: Callable[..., inputs.PolicyInput] = inputs.read_operations,
    *,
    num_devices: int = 2,
) -> list[str]:
    """Checks a policy; compiles it for one size, and its `sample` for another one.

    Args:
      policy: made for `num_devices` devices.
      read: `read(problem, num_nodes=..., num_edges=...)`, the policy's reader.
      num_devices: D.

    Returns:
      The names of the parameters that no gradient reaches.

    Raises:
      AssertionError: the policy breaks a rule, which the message names.
    """
    problems = {
        "plain": make_problem(7, num_devices),
        "partly supported": make_problem(7, num_devices, unsupported=0.6),
        "one operation": make_problem(1, num_devices),
        "full": make_problem(_SIZE[0] - 1, num_devices),
        "co-located": make_problem(8, num_devices, colocated=True),
    }
    graph = _read(read, problems["plain"], _SIZE).graph
    params = initial_params(policy.init, jax.random.key(0), graph)
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(1)
    # Far enough from the initial parameters that devices are not equally likely.
    leaves = [leaf + 0.2 * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    params = jax.tree.unflatten(tree, leaves)

    sample: Any = jax.jit(policy.sample, static_argnums=3)

    def draw(graph: jraph.GraphsTuple, seed: int) -> Sample:
        drawn: Sample = jax.device_get(sample(params, jax.random.key(seed), graph, _NUM_SAMPLES))
        return drawn

    def loss(params: Params, graph: jraph.GraphsTuple, drawn: Sample) -> tuple[Any, LogProb]:
        again = policy.log_prob(params, graph, drawn)
        weight = jnp.linspace(-1, 1, _NUM_SAMPLES)[:, None]
        terms = [x for x in jax.tree.leaves(again) if jnp.issubdtype(x.dtype, jnp.floating)]
        return sum((weight * x).mean() for x in terms), again

    score: Any = jax.jit(jax.grad(loss, has_aux=True))

    for name, problem in problems.items():
        if name == "co-located":  # of which T may depend on the number of operations that decide
            num_compiled = sample._cache_size(), score._cache_size()
            assert num_compiled == (1, 1), "graphs of one padded size must share a compilation"
        given = _read(read, problem, _SIZE)
        drawn = draw(given.graph, 2)
        gradient, again = jax.device_get(score(params, given.graph, drawn))
        _check_shapes(drawn, again, num_devices)
        rule = f"`log_prob` must equal the result of `sample` ({name} problem)"
        _assert_close(rule, (again.log_prob, again.entropy), (drawn.log_prob, drawn.entropy))
        _check_devices(name, problem, given, drawn)
        finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
        assert finite, f"gradients must be finite ({name} problem)"
        if name == "plain":
            paths = jax.tree_util.tree_leaves_with_path(gradient)
            unreached = [jax.tree_util.keystr(path) for path, leaf in paths if not np.any(leaf)]
            assert len(unreached) < len(leaves), "no parameter has a gradient"

    tight, same, other = draw(graph, 2), draw(graph, 2), draw(graph, 3)
    assert (tight.placement == same.placement).all(), "the same key must draw the same samples"
    assert (tight.placement != other.placement).any(), "another key must draw other samples"
    # A latent of whole numbers is part of the outcome. With other latents the log-probability may
    # be one given the latent.
    latents = jax.tree.leaves(tight.latent)
    is_discrete = all(np.issubdtype(leaf.dtype, np.integer) for leaf in latents)
    for name in ["plain"] * is_discrete + ["co-located"] * (not latents):
        given = _read(read, problems[name], _SIZE).graph
        draws = [draw(given, 10 + k) for k in range(_NUM_DRAWS)]
        _check_frequencies(np.flatnonzero(given.nodes["mask"]), draws)

    wide = draw(_read(read, problems["plain"], _WIDE_SIZE).graph, 2)
    # Where T grows with the padding, the steps of padding are last and decide nothing.
    steps, num_ops = tight.log_prob.shape[1], problems["plain"].graph.num_ops
    rule = "padding must not change samples and their log-probabilities"
    _assert_close(rule, wide.placement[:, :steps, :num_ops], tight.placement[..., :num_ops])
    _assert_close(rule, wide.log_prob[:, :steps], tight.log_prob)
    _assert_close(rule, wide.log_prob[:, steps:], np.zeros_like(wide.log_prob[:, steps:]))
    return unreached


def make_problem(
    num_ops: int, num_devices: int, *, unsupported: float = 0.0, colocated: bool = False
) -> Problem:
    """Makes a small random problem, always the same one for equal arguments.

    Args:
      num_ops: N.
      num_devices: D.
      unsupported: the probability that a device other than the first cannot run an operation.
      colocated: whether operations 0 and 1, 2 and 3 and so on must share a device.
    """
    rng = np.random.default_rng(0)
    senders, receivers = np.nonzero(np.triu(rng.random((num_ops, num_ops)) < 0.2, 1))
    graph = opgraph.make_graph(
        name="random",
        op_names=tuple(f"op{i}" for i in range(num_ops)),
        op_types=tuple(rng.choice(["MatMul", "Convolution", "Add"], num_ops).tolist()),
        senders=senders,
        receivers=receivers,
        edge_bytes=rng.integers(1, 100, num_ops)[senders],
    )
    if colocated:
        graph = dataclasses.replace(graph, colocation=np.arange(num_ops, dtype=np.int32) // 2)
    compute_s = rng.uniform(1, 3, (num_ops, num_devices)).astype(np.float32)
    compute_s[:, 1:][rng.random((num_ops, num_devices - 1)) < unsupported] = np.inf
    apart = 1 - np.eye(num_devices, dtype=np.float32)
    costs = CostModel(
        compute_s=compute_s,
        transfer_latency_s=0.2 * apart,
        transfer_s_per_byte=0.01 * apart,
        transfer_fixed_s=np.zeros(len(senders), np.float32),
        fusion_loss_s=np.zeros(len(senders), np.float32),
        memory_bytes=np.ones(num_ops, np.float32),
        capacity_bytes=np.full(num_devices, np.inf, np.float32),
        accelerator=np.arange(num_devices, dtype=np.int32),
    )
    return Problem(graph, costs, "makespan", tuple(f"device{i}" for i in range(num_devices)))


def _read(
    read: Callable[..., inputs.PolicyInput], problem: Problem, size: tuple[int, int]
) -> inputs.PolicyInput:
    return read(problem, num_nodes=size[0], num_edges=size[1])


def _assert_close(rule: str, actual: Any, expected: Any) -> None:
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4, err_msg=rule)


def _check_shapes(drawn: Sample, again: LogProb, num_devices: int) -> None:
    shape = drawn.placement.shape
    assert shape[0::2] == (_NUM_SAMPLES, _SIZE[0]), f"placements must be [B, T, N], not {shape}"
    assert drawn.placement.dtype == np.int32, f"placements are {drawn.placement.dtype}, not int32"
    is_device = (drawn.placement >= 0) & (drawn.placement < num_devices)
    assert is_device.all(), f"devices must be 0 to {num_devices - 1}"
    for name, quantity in (*drawn._asdict().items(), *again._asdict().items()):
        for leaf in jax.tree.leaves(quantity):
            assert leaf.shape[:2] == shape[:2], (
                f"{name} must have leading axes [B, T]: {leaf.shape}"
            )
    for name in ("log_prob", "entropy", "choices"):
        value = getattr(again, name)
        assert value.shape == shape[:2], f"{name} must be [B, T], not {value.shape}"
        assert value.dtype == np.float32, f"{name} is {value.dtype}, not float32"
        assert np.isfinite(value).all(), f"{name} must be finite"
    assert (again.log_prob < 1e-4).all(), "log-probabilities must not be positive"
    assert (again.entropy > -1e-4).all(), "entropies must not be negative"
    assert (again.entropy[again.choices == 0] == 0).all(), "a step without a choice has entropy 0"


def _check_devices(name: str, problem: Problem, given: inputs.PolicyInput, drawn: Sample) -> None:
    """Checks the devices of all operations, of which co-located ones follow the first one."""
    devices = np.asarray(drawn.placement)[..., given.node]
    ops = np.arange(problem.graph.num_ops)
    assert problem.allowed[ops, devices].all(), f"a device cannot run its operation ({name})"
    placement = devices[..., problem.decisions.first_ops]
    together = (devices == problem.expand(placement)).all()
    assert together, "co-located operations must share a device"


def _check_frequencies(deciding: np.ndarray, draws: list[Sample]) -> None:
    """Checks that probabilities of episodes sum to one and agree with the frequencies."""

    def outcomes(draw: Sample) -> np.ndarray:
        leaves = [draw.placement, *jax.tree.leaves(draw.latent)]
        leaves = [leaf[..., deciding] if leaf.ndim > 2 else leaf for leaf in leaves]
        return np.concatenate([leaf.reshape(_NUM_SAMPLES, -1) for leaf in leaves], axis=1)

    log_prob = np.concatenate([draw.log_prob.sum(axis=1) for draw in draws])
    rows = np.concatenate([outcomes(draw) for draw in draws])
    _, first, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
    probability, num_draws = np.exp(log_prob[first]), len(rows)
    # The share of outcomes drawn once estimates the probability of those never drawn (Good 1953).
    total = probability.sum() + (counts == 1).sum() / num_draws
    assert abs(total - 1) < 0.05, f"probabilities sum to {total:.3f}, not 1"
    deviation = np.sqrt(num_draws * probability) + 1
    is_likely = (np.abs(counts - num_draws * probability) < 5 * deviation).all()
    assert is_likely, "samples are not as frequent as their probabilities say"
