"""What the layers of a decision diagram are: one for each operation, in the order of priority.

Once the first k operations are placed, what matters for the others is when each device is free and
when each tensor that one of them still reads arrives on each device: the *state*. Tensors with the
same readers to come are one row of it, as a reader waits for the last of them. So a state has few
rows wherever the graph is narrow, whatever its length.

Co-located operations are joined by tensors that arrive on their own device at once and on no other.
What nobody reads is read by the end, a row of its own.
"""

import itertools
from typing import NamedTuple

import numpy as np

from placement.instance import Instance
from placement.solvers.bounds import makespan

MOST = 512  # rows of tensors that a state may have
_READERS = 4096  # that read them
_SOONEST = 16  # rows that bound what is to come


class Layer(NamedTuple):
    """What placing an operation does to rows of tensors: L before, L' after."""

    op: int
    reads: np.ndarray  # int [R]: rows before
    # Of rows after that go on with one before, which; then those that take up more of them.
    kept: np.ndarray  # int [K, 2]: after, before
    joined: np.ndarray  # int [J, 2]: after, before
    made: np.ndarray  # int [G]: rows after that the operation's own tensors are of
    delay_s: np.ndarray  # float64 [G, D, D]: from its end to their arrival
    reader: np.ndarray  # int [M]: operations to come that read rows after, by row; N is the end
    begin: np.ndarray  # int [L']: where each row's begin in `reader`
    soonest: np.ndarray  # int [K, 3]: of rows that are read soonest, and the first two that do
    waiting: np.ndarray  # int [W]: rows after that operations to come read, not the end


class Diagram(NamedTuple):
    """A problem of N operations on D devices, in layers."""

    problem: Instance
    edges: makespan.Edges
    windows: makespan.Windows  # of any latency
    layers: list[Layer]


def make(problem: Instance, most: int = MOST) -> Diagram | None:
    """Orders a problem in layers; None where a state has more than `most` rows of tensors.

    None also where these have thousands of readers to come: all layers look at them.
    """
    edges = _with_colocation(makespan.edges_of(problem), problem)
    layers = _layers(edges, problem.priority_order, most)
    if layers is None:
        return None
    windows = makespan.windows_of(edges, problem.allowed_compute_s)
    return Diagram(problem, edges, windows, layers)


def _with_colocation(edges: makespan.Edges, problem: Instance) -> makespan.Edges:
    """Adds an edge from each operation to the next of its class, earlier receivers first."""
    classes, order = problem.classes, problem.priority_order
    by_class = order[np.argsort(classes.ids[order], kind="stable")]
    same = classes.ids[by_class[1:]] == classes.ids[by_class[:-1]]
    if not same.any():
        return edges
    num_devices = edges.delay_s.shape[-1]
    here = np.where(np.eye(num_devices, dtype=bool), 0.0, np.inf)
    senders = np.concatenate([np.array(edges.senders, int), by_class[:-1][same]])
    receivers = np.concatenate([np.array(edges.receivers, int), by_class[1:][same]])
    delay_s = np.concatenate([edges.delay_s, np.broadcast_to(here, (same.sum(), *here.shape))])
    sort = np.argsort(np.argsort(order)[receivers], kind="stable")
    return makespan.Edges(senders[sort].tolist(), receivers[sort].tolist(), delay_s[sort])


def _layers(edges: makespan.Edges, order: np.ndarray, most: int) -> list[Layer] | None:
    num_ops, num_devices = len(order), edges.delay_s.shape[-1]
    tensors: list[dict[bytes, set[int]]] = [{} for _ in range(num_ops)]  # readers by delay
    for sender, receiver, delay_s in zip(*edges, strict=True):
        tensors[sender].setdefault(delay_s.tobytes(), set()).add(receiver)
    nothing = np.zeros((num_devices, num_devices)).tobytes()
    place = np.append(np.argsort(order), num_ops).tolist()
    rows: list[frozenset[int]] = []
    layers = []
    for op in order.tolist():
        before = [(row - {op}, n) for n, row in enumerate(rows)]
        after: dict[frozenset[int], int] = {}
        kept: list[tuple[int, int]] = []
        joined: list[tuple[int, int]] = []
        for row, n in before:
            if row:
                pairs = joined if row in after else kept
                pairs.append((after.setdefault(row, len(after)), n))
        own = tensors[op] or {nothing: {num_ops}}
        made = [after.setdefault(frozenset(readers), len(after)) for readers in own.values()]
        delay_s = np.stack([np.frombuffer(text).reshape(num_devices, -1) for text in own])
        reads = [n for n, row in enumerate(rows) if op in row]
        rows = list(after)
        if len(rows) > most or sum(map(len, rows)) > _READERS:
            return None
        readers = [sorted(row, key=place.__getitem__) for row in rows]
        soonest = sorted(range(len(rows)), key=lambda n: place[readers[n][0]])[:_SOONEST]
        layers.append(
            Layer(
                op,
                _ints(reads),
                _ints(kept).reshape(-1, 2),
                _ints(joined).reshape(-1, 2),
                _ints(made),
                delay_s,
                _ints([reader for row in readers for reader in row]),
                _ints([0, *itertools.accumulate(map(len, readers))])[:-1],
                _ints([(n, readers[n][0], readers[n][:2][-1]) for n in soonest]),
                _ints([n for n, row in enumerate(readers) if row[0] < num_ops]),
            )
        )
    return layers


def _ints(values: list) -> np.ndarray:
    return np.array(values, np.int64)
