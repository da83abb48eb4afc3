import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

import placement
from placement import files
from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact as artifact_lib
from placement.runtime.deployment import description
from placement.runtime.execution import hetero
from placement.runtime.execution.split import Segment
from placement.runtime.models import frontend
from tests.runtime import small

ROOT = Path(__file__).parents[3]
HOST = devices.resolve("host")
A, B = (device.name for device in HOST)
SEGMENTS = (
    Segment(A, ("x", "m_top", "top")),  # a constant, which need not be in any
    Segment(B, ("left",)),
    Segment(A, ("right", "bottom")),
)
INPUT = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)


def artifact(model: ov.Model, *, form: str, alone: str | None = None, **others: str):
    segments = SEGMENTS if form == artifact_lib.CONCURRENT else ()
    affinity = small.everywhere(model, A, **others)
    return artifact_lib.Artifact(model, affinity, segments, HOST, form, alone, "by a test", {})


def saved(folder: Path, model: ov.Model, **kwargs) -> Path:
    artifact_lib.save(artifact(frontend.prepare(model), **kwargs), folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The diamond with 'left' on the other device, in both forms."""
    path = tmp_path_factory.mktemp("deploy")
    return saved(path, small.diamond(), form=artifact_lib.CONCURRENT, left=B)


def expected(model: ov.Model, **others: str) -> np.ndarray:
    """What the placement computes when it is compiled without going through a file."""
    core = devices.open_core(HOST)
    return hetero.compile_placement(core, model, small.everywhere(model, A, **others), HOST)(INPUT)[
        0
    ]


def test_the_placement_is_applied_again(folder):
    with placement.load(folder, concurrent=False) as net:
        assert net.form == artifact_lib.HETERO
        assert net.compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 3
        assert set(net.compiled.get_property("EXECUTION_DEVICES")) == {A, B}
        (output,) = net.infer([INPUT])
    np.testing.assert_array_equal(output, expected(small.diamond(), left=B))


def test_weights_stay_what_they_are(folder):
    model = ov.Core().read_model(folder / "model.xml")
    stored = {op.get_friendly_name(): op for op in model.get_ops()}
    for op in small.diamond().get_ops():
        if op.get_type_name() == "Constant":
            name = op.get_friendly_name()
            found = stored.get(name) or stored[f"{name}@{B}"]
            assert found.get_element_type() == op.get_element_type()
            np.testing.assert_array_equal(found.data, op.data)


def test_a_constant_that_both_devices_read_is_saved_for_each(tmp_path):
    saved(tmp_path, small.shared_constant(), form=artifact_lib.HETERO, second=B)
    with placement.load(tmp_path / "model.xml") as net:
        assert net.compiled.get_property("HETERO_NUMBER_OF_SUBMODELS") == 2
        (output,) = net.infer({"x": INPUT})
    np.testing.assert_array_equal(output, expected(small.shared_constant(), second=B))


def test_the_concurrent_form_computes_the_same_and_ends_its_threads(folder):
    before = set(threading.enumerate())
    with placement.load(folder) as net:
        assert net.form == artifact_lib.CONCURRENT
        assert net.compiled is None
        threads = set(threading.enumerate()) - before
        assert len(threads) == 2
        first, second = (net.infer([factor * INPUT])[0] for factor in (1, 2))
    assert not any(thread.is_alive() for thread in threads)
    right = expected(small.diamond(), left=B)
    np.testing.assert_allclose(first, right, atol=0.02 * np.ptp(right))
    np.testing.assert_allclose(second, 2 * right, atol=0.04 * np.ptp(right))
    with pytest.raises(UserError, match="closed"):
        net.infer([INPUT])


def test_a_single_device_is_compiled_without_hetero(tmp_path):
    saved(tmp_path, small.diamond(), form=artifact_lib.SINGLE, alone=B)
    with placement.load(tmp_path) as net:
        assert net.form == artifact_lib.SINGLE
        assert net.compiled.get_property("EXECUTION_DEVICES") == [B]
        assert "HETERO_NUMBER_OF_SUBMODELS" not in net.compiled.get_property("SUPPORTED_PROPERTIES")
    with pytest.raises(UserError, match=r"no concurrent form: .* verdict 'by a test'") as caught:
        placement.load(tmp_path, concurrent=True)
    assert "backend=concurrent" not in str(caught.value)  # it may well have been placed so


def test_what_openvino_runs_alone_may_be_another_form(tmp_path):
    saved(tmp_path, small.diamond(), form=artifact_lib.CONCURRENT, alone=B, left=B)
    with placement.load(tmp_path) as net, placement.load(tmp_path, concurrent=False) as other:
        assert (net.form, other.form) == (artifact_lib.CONCURRENT, artifact_lib.SINGLE)
        right = expected(small.diamond(), left=B)
        for output in (net.infer([INPUT])[0], other.infer([INPUT])[0]):
            np.testing.assert_allclose(output, right, atol=0.02 * np.ptp(right))
    assert json.loads((tmp_path / "compiled.json").read_text())["form"] == artifact_lib.SINGLE


def test_states_are_kept_from_one_inference_to_the_next(tmp_path):
    artifact_lib.save(artifact(small.counter(), form=artifact_lib.HETERO), tmp_path)
    with placement.load(tmp_path) as net:
        for count in (1, 2):
            np.testing.assert_array_equal(net.infer([np.ones(4, np.float32)])[0], np.full(4, count))
        net.reset_state()
        np.testing.assert_array_equal(net.infer([np.ones(4, np.float32)])[0], np.ones(4))


def test_devices_are_renamed_to_those_of_the_machine(folder):
    with placement.load(folder, {A: "CPU"}, concurrent=False) as net:
        assert set(net.compiled.get_property("EXECUTION_DEVICES")) == {"CPU", B}
    with placement.load(folder, {A: "CPU"}) as net:
        right = expected(small.diamond(), left=B)
        np.testing.assert_allclose(net.infer([INPUT])[0], right, atol=0.02 * np.ptp(right))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({A: "GPU.7"}, "'GPU.7' is not present; here are .*CPU"),
        ({"GPU.0": "CPU"}, f"renames 'GPU.0'; the file uses {A}"),
        ({A: B}, "two devices one name"),
    ],
)
def test_devices_that_do_not_fit_are_refused_in_one_line(folder, given, said):
    with pytest.raises(UserError, match=said) as caught:
        placement.load(folder, given)
    assert "\n" not in str(caught.value)


def test_a_device_that_the_machine_lacks_is_refused(tmp_path):
    present = dataclasses.replace(HOST[0], name="CPU", host=False)
    model = small.diamond()
    everything = artifact_lib.Artifact(
        model, {}, (), (present,), artifact_lib.SINGLE, "CPU", "", {}
    )
    artifact_lib.save(everything, tmp_path)
    file = tmp_path / "model.xml"
    text = file.read_text()
    for quote in ('"', "&quot;"):
        text = text.replace(f"{quote}CPU{quote}", f"{quote}GPU.3{quote}")
    file.write_text(text)
    description.seal(file)
    with pytest.raises(UserError, match=r"'GPU.3' is not present; .*devices=\{'GPU.3': 'CPU'\}"):
        placement.load(file)
    with placement.load(file, devices={"GPU.3": "CPU"}) as net:
        assert net.compiled.get_property("EXECUTION_DEVICES") == ["CPU"]


def test_files_that_are_no_deployed_model_are_refused(folder, tmp_path):
    with pytest.raises(UserError, match=r"no '.*nowhere'"):
        placement.load(tmp_path / "nowhere")
    ov.save_model(small.diamond(), tmp_path / "plain.xml")
    with pytest.raises(UserError, match="carries no placement"):
        placement.load(tmp_path / "plain.xml")
    text = (folder / "model.xml").read_text()
    (tmp_path / "model.bin").write_bytes((folder / "model.bin").read_bytes())
    for old, new, said in (
        ('name="left"', 'name="gauche"', "'gauche', 'left'|'left', 'gauche'"),
        ('<version value="5" />', '<version value="9" />', "has version 9"),
        ("<net", "<nut", "cannot be read"),
    ):
        assert old in text
        (tmp_path / "model.xml").write_text(text.replace(old, new))
        with pytest.raises(UserError, match="have changed since they were written"):
            placement.load(tmp_path)
        description.seal(tmp_path / "model.xml")
        with pytest.raises(UserError, match=said) as caught:
            placement.load(tmp_path)
        assert "\n" not in str(caught.value)


def test_a_folder_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    """Twice another deployment takes its place between model.xml and the weights."""
    folder, first, second = (tmp_path / name for name in ("deploy", "first", "second"))
    for path, model in ((first, small.diamond()), (second, small.shared_constant())):
        path.mkdir()
        saved(path, model, form=artifact_lib.SINGLE, alone=A)
    shutil.copytree(first, folder)
    read, others = files.read_bytes, [first, second]

    def replacing(path, **how):
        data = read(path, **how)
        if others:
            new = tmp_path / f"new-{len(others)}"
            shutil.copytree(others.pop(), new)
            assert files.exchange_paths(new, folder)
        return data

    monkeypatch.setattr(files, "read_bytes", replacing)
    with placement.load(folder) as net:
        (output,) = net.infer([INPUT])
    np.testing.assert_allclose(output, expected(small.diamond()), rtol=1e-3, atol=1e-3)
    assert not others


def test_a_model_that_is_replaced_file_by_file_is_waited_for(tmp_path, folder, monkeypatch):
    """Its model.xml comes last; where it does not come, a line says what to do."""
    (tmp_path / "model.bin").write_bytes((folder / "model.bin").read_bytes())
    shutil.copy(folder / "model.xml", tmp_path / "new.xml")
    timer = threading.Timer(0.1, os.replace, [tmp_path / "new.xml", tmp_path / "model.xml"])
    timer.start()
    placement.load(tmp_path).close()
    timer.join()
    (tmp_path / "model.xml").unlink()
    monkeypatch.setattr(artifact_lib, "_ABSENT_S", 0.0)
    with pytest.raises(UserError, match=r"no '.*model\.xml'; .* run that task again"):
        placement.load(tmp_path)


@pytest.mark.parametrize("name", ["model.xml", "model.bin"])
def test_a_named_pipe_in_the_place_of_a_file_is_refused(tmp_path, folder, name):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match=name):
        placement.load(tmp_path)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([], "0 inputs are passed; the model has 1: 'x'"),
        (None, "of type NoneType; pass a list or a dict with an array for each of 'x'"),
        ("x", "of type str; pass a list or a dict"),
        (np.array(1.0), "of type ndarray; pass a list or a dict"),
        ({}, "^input 'x' is missing; pass an array for each of 'x'$"),
        ({"x": INPUT, "y": INPUT}, "^the model has no input 'y'; its inputs are 'x'$"),
        ([INPUT[:2]], r"'x' has shape \[2, 8\]; pass \[4, 8\]"),
        ([INPUT.astype(complex)], "'x' is complex128; pass an array of float32"),
        ([None], "'x' is object; pass an array of float32"),
    ],
)
def test_wrong_inputs_are_refused(folder, inputs, said):
    with placement.load(folder) as net, pytest.raises(UserError, match=said):
        net.infer(inputs)


def test_inputs_go_by_name_or_order_and_numbers_are_converted(folder):
    with placement.load(folder, concurrent=False) as net:
        by_order = net.infer([INPUT])[0]
        np.testing.assert_array_equal(net.infer({"x": INPUT})[0], by_order)
        np.testing.assert_array_equal(net.infer([INPUT.astype(np.float64)])[0], by_order)
        np.testing.assert_array_equal(net.infer([np.asfortranarray(INPUT)])[0], by_order)


def in_a_fresh_process(program: str, cwd: Path) -> str:
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("form", [artifact_lib.HETERO, artifact_lib.SINGLE])
def test_the_snippets_of_the_docs_run_it_without_this_package(tmp_path, form):
    alone = B if form == artifact_lib.SINGLE else None
    folder = tmp_path / "runs/mine/deploy"  # as the page names it
    folder.mkdir(parents=True)
    saved(folder, small.diamond(), form=form, alone=alone, left=B)
    np.save(tmp_path / "input.npy", INPUT)
    text = (ROOT / "docs" / "DEPLOY.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    program = "import numpy as np, sys\n"
    outputs = [tmp_path / f"output_{i}.npy" for i in range(2)]
    for way, output in zip(("model.xml", "compiled.json"), outputs, strict=True):
        (snippet,) = [block for block in blocks if way in block]
        program += f"""
exec({snippet!r}, names := {{}})
np.save({str(output)!r}, names["compiled"](np.load("input.npy"))[0])
print(sorted(names["compiled"].get_property("EXECUTION_DEVICES")), "placement" in sys.modules)
"""
    used = [B] if form == artifact_lib.SINGLE else sorted([A, B])
    assert in_a_fresh_process(program, tmp_path).splitlines() == [f"{used} False"] * 2
    with placement.load(folder) as net:
        (wanted,) = net.infer([INPUT])
    for output in outputs:
        np.testing.assert_array_equal(np.load(output), wanted)


def test_importing_is_light_and_loading_needs_no_jax(folder):
    heavy = "[n for n in ('jax', 'openvino', 'numpy') if n in sys.modules]"
    program = f"""
import sys
import placement
print({heavy})
placement.load({str(folder)!r}).close()
print({heavy})
"""
    assert in_a_fresh_process(program, ROOT).splitlines() == ["[]", "['openvino', 'numpy']"]
