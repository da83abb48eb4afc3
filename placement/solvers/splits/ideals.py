"""Ideals of a split, and what the segment between two of them loads a device with.

For ideals A <= I the segment is S = I - A. Of a tensor t with r readers write s(I) for whether its
source lies in I, and c(I) for how many of its readers do. The source is in S where s(I) and not
s(A); some reader is where c(A) < c(I), and all are where c(A) = 0 and c(I) = r. So what t costs
the device of S, with `in_s` where it comes in and `out_s` where it goes out, is

    in_s  * sum over k < r of  [c(A) = k] [c(I) > k] * (s(A) + [not s(I)])
    out_s * ([s(I), c(I) < r] [not s(A)]  +  [s(I), c(I) = r] [not s(A), c(A) > 0]),

a sum of *terms*, each a function of A times one of I: a block of loads is a product of matrices.
The second half of either line belongs to tensors that run against the order, those of a backward
pass. A term is zero outside the ranges of A and I where its factors are not, so that few terms
matter to a block: those of tensors that are made or read about there.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import numpy as np
from scipy import sparse

from placement.solvers.splits.contiguous import Split

LIMIT = 50_000  # ideals: the tables of as many of a few hundred vertices take about a gigabyte


class Ideals(NamedTuple):
    """L ideals in order of size: none but earlier ones lie within another."""

    member: np.ndarray  # bool [L, V]
    starts: np.ndarray  # int [M + 1]: where each level, the ideals of one size, begins and ends


class Terms(NamedTuple):
    """F terms: each is one of `_FORMS`, of a tensor and a number k."""

    made: np.ndarray  # bool [L, T]: s
    read: np.ndarray  # int16 [L, T]: c
    readers: np.ndarray  # int [T]: r
    form: np.ndarray  # int [F]
    tensor: np.ndarray  # int [F]
    k: np.ndarray  # int [F]
    inner: np.ndarray  # int [2, F]: the first and the last A where the term is not zero
    outer: np.ndarray  # int [2, F]: likewise I
    weight_s: np.ndarray  # float64 [F, K]


# bool arrays of s, c, k and r, which broadcast to [L, F]
_Factor = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class _Form(NamedTuple):
    inner: _Factor  # of A
    outer: _Factor  # of I
    receives: bool  # else it sends, and there is no sum over k


_FORMS = (
    _Form(lambda s, c, k, r: s & (c == k), lambda s, c, k, r: c > k, True),
    _Form(lambda s, c, k, r: c == k, lambda s, c, k, r: ~s & (c > k), True),
    _Form(lambda s, c, k, r: ~s, lambda s, c, k, r: s & (c < r), False),
    _Form(lambda s, c, k, r: ~s & (c > 0), lambda s, c, k, r: s & (c == r), False),
)


def enumerate_ideals(split: Split) -> Ideals | int:
    """Enumerates ideals, level by level; how many were counted where they exceed `LIMIT`.

    Vertices are numbered topologically, so that an ideal less its last vertex is one too: each is
    found once, from that smaller one.
    """
    vertices = np.arange(split.num_vertices)
    feeds = np.zeros((len(vertices), len(vertices)), np.int16)
    feeds[split.before, split.after] = 1
    member, last = np.zeros((1, len(vertices)), bool), np.array([-1])
    waiting = feeds.sum(axis=0, dtype=np.int16)[None]  # for how many each vertex does
    levels, count = [member], 1
    for _ in vertices:
        row, last = np.nonzero((waiting == 0) & (vertices > last[:, None]))
        count += len(row)
        if count > LIMIT:
            return count
        member, waiting = member[row], waiting[row] - feeds[last]
        member[np.arange(len(row)), last] = True
        levels.append(member)
    return _ideals(levels)


def prefixes(order: np.ndarray) -> Ideals:
    """Returns the prefixes of a topological order, int [V]."""
    chex.assert_rank(order, 1)
    chex.assert_type(order, int)
    rank = np.argsort(order)
    return _ideals([rank[None] < size for size in range(len(order) + 1)])


def _ideals(levels: list[np.ndarray]) -> Ideals:
    starts = np.cumsum([0, *(len(level) for level in levels)])
    return Ideals(np.concatenate(levels), starts)


def packed(ideals: Ideals) -> np.ndarray:
    """Returns uint64 [L, W]: the ideals as sets of bits, for `within`."""
    bits = np.packbits(ideals.member, axis=1)
    return np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64)


def within(words: np.ndarray, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Returns bool [|outer|, |inner|]: whether one ideal lies in the other, as packed."""
    outside = np.zeros((len(outer), len(inner)), np.uint64)
    for missing, held in zip(~words[outer].T, words[inner].T, strict=True):
        if np.bitwise_or.reduce(missing) & np.bitwise_or.reduce(held):
            outside |= missing[:, None] & held
    return outside == 0


def terms(split: Split, ideals: Ideals) -> Terms:
    """Returns the terms of a split's tensors that are not zero throughout."""
    num_tensors = len(split.source)
    ones = np.ones(len(split.tensor), np.int32)
    reads = sparse.csr_array(
        (ones, (split.tensor, split.reader)), (num_tensors, split.num_vertices)
    )
    made = ideals.member[:, split.source]
    read = (reads @ ideals.member.T.astype(np.int32)).T.astype(np.int16)
    readers = np.bincount(split.tensor, minlength=num_tensors)
    pieces = []
    for number, form in enumerate(_FORMS):
        for k in range(readers.max(initial=0) if form.receives else 1):
            tensor = np.flatnonzero(readers > k)
            facts = made[:, tensor], read[:, tensor], np.array(k), readers[tensor]
            inner, outer = _range(form.inner(*facts)), _range(form.outer(*facts))
            weight_s = (split.in_s if form.receives else split.out_s)[tensor]
            some = (inner[1] >= 0) & (outer[1] >= 0) & weight_s.any(axis=1)
            same = np.full((2, some.sum()), [[number], [k]])
            pieces.append((*same, tensor[some], inner[:, some], outer[:, some], weight_s[some]))
    form_, k_, tensor_, inner_, outer_, weight_ = zip(*pieces, strict=True)
    return Terms(
        made=made,
        read=read,
        readers=readers,
        form=np.concatenate(form_),
        k=np.concatenate(k_),
        tensor=np.concatenate(tensor_),
        inner=np.concatenate(inner_, axis=1),
        outer=np.concatenate(outer_, axis=1),
        weight_s=np.concatenate(weight_),
    )


def _range(holds: np.ndarray) -> np.ndarray:
    """Returns int [2, F]: of bool [L, F] the first and last row that hold, -1 if none."""
    last = len(holds) - 1 - holds[::-1].argmax(axis=0)
    return np.stack([holds.argmax(axis=0), np.where(holds.any(axis=0), last, -1)])


def traffic_s(table: Terms, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Computes what segments receive and send, float64 [K, |outer|, |inner|].

    Args:
      table: of the split.
      outer: int [*], numbers of ideals, ascending.
      inner: likewise. What is returned holds for the pairs that lie in one another.
    """
    near = (table.inner[0] <= inner[-1]) & (table.inner[1] >= inner[0])
    near &= (table.outer[0] <= outer[-1]) & (table.outer[1] >= outer[0])
    chosen = np.flatnonzero(near)
    of_outer = _factors(table, chosen, outer, "outer")
    used = of_outer.any(axis=0)
    chosen = chosen[used]
    left = of_outer[:, used].astype(float)
    right = _factors(table, chosen, inner, "inner").astype(float).T
    total_s = np.zeros((table.weight_s.shape[1], len(outer), len(inner)))
    for load_s, weight_s in zip(total_s, table.weight_s[chosen].T, strict=True):
        barred = np.isinf(weight_s)
        if weight_s.any():  # a host pays nothing
            np.matmul(left * np.where(barred, 0.0, weight_s), right, out=load_s)
        if barred.any():
            load_s[left[:, barred] @ right[barred] > 0] = np.inf
    return total_s


def _factors(table: Terms, chosen: np.ndarray, rows: np.ndarray, side: str) -> np.ndarray:
    """Returns bool [*, F']: one side of the chosen terms, which come in order of their forms."""
    parts = []
    for number, form in enumerate(_FORMS):
        own = chosen[table.form[chosen] == number]
        tensor, where = table.tensor[own], np.ix_(rows, table.tensor[own])
        factor = getattr(form, side)
        facts = table.made[where], table.read[where], table.k[own], table.readers[tensor]
        parts.append(factor(*facts))
    return np.concatenate(parts, axis=1)
