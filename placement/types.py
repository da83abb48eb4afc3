"""The vocabulary of the project: every data type and callable type that crosses a module boundary.

Dimension letters, used in every shape comment:

    N operations   K decisions   E edges   D devices   G groups
    B sampled placements   F features   T steps of an episode

Times are seconds (`_s`), sizes are bytes (`_bytes`). Indices start at 0. A *decision* chooses the
device of one operation, or of several that must share theirs. A *placement* is an int32 array [K]:
the device of every decision; `placement.problem.Problem.expand` gives those of the operations.
"""

import dataclasses
import enum
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jraph
import numpy as np

Array = jax.Array | np.ndarray
Params = Any  # a pytree of arrays


@dataclasses.dataclass(frozen=True, eq=False)
class OpGraph:
    """A computation graph on the host, immutable: operations and the tensors between them.

    Build one with `placement.graphs.opgraph.make_graph`, which validates; the constructor does not.
    The operations are in topological order where `make` built the graph from such an order, but
    nothing may rely on that: use `placement.graphs.dag.topological_order`.
    """

    name: str
    op_names: tuple[str, ...]  # N unique strings
    op_types: tuple[str, ...]  # N strings such as 'Convolution'
    senders: np.ndarray  # int32 [E]: the operation that produces the tensor
    receivers: np.ndarray  # int32 [E]: the operation that reads it
    edge_bytes: np.ndarray  # int64 [E]: size of the tensor
    # int32 [E]: edges with equal numbers carry the same tensor, i.e. the same output of the same
    # sender, which crosses to another device once however many operations read it there.
    tensors: np.ndarray
    output_shapes: tuple[tuple[int, ...], ...]  # N shapes, of the first output
    flops: np.ndarray  # float64 [N]
    weight_bytes: np.ndarray  # int64 [N]: constants that the operation owns
    colocation: np.ndarray  # int32 [N]: equal numbers must share a device
    backward: np.ndarray  # bool [N]: belongs to the backward pass of a training graph
    # R pairs of a constant and a reader on any device, which has its own copy: nothing crosses, so
    # that these are no edges (`placement.graphs.constants`).
    copy_sources: np.ndarray  # int32 [R]: the operation that holds the constant
    copy_readers: np.ndarray  # int32 [R]: the operation that reads it
    copy_bytes: np.ndarray  # int64 [R]: size of the constant
    copy_constants: np.ndarray  # int32 [R]: equal numbers are the same constant
    # N tuples of strings: the types of the operations that each was merged from, see
    # `placement.graphs.coarsen`; () where nothing was merged.
    member_types: tuple[tuple[str, ...], ...] = ()

    @property
    def num_ops(self) -> int:
        """N."""
        return len(self.op_names)

    @property
    def num_edges(self) -> int:
        """E."""
        return len(self.senders)


class TensorBytes(NamedTuple):
    """The memory of tensors while they are alive (`placement.simulators.residency`)."""

    produced: Array  # float32 [E]: on the device that makes the edge's tensor
    copied: Array  # float32 [E]: on each other device that reads it


class SegmentCosts(NamedTuple):
    """Measured costs of whole submodels, read by `placement.analysis.segments` alone."""

    # float32 [E, D]: the loss with the edge's reader on each device; `CostModel.fusion_loss_s` is
    # the mean over the devices.
    fusion_loss_s: Array
    # float32 [D]: the part of these losses that starting a submodel takes; a segment pays it once.
    launch_s: Array


class CostModel(NamedTuple):
    """The costs of operations and transfers on D devices: a pytree of arrays."""

    compute_s: Array  # float32 [N, D]; inf where the device does not support the operation
    transfer_latency_s: Array  # float32 [D, D], zero on the diagonal
    transfer_s_per_byte: Array  # float32 [D, D], zero on the diagonal
    # float32 [E]: a transfer of the edge's tensor costs this in addition to latency and bytes, on
    # any pair of devices; equal for edges of one tensor. Only workload files give it.
    transfer_fixed_s: Array
    fusion_loss_s: Array  # float32 [E]: cost of cutting an edge, next to the transfer
    memory_bytes: Array  # float32 [N]: memory that an operation permanently occupies on its device
    capacity_bytes: Array  # float32 [D]; inf where unlimited
    # int32 [D]: -1 for a host, whose memory is where tensors are handed over; else the number of an
    # accelerator. Devices with equal numbers are successive parts on one accelerator.
    accelerator: Array
    tensor_bytes: TensorBytes | None = None  # None where tensors count as occupying nothing
    segment_costs: SegmentCosts | None = None  # None if submodels were not measured


class Sample(NamedTuple):
    """One episode drawn from a policy.

    A policy that decides once has T = 1. Where T > 1, every step yields a placement, which is
    evaluated and rewarded, as in HSDAG (Duan et al. 2024) and Placeto (Addanki et al. 2019).
    """

    placement: Array  # int32 [T, N]: the device of every node
    log_prob: Array  # float32 [T]: log-probability of each step's decisions
    entropy: Array  # float32 [T]: entropy of each step's choices of devices, in nats
    # Arrays [T, ...], in any structure, that the policy drew in addition to the placement, for its
    # own `log_prob`; most policies have None.
    latent: Any = None
    # float32 [T]: as of `LogProb`, if the log-probability and the entropy above can be
    # differentiated by the parameters: a learner then needs no second forward pass. Else None.
    choices: Array | None = None


class LogProb(NamedTuple):
    """Differentiable quantities of a sample under given parameters."""

    log_prob: Array  # float32 [T]
    entropy: Array  # float32 [T]
    choices: Array  # float32 [T]: number of device choices over which the entropy is summed


class Policy(NamedTuple):
    """Pure functions over a padded graph, which `placement.policies.inputs` describes.

    `init(key, graph) -> params`.
    `sample(params, key, graph, num_samples) -> Sample` with a leading axis B on every field.
    Parts that do not depend on the draw (encoder, parse) are computed once for all B. The key is
    consumed. A policy that changes given placements takes them as a fifth argument, int32 [B, N],
    and then draws one step; without them it starts by itself. -1 stands for "not placed yet".
    `log_prob(params, graph, sample) -> LogProb` with the same leading axis; under the parameters of
    the draw it equals the result of `sample`.
    """

    init: Callable[[chex.PRNGKey, jraph.GraphsTuple], Params]
    sample: Callable[..., Sample]
    log_prob: Callable[[Params, jraph.GraphsTuple, Sample], LogProb]


# Placements int32 [B, K] -> latencies float32 [B] in seconds. The simulator's is jittable, the
# measurement boundary's runs on the host. A placement that cannot run evaluates to inf.
Evaluate = Callable[[Array], Array]


class Status(enum.StrEnum):
    """The reason why a search ended; its value is the text that tables show."""

    OPTIMAL = "optimal"  # the placement is proven to be the best one in the solution's scope
    FINISHED = "finished"  # the method ended by itself or spent its budget
    TIME_LIMIT = "time limit"
    INTERRUPTED = "interrupted"
    INFEASIBLE = "infeasible"  # no placement keeps all limits
    FAILED = "failed"  # no placement that can run was found
    FAULT = "fault"  # an error of the program; the placement is the best one found before it

    def describe(self, reason: str) -> str:
        """Returns the status with a reason, such as 'failed: out of memory'."""
        return f"{self}: {reason}" if reason else str(self)


OUT_OF_MEMORY = "out of memory"  # the reason of a placement that fails because it does not fit


class Solution(NamedTuple):
    """The result of a method.

    A solver fills in what it knows; `placement.methods.solve` adds the value and the search time.
    """

    # int32 [K]. A solver that found none returns None; `solve` replaces it by each decision's
    # fastest device, and `value_s` is inf.
    placement: np.ndarray | None
    value_s: float = math.nan  # the objective's value, computed by the problem's simulator
    bound_s: float = math.nan  # a proven lower bound; nan where the method has none
    status: Status = Status.FINISHED
    search_s: float = 0.0
    evaluations: int = 0  # placements simulated or measured
    # int32 [N]: the order of priority, under `makespan`; None: that of the problem.
    order: np.ndarray | None = None
    # The solutions for which the bound and `Status.OPTIMAL` hold: 'all' of them, only those in the
    # 'given order' of the problem, or only the 'contiguous' placements
    # (`placement.solvers.splits.contiguous`).
    scope: str = "all"
    reason: str = ""  # why the problem is infeasible or the method failed
    # int32 [B, K]: the fastest distinct placements, fastest first; None of most methods.
    elite: np.ndarray | None = None
    # Seconds of `search_s` until a learned method's first step, most of them for compilation. The
    # time limit excludes them.
    compile_s: float = 0.0
    # The value of the fastest placement that a learned method drew, without the starts; nan of
    # other methods.
    own_best_s: float = math.nan

    @property
    def status_text(self) -> str:
        """The status with its reason, as tables and summary.json show it."""
        return self.status.describe(self.reason)

    def __repr__(self) -> str:
        """Shows the numbers, without the arrays."""
        bound = "" if math.isnan(self.bound_s) else f", bound_s={self.bound_s:.6g}"
        return f"Solution(value_s={self.value_s:.6g}{bound}, status={self.status_text!r})"


class Span(NamedTuple):
    """A time during which a device runs some operations, one after another."""

    device: int
    ops: tuple[int, ...]  # in the order in which they run
    start_s: float
    finish_s: float
