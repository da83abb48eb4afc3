"""The greedy baseline of Tarnawski et al. (NeurIPS 2020) for the latency objective.

It fills accelerators one after another with the operations of a topological order, each until its
memory is full; the other operations go to the host. Departures: it places co-location classes, in
their own topological order if they have one, else in the order of their first operations. A class
that an accelerator does not support goes to the host and leaves the accelerator open. It uses the
first part of each accelerator. Without a host, the last accelerator takes the rest.
"""

import numpy as np

from placement.graphs import dag
from placement.instance import Instance
from placement.solvers.limits import SearchLimits
from placement.types import Solution


def fill_accelerators(problem: Instance, seed: int, limits: SearchLimits) -> Solution:
    """Fills the accelerators in order; the baseline of Tarnawski et al. (2020)."""
    del seed, limits
    classes = problem.classes
    accelerator = np.asarray(problem.costs.accelerator)
    _, first = np.unique(accelerator, return_index=True)
    parts = np.sort(first[accelerator[first] >= 0]).tolist()
    hosts = np.flatnonzero(accelerator < 0)
    host = int(hosts[0]) if len(hosts) else parts[-1]
    free_bytes = np.asarray(problem.costs.capacity_bytes, np.float64)[parts].tolist()
    order = dag.sort_nodes(
        len(classes.first_ops),
        *dag.quotient(problem.graph.senders, problem.graph.receivers, classes.ids),
    )
    if len(order) < len(classes.first_ops):  # the classes have no topological order
        order = problem.class_order
    placement = np.full(len(classes.first_ops), -1)
    current = 0
    for number in order.tolist():
        class_bytes = classes.memory_bytes[number]
        placement[number] = host
        if current < len(parts) and classes.allowed[number, parts[current]]:
            while current < len(parts) and class_bytes > free_bytes[current]:
                current += 1
            if current < len(parts):
                placement[number] = parts[current]
                free_bytes[current] -= class_bytes
    return Solution(placement[classes.ids], evaluations=1)
