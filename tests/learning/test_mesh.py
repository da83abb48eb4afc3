"""Learning on eight JAX devices, which are threads here, and on one: the same to rounding."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import flax.serialization
import jax
import numpy as np
import pytest

from placement.learning import mesh
from tests.learning import shared_out

pytestmark = pytest.mark.usefixtures("quick_compilation")

ROOT = Path(__file__).parents[2]
COLLECTIVE = re.compile(r" (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)\(")


@pytest.fixture(scope="module")
def eight(tmp_path_factory) -> Path:
    """The folder that a process with eight devices has left."""
    folder = tmp_path_factory.mktemp("eight")
    flags = (
        "--xla_force_host_platform_device_count=8 "
        f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit__steps"
    )
    command = [sys.executable, "-m", "tests.learning.shared_out", str(folder)]
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return folder


@pytest.fixture(scope="module")
def found(eight) -> dict:
    return json.loads((eight / "found.json").read_text())


@pytest.mark.parametrize("method", shared_out.METHODS)
def test_eight_devices_take_the_steps_that_one_takes(method, found):
    _, records = shared_out.search(method, shared_out.STEPS)
    assert len(found[method]) == len(records) == shared_out.STEPS
    for shared, alone in zip(found[method], records, strict=True):
        assert shared == pytest.approx(alone, rel=1e-3, abs=1e-4)
