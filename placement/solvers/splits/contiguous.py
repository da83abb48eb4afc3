"""What the contiguous splits of a problem under `max_load` are made of.

A placement is contiguous (Tarnawski et al. 2020, arXiv 2006.16423, section 3) where the devices can
be put in an order in which every tensor stays or moves on to a later device. Such are the splits

    {} = I_0 <= I_1 <= ... <= I_D = V    into ideals, device d getting I_d - I_{d-1},

an ideal being a set that holds all that its members read from. The paper's definition looks at one
device at a time (no path leaves it and returns); it admits also {a, d}, {b, c} for a -> b, c -> d,
where either device would have to come first, which no split into ideals yields.

Three things turn operations into the V vertices that are split:

1. Co-location. The operations of a class become one vertex, and so do vertices on a common cycle of
   what results (the paper's section 4.2): no order of the devices could separate them. Nothing is
   lost, but the one device must run all of them.
2. Training graphs (the paper's section 5.3). The backward pass runs over the same devices in the
   reverse order, each with the gradients of what it computed. So of the edges within the backward
   pass each counts *mirrored*, as a constraint from its reader to its sender, and both passes are
   contiguous. Edges from the forward to the backward pass constrain nothing. A backward operation
   co-located with forward ones belongs to their vertex; one without partner is a vertex of its own
   (the paper gives it an artificial partner that costs nothing, which is the same). Departure:
   there are graphs whose backward pass is wired like the forward one, not against it. So a second
   family of splits is searched, where the backward pass runs over the devices in the same order.
3. Operations that cost nothing (a departure: an exact reduction that the paper does not have). Let
   v compute in no time on every device, and let w be the only reader of what v makes. Moving v
   beside w saves its tensors' transfers and costs at most those of the tensors that v reads: where
   these are not dearer, on any device, some optimum has v beside w. Likewise beside u, where all
   that v reads comes from u: what v makes must not be dearer than what it alone reads. v must not
   fill a memory, and w or u has to be its only neighbour on its side, so that no cycle arises.
"""

from typing import NamedTuple

import numpy as np

from placement.errors import UserError
from placement.graphs import dag
from placement.instance import Instance
from placement.simulators import max_load
from placement.types import OpGraph


class Split(NamedTuple):
    """What is split: V vertices, numbered topologically, T tensors, K types of devices."""

    number: np.ndarray  # int [N]: the vertex of every operation
    before: np.ndarray  # int [Q]: vertex before[q] must be in every ideal that holds after[q]
    after: np.ndarray  # int [Q]
    compute_s: np.ndarray  # float64 [V, K]
    memory_bytes: np.ndarray  # float64 [V]
    source: np.ndarray  # int [T]: the vertex that makes a tensor
    tensor: np.ndarray  # int [R]: tensor[r] is read by the vertex reader[r], not its source
    reader: np.ndarray  # int [R]
    in_s: np.ndarray  # float64 [T, K]: what receiving costs; sending below
    out_s: np.ndarray  # float64 [T, K]

    @property
    def num_vertices(self) -> int:
        """V."""
        return len(self.memory_bytes)


class DeviceTypes(NamedTuple):
    """Devices, those that cost the same together."""

    devices: tuple[np.ndarray, ...]  # K arrays of devices
    capacity_bytes: np.ndarray  # float64 [K]

    @property
    def sizes(self) -> tuple[int, ...]:
        """K numbers of devices."""
        return tuple(len(devices) for devices in self.devices)


def splits(problem: Instance) -> tuple[DeviceTypes, list[Split]]:
    """Returns the devices of a problem, and what is split over them, a split a family.

    Raises:
      UserError: a backward operation feeds a forward one, or devices share a limited memory.
    """
    _check(problem)
    columns, types = _device_types(problem)
    families = [False, True] if problem.graph.backward.any() else [False]
    return types, [_family(problem, columns, types, along) for along in families]


def _check(problem: Instance) -> None:
    graph = problem.graph
    wrong = np.flatnonzero(graph.backward[graph.senders] & ~graph.backward[graph.receivers])
    if len(wrong):
        names = [graph.op_names[ends[wrong[0]]] for ends in (graph.senders, graph.receivers)]
        raise UserError(
            f"graph {graph.name!r}: backward operation {names[0]!r} feeds forward operation "
            f"{names[1]!r}; contiguous splits need the passes in order: mark both as backward"
        )
    shared = problem.memory_limits.devices
    shared = shared[shared.sum(axis=1) > 1]
    if len(shared):
        names = [problem.devices[device] for device in np.flatnonzero(shared[0])]
        raise UserError(
            f"devices {', '.join(names)} share one limited memory, which splits into ideals do not "
            "know; give one device an accelerator"
        )


def _device_types(problem: Instance) -> tuple[Split, DeviceTypes]:
    """Returns the problem with operations as vertices, unconstrained, and its device types."""
    graph, costs = problem.graph, problem.costs
    _, first, tensor = np.unique(graph.tensors, return_index=True, return_inverse=True)
    transfer_s = problem.edge_transfer_s[first]
    links = max_load.link_s(transfer_s, np.asarray(costs.accelerator))
    in_s, out_s = (np.asarray(link, np.float64) for link in links)
    compute_s = np.asarray(costs.compute_s, np.float64)
    capacity = np.asarray(costs.capacity_bytes, np.float64)
    same = np.concatenate([compute_s, in_s, out_s, capacity[None]])
    _, chosen, number = np.unique(same, axis=1, return_index=True, return_inverse=True)
    devices = tuple(np.flatnonzero(number.ravel() == k) for k in range(len(chosen)))
    split = Split(
        number=np.arange(graph.num_ops),
        before=np.zeros(0, int),
        after=np.zeros(0, int),
        compute_s=compute_s[:, chosen],
        memory_bytes=np.asarray(costs.memory_bytes, np.float64),
        source=graph.senders[first],
        tensor=tensor,
        reader=graph.receivers,
        in_s=in_s[:, chosen],
        out_s=out_s[:, chosen],
    )
    return split, DeviceTypes(devices, capacity[chosen])


def _family(problem: Instance, columns: Split, types: DeviceTypes, along: bool) -> Split:
    before, after = _constraints(problem.graph, along)
    split = columns._replace(before=before, after=after)
    split = _contract(split, problem.classes.ids)
    split = _contract(split, dag.strong_components(split.num_vertices, split.before, split.after))
    joined = _joined(split, types)
    while joined.max() + 1 < split.num_vertices:
        split = _contract(split, joined)
        joined = _joined(split, types)
    order = dag.sort_nodes(split.num_vertices, split.before, split.after)
    return _contract(split, np.argsort(order))


def _constraints(graph: OpGraph, along: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns edges within a pass; the backward pass's mirrored, unless it runs along."""
    back = graph.backward[graph.senders]
    mirrored = back & (not along)
    within = back == graph.backward[graph.receivers]
    before = np.where(mirrored, graph.receivers, graph.senders)
    after = np.where(mirrored, graph.senders, graph.receivers)
    return before[within], after[within]


def _contract(split: Split, label: np.ndarray) -> Split:
    """Vertices with equal labels, 0 to V' - 1, become one."""
    num_vertices = int(label.max()) + 1
    before, after = dag.quotient_edges(split.before, split.after, label)
    source, reader = label[split.source], label[split.reader]
    apart = reader != source[split.tensor]
    pairs = np.unique(np.stack([split.tensor[apart], reader[apart]]), axis=1)
    kept, tensor = np.unique(pairs[0], return_inverse=True)
    return Split(
        number=label[split.number],
        before=before,
        after=after,
        compute_s=dag.part_sums(label, split.compute_s),
        memory_bytes=np.bincount(label, split.memory_bytes, minlength=num_vertices),
        source=source[kept],
        tensor=tensor,
        reader=pairs[1],
        in_s=split.in_s[kept],
        out_s=split.out_s[kept],
    )


def _joined(split: Split, types: DeviceTypes) -> np.ndarray:
    """Returns int [V]: equal for a vertex that costs nothing and the one it may join.

    All at once: a vertex that joins another alters no third one's case for the worse.
    """
    num_vertices = split.num_vertices
    free = (split.compute_s == 0).all(axis=1)
    if split.memory_bytes.sum() > types.capacity_bytes.min():
        free &= split.memory_bytes == 0
    link_s = np.concatenate([split.in_s, split.out_s], axis=1)
    sets = _Neighbours(
        makes=_grouped(split.source, np.arange(len(split.source)), num_vertices),
        reads=_grouped(split.reader, split.tensor, num_vertices),
        readers=_grouped(split.tensor, split.reader, len(split.source)),
        beside=(
            _grouped(split.before, split.after, num_vertices),
            _grouped(split.after, split.before, num_vertices),
        ),
    )
    joins = [
        (vertex, other)
        for vertex in np.flatnonzero(free).tolist()
        if (other := _beside(vertex, split.source, link_s, sets)) is not None
    ]
    ends = np.array(joins, int).reshape(-1, 2)
    return dag.weak_components(num_vertices, ends[:, 0], ends[:, 1])


class _Neighbours(NamedTuple):
    makes: list[list[int]]  # tensors, by vertex
    reads: list[list[int]]
    readers: list[list[int]]  # vertices, by tensor
    beside: tuple[list[list[int]], list[list[int]]]  # vertices next in either direction, by vertex


def _beside(vertex: int, source: np.ndarray, link_s: np.ndarray, sets: _Neighbours) -> int | None:
    """Returns whom a vertex that costs nothing may join, if any."""
    made, read = sets.makes[vertex], sets.reads[vertex]
    alone = [tensor for tensor in read if sets.readers[tensor] == [vertex]]
    of_reader = {reader for tensor in made for reader in sets.readers[tensor]}
    of_source = set(source[read].tolist())
    for others, spent, saved in ((of_reader, read, made), (of_source, made, alone)):
        if len(others) == 1 and (link_s[spent].sum(axis=0) <= link_s[saved].sum(axis=0)).all():
            (other,) = others
            if any(side[vertex] == [other] for side in sets.beside):
                return other
    return None


def _grouped(keys: np.ndarray, values: np.ndarray, count: int) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in range(count)]
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        groups[key].append(value)
    return groups
