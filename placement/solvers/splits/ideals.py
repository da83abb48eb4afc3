"""Ideals of a graph of vertices, and the communication of the segment between two of them.

For ideals A <= I the segment is S = I - A. For a tensor t with r readers let s(I) say whether I
contains the source, and let c(I) be the number of readers that I contains. The source is in S if
s(I) and not s(A). Some reader is in S if c(A) < c(I), and all are if c(A) = 0 and c(I) = r. So the
device of S pays for t, with `receive_s` if it receives it and `send_s` if it sends it,

    receive_s * sum over k < r of  [c(A) = k] [c(I) > k] * (s(A) + [not s(I)])
    send_s    * ([s(I), c(I) < r] [not s(A)]  +  [s(I), c(I) = r] [not s(A), c(A) > 0]).

The second half of either line belongs to tensors against the order, those of a backward pass. Each
summand is a *term*: a function of A times a function of I. So a block of communication costs is a
product of matrices. A term is zero outside the ranges of A and I where its factors are not zero, so
that a block needs few terms: those of the tensors that are produced or read nearby.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse

from placement.errors import UserError

MAX_IDEALS = 50_000  # tables of so many ideals of a few hundred vertices take about a gigabyte


class VertexGraph(NamedTuple):
    """V vertices in topological order with T tensors, and their costs on K types of devices.

    An ideal that contains the vertex `successors[q]` must contain `predecessors[q]`.
    """

    vertex_ids: np.ndarray  # int [W]: the vertex of each decision
    predecessors: np.ndarray  # int [Q]
    successors: np.ndarray  # int [Q]
    compute_s: np.ndarray  # float64 [V, K]
    memory_bytes: np.ndarray  # float64 [V]
    source: np.ndarray  # int [T]: the vertex that produces a tensor
    read_tensor: np.ndarray  # int [R]: the tensor of a read by another vertex
    reader: np.ndarray  # int [R]: that vertex
    receive_s: np.ndarray  # float64 [T, K]
    send_s: np.ndarray  # float64 [T, K]

    @property
    def num_vertices(self) -> int:
        """V."""
        return len(self.memory_bytes)


class Ideals(NamedTuple):
    """L ideals in order of size: an ideal contains none but earlier ones."""

    members: np.ndarray  # bool [L, V]
    level_starts: np.ndarray  # int [M + 1]: the first ideal of each size, and L


class Terms(NamedTuple):
    """F terms: each has one of `_FORMS`, a tensor and a number k."""

    has_source: np.ndarray  # bool [L, T]: s
    num_contained_readers: np.ndarray  # int16 [L, T]: c
    num_readers: np.ndarray  # int [T]: r
    form: np.ndarray  # int [F]
    k: np.ndarray  # int [F]
    tensor: np.ndarray  # int [F]
    inner_range: np.ndarray  # int [2, F]: the first and the last A where the term is not zero
    outer_range: np.ndarray  # int [2, F]: likewise I
    weight_s: np.ndarray  # float64 [K, F]


# Maps arrays of s, c, k and r, which broadcast to [L, F], to bool.
_Factor = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class _Form(NamedTuple):
    inner: _Factor  # of A
    outer: _Factor  # of I
    is_received: bool  # else the tensor is sent, and there is no sum over k


_FORMS = (
    _Form(lambda s, c, k, r: s & (c == k), lambda s, c, k, r: c > k, True),
    _Form(lambda s, c, k, r: c == k, lambda s, c, k, r: ~s & (c > k), True),
    _Form(lambda s, c, k, r: ~s, lambda s, c, k, r: s & (c < r), False),
    _Form(lambda s, c, k, r: ~s & (c > 0), lambda s, c, k, r: s & (c == r), False),
)


def enumerate_ideals(vertices: VertexGraph, graph_name: str) -> Ideals:
    """Enumerates all ideals, level by level.

    Vertices are in topological order, so that an ideal without its last vertex is an ideal too.
    Each ideal is found once, from that smaller one.

    Raises:
      UserError: there are more than `MAX_IDEALS`.
    """
    ids = np.arange(vertices.num_vertices)
    adjacency = np.zeros((len(ids), len(ids)), np.int16)
    adjacency[vertices.predecessors, vertices.successors] = 1
    members, last = np.zeros((1, len(ids)), bool), np.array([-1])
    num_missing = adjacency.sum(axis=0, dtype=np.int16)[None]  # predecessors outside the ideal
    levels, count = [members], 1
    for _ in ids:
        row, last = np.nonzero((num_missing == 0) & (ids > last[:, None]))
        count += len(row)
        if count > MAX_IDEALS:
            raise UserError(
                f"graph {graph_name!r} has too many ideals for 'ideals_dp': more than "
                f"{MAX_IDEALS}; use 'linearised_dp'"
            )
        members, num_missing = members[row], num_missing[row] - adjacency[last]
        members[np.arange(len(row)), last] = True
        levels.append(members)
    return Ideals(np.concatenate(levels), np.cumsum([0, *(len(level) for level in levels)]))


def is_subset(packed: np.ndarray, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Returns bool [|outer|, |inner|]: whether the inner ideal is a subset of the outer one.

    The ideals are given as sets of bits, uint64 [L, W].
    """
    outside = np.zeros((len(outer), len(inner)), np.uint64)
    for missing, present in zip(~packed[outer].T, packed[inner].T, strict=True):
        if np.bitwise_or.reduce(missing) & np.bitwise_or.reduce(present):
            outside |= missing[:, None] & present
    return outside == 0


def build_terms(vertices: VertexGraph, ideals: Ideals) -> Terms:
    """Returns the terms of all tensors, without those that are zero everywhere."""
    num_tensors = len(vertices.source)
    ones = np.ones(len(vertices.read_tensor), np.int32)
    reads = sparse.csr_array(
        (ones, (vertices.read_tensor, vertices.reader)), (num_tensors, vertices.num_vertices)
    )
    has_source = ideals.members[:, vertices.source]
    num_contained = (reads @ ideals.members.T.astype(np.int32)).T.astype(np.int16)
    num_readers = np.bincount(vertices.read_tensor, minlength=num_tensors)

    def find_range(is_nonzero: np.ndarray) -> np.ndarray:
        """Returns int [2, F]: the first and last true row of bool [L, F], -1 if none is."""
        last = len(is_nonzero) - 1 - is_nonzero[::-1].argmax(axis=0)
        return np.stack([is_nonzero.argmax(axis=0), np.where(is_nonzero.any(axis=0), last, -1)])

    pieces = []  # the last axis is that of the terms
    for number, form in enumerate(_FORMS):
        for k in range(num_readers.max(initial=0) if form.is_received else 1):
            tensor = np.flatnonzero(num_readers > k)
            counts = (
                has_source[:, tensor],
                num_contained[:, tensor],
                np.array(k),
                num_readers[tensor],
            )
            inner, outer = find_range(form.inner(*counts)), find_range(form.outer(*counts))
            weight_s = (vertices.receive_s if form.is_received else vertices.send_s)[tensor]
            is_nonzero = (inner[1] >= 0) & (outer[1] >= 0) & weight_s.any(axis=1)
            labels = np.full((2, len(tensor)), [[number], [k]])
            piece = *labels, tensor, inner, outer, weight_s.T
            pieces.append([values[..., is_nonzero] for values in piece])
    fields = (np.concatenate(parts, axis=-1) for parts in zip(*pieces, strict=True))
    return Terms(has_source, num_contained, num_readers, *fields)


def compute_traffic_s(terms: Terms, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Computes the communication costs of segments, float64 [K, |outer|, |inner|].

    Args:
      terms: from `build_terms`.
      outer: int [*], ideals in ascending order.
      inner: likewise. The result is meaningful only where the inner ideal is a subset.
    """

    def evaluate_factors(selected: np.ndarray, rows: np.ndarray, side: str) -> np.ndarray:
        """Returns bool [*, F']: one side of the selected terms, which are sorted by form."""
        factors = []
        for number, form in enumerate(_FORMS):
            matching = selected[terms.form[selected] == number]
            tensor = terms.tensor[matching]
            cells = np.ix_(rows, tensor)
            counts = terms.has_source[cells], terms.num_contained_readers[cells]
            factor: _Factor = getattr(form, side)
            factors.append(factor(*counts, terms.k[matching], terms.num_readers[tensor]))
        return np.concatenate(factors, axis=1)

    is_near = (terms.inner_range[0] <= inner[-1]) & (terms.inner_range[1] >= inner[0])
    is_near &= (terms.outer_range[0] <= outer[-1]) & (terms.outer_range[1] >= outer[0])
    selected = np.flatnonzero(is_near)
    outer_factors = evaluate_factors(selected, outer, "outer")
    is_used = outer_factors.any(axis=0)
    selected = selected[is_used]
    left = outer_factors[:, is_used].astype(float)
    right = evaluate_factors(selected, inner, "inner").astype(float).T
    total_s = np.zeros((len(terms.weight_s), len(outer), len(inner)))
    for cost_s, weight_s in zip(total_s, terms.weight_s[:, selected], strict=True):
        is_unlinked = np.isinf(weight_s)
        if weight_s.any():  # a host pays nothing
            np.matmul(left * np.where(is_unlinked, 0.0, weight_s), right, out=cost_s)
        if is_unlinked.any():
            cost_s[left[:, is_unlinked] @ right[is_unlinked] > 0] = np.inf
    return total_s
