import dataclasses

import numpy as np
import pytest

from placement.graphs import opgraph, roles
from placement.pipeline import loading
from placement.types import OpGraph
from tests import helpers


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two numberings put the same operations together."""
    return np.array_equal(one[:, None] == one, other[:, None] == other)


def _named(names: list[str]) -> OpGraph:
    return dataclasses.replace(helpers.chain(len(names)), op_names=tuple(names))


def test_names_that_differ_in_one_number_are_a_role_the_largest_that_there_is():
    graph = _named(["a/l0/t0", "a/l0/t1", "a/l0/t2", "a/l1/t0", "a/l1/t1", "b", "c7"])
    assert roles.find_roles_by_name(graph).tolist() == [0, 0, 0, 1, 1, 2, 3]


def test_names_that_differ_in_nothing_but_their_number_say_nothing():
    assert roles.find_roles_by_name(helpers.chain(4)).tolist() == [0, 1, 2, 3]


def _plain(num_ops: int, edges: list[tuple[int, int]]) -> OpGraph:
    """Returns a graph in which operations differ by their edges alone."""
    senders, receivers = np.array(edges, int).reshape(-1, 2).T
    names, types = [f"op{n}" for n in range(num_ops)], ["MatMul"] * num_ops
    return opgraph.make_graph(
        name="plain",
        op_names=names,
        op_types=types,
        senders=senders,
        receivers=receivers,
        edge_bytes=np.ones(len(senders), int),
    )


def test_without_rounds_roles_are_types_and_shapes():
    graph = dataclasses.replace(
        _plain(4, [(0, 1), (1, 2), (2, 3)]),
        op_types=("Add", "MatMul", "Add", "Add"),
        output_shapes=((1,), (1,), (2,), (1,)),
    )
    assert roles.find_roles_by_neighbours(graph, 0).tolist() == [0, 1, 2, 0]


def test_every_round_sees_one_edge_further():
    chain = _plain(7, [(n, n + 1) for n in range(6)])
    assert roles.find_roles_by_neighbours(chain, 1).tolist() == [0, 1, 1, 1, 1, 1, 2]
    assert roles.find_roles_by_neighbours(chain, 2).tolist() == [0, 1, 2, 2, 2, 3, 4]


def test_edges_have_a_direction_and_alike_neighbours_count_once():
    fork = _plain(5, [(0, 1), (0, 2), (3, 4)])
    assert roles.find_roles_by_neighbours(fork).tolist() == [0, 1, 1, 0, 1]


@pytest.mark.parametrize("seed", range(4))
def test_roles_do_not_depend_on_the_numbering(seed):
    rng = np.random.default_rng(seed)
    graph = helpers.random_dag(rng, 24, edge_probability=0.1)
    number = rng.permutation(24)  # of each operation, its new one
    old = np.argsort(number)
    permuted = dataclasses.replace(
        graph,
        op_types=tuple(graph.op_types[op] for op in old),
        output_shapes=tuple(() for _ in old),
        senders=number[graph.senders].astype(np.int32),
        receivers=number[graph.receivers].astype(np.int32),
    )
    shapeless = dataclasses.replace(graph, output_shapes=permuted.output_shapes)
    for rounds in range(3):
        there = roles.find_roles_by_neighbours(permuted, rounds)
        assert _same(there[number], roles.find_roles_by_neighbours(shapeless, rounds))
    assert len(set(roles.find_roles_by_neighbours(shapeless, 1))) > len(
        set(roles.find_roles_by_neighbours(shapeless, 0))
    )


def test_time_steps_of_an_unrolled_network_share_roles_and_names_tell_its_layers_apart():
    graph = loading.build_graph_network("rnnlm:layers=4,steps=12").graph
    steps = [graph.op_names.index(f"lstm1/step{step}/matmul") for step in range(12)]
    other = graph.op_names.index("lstm2/step6/matmul")
    by_neighbours, by_name = roles.find_roles_by_neighbours(graph), roles.find_roles_by_name(graph)
    assert len(set(by_neighbours[steps[3:9]])) == 1
    assert len(set(by_name[steps])) == 1
    assert by_name[other] != by_name[steps[6]]
    assert by_neighbours[other] == by_neighbours[steps[6]]
