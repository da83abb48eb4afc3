"""Export of problems as workloads in the JSON format of Tarnawski et al. (`workloads` reads it).

Times are in seconds and sizes in bytes. The objectives `max_load` and `subgraph` have the same
values for the workload as for the problem. Other objectives charge a tensor that goes from one
accelerator to another once, and not on its way to the host and from there. The format has no
lifetimes of tensors: a node's size is the memory that it always occupies. Copies of constants on
other devices are left out.

The format has one cost for all outputs of a node. So each further tensor of an operation is sent by
an additional node, which takes no time and is in the operation's colour class.
"""

from typing import Any

import numpy as np

from placement.errors import UserError
from placement.graphs import opgraph
from placement.types import Problem

_MAX_NUMBER = 1e18  # the format's largest number; stands for an unlimited or impossible value


def export_workload(problem: Problem) -> dict[str, Any]:
    """Returns the JSON-able workload of a problem.

    Raises:
      UserError: the format cannot express the problem: devices of one kind differ, a host cannot
        run an operation, or separating the ends of an edge costs more than the transfer.
    """
    graph, costs = problem.graph, problem.costs
    is_host = np.asarray(costs.accelerator) < 0
    compute_s = np.asarray(costs.compute_s, np.float64)
    transfer_costs = (costs.transfer_latency_s, costs.transfer_s_per_byte)
    prefix = f"graph {graph.name!r} on {', '.join(problem.devices)} is no workload: "
    for is_kind, kind in ((is_host, "hosts"), (~is_host, "accelerators")):
        kind_s = compute_s[:, is_kind]
        links = [np.asarray(matrix)[is_kind][:, ~is_kind] for matrix in transfer_costs]
        if (kind_s != kind_s[:, :1]).any() or any((link != link[:1]).any() for link in links):
            raise UserError(f"{prefix}its {kind} differ; give {kind} of one kind")
    if not np.isfinite(compute_s[:, is_host]).all():
        raise UserError(f"{prefix}a host cannot run all operations; give one that can")
    if np.asarray(costs.fusion_loss_s).any():
        raise UserError(
            f"{prefix}separating operations loses fusions; describe devices by rooflines"
        )

    # Every tensor is sent by a node: the first tensor of an operation by the operation itself, each
    # further one by an additional node with a number from N on.
    _, first_edges, tensor_of_edge = np.unique(
        graph.tensors, return_index=True, return_inverse=True
    )
    producers = graph.senders[first_edges]
    is_further = np.ones(len(first_edges), bool)
    is_further[np.unique(producers, return_index=True)[1]] = False
    sending_nodes = np.where(is_further, graph.num_ops - 1 + np.cumsum(is_further), producers)

    cpu_s, fpga_s = compute_s[:, np.argmax(is_host)], compute_s[:, np.argmin(is_host)]
    colour = opgraph.find_leaders(graph)
    nodes: list[dict[str, Any]] = [
        {
            "id": op,
            "name": graph.op_names[op],
            "colorClass": int(colour[op]),
            "cpuLatency": float(cpu_s[op]),
            "fpgaLatency": min(float(fpga_s[op]), _MAX_NUMBER),
            "supportedOnFpga": bool(np.isfinite(fpga_s[op])),
            "isBackwardNode": bool(graph.backward[op]),
            "size": float(costs.memory_bytes[op]),
        }
        for op in range(graph.num_ops)
    ]
    for node, producer in zip(sending_nodes.tolist(), producers, strict=True):
        if node >= graph.num_ops:
            operation = nodes[producer]
            nodes.append(
                operation
                | {"cpuLatency": 0.0, "fpgaLatency": 0.0, "size": 0.0}
                | {"id": node, "name": f"{operation['name']}/output{node}"}
            )

    # Seconds, float64 [E], between an accelerator and the host, or between two devices of a kind.
    accelerators_first = np.argsort(is_host, kind="stable")
    pair = accelerators_first[0], accelerators_first[-1]
    latency_s, s_per_byte = (np.asarray(matrix, np.float64)[pair] for matrix in transfer_costs)
    fixed_s = np.asarray(costs.transfer_fixed_s, np.float64)
    cost_s = fixed_s + latency_s + graph.edge_bytes * s_per_byte
    cost_by_node = {
        node: float(cost_s[edge])
        for node, edge in zip(sending_nodes.tolist(), first_edges, strict=True)
    }
    # All edges of a node cost the same in the format, so an edge to an additional node, which no
    # transfer ever crosses, has the cost of the operation's first tensor.
    edges: list[dict[str, Any]] = [
        {"sourceId": int(producer), "destId": node, "cost": cost_by_node[int(producer)]}
        for node, producer in zip(sending_nodes.tolist(), producers, strict=True)
        if node >= graph.num_ops
    ]
    edges += [
        {
            "sourceId": int(sending_nodes[tensor]),
            "destId": int(graph.receivers[edge]),
            "cost": float(cost_s[edge]),
            "size": int(graph.edge_bytes[edge]),
        }
        for edge, tensor in enumerate(tensor_of_edge)
    ]
    capacity_bytes = np.asarray(costs.capacity_bytes, np.float64)[~is_host].min(initial=np.inf)
    return {
        "maxFPGAs": int((~is_host).sum()),
        "maxCPUs": int(is_host.sum()),
        "maxSizePerFPGA": min(float(capacity_bytes), _MAX_NUMBER),
        "nodes": nodes,
        "edges": edges,
    }
