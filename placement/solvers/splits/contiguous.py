"""The graphs that contiguous splits under `max_load` cut into parts.

A placement is contiguous (Tarnawski et al. 2020, arXiv 2006.16423, section 3) if the devices have
an order in which every tensor stays on its device or moves on to a later one. Such placements are
the splits into ideals

    {} = I_0 <= I_1 <= ... <= I_D = V,    device d computes I_d - I_{d-1},

where an ideal is a set that contains everything its members read from. The paper's definition
checks one device at a time: no path leaves it and returns. That admits also {a, d}, {b, c} for
a -> b, c -> d, where each device would have to come first. No split into ideals yields it.

The operations of a decision become one vertex. Vertices on a common cycle of the result
become one vertex too, because no order of the devices could separate them (the paper's section
4.2). Nothing is lost, but a single device must run all of them.

In a training graph (the paper's section 5.3), the backward pass runs over the same devices in the
reverse order. So an edge within it counts *mirrored*, as a constraint from its reader to its
sender, and both passes are contiguous. Edges from the forward to the backward pass constrain
nothing. Departures: a backward operation without a forward partner is a separate vertex, where
the paper adds a partner of no cost. Some graphs wire their backward pass like the forward one, so a
second graph has the backward pass in the same order. Operations of no cost join a neighbour.
"""

from typing import NamedTuple

import numpy as np

from placement.errors import UserError
from placement.graphs import dag
from placement.problem import Problem
from placement.simulators import max_load
from placement.solvers.splits.ideals import VertexGraph


class DeviceTypes(NamedTuple):
    """The K types of devices; devices of one type cost the same."""

    devices: tuple[np.ndarray, ...]  # K arrays of devices
    capacity_bytes: np.ndarray  # float64 [K]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of devices of each type."""
        return tuple(len(devices) for devices in self.devices)


def build_vertex_graphs(problem: Problem) -> tuple[DeviceTypes, list[VertexGraph]]:
    """Returns the device types of a problem, and one or two graphs of vertices to split.

    Raises:
      UserError: a backward operation feeds a forward one, or devices share a limited memory.
    """
    graph, costs, memory_users = problem.graph, problem.costs, problem.memory_limits.devices
    is_wrong = graph.backward[graph.senders] & ~graph.backward[graph.receivers]
    if is_wrong.any():
        edge = int(is_wrong.argmax())
        names = [graph.op_names[ends[edge]] for ends in (graph.senders, graph.receivers)]
        raise UserError(
            f"graph {graph.name!r}: backward operation {names[0]!r} feeds forward operation "
            f"{names[1]!r}; contiguous splits need the passes in order: mark both as backward"
        )
    is_shared = memory_users.sum(axis=1) > 1
    if is_shared.any():
        names = [problem.devices[d] for d in np.flatnonzero(memory_users[is_shared.argmax()])]
        raise UserError(
            f"devices {', '.join(names)} share one limited memory, which splits into ideals do not "
            "support; use one device an accelerator"
        )

    _, first, tensor = np.unique(graph.tensors, return_index=True, return_inverse=True)
    receive_s, send_s = max_load.compute_link_costs(
        problem.edge_transfer_s[first].astype(np.float64), np.asarray(costs.accelerator)
    )
    compute_s = np.asarray(costs.compute_s, np.float64)
    capacity = np.asarray(costs.capacity_bytes, np.float64)
    columns = np.concatenate([compute_s, receive_s, send_s, capacity[None]])
    _, column, type_ids = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    devices = tuple(np.flatnonzero(type_ids.ravel() == k) for k in range(len(column)))
    types = DeviceTypes(devices, capacity[column])
    operations = VertexGraph(
        vertex_ids=problem.decisions.first_ops,
        predecessors=np.zeros(0, int),
        successors=np.zeros(0, int),
        compute_s=compute_s[:, column],
        memory_bytes=np.asarray(costs.memory_bytes, np.float64),
        source=graph.senders[first],
        read_tensor=tensor,
        reader=graph.receivers,
        receive_s=receive_s[:, column],
        send_s=send_s[:, column],
    )

    is_backward = graph.backward[graph.senders]
    is_within_pass = is_backward == graph.backward[graph.receivers]
    vertex_graphs = []
    for mirrors_backward in (True, False) if graph.backward.any() else (True,):
        is_mirrored = is_backward & mirrors_backward
        vertices = operations._replace(
            predecessors=np.where(is_mirrored, graph.receivers, graph.senders)[is_within_pass],
            successors=np.where(is_mirrored, graph.senders, graph.receivers)[is_within_pass],
        )
        vertices = _contract(vertices, problem.decision)
        ends = vertices.predecessors, vertices.successors
        vertices = _contract(vertices, dag.components("strong", vertices.num_vertices, *ends))
        labels = _label_merges(vertices, types)
        while labels.max() + 1 < vertices.num_vertices:
            vertices = _contract(vertices, labels)
            labels = _label_merges(vertices, types)
        ends = vertices.predecessors, vertices.successors
        order = dag.sort_nodes(vertices.num_vertices, *ends)
        vertex_graphs.append(_contract(vertices, np.argsort(order)))
    return types, vertex_graphs


def _contract(vertices: VertexGraph, labels: np.ndarray) -> VertexGraph:
    """Makes one vertex of all vertices with equal labels, int [V] from 0 to V' - 1."""
    predecessors, successors = dag.quotient(vertices.predecessors, vertices.successors, labels)
    source, reader = labels[vertices.source], labels[vertices.reader]
    is_outer = reader != source[vertices.read_tensor]
    reads = np.unique(np.stack([vertices.read_tensor[is_outer], reader[is_outer]]), axis=1)
    tensors, read_tensor = np.unique(reads[0], return_inverse=True)
    return VertexGraph(
        vertex_ids=labels[vertices.vertex_ids],
        predecessors=predecessors,
        successors=successors,
        compute_s=dag.sum_by_part(labels, vertices.compute_s),
        memory_bytes=np.bincount(labels, vertices.memory_bytes, minlength=int(labels.max()) + 1),
        source=source[tensors],
        read_tensor=read_tensor,
        reader=reads[1],
        receive_s=vertices.receive_s[tensors],
        send_s=vertices.send_s[tensors],
    )


def _label_merges(vertices: VertexGraph, types: DeviceTypes) -> np.ndarray:
    """Returns int [V]: equal labels for a vertex of no cost and the neighbour that it joins.

    Let v take no time on any device, and let w be the only reader of v's tensors. Moving v to w's
    device saves the transfers of v's tensors and adds at most those of the tensors that v reads. If
    the added ones cost no more on any device, some optimum has v next to w. The same holds for u,
    if u produces everything that v reads and v's tensors cost no more than those that v alone
    reads. v must not fill a memory, and must have no other neighbour on that side, so that no cycle
    arises.

    All merges are found at once: one that happens does not invalidate another.
    """
    num_vertices, num_tensors = vertices.num_vertices, len(vertices.source)
    produced = dag.list_by_node(num_vertices, vertices.source, np.arange(num_tensors))
    read = dag.list_by_node(num_vertices, vertices.reader, vertices.read_tensor)
    readers = dag.list_by_node(num_tensors, vertices.read_tensor, vertices.reader)
    neighbours = (
        dag.list_by_node(num_vertices, vertices.predecessors, vertices.successors),
        dag.list_by_node(num_vertices, vertices.successors, vertices.predecessors),
    )
    link_s = np.concatenate([vertices.receive_s, vertices.send_s], axis=1)

    def find_neighbour(v: int) -> int | None:
        """Returns the neighbour that a vertex of no cost may join, if any."""
        only_read_here = [tensor for tensor in read[v] if readers[tensor] == [v]]
        all_readers = {reader for tensor in produced[v] for reader in readers[tensor]}
        all_sources = set(vertices.source[read[v]].tolist())
        for partners, added, saved in (
            (all_readers, read[v], produced[v]),
            (all_sources, produced[v], only_read_here),
        ):
            is_cheaper = (link_s[added].sum(axis=0) <= link_s[saved].sum(axis=0)).all()
            if len(partners) == 1 and is_cheaper:
                (partner,) = partners
                if any(side[v] == [partner] for side in neighbours):
                    return partner
        return None

    is_free = (vertices.compute_s == 0).all(axis=1)
    if vertices.memory_bytes.sum() > types.capacity_bytes.min():
        is_free &= vertices.memory_bytes == 0
    merges = [
        (v, partner)
        for v in np.flatnonzero(is_free).tolist()
        if (partner := find_neighbour(v)) is not None
    ]
    ends = np.array(merges, int).reshape(-1, 2)
    return dag.components("weak", num_vertices, ends[:, 0], ends[:, 1])
