"""The layers of a decision diagram for `makespan`: one for each operation, in order of priority.

Once the first k operations are placed, the others depend only on when each device is free and when
each tensor that one of them still reads arrives on each device: the *state*. Tensors with the same
remaining readers form one row of the state, because a reader waits for the last of them. So a state
has few rows if the graph is narrow, however long it is.

Co-located operations are joined by artificial tensors that arrive at once on their own device and
never on any other. A tensor without readers is read by the end, which has a row of its own.
"""

import itertools
from typing import NamedTuple

import numpy as np

from placement.instance import Instance
from placement.solvers.bounds import makespan

MAX_ROWS = 512  # rows of a state
_MAX_READERS = 4096  # remaining readers of all rows together
_NUM_FIRST_READERS = 16  # rows whose first readers bound completions


class Layer(NamedTuple):
    """The change of a state's rows when one operation is placed: from L rows to L' new rows."""

    op: int
    input_rows: np.ndarray  # int [R]: the rows that the operation reads
    # New rows that continue old ones: the first old row of each new row is copied, others merged.
    copied_rows: np.ndarray  # int [K, 2]: new row, old row
    merged_rows: np.ndarray  # int [J, 2]: new row, old row
    output_rows: np.ndarray  # int [G]: the new rows of the operation's own tensors
    delay_s: np.ndarray  # float64 [G, D, D]: from its finish to the arrival of these tensors
    readers: np.ndarray  # int [M]: the remaining readers of all new rows, by row; N is the end
    row_starts: np.ndarray  # int [L']: where each row's readers start in `readers`
    first_readers: np.ndarray  # int [K, 3]: the rows read soonest, and their first two readers
    pending_rows: np.ndarray  # int [W]: new rows that an operation still reads, not only the end


class Diagram(NamedTuple):
    """A problem of N operations on D devices, in layers."""

    problem: Instance
    edges: makespan.Edges
    windows: makespan.Windows  # without a limit of the latency
    layers: list[Layer]


def make(problem: Instance, max_rows: int = MAX_ROWS) -> Diagram | None:
    """Orders a problem in layers.

    Returns:
      None if a state has more than `max_rows` rows, or rows with thousands of remaining readers,
      all of which every layer would look at.
    """
    edges = _with_colocation(makespan.collect_edges(problem), problem)
    layers = _layers(edges, problem.priority_order, max_rows)
    if layers is None:
        return None
    windows = makespan.compute_windows(edges, problem.allowed_compute_s)
    return Diagram(problem, edges, windows, layers)


def _with_colocation(edges: makespan.Edges, problem: Instance) -> makespan.Edges:
    """Adds an edge from each operation to the next of its class, earlier receivers first."""
    classes, order = problem.classes, problem.priority_order
    class_order = order[np.argsort(classes.ids[order], kind="stable")]
    is_joined = classes.ids[class_order[1:]] == classes.ids[class_order[:-1]]
    if not is_joined.any():
        return edges
    num_devices, num_joined = edges.delay_s.shape[-1], is_joined.sum()
    same_device_s = np.where(np.eye(num_devices, dtype=bool), 0.0, np.inf)
    senders = np.concatenate([np.array(edges.senders, int), class_order[:-1][is_joined]])
    receivers = np.concatenate([np.array(edges.receivers, int), class_order[1:][is_joined]])
    delay_s = np.concatenate(
        [edges.delay_s, np.broadcast_to(same_device_s, (num_joined, *same_device_s.shape))]
    )
    sort = np.argsort(np.argsort(order)[receivers], kind="stable")
    return makespan.Edges(senders[sort].tolist(), receivers[sort].tolist(), delay_s[sort])


def _layers(edges: makespan.Edges, order: np.ndarray, max_rows: int) -> list[Layer] | None:
    num_ops, num_devices = len(order), edges.delay_s.shape[-1]
    # The readers of each operation's tensors; tensors with equal delays count as one.
    outputs: list[dict[bytes, set[int]]] = [{} for _ in range(num_ops)]
    for sender, receiver, delay_s in zip(*edges, strict=True):
        outputs[sender].setdefault(delay_s.tobytes(), set()).add(receiver)
    no_delay = np.zeros((num_devices, num_devices)).tobytes()
    position = np.append(np.argsort(order), num_ops).tolist()
    rows: list[frozenset[int]] = []  # the remaining readers of each row
    layers = []
    for op in order.tolist():
        new_rows: dict[frozenset[int], int] = {}
        copied: list[tuple[int, int]] = []
        merged: list[tuple[int, int]] = []
        for old_row, readers in enumerate(rows):
            if remaining := readers - {op}:
                pairs = merged if remaining in new_rows else copied
                pairs.append((new_rows.setdefault(remaining, len(new_rows)), old_row))
        own_outputs = outputs[op] or {no_delay: {num_ops}}
        output_rows = [
            new_rows.setdefault(frozenset(readers), len(new_rows))
            for readers in own_outputs.values()
        ]
        delay_s = np.stack([np.frombuffer(key).reshape(num_devices, -1) for key in own_outputs])
        input_rows = [row for row, readers in enumerate(rows) if op in readers]
        rows = list(new_rows)
        if len(rows) > max_rows or sum(map(len, rows)) > _MAX_READERS:
            return None
        row_readers = [sorted(row, key=position.__getitem__) for row in rows]
        soonest = sorted(range(len(rows)), key=lambda row: position[row_readers[row][0]])
        first_readers = [
            (row, row_readers[row][0], row_readers[row][:2][-1])
            for row in soonest[:_NUM_FIRST_READERS]
        ]
        row_starts = [0, *itertools.accumulate(map(len, row_readers))][:-1]
        layers.append(
            Layer(
                op,
                _ints(input_rows),
                _ints(copied).reshape(-1, 2),
                _ints(merged).reshape(-1, 2),
                _ints(output_rows),
                delay_s,
                _ints([reader for readers in row_readers for reader in readers]),
                _ints(row_starts),
                _ints(first_readers),
                _ints([row for row, readers in enumerate(row_readers) if readers[0] < num_ops]),
            )
        )
    return layers


def _ints(values: list) -> np.ndarray:
    return np.array(values, np.int64)
