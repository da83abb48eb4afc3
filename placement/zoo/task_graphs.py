"""Random task graphs on random device networks, as in the evaluation of GiPH.

`synthetic:family=task_graph,ops=15,devices=20,seed=0,network=0` names such a problem, which brings
its own devices and costs. The graph follows from `seed`, the devices from `network`, so that one
graph can be placed on many networks. The distributions are those of the settings of the released
code of GiPH (Hu et al. 2023, arXiv 2305.14562):

- About sqrt(ops) / shape layers, 20% more or less, of up to 2 shape sqrt(ops) operations each,
  between one entry and one exit. `shape` is 10, 20 or 30 percent.
- An operation reads each one in earlier layers with a probability of `density` percent, 10 or 20. A
  path visits all layers, and no operation is without input or reader but the entry and the exit.
- Work is uniform in 100 +- 20%, tensors likewise, the speeds of devices in 5 +- 40%, the bandwidths
  of links in 100 +- 40%, their latencies in [0, 20]. Times have no unit; they count as seconds.
- An operation is of one of 5 kinds. A device supports each kind with a probability of 20%, but at
  least one kind, and some device supports each kind.

The number of operations is random: `ops` is only its scale.
"""

import itertools

import numpy as np

from placement import arguments
from placement.costs.workloads import Workload
from placement.graphs import opgraph
from placement.types import CostModel, OpGraph

FAMILY = "task_graph"
_NUM_KINDS = 5
_SUPPORTED_SHARE = 0.2
_WORK, _BYTES, _SPEED, _BANDWIDTH = (100.0, 0.2), (100.0, 0.2), (5.0, 0.4), (100.0, 0.4)
_MAX_LATENCY = 20.0
_BYTES_UNIT = 1e6  # whole bytes of one unit of a tensor's size
_DEFAULTS: dict[str, arguments.Value] = {
    "family": FAMILY,
    "ops": 15,
    "devices": 20,
    "shape": 20,
    "density": 10,
    "seed": 0,
    "network": 0,
}


def build(text: str) -> Workload:
    """A random task graph on a random network of devices; brings its costs.

    Args:
      text: 'synthetic:family=task_graph,ops=N,devices=D,shape=PERCENT,density=PERCENT,seed=SEED,
        network=SEED'. Every argument but the family is optional.

    Raises:
      UserError: an argument is not valid.
    """
    values = arguments.split_arguments(text)[1]
    sizes = arguments.convert_arguments(
        text, values, _DEFAULTS, minimums={"devices": 2, "density": 0, "seed": 0, "network": 0}
    )
    rng = np.random.default_rng([sizes["seed"], sizes["ops"]])
    layers = _draw_layers(rng, sizes["ops"], sizes["shape"] / 100)
    pairs = _draw_edges(rng, layers, sizes["density"] / 100)
    num_ops = layers[-1][-1] + 1
    kind = rng.integers(0, _NUM_KINDS, num_ops)
    senders, receivers = np.array(sorted(pairs)).T
    # Every edge carries a tensor of its own.
    graph = opgraph.make_graph(
        name=text,
        op_names=[f"op{i}" for i in range(num_ops)],
        op_types=[f"Kind{k}" for k in kind],
        senders=senders,
        receivers=receivers,
        edge_bytes=np.rint(_BYTES_UNIT * _draw(rng, _BYTES, len(senders))).astype(np.int64),
        tensors=np.arange(len(senders)),
    )
    work = _draw(rng, _WORK, num_ops)
    network_rng = np.random.default_rng([sizes["network"], sizes["devices"]])
    costs = _draw_costs(network_rng, graph, work, kind, sizes["devices"])
    return Workload(graph, costs, tuple(f"device{i}" for i in range(sizes["devices"])))


def _draw(rng: np.random.Generator, scale: tuple[float, float], size: int) -> np.ndarray:
    mean, deviation = scale
    return rng.uniform(mean * (1 - deviation), mean * (1 + deviation), size)


def _draw_layers(rng: np.random.Generator, ops: int, shape: float) -> list[list[int]]:
    """Draws the numbers of the operations of each layer, the entry and the exit included."""
    height = int(np.ceil(np.sqrt(ops) / shape * rng.uniform(0.8, 1.2)))
    widths = np.ceil(rng.uniform(0, 2 * shape * np.sqrt(ops), height)).astype(int)
    ends = np.cumsum([1, *np.maximum(widths, 1), 1])
    return [list(range(start, end)) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _draw_edges(
    rng: np.random.Generator, layers: list[list[int]], density: float
) -> set[tuple[int, int]]:
    """Draws edges (sender, receiver) from earlier to later layers."""
    edges: set[tuple[int, int]] = set()
    for layer in layers[1:-1]:
        for op in layer:
            edges |= {(int(u), op) for u in np.flatnonzero(rng.random(layer[0]) < density)}
    path = [int(rng.choice(layer)) for layer in layers]
    edges |= set(itertools.pairwise(path))
    num_ops = layers[-1][-1] + 1
    for layer in layers[1:-1]:
        for op in layer:
            if all(receiver != op for _, receiver in edges):
                edges.add((int(rng.integers(0, layer[0])), op))
            if all(sender != op for sender, _ in edges):
                edges.add((op, int(rng.integers(layer[-1] + 1, num_ops))))
    return edges


def _draw_costs(
    rng: np.random.Generator, graph: OpGraph, work: np.ndarray, kind: np.ndarray, num_devices: int
) -> CostModel:
    """Draws the devices, and computes the costs of operations with work and kinds [N]."""

    def draw_links(low: float, high: float) -> np.ndarray:
        upper = np.triu(rng.uniform(low, high, (num_devices, num_devices)), k=1)
        return upper + upper.T

    speed = _draw(rng, _SPEED, num_devices)
    latency_s = draw_links(0.0, _MAX_LATENCY)
    mean, deviation = _BANDWIDTH
    s_per_unit = draw_links((1 - deviation) / mean, (1 + deviation) / mean)
    supports = rng.random((num_devices, _NUM_KINDS)) < _SUPPORTED_SHARE
    idle = np.flatnonzero(~supports.any(axis=1))
    supports[idle, rng.integers(0, _NUM_KINDS, len(idle))] = True
    for missing in np.flatnonzero(~supports.any(axis=0)):
        supports[rng.integers(num_devices), missing] = True
    compute_s = np.where(supports[:, kind].T, work[:, None] / speed, np.inf)
    return CostModel(
        compute_s=compute_s.astype(np.float32),
        transfer_latency_s=latency_s.astype(np.float32),
        transfer_s_per_byte=(s_per_unit / _BYTES_UNIT).astype(np.float32),
        transfer_fixed_s=np.zeros(graph.num_edges, np.float32),
        fusion_loss_s=np.zeros(graph.num_edges, np.float32),
        memory_bytes=np.zeros(graph.num_ops, np.float32),
        capacity_bytes=np.full(num_devices, np.inf, np.float32),
        accelerator=np.arange(num_devices, dtype=np.int32),
    )
