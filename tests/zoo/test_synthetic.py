"""Synthetic graphs: exact sizes, the structure each family promises, seeds."""

import dataclasses

import numpy as np
import pytest

from placement.errors import UserError
from placement.graphs import dag, features
from placement.types import OpGraph
from placement.zoo import synthetic

FAMILIES = ("chain", "fork_join", "layered", "series_parallel")


def _build(family: str, ops: int, seed: int = 0, more: str = "") -> OpGraph:
    return synthetic.build(f"synthetic:family={family},ops={ops},seed={seed}{more}")


def _degrees(graph: OpGraph) -> tuple[np.ndarray, np.ndarray]:
    ends = (graph.receivers, graph.senders)
    return tuple(np.bincount(end, minlength=graph.num_ops) for end in ends)


def _assert_equal(one: OpGraph, two: OpGraph) -> None:
    for field in dataclasses.fields(OpGraph):
        if field.name != "name":
            np.testing.assert_array_equal(getattr(one, field.name), getattr(two, field.name))


def _is_series_parallel(graph: OpGraph) -> bool:
    """Whether merging parallel edges and skipping operations on a path leaves a single edge."""
    after: list[set[int]] = [set() for _ in range(graph.num_ops)]
    before: list[set[int]] = [set() for _ in range(graph.num_ops)]
    for sender, receiver in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True):
        after[sender].add(receiver)
        before[receiver].add(sender)
    waiting = list(range(graph.num_ops))
    while waiting:
        op = waiting.pop()
        if len(before[op]) == len(after[op]) == 1:
            (u,), (v,) = before[op], after[op]
            before[op], after[op] = set(), set()
            after[u] = after[u] - {op} | {v}
            before[v] = before[v] - {op} | {u}
            waiting += [u, v]
    return sum(map(len, after)) == 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ops", [2, 7, 1000])
def test_sizes_are_exact(family, ops):
    graph = _build(family, ops, seed=ops)
    num_inputs, num_readers = _degrees(graph)
    assert graph.num_ops == ops
    assert np.flatnonzero(num_inputs == 0).tolist() == [0]
    assert np.flatnonzero(num_readers == 0).tolist() == [ops - 1]
    assert (graph.senders < graph.receivers).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_seeds(family):
    graph = _build(family, 300)
    _assert_equal(graph, _build(family, 300))
    assert graph.flops.tolist() != _build(family, 300, seed=1).flops.tolist()
    assert graph.name == f"synthetic:family={family},ops=300,seed=0"


@pytest.mark.parametrize("width", [1, 5])
def test_fork_join(width):
    graph = _build("fork_join", 2000, 0, f",width={width}")
    num_inputs, num_readers = _degrees(graph)
    # Whatever forks has joined before; the first only forks, the last only joins.
    assert (num_inputs[1:-1] <= width).all()
    assert (num_readers[:-1] <= width).all()
    if width > 1:
        assert set(np.unique(num_readers[:-1])) == set(range(1, width + 1))
        inside = (num_inputs[1:-1] > 1) != (num_readers[1:-1] > 1)
        assert inside.sum() <= 1  # the stage that was cut off
    else:
        assert graph.num_edges == 1999
    assert _is_series_parallel(graph)


def test_layered():
    width = 4
    graph = _build("layered", 2000, 0, f",width={width}")
    level = dag.levels(graph.num_ops, graph.senders, graph.receivers)
    sizes = np.bincount(level)
    assert sizes[0] == sizes[-1] == 1
    assert sizes.max() == 2 * width - 1
    span = level[graph.receivers] - level[graph.senders]
    assert span.min() == 1
    assert span.max() <= 3
    pairs = set(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))
    assert len(pairs) == graph.num_edges


def test_series_parallel():
    graph = _build("series_parallel", 2000)
    assert _is_series_parallel(graph)
    assert not _is_series_parallel(_build("layered", 200))
    # Even odds: of three edges one comes with a detour.
    assert 1.4 < graph.num_edges / graph.num_ops < 1.6


@pytest.mark.parametrize("family", FAMILIES)
def test_operations(family):
    graph = _build(family, 20_000)
    types, (num_inputs, _) = np.array(graph.op_types), _degrees(graph)
    assert set(graph.op_types) <= set(features.OP_TYPES) - {"other"}
    assert types[0] == "Parameter"
    assert (types[-1] == "Result") == (num_inputs[-1] == 1)
    inner = slice(1, -1)
    assert set(types[inner][num_inputs[inner] == 2]) <= {"Add", "Multiply"}
    assert set(types[inner][num_inputs[inner] > 2]) <= {"Concat"}
    weighted = np.isin(types, ("Convolution", "MatMul"))
    np.testing.assert_array_equal(graph.weight_bytes > 0, weighted)
    assert weighted.sum() == pytest.approx(0.4 * (num_inputs == 1).sum(), rel=0.1)
    busy = ~np.isin(types, ("Parameter", "Result"))
    assert (graph.flops[~busy] == 0).all()
    # Log-uniform: the logarithm's mean and deviation over three decades.
    for which, low in ((weighted, 6), (busy & ~weighted, 3)):
        decades = np.log10(graph.flops[which]) - low
        assert decades.min() >= 0
        assert decades.max() <= 3
        assert decades.mean() == pytest.approx(1.5, abs=0.1)
        assert decades.std() == pytest.approx(3 / 12**0.5, rel=0.1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("resnet50", "unknown synthetic graph 'resnet50'"),
        ("synthetic:family=tree", "chain, fork_join, layered, series_parallel"),
        ("synthetic:ops=1", "ops as '1'.* at least 2"),
        ("synthetic:seed=-1", "seed as '-1'.* at least 0"),
        ("synthetic:family=layered,width=0", "width as '0'.* at least 1"),
    ],
)
def test_wrong_arguments_are_refused(text, said):
    with pytest.raises(UserError, match=said) as error:
        synthetic.build(text)
    assert "\n" not in str(error.value)
