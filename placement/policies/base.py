"""Recipes: a policy's factory, its variants, and the functions that read a problem for it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jraph
import numpy as np

from placement.costs import tables
from placement.graphs import batching, coarsen, intervals
from placement.graphs.features import DEFAULT_BLOCKS, node_features
from placement.instance import Instance
from placement.simulators import ranks
from placement.types import Array, Policy

LARGEST = 16_000  # operations; in a larger graph the policy places groups of them
GROUPS = 64  # the number of these groups: as many as a search of a minute learns to place
# The learner that most 'tuned' variants use.
PPO = {"algorithm": "ppo", "entropy_weight": 0.2}

# `view(problem, num_nodes, num_edges)`: arrays that a policy reads besides the graph, padded to
# these sizes; they become the globals of the policy's graph.
View = Callable[[Instance, int, int], Any]


class PolicyInput(NamedTuple):
    """A problem as a policy reads it."""

    graph: jraph.GraphsTuple  # padded
    # int32 [N]: the node whose device each of the problem's operations takes; None: its own node.
    assignment: Array | None


class Variant(NamedTuple):
    """Hyper-parameters that differ from the defaults of `make`, `read` and the learner."""

    policy: Mapping[str, Any]  # keywords of `make` and `read`
    learner: Mapping[str, Any]  # 'algorithm', and keywords of it and of `learning.base.Settings`
    # A factory and a reader of the variant's own, as in `Recipe`; None: the recipe's.
    make: Callable[..., Policy] | None = None
    read: Callable[..., PolicyInput] | None = None
    # The objectives under which a search starts from parameters that are installed with the
    # library; under others it starts from initial ones.
    shipped: tuple[str, ...] = ()
    # Whether a placement on a single device counts as 1e10 seconds, as in HSDAG's released code.
    single_devices_fail: bool = False
    # The variant without the faults of its authors' code, which `faults=0` selects.
    corrected: "Variant | None" = None


class Recipe(NamedTuple):
    """A learned method: the factory of its policy, its variants, and its reader.

    `make(*, num_devices, ...) -> Policy`: the other keywords are hyper-parameters of the method,
    and so are those of `read` that have a default.
    `variants`: by name. 'tuned' is the default; it performs best here, on networks that a CPU can
    train in seconds. 'paper' has the sizes, the reward and the update of the authors, except for
    the departures that the policy's module lists.
    `read(problem) -> PolicyInput`: if it has a keyword `features`, it takes names of
    `placement.graphs.features.BLOCKS`.
    """

    make: Callable[..., Policy]
    variants: Mapping[str, Variant]
    read: Callable[..., PolicyInput]
    # Whether a trained policy places other graphs, all operations in one step (`zero_shot`).
    zero_shot: bool = False


def read_operations(
    problem: Instance,
    features: tuple[str, ...] = DEFAULT_BLOCKS,
    view: View | None = None,
    num_nodes: int | None = None,
    num_edges: int | None = None,
) -> PolicyInput:
    """Reads a node for every operation. Of co-located operations only the first decides.

    A graph of more than `LARGEST` operations is merged into groups first, see `group_intervals`.

    Args:
      problem: the problem to place.
      features: blocks of features; () for none.
      view: makes the globals of the graph, from the problem that is read.
      num_nodes: padded number of nodes, if nothing is merged; None: that of a bucket.
      num_edges: padded number of edges, likewise.
    """
    if problem.graph.num_ops > LARGEST and not problem.is_colocated:
        return _read_merged(problem, group_intervals(problem, GROUPS), features, view)
    return _read(problem, node_features(problem.graph, features), view, num_nodes, num_edges)


def read_classes(
    problem: Instance,
    features: tuple[str, ...] = DEFAULT_BLOCKS,
    view: View | None = None,
    num_nodes: int | None = None,
    num_edges: int | None = None,
) -> PolicyInput:
    """Reads a node for every class of co-located operations, with the features of its first one.

    The graph of the classes may have cycles, so it is for policies that follow no paths. Without
    co-location this is `read_operations`, whose arguments it has.
    """
    if not problem.is_colocated:
        return read_operations(problem, features, view, num_nodes, num_edges)
    graph, classes = problem.graph, problem.classes
    senders, receivers = classes.ids[graph.senders], classes.ids[graph.receivers]
    between_classes = senders != receivers
    padded = batching.to_graphs_tuple(
        senders[between_classes],
        receivers[between_classes],
        node_features(graph, features)[classes.first_ops],
        classes.allowed,
        num_nodes=num_nodes,
        num_edges=num_edges,
    )
    return PolicyInput(_with_view(jax.device_put(padded), problem, view), classes.ids)


def read_groups(problem: Instance, features: tuple[str, ...] = DEFAULT_BLOCKS) -> PolicyInput:
    """Reads a node for every group of ColocRL's heuristic, see `coarsen.merge_sole_consumers`.

    With co-location, the heuristic works on the graph of the classes' first operations: a class
    joins another one if its first operation serves only that of the other. In a training graph
    these are the operations of the forward pass.
    """
    if problem.is_colocated:
        edges = _edges_between_first_ops(problem)
        num_classes = len(problem.classes.first_ops)
        trees = coarsen.label_sole_consumer_trees(num_classes, edges.senders, edges.receivers)
        return read_classes(_colocate_classes(problem, trees), features)
    return _read_merged(problem, coarsen.merge_sole_consumers(problem.graph), features)


def read_costs(
    problem: Instance, view: View, num_nodes: int | None = None, num_edges: int | None = None
) -> PolicyInput:
    """Reads a node without features for every operation, in a graph of any size.

    Args:
      problem: N operations.
      view: makes the globals of the graph, from the problem's costs.
      num_nodes: padded number of nodes; None: that of a bucket.
      num_edges: padded number of edges; None: that of a bucket.
    """
    return _read(problem, np.zeros((problem.graph.num_ops, 0)), view, num_nodes, num_edges)


def read_cost_groups(problem: Instance, view: View, groups: int) -> PolicyInput:
    """Reads a node without features for every operation or group of operations.

    The graph is padded by one node, not to a bucket: policies that read it take steps for every
    node, and those of padding would be evaluated and change nothing.

    Args:
      problem: N operations.
      view: makes the globals of the graph, from the costs of the operations or groups.
      groups: the largest number of groups, see `group_intervals`; 0: no groups. With co-location
        the groups are of classes, see `colocate_intervals`.
    """
    if not 0 < groups < len(problem.classes.first_ops):
        return read_costs(problem, view, num_nodes=problem.graph.num_ops + 1)
    if problem.is_colocated:
        return read_cost_groups(colocate_intervals(problem, groups), view, 0)
    coarsening = group_intervals(problem, groups)
    merged = merge_groups(problem, coarsening)
    grouped = read_costs(merged, view, num_nodes=coarsening.graph.num_ops + 1)
    return grouped._replace(assignment=coarsening.assignment)


def merge_groups(problem: Instance, coarsening: coarsen.Coarsening) -> Instance:
    """Returns the problem of placing groups of operations."""
    costs = tables.coarse_costs(problem.costs, coarsening.assignment, coarsening.edges)
    return problem._replace(graph=coarsening.graph, costs=costs)


def group_intervals(problem: Instance, num_groups: int) -> coarsen.Coarsening:
    """Groups consecutive operations that the same devices can run; groups take similar times.

    Args:
      problem: N operations without co-location.
      num_groups: see `graphs.intervals.assign_groups`.
    """
    return intervals.group_consecutive_ops(problem.graph, *_weights_and_kinds(problem), num_groups)


def colocate_intervals(problem: Instance, num_groups: int) -> Instance:
    """Co-locates consecutive classes of co-located operations, as `group_intervals` does.

    Classes are in the order of their first operations. In a training graph these are the operations
    of the forward pass, which their gradients and updates follow.

    Args:
      problem: N operations.
      num_groups: see `graphs.intervals.assign_groups`.
    """
    weight, kinds = _weights_and_kinds(problem)
    edges = _edges_between_first_ops(problem)
    return _colocate_classes(problem, intervals.assign_groups(edges, weight, kinds, num_groups))


def _edges_between_first_ops(problem: Instance) -> intervals.Edges:
    """Returns the edges between the first operations of classes; the ends are class numbers."""
    graph, ids = problem.graph, problem.classes.ids
    is_first = problem.leaders == np.arange(graph.num_ops)
    edges = np.flatnonzero(is_first[graph.senders] & is_first[graph.receivers])
    senders, receivers = graph.senders[edges], graph.receivers[edges]
    return intervals.Edges(ids[senders], ids[receivers], graph.edge_bytes[edges])


def _colocate_classes(problem: Instance, class_group: np.ndarray) -> Instance:
    """Co-locates the classes that have equal groups, int [C]."""
    colocation = class_group[problem.classes.ids]
    return problem._replace(graph=dataclasses.replace(problem.graph, colocation=colocation))


def _weights_and_kinds(problem: Instance) -> tuple[np.ndarray, np.ndarray]:
    """Returns the weight of each class, float [C], and a number for its set of devices, int [C]."""
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    mean_s = np.bincount(problem.classes.ids, ranks.finite_mean(compute_s))
    kinds = np.unique(problem.classes.allowed, axis=0, return_inverse=True)[1]
    return mean_s + mean_s.mean(), kinds.ravel()  # no weight is zero


def _read_merged(
    problem: Instance,
    coarsening: coarsen.Coarsening,
    features: tuple[str, ...],
    view: View | None = None,
) -> PolicyInput:
    merged = merge_groups(problem, coarsening)
    graph, _ = _read(merged, node_features(merged.graph, features), view)
    return PolicyInput(graph, coarsening.assignment)


def _read(
    problem: Instance,
    features: np.ndarray,
    view: View | None,
    num_nodes: int | None = None,
    num_edges: int | None = None,
) -> PolicyInput:
    """Reads a node with features [N, F] for every operation."""
    padded = batching.to_graphs_tuple(
        problem.graph.senders,
        problem.graph.receivers,
        features,
        problem.allowed,
        num_nodes=num_nodes,
        num_edges=num_edges,
    )
    num_ops = problem.graph.num_ops
    padded.nodes["mask"][:num_ops] = problem.leaders == np.arange(num_ops)
    # Co-located operations take the device of the first of their class.
    assignment = problem.leaders if problem.is_colocated else None
    return PolicyInput(_with_view(jax.device_put(padded), problem, view), assignment)


def _with_view(graph: jraph.GraphsTuple, problem: Instance, view: View | None) -> jraph.GraphsTuple:
    if view is None:
        return graph
    arrays = view(problem, len(graph.nodes["mask"]), len(graph.senders))
    return graph._replace(globals=jax.device_put(arrays))
