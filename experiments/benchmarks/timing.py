"""Timing and separate processes for the benchmarks."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np


def median_ms(function: Callable[[], Any], repeats: int = 100) -> float:
    """Returns the median time of a call in milliseconds; a first call, not timed, compiles."""
    jax.block_until_ready(function())
    times_s = []
    for _ in range(repeats):
        start_s = time.perf_counter()
        jax.block_until_ready(function())
        times_s.append(time.perf_counter() - start_s)
    return 1e3 * float(np.median(times_s))


def run_module(module: str, argument: str, environment: Mapping[str, str] | None = None) -> Any:
    """Runs a module in a separate process and returns the last line it prints, parsed as JSON.

    `environment` has variables to set in addition to this process's.
    """
    result = subprocess.run(
        [sys.executable, "-m", module, argument],
        env=os.environ | dict(environment or {}),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(result.stdout.splitlines()[-1])
