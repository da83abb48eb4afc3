"""OpenVINO's own choices of devices, which the devices must be present for."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from placement.problem import Problem
from placement.runtime.measurement.measurer import Measurer
from placement.runtime.measurement.request import HeteroChoice
from placement.solvers.limits import SearchLimits
from placement.types import Solution

_TOGETHER = "predicted with merged operations together, which OpenVINO separates"


def hetero(
    problem: Problem,
    seed: int,
    limits: SearchLimits,
    *,
    members: Sequence[Sequence[str]],
    measurer: Measurer,
    split_by_memory: bool = False,
) -> Solution:
    """OpenVINO's own choice: every operation on the first device that supports it.

    A decision whose operations OpenVINO would separate is on the first device that supports all of
    them, as HETERO places a single operation.

    Args:
      problem, seed, limits: as of every `placement.solvers.base.Find`.
      members: the names of the operations of each decision.
      measurer: of the devices.
      split_by_memory: whether OpenVINO splits the model by memory.
    """
    del seed, limits
    device_of_op = measurer.ask(HeteroChoice(measurer.devices, split_by_memory=split_by_memory))
    placement, reason = problem.decisions.allowed.argmax(axis=1).astype(np.int32), ""
    for decision, ops in enumerate(members):
        # Constants and inputs run nowhere.
        op_devices = {device_of_op[op] for op in ops if op in measurer.computed_ops}
        if len(op_devices) == 1:
            placement[decision] = problem.devices.index(op_devices.pop())
        elif op_devices:
            reason = _TOGETHER
    return Solution(placement, evaluations=1, reason=reason)


def hetero_pipeline(problem: Problem, seed: int, limits: SearchLimits, **given: Any) -> Solution:
    """OpenVINO's own split by memory: HETERO with the policy PIPELINE_PARALLEL."""
    return hetero(problem, seed, limits, split_by_memory=True, **given)
