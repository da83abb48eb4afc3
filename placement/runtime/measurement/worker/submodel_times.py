"""How long each submodel of a placement computes under HETERO, which runs them one after another.

The plug-in's counters tell, of every kernel, the mean of all inferences so far; HETERO puts the
submodel's number before its name. What lies between two submodels is not counted.
"""

import collections
from collections.abc import Callable, Sequence

import numpy as np
import openvino as ov

from placement.runtime.devices import Device
from placement.runtime.execution.hetero import Affinity, compile_placement
from placement.runtime.measurement.worker import inference

_WARM_UP = 2
_PREFIX = "subgraph"


def measure(
    core: ov.Core,
    model: ov.Model,
    inputs: Sequence[np.ndarray],
    affinity: Affinity | None,
    devices: Sequence[Device],
    inferences: int,
    alive: Callable[[], None],
) -> list[tuple[tuple[str, ...], float]]:
    """Runs a placement with counters.

    Args:
      core: knows the devices.
      model: static, with unique friendly names.
      inputs: one array for each of the model's.
      affinity, devices: of `hetero.compile_placement`.
      inferences: to average over.
      alive: called before every step that may take long.

    Returns:
      The names of each submodel's nodes, operations of the model or not, and its seconds, in the
      order in which they run.

    Raises:
      RuntimeError: OpenVINO's own.
    """
    alive()
    compiled = compile_placement(core, model, affinity, inference.with_counters(devices))
    request = inference.request(compiled, inputs)
    for _ in range(_WARM_UP):
        alive()
        request.infer()
    early = _nodes(request)
    for _ in range(inferences):
        alive()
        request.infer()
    late = _nodes(request)
    return [
        (
            tuple(late[number]),
            inference.without_warm_up(
                sum(late[number].values()), sum(early[number].values()), inferences, _WARM_UP
            ),
        )
        for number in sorted(late)
    ]


def _nodes(request: ov.InferRequest) -> dict[int, dict[str, float]]:
    """Mean seconds of every node so far, by the number of its submodel."""
    nodes: dict[int, dict[str, float]] = collections.defaultdict(dict)
    for info in request.get_profiling_info():
        submodel, colon, name = info.node_name.partition(": ")
        if not (colon and submodel.startswith(_PREFIX)):  # there is only one
            submodel, name = f"{_PREFIX}0", info.node_name
        nodes[int(submodel.removeprefix(_PREFIX))][name] = info.real_time.total_seconds()
    return nodes
