"""What a method says of its policy: how it is made, its variants, and how it reads a problem."""

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

LARGEST = 16_000  # operations that a policy looks at one by one; of more, at groups
GROUPS = 64  # these, at most: as many as a search of a minute learns to place
# What learns best here, as `python -m experiments.benchmarks learning` prints: most are 'tuned' to
# it.
PPO = {"algorithm": "ppo", "entropy_weight": 0.2}


class PolicyInput(NamedTuple):
    """A problem as a policy reads it."""

    graph: jraph.GraphsTuple  # padded
    # int32 [N], the node that places each of the problem's operations; None: that of its number.
    assignment: Array | None


class Variant(NamedTuple):
    """Hyper-parameters that are not the defaults, which stand where they are defined."""

    policy: Mapping[str, Any]  # of `make` and `read`
    learner: Mapping[str, Any]  # 'algorithm', and what that and `learning.base.Settings` take
    # Where the variant is a policy of its own, as of `Recipe`; None: the recipe's.
    make: Callable[..., Policy] | None = None
    read: Callable[..., PolicyInput] | None = None
    # Whether it begins with the parameters that are installed with the library.
    shipped: bool = False
    # As in HSDAG's released code: a single device counts as 1e10 seconds and is no incumbent.
    single_devices_fail: bool = False
    # What the argument `faults=0` makes of it, where it keeps the faults of its authors' code.
    corrected: "Variant | None" = None


class Recipe(NamedTuple):
    """A policy, how it is trained, and what it reads.

    `make(*, num_devices, ...) -> Policy`; its other keywords are the method's hyper-parameters, as
    are those of `read` that have a default.
    `variants` are by name: 'tuned' is what measures best here, on networks that a CPU trains in
    seconds, and the default; 'paper' has the sizes, the reward and the update of the authors.
    `read(problem) -> PolicyInput`; with a keyword `features` it takes blocks of
    `placement.graphs.features.BLOCKS`.
    """

    make: Callable[..., Policy]
    variants: Mapping[str, Variant]
    read: Callable[..., PolicyInput]


def operations(
    problem: Instance,
    features: tuple[str, ...] = DEFAULT_BLOCKS,
    view: Callable[[Instance, int, int], Any] | None = None,
    num_nodes: int | None = None,
    num_edges: int | None = None,
) -> PolicyInput:
    """Reads a node for every operation; of co-located ones only the first decides.

    Of more than `LARGEST` operations a node for each of some groups, see `intervals_of`.

    Args:
      problem: what is to be placed.
      features: blocks of them.
      view: of the problem that is read and the padded numbers of nodes and of edges; becomes the
        globals.
      num_nodes, num_edges: the padded sizes, of one node an operation; None: of a bucket.
    """
    if problem.graph.num_ops > LARGEST and not problem.is_colocated:
        return _merged(problem, intervals_of(problem, GROUPS), features, view)
    graph = _graph(problem, node_features(problem.graph, features), num_nodes, num_edges)
    return PolicyInput(_viewed(graph, problem, view), _assignment(problem))


def classes(
    problem: Instance,
    features: tuple[str, ...] = DEFAULT_BLOCKS,
    view: Callable[[Instance, int, int], Any] | None = None,
    num_nodes: int | None = None,
    num_edges: int | None = None,
) -> PolicyInput:
    """Reads a node for every class of co-located operations, with the features of its first.

    Where none are co-located, as `operations`. Of two classes each may read the other, so that this
    is for policies that follow no path of edges.

    Args:
      problem, features, view, num_nodes, num_edges: as of `operations`.
    """
    if not problem.is_colocated:
        return operations(problem, features, view, num_nodes, num_edges)
    graph, ids, leaders = problem.graph, problem.classes.ids, problem.classes.first_ops
    senders, receivers = ids[graph.senders], ids[graph.receivers]
    between = senders != receivers
    read = batching.to_graphs_tuple(
        senders[between],
        receivers[between],
        node_features(graph, features)[leaders],
        problem.classes.allowed,
        num_nodes=num_nodes,
        num_edges=num_edges,
    )
    return PolicyInput(_viewed(jax.device_put(read), problem, view), ids)


def groups(problem: Instance, features: tuple[str, ...] = DEFAULT_BLOCKS) -> PolicyInput:
    """Reads a node for every group of ColocRL's heuristic, see `coarsen.sole_consumers`.

    Of operations that are co-located from the start, a class joins another where the first of its
    operations serves the other's alone, of all that are the first of theirs: of a step of training,
    where it does so in the forward pass.
    """
    if problem.is_colocated:
        edges = _between_leaders(problem)
        num_classes = len(problem.classes.first_ops)
        trees = coarsen.sole_consumer_trees(num_classes, edges.senders, edges.receivers)
        return classes(_joined(problem, trees), features)
    return _merged(problem, coarsen.sole_consumers(problem.graph), features)


def costs(
    problem: Instance,
    view: Callable[[Instance, int, int], Any],
    num_nodes: int | None = None,
    num_edges: int | None = None,
) -> PolicyInput:
    """Reads a node for every operation, without features, and what `view` makes of the costs.

    Args:
      problem: N operations.
      view: of the problem and the padded numbers of nodes and of edges; becomes the globals.
      num_nodes: padded number of nodes; None: the bucket's.
      num_edges: padded number of edges; None: the bucket's.
    """
    graph = _graph(problem, np.zeros((problem.graph.num_ops, 0)), num_nodes, num_edges)
    return PolicyInput(_viewed(graph, problem, view), _assignment(problem))


def merge(problem: Instance, of: coarsen.Coarsening) -> Instance:
    """Makes the problem of placing groups, of the one of placing their members."""
    costs_ = tables.coarse_costs(problem.costs, of.assignment, of.edges)
    return problem._replace(graph=of.graph, costs=costs_)


def intervals_of(problem: Instance, num_groups: int) -> coarsen.Coarsening:
    """Groups consecutive operations that the same devices run, about equally long in all.

    Args:
      problem: N operations, of which none follows another.
      num_groups: see `graphs.intervals.group`.
    """
    return intervals.group(problem.graph, *_weights_and_kinds(problem), num_groups)


def colocate(problem: Instance, num_groups: int) -> Instance:
    """Has classes of co-located operations share a device, in groups as those of `intervals_of`.

    Consecutive are classes whose first operations are: of a step of training, those of the forward
    pass, whose gradients and updates follow them.

    Args:
      problem: N operations.
      num_groups: see `graphs.intervals.group`.
    """
    weight, kinds = _weights_and_kinds(problem)
    return _joined(problem, intervals.cut(_between_leaders(problem), weight, kinds, num_groups))


def _between_leaders(problem: Instance) -> intervals.Edges:
    """Returns the edges between the first operations of co-location classes."""
    graph, ids = problem.graph, problem.classes.ids
    leads = problem.leaders == np.arange(graph.num_ops)
    between = np.flatnonzero(leads[graph.senders] & leads[graph.receivers])
    ends = ids[graph.senders[between]], ids[graph.receivers[between]]
    return intervals.Edges(*ends, graph.edge_bytes[between])


def _joined(problem: Instance, of_class: np.ndarray) -> Instance:
    """Co-locates the classes, of co-located operations, that have equal numbers, int [C]."""
    colocation = of_class[problem.classes.ids]
    return problem._replace(graph=dataclasses.replace(problem.graph, colocation=colocation))


def _weights_and_kinds(problem: Instance) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean seconds of each class, none of them zero, and which have equal devices."""
    compute_s = np.asarray(problem.costs.compute_s, np.float64)
    weight = np.bincount(problem.classes.ids, ranks.finite_mean(compute_s))
    kinds = np.unique(problem.classes.allowed, axis=0, return_inverse=True)[1]
    return weight + weight.mean(), kinds.ravel()


def _merged(
    problem: Instance,
    of: coarsen.Coarsening,
    blocks: tuple[str, ...],
    view: Callable[[Instance, int, int], Any] | None = None,
) -> PolicyInput:
    merged = merge(problem, of)
    graph = _graph(merged, node_features(merged.graph, blocks))
    return PolicyInput(_viewed(graph, merged, view), of.assignment)


def _viewed(
    graph: jraph.GraphsTuple, problem: Instance, view: Callable[[Instance, int, int], Any] | None
) -> jraph.GraphsTuple:
    if view is None:
        return graph
    seen = view(problem, len(graph.nodes["mask"]), len(graph.senders))
    return graph._replace(globals=jax.device_put(seen))


def _assignment(problem: Instance) -> np.ndarray | None:
    """Operations follow the first of their class; None where each is alone in its own."""
    return problem.leaders if problem.is_colocated else None


def _graph(
    problem: Instance,
    features: np.ndarray,
    num_nodes: int | None = None,
    num_edges: int | None = None,
) -> jraph.GraphsTuple:
    graph = batching.to_graphs_tuple(
        problem.graph.senders,
        problem.graph.receivers,
        features,
        problem.allowed,
        num_nodes=num_nodes,
        num_edges=num_edges,
    )
    num_ops = problem.graph.num_ops
    decides = problem.leaders == np.arange(num_ops)
    graph.nodes["mask"][:num_ops] = decides
    return jax.device_put(graph)
