"""Learning on eight JAX devices gives the same numbers as on one, up to rounding."""

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

from placement.errors import UserError
from placement.learning import mesh
from tests.learning import shared_out

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]
_COLLECTIVE = re.compile(
    r" (?:all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)\(.*op_name=\"(.*?)\""
)
# A loop inside a policy or a simulator is over operations; other loops are over steps or graphs.
_OPERATION_LOOP = re.compile(r"(jit\(sample\)|jvp|shard_map).*while/(body|cond)")
_GRADIENT = "shard_map/psum"


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> tuple[subprocess.Popen, Path]:
    """Starts a process with eight devices; returns it and its folder."""
    folder = tmp_path_factory.mktemp("eight")
    flags = (
        f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8 "
        f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_.*step"
    )
    command = [sys.executable, "-m", "tests.learning.shared_out", str(folder)]
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(command, cwd=ROOT, env=environment), folder


@pytest.fixture(scope="module")
def single_device(running) -> dict:
    """Runs the programs on this process's single device while the other process works."""
    return {name: program() for name, program in shared_out.PROGRAMS.items()}


@pytest.fixture(scope="module")
def eight_devices(running, single_device) -> Path:
    """Waits for the process with eight devices and returns its folder."""
    process, folder = running
    assert process.wait(240) == 0
    return folder


@pytest.mark.parametrize("name", shared_out.PROGRAMS)
def test_eight_devices_come_to_the_same_as_one(name, eight_devices, single_device):
    numbers = json.loads((eight_devices / "found.json").read_text())[name]
    assert numbers == pytest.approx(single_device[name], rel=1e-3, abs=1e-4)


def test_no_loop_over_operations_waits_for_another_device(eight_devices):
    num_summing = 0
    for program in eight_devices.glob("*after_optimizations.txt"):
        collectives = _COLLECTIVE.findall(program.read_text())
        gradients = [name for name in collectives if _GRADIENT in name]
        num_summing += bool(gradients)
        other_collectives = set(collectives).difference(gradients)
        assert not [name for name in other_collectives if _OPERATION_LOOP.search(name)]
    assert num_summing == 3, "of hsdag, placeto and several graphs"


def test_a_search_on_eight_devices_goes_on_on_one(eight_devices):
    saved = (eight_devices / "progress.msgpack").read_bytes()
    progress = flax.serialization.from_bytes(shared_out.start(), saved)
    assert progress.step == shared_out.RESUMED_AT
    resumed = shared_out.search(progress, shared_out.STEPS)[-1]
    uninterrupted = shared_out.search(shared_out.start(), shared_out.STEPS)[-1]
    assert resumed.records[-1] == pytest.approx(uninterrupted.records[-1], rel=1e-3, abs=1e-4)
    np.testing.assert_array_equal(resumed.progress.elite, uninterrupted.progress.elite)


@pytest.fixture
def devices(monkeypatch):
    """Pretends that there are eight devices; nothing is compiled for them."""
    monkeypatch.setattr(jax, "devices", lambda: [jax.local_devices()[0]] * 8)


def test_samples_that_devices_cannot_share_are_refused_with_valid_numbers(devices):
    message = "num_samples=24 in num_minibatches=2 .* 8 JAX devices; give num_samples=16 or .*=32$"
    with pytest.raises(UserError, match=message):
        mesh.check_num_samples(24, 2)
    with pytest.raises(UserError, match=r"num_samples=8 .* give num_samples=16$"):
        mesh.check_num_samples(8, 2)


@pytest.mark.parametrize(("num_samples", "num_minibatches"), [(16, 2), (64, 1), (2, 1)])
def test_samples_that_devices_can_share_and_fewer_samples_than_devices_are_allowed(
    devices, num_samples, num_minibatches
):
    mesh.check_num_samples(num_samples, num_minibatches)
    assert mesh.sample_mesh(2) is None


def test_on_one_device_there_is_no_mesh_and_samples_have_any_number():
    mesh.check_num_samples(7, 3)
    assert mesh.sample_mesh(8) is None
