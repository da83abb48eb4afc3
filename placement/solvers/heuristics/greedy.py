"""The greedy baseline of Tarnawski et al. (NeurIPS 2020) for the latency objective.

Accelerators are filled one after another with the operations of a topological order, each until its
memory is full; what is left goes to the host. Departures: what is placed are co-location classes,
in an order of their own where they have one, else in that of their first operations; a class that
an accelerator does not support goes to the host and leaves the accelerator open. Of an
accelerator's parts the first is used. Where there is no host, the last accelerator takes the rest.
"""

import numpy as np

from placement.graphs import dag
from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from placement.types import Solution


def find(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Fills the accelerators in order; the baseline of Tarnawski et al. (2020)."""
    del seed, limits
    classes = problem.classes
    accelerator = np.asarray(problem.costs.accelerator)
    _, first = np.unique(accelerator, return_index=True)
    parts = np.sort(first[accelerator[first] >= 0]).tolist()
    hosts = np.flatnonzero(accelerator < 0)
    rest = int(hosts[0]) if len(hosts) else parts[-1]
    room = np.asarray(problem.costs.capacity_bytes, np.float64)[parts].tolist()
    placement = np.full(len(classes.memory_bytes), -1)
    current = 0
    for number in _order(problem).tolist():
        needed = classes.memory_bytes[number]
        placement[number] = rest
        if current < len(parts) and classes.allowed[number, parts[current]]:
            while current < len(parts) and needed > room[current]:
                current += 1
            if current < len(parts):
                placement[number] = parts[current]
                room[current] -= needed
    return Solution(placement[classes.ids], evaluations=1)


def _order(problem: Instance) -> np.ndarray:
    """Returns int [C]: the classes in topological order, or as near to one as there is."""
    count = len(problem.class_order)
    order = dag.sort_nodes(count, *dag.quotient(problem.graph, problem.classes.ids))
    return order if len(order) == count else problem.class_order
