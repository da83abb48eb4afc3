"""Problems as workloads in the JSON format of Tarnawski et al., which `workloads` reads back.

Numbers are seconds and bytes. Objectives `max_load` and `subgraph` have the same values there;
others charge a tensor that goes from one accelerator to another once, and not on its way to the
host and on. What is alive over time is not in the format: a node's size is what it always occupies.

The format has one cost for all that a node sends. So each further tensor of an operation is sent by
a node of its own, which takes no time and is in the operation's colour class.
"""

from typing import Any, NamedTuple

import numpy as np

from placement.errors import UserError
from placement.graphs import opgraph
from placement.types import OpGraph, Problem

_LARGEST = 1e18  # that the format takes: of what is unlimited, or runs nowhere


class _Senders(NamedTuple):
    """Which nodes send the T tensors of N operations."""

    edge: np.ndarray  # int [T]: the first that carries the tensor
    node: np.ndarray  # int [T]: its operation, or a node from N on
    of_edge: np.ndarray  # int [E]: which tensor


def workload(problem: Problem) -> dict[str, Any]:
    """Returns the JSON-able workload of a problem.

    Raises:
      UserError: the format cannot say it: devices of a kind differ, a host cannot run an operation,
        or separating an edge's ends costs more than its transfer.
    """
    is_host = np.asarray(problem.costs.accelerator) < 0
    _check(problem, is_host)
    senders = _senders(problem.graph)
    capacity = np.asarray(problem.costs.capacity_bytes, np.float64)[~is_host].min(initial=np.inf)
    return {
        "maxFPGAs": int((~is_host).sum()),
        "maxCPUs": int(is_host.sum()),
        "maxSizePerFPGA": min(float(capacity), _LARGEST),
        "nodes": _nodes(problem, is_host, senders),
        "edges": _edges(problem, is_host, senders),
    }


def _check(problem: Problem, is_host: np.ndarray) -> None:
    costs = problem.costs
    told = f"graph {problem.graph.name!r} on {', '.join(problem.devices)} is no workload: "
    for some, what in ((is_host, "hosts"), (~is_host, "accelerators")):
        of_kind = np.asarray(costs.compute_s)[:, some]
        links = [np.asarray(of)[some][:, ~some] for of in _links(problem)]
        if (of_kind != of_kind[:, :1]).any() or any((of != of[:1]).any() for of in links):
            raise UserError(f"{told}its {what} differ; give {what} of one kind")
    if not np.isfinite(np.asarray(costs.compute_s)[:, is_host]).all():
        raise UserError(f"{told}a host cannot run all operations; give one that can")
    if np.asarray(costs.fusion_loss_s).any():
        raise UserError(f"{told}separating operations loses fusions; describe devices by rooflines")


def _links(problem: Problem) -> tuple[Any, Any]:
    return problem.costs.transfer_latency_s, problem.costs.transfer_s_per_byte


def _senders(graph: OpGraph) -> _Senders:
    _, edge, of_edge = np.unique(graph.tensors, return_index=True, return_inverse=True)
    sender = graph.senders[edge]
    further = np.ones(len(edge), bool)
    further[np.unique(sender, return_index=True)[1]] = False
    node = np.where(further, graph.num_ops - 1 + np.cumsum(further), sender)
    return _Senders(edge, node, of_edge)


def _nodes(problem: Problem, is_host: np.ndarray, senders: _Senders) -> list[dict[str, Any]]:
    graph, costs = problem.graph, problem.costs
    seconds = np.asarray(costs.compute_s, np.float64).T
    cpu_s, fpga_s = seconds[np.argmax(is_host)], seconds[np.argmin(is_host)]
    color = opgraph.representatives(graph)
    nodes = [
        {
            **{"id": op, "name": graph.op_names[op], "colorClass": int(color[op])},
            **{"cpuLatency": float(cpu_s[op]), "fpgaLatency": min(float(fpga_s[op]), _LARGEST)},
            **{"supportedOnFpga": bool(np.isfinite(fpga_s[op]))},
            **{"isBackwardNode": bool(graph.backward[op]), "size": float(costs.memory_bytes[op])},
        }
        for op in range(graph.num_ops)
    ]
    free = {"cpuLatency": 0.0, "fpgaLatency": 0.0, "size": 0.0}
    for node, edge in zip(senders.node.tolist(), senders.edge, strict=True):
        if node >= graph.num_ops:
            of = nodes[graph.senders[edge]]
            nodes.append(of | free | {"id": node, "name": f"{of['name']}/output{node}"})
    return nodes


def _edges(problem: Problem, is_host: np.ndarray, senders: _Senders) -> list[dict[str, Any]]:
    graph = problem.graph
    cost = _sent_s(problem, is_host)
    sent = {
        node: {"sourceId": int(graph.senders[edge]), "destId": node, "cost": float(cost[edge])}
        for node, edge in zip(senders.node.tolist(), senders.edge, strict=True)
    }
    # What an operation sends costs the same on each of its edges, also those that never cross.
    to_further = [
        edge | {"cost": sent[edge["sourceId"]]["cost"]}
        for node, edge in sent.items()
        if node >= graph.num_ops
    ]
    return to_further + [
        {
            **{"sourceId": int(senders.node[tensor]), "destId": int(graph.receivers[edge])},
            **{"cost": float(cost[edge]), "size": int(graph.edge_bytes[edge])},
        }
        for edge, tensor in enumerate(senders.of_edge)
    ]


def _sent_s(problem: Problem, is_host: np.ndarray) -> np.ndarray:
    """Seconds, float64 [E], between an accelerator and the host, or between two of a kind."""
    order = np.argsort(is_host, kind="stable")  # accelerators first
    pair = order[0], order[-1]
    latency_s, s_per_byte = (np.asarray(of, np.float64)[pair] for of in _links(problem))
    fixed_s = np.asarray(problem.costs.transfer_fixed_s, np.float64)
    return fixed_s + latency_s + problem.graph.edge_bytes * s_per_byte
