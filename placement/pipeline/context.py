"""The state of a run, which its steps share."""

import math
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from placement.pipeline.console import faults, progress
from placement.pipeline.settings import Settings
from placement.pipeline.target import Target
from placement.problem import Problem
from placement.runtime.measurement.evaluate import MeasuredEvaluate
from placement.runtime.measurement.measurer import Measurer
from placement.solvers.limits import Observe, SearchLimits


class Incumbent:
    """The best placement that a search has reported; it survives an interrupt or a fault."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.evaluations = 0
        self.placement: np.ndarray | None = None

    def observe(
        self, evaluations: int, best_s: float, placement: np.ndarray | None, *_: object
    ) -> None:
        """Keeps the placement (`placement.solvers.limits.Observe`)."""
        self.evaluations = evaluations
        if math.isfinite(best_s):
            self.placement = placement


class Context(NamedTuple):
    """A run: what it was asked for, and what its steps have made."""

    settings: Settings
    workdir: Path
    target: Target
    problem: Problem
    measurer: Measurer | None  # where the devices are present
    measured: MeasuredEvaluate | None  # evaluates placements on the devices; None: simulated
    display: progress.Display
    stop: threading.Event  # set: searches end with the best placement that they have
    fault_log: faults.Faults
    incumbent: Incumbent  # of the method that runs now

    def begin_limits(self, observe: Observe) -> SearchLimits:
        """Returns the limits of a search that begins now."""
        settings = self.settings
        return SearchLimits(
            settings.time_limit_s,
            settings.budget,
            observe,
            self.stop.is_set,
            starts=settings.starts,
        )
