"""The loader in C++: compiled with the headers and the library of the package openvino, and run."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.runtime.deployment import artifact
from placement.runtime.deployment.artifact import CONCURRENT, HETERO, SINGLE
from tests.runtime import small
from tests.runtime.deployment import test_failing_requests as failing
from tests.runtime.deployment.folders import HOST, A, B, save

OPENVINO = Path(ov.__file__).parent
SOURCE = Path(artifact.__file__).with_name("loader.cpp")
COMPILER = shutil.which("g++")
compiled = pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")


@pytest.fixture(scope="module")
def loader(tmp_path_factory) -> Path:
    program = tmp_path_factory.mktemp("loader") / "loader"
    libraries = OPENVINO / "libs"
    (library,) = libraries.glob("libopenvino.so.*")
    command = [COMPILER, "-std=c++17", f"-I{OPENVINO / 'include'}", str(SOURCE), str(library)]
    subprocess.run([*command, f"-Wl,-rpath,{libraries}", "-o", str(program)], check=True)
    return program


def run(program: Path, folder: Path, outputs: Path, *inputs: np.ndarray) -> subprocess.Popen:
    outputs.mkdir(exist_ok=True)
    paths = [outputs / f"input_{i}.bin" for i in range(len(inputs))]
    for path, array in zip(paths, inputs, strict=True):
        path.write_bytes(array.tobytes())
    return subprocess.run(
        [str(program), str(folder), str(outputs), *map(str, paths)], capture_output=True, text=True
    )


@compiled
@pytest.mark.parametrize("form", [SINGLE, CONCURRENT])
def test_outputs_equal_those_of_python(loader, form, tmp_path):
    folder = save(tmp_path / "deploy", small.diamond(), form, left=B)
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    done = run(loader, folder, tmp_path / "out", x)
    assert done.returncode == 0, done.stderr
    with artifact.load(folder, concurrent=False) as network:
        expected = network.infer([x])[0]
    computed = np.fromfile(tmp_path / "out/output_0.bin", np.float32).reshape(4, 8)
    np.testing.assert_array_equal(computed, expected)
    assert re.search(r"output_0.bin f32\[4,8\]", done.stdout)


@compiled
def test_loader_reads_any_name(loader, tmp_path):
    source = ops.parameter([2], np.float32, name='a "quoted"\n\\ name')
    first = ops.relu(source, name="\N{GREEK SMALL LETTER PI} \N{GRINNING FACE}")
    second = ops.exp(first, name="second")
    model = ov.Model([ops.result(second, name="y")], [source], "names")
    folder = save(tmp_path / "deploy", model, HETERO, second=B)
    done = run(loader, folder, tmp_path / "out", np.array([-1, 1], np.float32))
    assert done.returncode == 0, done.stderr
    computed = np.fromfile(tmp_path / "out/output_0.bin", np.float32)
    np.testing.assert_allclose(computed, np.exp([0, 1]), rtol=0.02)


@compiled
def test_mistakes_are_one_line(loader, tmp_path):
    save(tmp_path, small.diamond(), HETERO, left=B)
    done = run(loader, tmp_path, tmp_path / "out", np.zeros(3, np.float32))
    assert done.returncode == 1
    assert done.stderr.endswith("input_0.bin has not the size of the input\n")
    (tmp_path / "placement.json").unlink()
    done = run(loader, tmp_path, tmp_path / "out")
    assert done.stderr == f"error: cannot read {tmp_path}/placement.json\n"


@compiled
@pytest.mark.parametrize(
    ("make", "form"), [(failing.rows, HETERO), (failing.reshape, SINGLE), (failing.branch, HETERO)]
)
def test_loader_reports_failing_request(loader, make, form, tmp_path):
    model, good, bad = make()
    failing.deploy(tmp_path, model, form)
    assert run(loader, tmp_path, tmp_path / "good", *good).returncode == 0
    failed = run(loader, tmp_path, tmp_path / "bad", *bad)
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: ")
    assert not list((tmp_path / "bad").glob("output_*"))


@compiled
def test_loader_refuses_strings(loader, tmp_path):
    source = ops.parameter([1], ov.Type.string, name="text")
    number = ops.parameter([1], np.float32, name="x")
    model = ov.Model([ops.result(source), ops.result(ops.exp(number))], [source, number], "text")
    save(tmp_path, model, SINGLE)
    failed = run(loader, tmp_path, tmp_path / "out")
    assert failed.returncode == 1
    assert "tensors of strings" in failed.stderr


def test_affinities_name_every_operation(tmp_path):
    for form in (HETERO, SINGLE):
        folder = save(tmp_path / form, small.diamond(), form, left=B)
        affinities = json.loads((folder / "affinities.json").read_text())
        (file,) = folder.glob("model-*.xml")
        model = ov.Core().read_model(file)
        assert set(affinities) == {op.get_friendly_name() for op in model.get_ops()}
        assert affinities["left"] == B
        assert affinities["right"] == (A if form == HETERO else B)
        assert set(affinities.values()) <= {device.name for device in HOST}
    assert (folder / "loader.cpp").read_bytes() == SOURCE.read_bytes()
