"""HSDAG against values that its authors' program computed, and its other options.

`golden_hsdag.json` holds the values for three graphs: parameters by PyTorch's names, features, and
for each step of an episode the levels of the parse, the groups, their embeddings and probabilities,
given actions and their log-probability; then rewards, the loss and its gradients. They are of
hping666/HSDAG at commit 9d5caf7, in float32 and without dropout.
"""

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jraph
import numpy as np
import pytest

from placement.graphs import batching
from placement.learning import advantages
from placement.policies import graph_parsing, hsdag
from placement.policies.graph_parsing import Edges
from placement.types import Params, Sample

pytestmark = pytest.mark.slow

CASES = json.loads((Path(__file__).parent / "golden_hsdag.json").read_text())["cases"]
HIDDEN, STEPS = 8, 3
NODES, EDGES, FEATURES = 70, 80, 7  # padded, so that levels of two sizes are compiled
LEVEL_NODES, LEVEL_EDGES = 20, 30  # padded, of a level alone
LAYERS = {  # ours by theirs
    "gpn.input_trans.mlp.0": "input_layers_0",
    "gpn.input_trans.mlp.1": "input_norms_0",
    "gpn.input_trans.mlp.4": "input_layers_1",
    "gpn.input_trans.mlp.5": "input_norms_1",
    "gpn.gnn1.gnn.0": "score_convolutions_0",
    "gpn.gnn1.gnn.3": "score_convolutions_1",
    "gpn.gnn1.norm": "score_norm",
    "gpn.gnn2.gnn.0": "pool_convolution",
    "gpn.gnn2.norm": "pool_norm",
    "gpn.parsing_net.edge_net.mlp.0": "edge_layer",
    "gpn.parsing_net.edge_net.mlp.1": "edge_norm",
    "gpn.parsing_net.edge_net.mlp.4": "edge_score",
    "gpn.deepsets_pre.mlp.0": "member_layer",
    "gpn.deepsets_pre.norm": "member_norm",
    "gpn.deepsets_post.mlp.0": "group_layer",
    "gpn.deepsets_post.norm": "group_norm",
    "gpn.output_trans.mlp.0": "output_layers_0",
    "gpn.output_trans.mlp.3": "output_layers_1",
    "classifier.0": "placer_layers_0",
    "classifier.2": "placer_layers_1",
}
every_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def _to_flax(tensors: dict[str, Any]) -> Params:
    """Renames and transposes parameters or gradients by PyTorch's names."""
    params: dict[str, Any] = {}
    for name, values in tensors.items():
        array = np.array(values, np.float32)
        layer, _, kind = name.rpartition(".")
        entry = params.setdefault(LAYERS[layer.removesuffix(".lin")], {})
        if layer.endswith(".lin"):
            entry["Dense_0"] = {"kernel": array.T}
        elif kind == "bias":
            entry["bias"] = array
        else:
            entry |= {"kernel": array.T} if array.ndim == 2 else {"scale": array}
    return {"params": params}


def _graph(case: dict[str, Any]) -> jraph.GraphsTuple:
    """The case's graph, padded, on two devices."""
    ends, features = np.array(case["edges"]).T, np.array(case["features"])
    features = np.pad(features, ((0, 0), (0, FEATURES - features.shape[1])))
    allowed = np.ones((case["num_nodes"], 2), bool)
    return batching.to_graphs_tuple(*ends, features, allowed, num_nodes=NODES, num_edges=EDGES)


def _placements(case: dict[str, Any]) -> np.ndarray:
    """The placements int32 [1, STEPS, NODES] of the given actions; zero after the last step."""
    placements = np.zeros((1, STEPS, NODES), np.int32)
    for placement, step in zip(placements[0], case["steps"], strict=False):
        placement[: case["num_nodes"]] = np.array(step["actions"])[step["group_of_node"]]
    return placements


@every_case
def test_levels_match_authors_program(case):
    network = hsdag.Network(HIDDEN, len(case["features"][0]), 2)
    params, num_ops = _to_flax(case["parameters"]), case["num_nodes"]
    op_edges = _order_edges(case)
    x = np.array(case["features"], np.float32)
    for step in case["steps"]:
        y, edges = np.zeros((LEVEL_NODES, HIDDEN), np.float32), op_edges
        y[:num_ops] = network.apply(params, x, method="encode")
        op_group = np.arange(num_ops)
        theirs = np.arange(num_ops)  # their number of each of our nodes: they count otherwise
        for level in step["levels"]:
            parsed = jax.device_get(_parse_level(params, y, edges, len(theirs)))
            _check_level(level, parsed, edges, theirs)
            group = parsed.group[: len(theirs)]
            first = [np.flatnonzero(group == g)[0] for g in range(parsed.num_groups)]
            assert (len(first) < len(theirs)) == level["shrank"]
            theirs = np.array(level["group_of_node"])[theirs[first]]
            if len(group) == 1:
                break  # a single node is not pooled again
            pairs = zip(*(theirs[end[parsed.edges.mask]] for end in parsed.edges[:2]), strict=True)
            assert _sets(pairs) == _sets(zip(*level["group_adjacency"], strict=True))
            op_group, y, edges = group[op_group], parsed.features, parsed.edges
        np.testing.assert_array_equal(theirs[op_group], step["group_of_node"])
        h, logits = network.apply(params, y[: len(theirs)], method="decode")
        np.testing.assert_allclose(h, np.array(step["group_embedding"])[theirs], atol=1e-5)
        probabilities = np.array(step["probabilities"])[theirs]
        np.testing.assert_allclose(jax.nn.softmax(logits), probabilities, atol=1e-5)
        x += np.asarray(h)[op_group]


@functools.partial(jax.jit, static_argnames="pool_inside")
def _parse_level(
    params: Params, y: np.ndarray, edges: Edges, num_nodes: int, pool_inside: bool = True
) -> hsdag.ParsedLevel:
    network = hsdag.Network(HIDDEN, 5, 2)  # a level does not depend on F
    return hsdag.parse_level(
        functools.partial(network.apply, params), y, edges, num_nodes, pool_inside=pool_inside
    )


def _order_edges(case: dict[str, Any]) -> Edges:
    ends = np.zeros((2, LEVEL_EDGES), np.int32)
    ends[:, : len(case["edges"])] = np.array(case["edges"]).T
    edges = Edges(*ends, np.arange(LEVEL_EDGES) < len(case["edges"]))
    return jax.device_get(graph_parsing.order_edges(edges, jnp.arange(LEVEL_NODES)))


def _check_level(
    level: dict[str, Any], parsed: hsdag.ParsedLevel, edges: Edges, theirs: np.ndarray
) -> None:
    """Compares the embeddings, the groups, their mean scores and their numbers of edges."""
    expected = np.array(level["embedding_for_scores"])[theirs]
    np.testing.assert_allclose(parsed.embedding[: len(theirs)], expected, atol=1e-5)
    group = parsed.group[: len(theirs)]
    expected_group = np.array(level["group_of_node"])[theirs]
    pairs = set(zip(group.tolist(), expected_group.tolist(), strict=True))
    assert len(pairs) == len(set(group.tolist())) == len(set(expected_group.tolist()))
    u, v, scores = (array[edges.mask] for array in (*edges[:2], parsed.scores))
    for ours, number in pairs:
        inner = scores[(group[u] == ours) & (group[v] == ours)]
        mean = inner.mean() if inner.size else 1.0
        assert mean == pytest.approx(level["group_mean_edge_score"][number], abs=1e-5)
        assert max(1, 2 * inner.size) == level["group_edge_count"][number]


def _sets(pairs: Iterable[tuple[int, int]]) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in pairs}


@every_case
def test_gradients_match_authors_program(case):
    num_steps = len(case["steps"])
    scalar = advantages.episode_returns(np.array([case["rewards"]], np.float32), case["discount"])
    np.testing.assert_allclose(scalar[0], case["scalar"], rtol=1e-6)
    weights = np.where(np.arange(STEPS) < num_steps, case["scalar"], 0.0)
    # Padded features are zero, and so are their parameters and gradients: one compilation.
    shapes = _to_flax(CASES[2]["parameters"])
    params, expected_gradients = (
        jax.tree.map(_pad_to, _to_flax(case[name]), shapes) for name in ("parameters", "gradients")
    )
    (value, log_prob), gradients = _loss(params, _graph(case), _placements(case), weights)
    expected = [sum(step["log_prob"]) for step in case["steps"]]
    np.testing.assert_allclose(log_prob[0, :num_steps], expected, atol=1e-5)
    assert value == pytest.approx(case["loss"], abs=1e-5)
    assert jax.tree.structure(gradients) == jax.tree.structure(expected_gradients)
    compare = functools.partial(np.testing.assert_allclose, atol=1e-5)
    jax.tree.map(compare, gradients, expected_gradients)


def _pad_to(array: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.pad(array, [(0, n - m) for m, n in zip(array.shape, other.shape, strict=True)])


@jax.jit
@functools.partial(jax.value_and_grad, has_aux=True)
def _loss(
    params: Params, graph: jraph.GraphsTuple, placements: np.ndarray, weights: np.ndarray
) -> tuple[jax.Array, jax.Array]:
    samples = Sample(placements, None, None, None)
    policy = hsdag.make(
        num_devices=2, hidden_size=HIDDEN, levels=32, pooling="inside", detached=True,
        episode_steps=STEPS,
    )  # fmt: skip
    log_prob = policy.log_prob(params, graph, samples).log_prob
    return -(weights * log_prob).sum(), log_prob


def test_paper_pools_kept_edges():
    case = CASES[2]  # groups with edges that no node keeps
    params, edges, num_ops = _to_flax(case["parameters"]), _order_edges(case), case["num_nodes"]
    y = np.zeros((LEVEL_NODES, HIDDEN), np.float32)
    y[:num_ops] = np.random.default_rng(0).normal(size=(num_ops, HIDDEN))
    parsed, inside = (
        jax.device_get(_parse_level(params, y, edges, num_ops, pool_inside=pool_inside))
        for pool_inside in (False, True)
    )
    ends = list(zip(*(end[edges.mask].tolist() for end in edges[:2]), strict=True))
    scores = parsed.scores[edges.mask]
    kept = {
        max((scores[e], -e) for e, pair in enumerate(ends) if op in pair) for op in range(num_ops)
    }
    is_inner = [parsed.group[u] == parsed.group[v] for u, v in ends]
    assert len(kept) < sum(is_inner)
    for group in range(parsed.num_groups):
        kept_sum = sum(score for score, e in kept if parsed.group[ends[-int(e)][0]] == group)
        inner = [e for e, (u, _) in enumerate(ends) if is_inner[e] and parsed.group[u] == group]
        expected = inside.features[group] * kept_sum / (2 * scores[inner].sum())
        np.testing.assert_allclose(parsed.features[group], expected, rtol=1e-5)


def test_dropout_share():
    network = hsdag.Network(HIDDEN, 5, 2, dropout=0.2)
    params = _to_flax(CASES[0]["parameters"])

    def drop(num_rows: int, seed: int, number: int = 0) -> np.ndarray:
        ones = jnp.ones((num_rows, HIDDEN))
        return np.asarray(network.apply(params, ones, jnp.uint32(seed), number, method="_activate"))

    mask = drop(10_000, 1)
    assert set(np.unique(mask).tolist()) == {0.0, 1.25}
    assert (mask == 0).mean() == pytest.approx(0.2, abs=0.006)  # four standard errors
    assert np.abs(np.corrcoef(mask.T) - np.eye(HIDDEN)).max() < 0.05
    np.testing.assert_array_equal(drop(50, 1), mask[:50])
    for other in (drop(10_000, 2), drop(10_000, 1, number=1)):
        assert (other == mask).mean() == pytest.approx(0.8**2 + 0.2**2, abs=0.01)
