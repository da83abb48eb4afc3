"""Task graphs of the scheduling literature, with random costs of unequal devices.

`synthetic:family=cholesky,size=10,devices=4,ccr=100,heterogeneity=100,memory=0,seed=0` names such a
problem. It brings its devices and costs, which are drawn as for the random graphs of Topcuoglu,
Hariri and Wu (2002), Performance-effective and low-complexity task scheduling for heterogeneous
computing, IEEE Transactions on Parallel and Distributed Systems 13:

    mean_s of a task      uniform in 0 .. 2 ms
    on each device        uniform in mean_s * (1 - h / 2) .. mean_s * (1 + h / 2); h is
                          `heterogeneity` percent
    transfer of an edge   uniform in 0 .. 2 ms times `ccr` percent, the ratio of communication to
                          computation; equal for all pairs of devices

Memory is our addition: a task holds 0 to 2 MB, and each device has an equal part of `memory`
percent of their sum, or no limit if that is 0.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from placement import arguments
from placement.costs import workloads
from placement.costs.workloads import Workload
from placement.graphs import opgraph
from placement.types import CostModel

_MAX_EDGES = 100_000
_MEAN_S, _MEAN_BYTES = 1e-3, 1e6
_LANES = 4  # of `epigenomics`
_DEFAULTS = {"size": 8, "devices": 4, "ccr": 100, "heterogeneity": 100, "memory": 0, "seed": 0}
_MINIMUMS = {**dict.fromkeys(_DEFAULTS, 0), "size": 2, "devices": 2}

_Edges = Iterator[tuple[tuple[str | int, ...], tuple[str | int, ...]]]  # sender, receiver


def build(text: str) -> Workload:
    """Builds the problem that a text describes; the text is its name.

    Args:
      text: 'synthetic:family=FAMILY,size=S', with the arguments above, all optional but the family.

    Raises:
      UserError: an argument is not valid, or the graph has more than 100,000 edges.
    """
    values = arguments.split_arguments(text)[1]
    family, place = values["family"], f"graph {text!r}: "
    defaults: dict[str, arguments.Value] = {"family": family, **_DEFAULTS}
    sizes = arguments.convert_arguments(text, values, defaults, minimums=_MINIMUMS)
    num_devices, memory, seed = sizes["devices"], sizes["memory"], sizes["seed"]
    arguments.check_range(f"{place}devices", num_devices, 2, workloads.MAX_DEVICES)
    arguments.check_range(f"{place}heterogeneity", sizes["heterogeneity"], 0, 200)
    edges = list(itertools.islice(FAMILIES[family](sizes["size"]), _MAX_EDGES + 1))
    arguments.check_range(f"{place}number of edges", len(edges), 1, _MAX_EDGES)
    names = dict.fromkeys(itertools.chain.from_iterable(edges))
    tasks = {task: number for number, task in enumerate(names)}
    num_ops, num_edges = len(tasks), len(edges)

    rng = np.random.default_rng(seed)
    mean_s = rng.uniform(0, 2 * _MEAN_S, (num_ops, 1))
    deviation = sizes["heterogeneity"] / 100 * rng.uniform(-0.5, 0.5, (num_ops, num_devices))
    transfer_s = rng.uniform(0, 2 * _MEAN_S * sizes["ccr"] / 100, num_edges)
    held_bytes = np.rint(rng.uniform(0, 2 * _MEAN_BYTES, num_ops))
    graph = opgraph.make_graph(
        name=text,
        op_names=["_".join(map(str, task)) for task in tasks],
        op_types=[str(task[0]) for task in tasks],
        senders=[tasks[sender] for sender, _ in edges],
        receivers=[tasks[receiver] for _, receiver in edges],
        edge_bytes=np.zeros(num_edges),  # the time of a transfer is given, not its size
        weight_bytes=held_bytes,
        tensors=np.arange(num_edges),  # each edge has its own data, as in the paper
    )
    capacity_bytes = memory / 100 * held_bytes.sum() / num_devices if memory else np.inf
    zeros = np.zeros((num_devices, num_devices), np.float32)
    costs = CostModel(
        compute_s=(mean_s * (1 + deviation)).astype(np.float32),
        transfer_latency_s=zeros,
        transfer_s_per_byte=zeros,
        transfer_fixed_s=transfer_s.astype(np.float32),
        fusion_loss_s=np.zeros(num_edges, np.float32),
        memory_bytes=held_bytes.astype(np.float32),
        capacity_bytes=np.full(num_devices, capacity_bytes, np.float32),
        accelerator=np.arange(num_devices, dtype=np.int32),
    )
    return Workload(graph, costs, tuple(f"device{index}" for index in range(num_devices)))


def gaussian_elimination(size: int) -> _Edges:
    """Gaussian elimination, a task for each pivot and each update of a column.

    (S^2 + S - 2) / 2 tasks (Topcuoglu et al. 2002).
    """
    for k in range(size - 1):
        for j in range(k + 1, size):
            yield ("pivot", k), ("update", k, j)
            if k < size - 2:
                next_task = ("pivot", k + 1) if j == k + 1 else ("update", k + 1, j)
                yield ("update", k, j), next_task


def fft(size: int) -> _Edges:
    """Fast Fourier transform: a tree of recursive calls, then butterflies.

    2 S - 1 + S log2 S tasks; S is rounded up to a power of 2 (Topcuoglu et al. 2002).
    """
    depth = (size - 1).bit_length()
    for i in range(2, 2 ** (depth + 1)):
        yield ("call", i // 2), ("call", i)
    for level, i in np.ndindex(depth, 2**depth):
        for j in (i, i ^ 2**level):
            sender = ("butterfly", level - 1, j) if level else ("call", 2**depth + j)
            yield sender, ("butterfly", level, i)


def cholesky(size: int) -> _Edges:
    """Cholesky factorisation of S x S tiles; a task changes one tile.

    S (S + 1) (S + 2) / 6 tasks; Buttari, Langou, Kurzak and Dongarra (2009), A class of parallel
    tiled linear algebra algorithms for multicore architectures, Parallel Computing 35.
    """

    def task(row: int, column: int, step: int) -> tuple[str | int, ...]:
        """The task of a tile in a step; the last one, in step `column`, finishes the tile."""
        kinds = ("POTRF", "SYRK") if row == column else ("TRSM", "GEMM")
        return kinds[step < column], row, column, step

    for row in range(size):
        for step, column in itertools.combinations_with_replacement(range(row + 1), 2):
            inputs = {task(row, step, step), task(column, step, step)} - {task(row, column, step)}
            inputs |= {task(row, column, step - 1)} if step else set()
            for tile in sorted(inputs):
                yield tile, task(row, column, step)


def montage(size: int) -> _Edges:
    """Montage, a mosaic of S x S overlapping images of the sky.

    Neighbours overlap, also on the diagonals. `montage` and `epigenomics` have the shapes of Juve
    et al. (2013), Characterizing and profiling scientific workflows, Future Generation Computer
    Systems 29. Arabnejad and Barbosa (2014, the paper of PEFT) schedule both with random costs.
    """
    yield ("fit",), ("model",)
    yield ("table",), ("add",)
    yield ("add",), ("shrink",)
    yield ("shrink",), ("jpeg",)
    for i, j in np.ndindex(size, size):
        project, background = ("project", i, j), ("background", i, j)
        yield project, background
        yield ("model",), background
        yield background, ("table",)
        yield background, ("add",)
        for row, column in ((i, j + 1), (i + 1, j - 1), (i + 1, j), (i + 1, j + 1)):
            if row < size and 0 <= column < size:
                difference = ("difference", i, j, row, column)
                yield project, difference
                yield ("project", row, column), difference
                yield difference, ("fit",)


def epigenomics(size: int) -> _Edges:
    """Epigenomics: four lanes of a DNA sequencer, each of S chains of four tasks."""
    for lane, chunk in np.ndindex(_LANES, size):
        stages = [(stage, lane, chunk) for stage in ("filter", "sanger", "bfq", "map")]
        yield from itertools.pairwise([("split", lane), *stages, ("merge", lane)])
        if not chunk:
            yield ("merge", lane), ("merge",)
    yield from itertools.pairwise([("merge",), ("index",), ("pileup",)])


FAMILIES: dict[str, Callable[[int], _Edges]] = {
    "gaussian_elimination": gaussian_elimination,
    "fft": fft,
    "cholesky": cholesky,
    "montage": montage,
    "epigenomics": epigenomics,
}
