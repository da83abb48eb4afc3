import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np

from placement.graphs import dag, opgraph
from placement.graphs.coarsen import coarsen, label_sole_consumer_trees, merge
from tests import helpers

SEEDS = st.integers(0, 2**32 - 1)
few = hypothesis.settings(max_examples=30, deadline=None)


def _graph(types, edges, **fields):
    """Returns a graph of operations named by letters; edges are such as 'ab'."""
    names = [chr(ord("a") + i) for i in range(len(types))]
    ends = [[names.index(end) for end in edge] for edge in edges]
    return opgraph.make_graph(
        name="g",
        op_names=names,
        op_types=types,
        senders=[sender for sender, _ in ends],
        receivers=[receiver for _, receiver in ends],
        edge_bytes=[1] * len(ends),
        **fields,
    )


def _groups(coarsening, graph):
    """Returns the member names of every coarse operation, such as ['ab', 'c']."""
    groups = [""] * coarsening.graph.num_ops
    for name, part in zip(graph.op_names, coarsening.assignment, strict=True):
        groups[part] += name
    return groups


def _random(seed, colocated=0.3):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 16))
    return rng, helpers.random_dag(
        rng, n, edge_probability=rng.random() / 2, colocated=rng.random() * colocated
    )


def _serial_cost(graph, compute, placement):
    """Sums compute and one transfer for each tensor and other device that reads it."""
    crossings = {
        (tensor, placement[receiver], size)
        for sender, receiver, tensor, size in zip(
            graph.senders, graph.receivers, graph.tensors, graph.edge_bytes, strict=True
        )
        if placement[sender] != placement[receiver]
    }
    total = sum(compute[op, device] for op, device in enumerate(placement))
    return total + sum(100 + size for _, _, size in crossings)


def test_merged_operations_keep_types():
    """Members of operations that were merged before count too."""
    graph = _graph(["Parameter", "Constant", "MatMul", "Relu", "Result"], ["ac", "bc", "cd", "ae"])
    once = coarsen(graph).graph
    found = sorted(sorted(types) for types in once.member_types)
    assert found == [["Constant", "MatMul", "Relu"], ["Parameter"], ["Result"]]
    (every,) = merge(once, np.zeros(3, int)).graph.member_types
    assert sorted(every) == sorted(graph.op_types)


def test_colocated_operations_merge():
    # A fork of three branches, two of them co-located.
    graph = _graph(["Relu"] * 5, ["ab", "ac", "ad", "be", "ce", "de"], colocation=[9, 4, 1, 4, 7])
    coarsening = coarsen(graph)
    assert _groups(coarsening, graph) == ["a", "bd", "c", "e"]
    assert coarsening.graph.colocation.tolist() == [0, 1, 2, 3]
    assert coarsening.edges.tolist() == [0, 1, 2, 3, 4, 5]


def test_shape_chains_join_consumers():
    # a feeds b (data) and c (ShapeOf); c d e are a chain with a constant f; g reshapes for it.
    types = ["Parameter", "Convolution", "ShapeOf", "Gather", "Concat", "Constant", "Reshape"]
    graph = _graph(types, ["ab", "ac", "cd", "de", "fe", "bg", "eg", "ag"])
    coarsening = coarsen(graph)
    assert _groups(coarsening, graph) == ["a", "b", "cdefg"]
    assert coarsening.graph.op_types[2] == "Reshape"


def test_constants_join_first_consumer():
    # The Convert b of the constant a serves d and e; f, a constant too, serves e and g.
    types = ["Constant", "Convert", "Parameter", "MatMul", "MatMul", "Constant", "Add"]
    graph = _graph(types, ["ab", "bd", "be", "cd", "ce", "fe", "fg", "dg", "eg", "cg"])
    assert _groups(coarsen(graph), graph) == ["c", "abd", "ef", "g"]


def test_shape_chains_create_no_cycle():
    # The ShapeOf b feeds the chains c, d; c is first, but ends up in h, while d ends up in e,
    # from which h follows. Joining c would close the cycle {b, c, h} -> {d, e} -> {b, c, h}.
    types = ["Parameter", "ShapeOf", "Gather", "Gather", "Reshape", "Relu", "Relu", "Reshape"]
    edges = ["ab", "bc", "bd", "ae", "de", "ef", "eg", "fh", "gh", "ch", "ah"]
    graph = _graph(types, edges)
    assert _groups(coarsen(graph), graph) == ["a", "bde", "f", "g", "ch"]


def test_unread_shape_chains_stay():
    # b joins the Reshape c; d e f feed nothing but each other, and g nothing at all.
    types = ["Parameter", "ShapeOf", "Reshape", "ShapeOf", "Gather", "Gather", "ShapeOf", "Relu"]
    graph = _graph(types, ["ab", "bc", "ac", "bg", "ad", "de", "df", "bf", "ag", "ch", "ah"])
    assert _groups(coarsen(graph), graph) == ["a", "bc", "def", "g", "h"]


def test_attributes_of_representative():
    # b and c have the most flops, of which c is topologically last; d is last of all.
    graph = _graph(
        ["Parameter", "MatMul", "Add", "Relu"],
        ["ab", "bc", "cd"],
        flops=[0, 7, 7, 1],
        weight_bytes=[1, 20, 300, 4000],
        output_shapes=[(1,), (2,), (3,), (4,)],
    )
    coarse = coarsen(graph).graph
    assert (coarse.op_names, coarse.op_types) == (("c",), ("Add",))
    assert coarse.output_shapes == ((4,),)
    assert (coarse.flops.tolist(), coarse.weight_bytes.tolist()) == ([15.0], [4321])


def _merged_one_by_one(graph):
    """Applies HSDAG's rule naively: contracts one edge at a time until none qualifies."""
    parts = np.arange(graph.num_ops)
    while True:
        pairs = {
            (parts[u], parts[v])
            for u, v in zip(graph.senders, graph.receivers, strict=True)
            if parts[u] != parts[v]
        }
        for u, v in pairs:
            if sum(u == s for s, _ in pairs) == sum(v == r for _, r in pairs) == 1:
                parts[parts == u] = v
                break
        else:
            return parts


@few
@hypothesis.given(SEEDS)
def test_chains_equal_naive_merging(seed):
    _, graph = _random(seed, colocated=0.0)
    graph = opgraph.make_graph(
        name="g",
        op_names=graph.op_names,
        op_types=["Relu"] * graph.num_ops,
        senders=graph.senders,
        receivers=graph.receivers,
        edge_bytes=graph.edge_bytes,
        tensors=graph.tensors,
    )
    expected, assignment = _merged_one_by_one(graph), coarsen(graph).assignment
    together = expected[:, None] == expected[None, :]
    np.testing.assert_array_equal(assignment[:, None] == assignment[None, :], together)


@few
@hypothesis.given(SEEDS)
def test_coarse_graph_is_exact(seed):
    rng, graph = _random(seed)
    coarse, assignment, edges = coarsen(graph)
    opgraph.validate(coarse)
    assert assignment.dtype == edges.dtype == np.int32
    assert dag.topological_order(coarse).tolist() == list(range(coarse.num_ops))
    assert sorted(set(assignment.tolist())) == list(range(coarse.num_ops))
    for one, other in itertools.combinations(range(graph.num_ops), 2):
        if graph.colocation[one] == graph.colocation[other]:
            assert assignment[one] == assignment[other]
    between = np.flatnonzero(assignment[graph.senders] != assignment[graph.receivers])
    assert edges.tolist() == between.tolist()
    np.testing.assert_array_equal(coarse.senders, assignment[graph.senders[edges]])
    np.testing.assert_array_equal(coarse.receivers, assignment[graph.receivers[edges]])
    assert coarse.flops.sum() == graph.flops.sum()
    assert coarse.weight_bytes.sum() == graph.weight_bytes.sum()

    compute = rng.integers(0, 1000, (graph.num_ops, 3))
    coarse_compute = np.zeros((coarse.num_ops, 3), int)
    for op, part in enumerate(assignment):
        coarse_compute[part] += compute[op]
    for placement in rng.integers(0, 3, (4, coarse.num_ops)):
        cost = _serial_cost(coarse, coarse_compute, placement)
        assert cost == _serial_cost(graph, compute, placement[assignment])


@few
@hypothesis.given(SEEDS)
def test_sole_consumers_form_trees(seed):
    _, graph = _random(seed, colocated=0.0)
    trees = label_sole_consumer_trees(graph.num_ops, graph.senders, graph.receivers)
    grouped = merge(graph, trees)
    opgraph.validate(grouped.graph)
    readers = [set(graph.receivers[graph.senders == op]) for op in range(graph.num_ops)]
    for op, served in enumerate(readers):
        if len(served) == 1:
            assert grouped.assignment[op] == grouped.assignment[next(iter(served))]
    ends = [op for op, served in enumerate(readers) if len(served) != 1]
    assert len(set(grouped.assignment[ends])) == len(ends) == grouped.graph.num_ops


def test_fused_edges_merge_kernels():
    graph = _graph(["Parameter", "Conv", "Relu", "Conv", "Relu"], ["ab", "bc", "cd", "de"])
    assert _groups(coarsen(graph), graph) == ["abcde"]  # a chain
    is_fused = np.array([False, True, False, True])
    assert _groups(coarsen(graph, is_fused), graph) == ["a", "bc", "de"]
    assert _groups(coarsen(graph, np.zeros(4, bool)), graph) == list("abcde")
    # The kernel of b and d, with c between them.
    graph = _graph(["Parameter", "Conv", "Relu", "Add"], ["ab", "bc", "bd", "cd"])
    is_fused = np.array([False, False, True, False])
    assert _groups(coarsen(graph, is_fused), graph) == ["a", "bcd"]
