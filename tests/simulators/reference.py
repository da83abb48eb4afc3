"""The objectives in plain Python, and the random problems on which they are compared.

Nothing here is shared with `placement.simulators`: dictionaries, loops and a queue of events.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from placement.problem import Problem
from tests import helpers

# (N, E, tensors, D): each compiles once an objective and serves many random graphs.
SIZES = [
    (3, 4, 2, 3),
    (4, 3, 3, 1),
    (6, 2, 1, 4),
    (8, 12, 6, 3),
    (8, 20, 14, 2),
    (12, 18, 4, 5),
    (20, 50, 25, 3),
    (30, 34, 24, 4),
]
DRAWS, BATCH = 16, 18


class Tensor(NamedTuple):
    sender: int
    num_bytes: int
    transfer_fixed_s: float
    readers: list[int]  # an operation may occur twice


class Plain(NamedTuple):
    """A problem without arrays."""

    num_ops: int
    num_devices: int
    edges: list[tuple[int, int, Tensor, float]]  # sender, receiver, tensor, fusion_loss_s
    tensors: list[Tensor]
    compute_s: list[list[float]]
    latency_s: list[list[float]]
    s_per_byte: list[list[float]]
    accelerator: list[int]
    order: list[int]  # by which `makespan` runs, empty for other objectives


def plain(problem: Problem) -> Plain:
    graph, costs = problem.graph, problem.costs
    tensors: dict[int, Tensor] = {}
    edges = []
    for edge, number in enumerate(graph.tensors.tolist()):
        sender, receiver = int(graph.senders[edge]), int(graph.receivers[edge])
        if number not in tensors:
            transfer_fixed_s = float(costs.transfer_fixed_s[edge])
            tensors[number] = Tensor(sender, int(graph.edge_bytes[edge]), transfer_fixed_s, [])
        tensors[number].readers.append(receiver)
        edges.append((sender, receiver, tensors[number], float(costs.fusion_loss_s[edge])))
    return Plain(
        num_ops=graph.num_ops,
        num_devices=len(problem.devices),
        edges=edges,
        tensors=list(tensors.values()),
        compute_s=np.asarray(costs.compute_s).tolist(),
        latency_s=np.asarray(costs.transfer_latency_s).tolist(),
        s_per_byte=np.asarray(costs.transfer_s_per_byte).tolist(),
        accelerator=np.asarray(costs.accelerator).tolist(),
        order=problem.priority_order.tolist() if problem.objective == "makespan" else [],
    )


def transfer(p: Plain, tensor: Tensor, source: int, device: int) -> float:
    if source == device:
        return 0.0
    per_byte = p.s_per_byte[source][device]
    return p.latency_s[source][device] + tensor.num_bytes * per_byte + tensor.transfer_fixed_s


def serial(p: Plain, placement: list[int]) -> float:
    """One thing after another: computations, transfers, cuts."""
    total = 0.0
    for op in range(p.num_ops):
        total += p.compute_s[op][placement[op]]
    for tensor in p.tensors:
        source = placement[tensor.sender]
        for device in {placement[reader] for reader in tensor.readers}:
            total += transfer(p, tensor, source, device)
    for sender, receiver, _, fusion_loss_s in p.edges:
        if placement[sender] != placement[receiver]:
            total += fusion_loss_s
    return total


def makespan(p: Plain, placement: list[int]) -> float:
    """A clock, and events at which an operation ends or an input arrives.

    Every device has a queue of its operations, of which the first one starts next.
    """
    queue: list[deque[int]] = [deque() for _ in range(p.num_devices)]
    for op in p.order:
        queue[placement[op]].append(op)
    leaving: dict[int, list[tuple[int, Tensor, float]]] = {op: [] for op in range(p.num_ops)}
    missing = dict.fromkeys(range(p.num_ops), 0)
    for sender, receiver, tensor, fusion_loss_s in p.edges:
        leaving[sender].append((receiver, tensor, fusion_loss_s))
        missing[receiver] += 1
    events: list[tuple[float, str, int]] = []
    busy, ended, now = set(), 0, 0.0

    def start_next(device: int) -> None:
        if device not in busy and queue[device] and not missing[queue[device][0]]:
            op = queue[device].popleft()
            busy.add(device)
            happen(now + p.compute_s[op][device], "end", op)

    def happen(time: float, what: str, op: int) -> None:
        if time < np.inf:
            heapq.heappush(events, (time, what, op))

    for device in range(p.num_devices):
        start_next(device)
    while events:
        now, what, op = heapq.heappop(events)
        here = placement[op]
        if what == "end":
            ended += 1
            busy.remove(here)
            for receiver, tensor, fusion_loss_s in leaving[op]:
                there = placement[receiver]
                under_way = 0 if there == here else transfer(p, tensor, here, there) + fusion_loss_s
                happen(now + under_way, "arrival", receiver)
        else:
            missing[op] -= 1
        start_next(here)
    return now if ended == p.num_ops else np.inf


def load(p: Plain, placement: list[int], device: int) -> float:
    """What keeps a device busy for one sample."""
    total = 0.0
    for op in range(p.num_ops):
        if placement[op] == device:
            total += p.compute_s[op][device]
    if p.accelerator[device] < 0:
        return total
    hosts = [other for other in range(p.num_devices) if p.accelerator[other] < 0]
    others = [other for other in range(p.num_devices) if other != device]
    ends = hosts[:1] or others
    for tensor in p.tensors:
        readers = {placement[reader] for reader in tensor.readers}
        if placement[tensor.sender] != device and device in readers:
            total += max(transfer(p, tensor, end, device) for end in ends)
        if placement[tensor.sender] == device and readers != {device}:
            total += max(transfer(p, tensor, device, end) for end in ends)
    return total


def max_load(p: Plain, placement: list[int]) -> float:
    return max(load(p, placement, device) for device in range(p.num_devices))


def subgraph(p: Plain, placement: list[int]) -> float:
    """The longest path among parts and host operations, which are finished one by one."""
    node_of: list[tuple[str, int]] = []
    takes = {}
    for op, device in enumerate(placement):
        on_host = p.accelerator[device] < 0
        node_of.append(("op", op) if on_host else ("part", device))
        if on_host:
            takes["op", op] = p.compute_s[op][device]
    last_part: dict[int, int] = {}
    after = set()
    for device, number in enumerate(p.accelerator):
        if number >= 0:
            takes["part", device] = load(p, placement, device)
            if number in last_part:
                after.add((("part", last_part[number]), ("part", device)))
            last_part[number] = device
    for sender, receiver, _, _ in p.edges:
        if node_of[sender] != node_of[receiver]:
            after.add((node_of[sender], node_of[receiver]))
    finish: dict[tuple[str, int], float] = {}
    while len(finish) < len(takes):
        waiting = {later for earlier, later in after if earlier not in finish}
        ready = takes.keys() - finish.keys() - waiting
        if not ready:
            return np.inf
        for node in ready:
            inputs = [finish[earlier] for earlier, later in after if later == node]
            finish[node] = max(inputs, default=0.0) + takes[node]
    return max(finish.values())


LATENCY = {"serial": serial, "makespan": makespan, "max_load": max_load, "subgraph": subgraph}


def latencies(problem: Problem, placements: np.ndarray) -> list[float]:
    p, devices = plain(problem), problem.expand(placements)
    return [LATENCY[problem.objective](p, row) for row in devices.tolist()]


def outcomes(
    problem: Problem, placements: np.ndarray
) -> tuple[list[float], list[float], list[bool]]:
    """Latency, overflow and whether it is feasible, of each placement."""
    latency_s = latencies(problem, placements)
    accelerator = problem.costs.accelerator.tolist()
    memories = [("host", d) if a < 0 else ("accelerator", a) for d, a in enumerate(accelerator)]
    capacity = dict(zip(memories, problem.costs.capacity_bytes.tolist(), strict=True))
    overflow, feasible = [], []
    for row, placement in enumerate(problem.expand(placements).tolist()):
        used = dict.fromkeys(capacity, 0.0)
        for op, device in enumerate(placement):
            used[memories[device]] += float(problem.costs.memory_bytes[op])
        shares = [
            max(0.0, used[m] - capacity[m]) / max(capacity[m], 1.0)
            for m in capacity
            if capacity[m] < np.inf
        ]
        overflow.append(max(shares, default=0.0))
        feasible.append(latency_s[row] < np.inf and overflow[row] == 0)
    return latency_s, overflow, feasible


def random_problem(
    rng: np.random.Generator,
    objective: str,
    size: tuple[int, int, int, int],
    *,
    colocated: float = 0.0,
    limited: float = 0.0,
    shared: bool = False,
) -> tuple[Problem, np.ndarray]:
    """A problem of the given (N, E, tensors, D), and placements int32 [BATCH, K].

    Problems of one size share their compilation. Where `shared`, several devices may be parts
    of one accelerator.
    """
    num_ops, num_edges, num_tensors, num_devices = size
    base = helpers.random_dag_of_size(
        np.random.default_rng(list(size)), num_ops, num_edges, num_tensors
    )
    graph = helpers.rewired(rng, base, colocated=colocated)
    costs = helpers.random_costs(
        rng,
        graph,
        num_devices,
        unsupported=rng.choice([0, 0, 0.03]),
        unlinked=rng.choice([0, 0, 0.1]),
        limited=limited,
        transfer=rng.random() < 0.7,
        accelerator=helpers.random_accelerators(
            rng, num_devices, shared=shared and rng.random() < 0.7
        ),
    )
    placements = helpers.random_placements(rng, graph, num_devices, BATCH)
    return helpers.as_problem(graph, costs, objective), placements


def random_problems(
    objective: str, size: tuple[int, int, int, int], **options: float
) -> Iterator[tuple[Problem, np.ndarray]]:
    """`DRAWS` of them, the same at every call."""
    rng = np.random.default_rng(list(size))
    for _ in range(DRAWS):
        yield random_problem(rng, objective, size, **options)
