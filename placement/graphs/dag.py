"""Order and connectivity of directed acyclic graphs.

The algorithms take `(num_nodes, senders, receivers)` with parallel edges allowed, because
validation and coarsening need them before there is an `OpGraph`. Functions of an `OpGraph` call
these. All but `reachability` are linear in N + E, up to the logarithm of a heap or sort.

The *level* of a node is the number of edges on a longest path that ends in it,

    level(v) = 0 for a source,    level(v) = 1 + max over u -> v of level(u).

A *part* is a set of nodes that becomes one node of the quotient graph. The quotient graph has an
edge A -> B if some u in A, v in B != A have an edge u -> v.
"""

import heapq
import itertools

import chex
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from placement.errors import UserError
from placement.types import Array, OpGraph


def successors(
    num_nodes: int, senders: np.ndarray, receivers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lists successors by node: those of v are `targets[starts[v] : starts[v + 1]]`.

    Args:
      num_nodes: N.
      senders: int [E].
      receivers: int [E].

    Returns:
      starts: int64 [N + 1].
      targets: int [E]; parallel edges stay parallel and keep their order.
    """
    _check_edges(senders, receivers)
    counts = np.bincount(senders, minlength=num_nodes)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return starts, receivers[np.argsort(senders, kind="stable")]


def list_by_node(num_nodes: int, nodes: np.ndarray, values: np.ndarray) -> list[list[int]]:
    """Lists the values int [M] of each of N nodes, in their order, by the nodes int [M]."""
    starts, sorted_values = (array.tolist() for array in successors(num_nodes, nodes, values))
    return [sorted_values[start:end] for start, end in itertools.pairwise(starts)]


class InputCounts:
    """The number of unplaced inputs of each node; it tells which nodes become ready.

    An input counts as often as there are edges from it.
    """

    def __init__(self, num_nodes: int, senders: np.ndarray, receivers: np.ndarray):
        # Lists, because indexing arrays one element at a time is slow.
        self._readers = list_by_node(num_nodes, senders, receivers)
        self._missing = np.bincount(receivers, minlength=num_nodes).tolist()

    def sources(self) -> list[int]:
        """Returns the nodes without inputs."""
        return [node for node, missing in enumerate(self._missing) if not missing]

    def place(self, node: int) -> list[int]:
        """Marks a node as placed; returns its readers that become ready."""
        ready = []
        for reader in self._readers[node]:
            self._missing[reader] -= 1
            if not self._missing[reader]:
                ready.append(reader)
        return ready


def sort_nodes(num_nodes: int, senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Sorts nodes topologically (Kahn), the ready node of smallest index first.

    If the node numbers already are a topological order, the result is `arange(N)`.

    Returns:
      int32 [N], or fewer entries if a cycle keeps nodes from becoming ready.
    """
    _check_edges(senders, receivers)
    if np.all(senders < receivers):
        return np.arange(num_nodes, dtype=np.int32)
    waiting = InputCounts(num_nodes, senders, receivers)
    ready, order = waiting.sources(), []
    while ready:
        order.append(heapq.heappop(ready))
        for node in waiting.place(order[-1]):
            heapq.heappush(ready, node)
    return np.array(order, np.int32)


def check_order(graph: OpGraph, order: Array) -> None:
    """Refuses an order of a graph's operations that is not topological.

    Raises:
      UserError: it does not have every operation once, or has a reader before its input.
    """
    order = np.asarray(order)
    position = np.argsort(order)
    is_permutation = np.array_equal(np.sort(order), np.arange(graph.num_ops))
    if not is_permutation or (position[graph.senders] > position[graph.receivers]).any():
        raise UserError(
            f"the order of graph {graph.name!r} is not a topological order; set one that has each "
            f"of the {graph.num_ops} operations once, after its inputs"
        )


def sort_edges(order: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Sorts edges by receiver, so that each edge comes after all edges into its sender.

    A recursion over the paths into a node is then one loop over the sorted edges, and one over the
    paths out of it a loop over the reversed edges. The cost does not depend on the graph's depth.

    Args:
      order: int [N], the nodes in a topological order.
      receivers: int [E].

    Returns:
      int64 [E]: indices of edges.
    """
    chex.assert_rank([order, receivers], 1)
    chex.assert_type([order, receivers], int)
    return np.argsort(np.argsort(order)[receivers], kind="stable")


def depth_first_order(num_nodes: int, senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Orders nodes topologically, the node that became ready last first.

    So a branch stays together until it joins others, whereas `sort_nodes` alternates branches.

    Returns:
      int32 [N].
    """
    # Of the nodes that become ready together, the last one is in front, so that it comes out last.
    waiting = InputCounts(num_nodes, senders[::-1], receivers[::-1])
    ready, order = waiting.sources()[::-1], []
    while ready:
        order.append(ready.pop())
        ready += waiting.place(order[-1])
    return np.array(order, np.int32)


def components(
    connection: str, num_nodes: int, senders: np.ndarray, receivers: np.ndarray
) -> np.ndarray:
    """Returns int32 [N]: equal numbers for nodes of one component.

    The nodes of a 'strong' component lie on a common cycle; those of a 'weak' one are joined by
    edges of either direction.
    """
    _check_edges(senders, receivers)
    matrix = sparse.csr_array((np.ones(len(senders)), (senders, receivers)), (num_nodes,) * 2)
    return csgraph.connected_components(matrix, directed=True, connection=connection)[1]


def quotient(
    senders: np.ndarray, receivers: np.ndarray, parts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the quotient graph: the distinct edges between different parts, sorted.

    The quotient may have cycles although the graph has none.

    Args:
      senders, receivers: int [E].
      parts: int [N], the part of each node, from 0.

    Returns:
      senders, receivers: int32 [Q] each.
    """
    _check_edges(senders, receivers)
    sources, targets = parts[senders].astype(np.int64), parts[receivers]
    is_outer = sources != targets
    num_parts = int(parts.max()) + 1
    # With `return_index` NumPy sorts, which is many times faster here than its hash table.
    pairs, _ = np.unique(sources[is_outer] * num_parts + targets[is_outer], return_index=True)
    return (pairs // num_parts).astype(np.int32), (pairs % num_parts).astype(np.int32)


def sum_by_part(parts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums values over the members of each part; the sums of integers are exact.

    Args:
      parts: int [N], the part of each node, from 0.
      values: [N, ...].

    Returns:
      [K, ...], K parts, of the values' type.
    """
    chex.assert_rank(parts, 1)
    chex.assert_type(parts, int)
    chex.assert_equal_shape_prefix([parts, values], 1)
    sums = np.zeros((int(parts.max()) + 1, *values.shape[1:]), values.dtype)
    np.add.at(sums, parts, values)
    return sums


def number_by_first(labels: np.ndarray) -> np.ndarray:
    """Returns int32 [N]: equal numbers for equal labels, from 0 by the first node with a label."""
    _, first, number = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number].astype(np.int32)


def topological_order(graph: OpGraph) -> np.ndarray:
    """Orders operations topologically as `sort_nodes` does, int32 [N]."""
    return sort_nodes(graph.num_ops, graph.senders, graph.receivers)


def levels(num_nodes: int, senders: np.ndarray, receivers: np.ndarray) -> np.ndarray:
    """Returns the level of every node of an acyclic graph, int32 [N]."""
    return (longest_paths(senders, receivers, np.ones(num_nodes)) - 1).astype(np.int32)


def longest_paths(senders: np.ndarray, receivers: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns float64 [N]: the weight of the heaviest path that ends in each node.

    Args:
      senders: int [E].
      receivers: int [E].
      weights: float [N], of the nodes, the last one of a path included.
    """
    chex.assert_rank(weights, 1)
    chex.assert_type(weights, float)
    order = sort_edges(sort_nodes(len(weights), senders, receivers), receivers)
    total = weights.astype(np.float64).tolist()
    ends = senders[order].tolist(), receivers[order].tolist(), weights[receivers[order]].tolist()
    for sender, receiver, weight in zip(*ends, strict=True):
        total[receiver] = max(total[receiver], total[sender] + weight)
    return np.array(total)


def reachability(graph: OpGraph) -> np.ndarray:
    """Returns bool [N, N]: `[i, j]` is true if a path of at least one edge leads from i to j.

    It takes N * N bytes and E * N operations on bytes: for a few thousand operations.
    """
    starts, targets = successors(graph.num_ops, graph.senders, graph.receivers)
    reach = np.zeros((graph.num_ops, graph.num_ops), bool)
    for node in topological_order(graph)[::-1]:  # the rows of the successors are complete
        for target in targets[starts[node] : starts[node + 1]]:
            reach[node] |= reach[target]
            reach[node, target] = True
    return reach


def connected_parts(graph: OpGraph, placement: np.ndarray) -> np.ndarray:
    """Returns int32 [N]: the connected part of each operation under a placement int [N].

    Two operations share a part if edges of either direction join them within their device. Parts
    are numbered from 0 by their smallest member.
    """
    chex.assert_shape(placement, (graph.num_ops,))
    chex.assert_type(placement, int)
    is_inner = placement[graph.senders] == placement[graph.receivers]
    ends = graph.senders[is_inner], graph.receivers[is_inner]
    return number_by_first(components("weak", graph.num_ops, *ends))


def _check_edges(senders: np.ndarray, receivers: np.ndarray) -> None:
    """Asserts that both are int [E]."""
    chex.assert_rank([senders, receivers], 1)
    chex.assert_type([senders, receivers], int)
    chex.assert_equal_shape([senders, receivers])
