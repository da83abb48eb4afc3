"""Seeded random problems whose best `makespan` is known: D equal devices, filled without a gap.

`synthetic:family=known_optimum,ops=200,devices=4,density=10,seed=0` names such a problem. It brings
its own devices and costs, as a workload file does, and is made from its best schedule:

1. Every device is busy from 0 to 1 s. Cuts at random instants divide this second among the device's
   operations. The numbers of operations of two devices differ by at most 1.
2. The known schedule admits an edge from u to v if v starts no earlier than u ends, or, on another
   device, no earlier than u's output arrives. Each admissible pair gets an edge with a probability
   of `density` percent. A transfer between two devices takes as long as the mean operation.
3. The simulator runs the operations of a device by decreasing upward rank
   (`placement.simulators.makespan`). An operation whose rank is not above that of its successor on
   its device gets an edge to it, so that the simulator runs them in the order of the schedule.

The known schedule is feasible and takes 1 s. The work is D seconds, which D devices cannot do in
less, in any order. So 1 s is the optimum.

Instants and transfers are multiples of 2^-20 s; the simulator's sums of float32 are exact.

The idea is from Davidovic and Crainic (2006), Benchmark-problem instances for static scheduling of
task graphs with communication delays on homogeneous multiprocessor systems, Computers & Operations
Research 33. There are three departures. Their delays differ between edges and with the distance of
the processors; here all transfers are equal. Density here is a share of the admissible pairs, not
of all pairs. Step 3 is not in the paper.
"""

from typing import Any

import numpy as np

from placement import arguments
from placement.costs import workloads
from placement.costs.workloads import Optimum, Workload

FAMILY = "known_optimum"
OPTIMUM_S = 1.0
_TICKS = 2**20  # per second
_MAX_OPS = 20_000  # the pairs of operations are looked at one by one
_MAX_EDGES = 1_000_000
_DEFAULTS: dict[str, arguments.Value] = {
    "family": FAMILY,
    "ops": 200,
    "devices": 4,
    "density": 10,
    "seed": 0,
}


def build(text: str) -> Workload:
    """A known optimum: equal devices, filled without a gap in 1 s; brings its costs.

    Args:
      text: 'synthetic:family=known_optimum,ops=N,devices=D,density=PERCENT,seed=SEED'. Every
        argument but the family is optional.

    Raises:
      UserError: an argument is not valid.
    """
    values = arguments.split_arguments(text)[1]
    sizes = arguments.convert_arguments(
        text, values, _DEFAULTS, minimums={"devices": 2, "density": 0, "seed": 0}
    )
    num_ops, num_devices, density = sizes["ops"], sizes["devices"], sizes["density"]
    arguments.check_range(f"graph {text!r}: ops", num_ops, num_devices, _MAX_OPS)
    arguments.check_range(f"graph {text!r}: devices", num_devices, 2, workloads.MAX_DEVICES)
    arguments.check_range(f"graph {text!r}: density", density, 0, 100)
    max_edges = num_ops * (num_ops - 1) // 2 * density // 100
    arguments.check_range(f"graph {text!r}: number of edges", max_edges, 0, _MAX_EDGES)
    rng = np.random.default_rng(sizes["seed"])
    rows = []  # device, start and finish of the operations, in ticks
    for index in range(num_devices):
        count = num_ops // num_devices + (index < num_ops % num_devices)
        cuts = 1 + rng.choice(_TICKS - 1, count - 1, replace=False)
        instants = np.sort(np.concatenate([[0], cuts, [_TICKS]]))
        rows.append([np.full(count, index), instants[:-1], instants[1:]])
    schedule = np.concatenate(rows, axis=1)
    schedule = schedule[:, np.argsort(schedule[1], kind="stable")]
    device, start, finish = schedule
    transfer = round(_TICKS * num_devices / num_ops)

    # Edges (sender, receiver), from the last sender to the first, which fixes all ranks.
    rank = np.zeros(num_ops, np.int64)  # the upward rank, in ticks
    edges: list[tuple[int, int]] = []
    for op in range(num_ops - 1, -1, -1):
        is_same_device = device == device[op]
        ready = np.where(is_same_device, finish[op], finish[op] + transfer)
        is_receiver = (start >= ready) & (rng.random(num_ops) < density / 100)
        successor = np.flatnonzero(is_same_device & (start == finish[op]))
        # The mean delay over all pairs of devices counts, also for edges on one device.
        following = (rank[is_receiver] + transfer).max(initial=0)
        if finish[op] - start[op] + following <= rank[successor].max(initial=0):
            is_receiver[successor] = True
            following = max(following, rank[successor].max() + transfer)
        rank[op] = finish[op] - start[op] + following
        edges += [(op, receiver) for receiver in np.flatnonzero(is_receiver).tolist()]
    edges.reverse()
    data: dict[str, Any] = {
        "maxFPGAs": num_devices,
        "maxCPUs": 0,
        "maxSizePerFPGA": 0,
        "nodes": [
            {"id": op, "name": f"op{op}", "cpuLatency": duration_s, "fpgaLatency": duration_s}
            for op, duration_s in enumerate(((finish - start) / _TICKS).tolist())
        ],
        "edges": [
            {"sourceId": sender, "destId": receiver, "cost": transfer / _TICKS}
            for sender, receiver in edges
        ],
    }
    workload = workloads.from_json(data, name=text, objective="makespan")
    return workload._replace(optimum=Optimum(device.astype(np.int32), OPTIMUM_S))
