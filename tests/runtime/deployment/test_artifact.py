"""Deployed folders: what is written, and what is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import placement
from placement.errors import UserError
from placement.runtime.deployment import artifact
from placement.runtime.deployment.artifact import CONCURRENT, MANIFEST, SINGLE
from tests.runtime import small
from tests.runtime.deployment.folders import INPUT, A, B, save

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The diamond with 'left' on the other device, in both forms."""
    return save(tmp_path_factory.mktemp("deploy"), small.diamond(), CONCURRENT, left=B)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"form": "concurrent"', '"form": "single"', "it has changed since it was written"),
        ('"digest":', '"digests":', "there is no 'digest'"),
        ('"precision":', '"kernel":', "a device has no 'precision'"),
        ('"ENABLE_CPU_PINNING"', '"CACHE_DIR"', "the property 'CACHE_DIR'; known are"),
        (f'"name": "{A}"', '"name": "GPU"', "the device 'GPU' has an invalid name"),
        ('"loader.cpp":', '"../loader.cpp":', "it names the file '../loader.cpp'"),
        ('"form"', "form", "not JSON"),
    ],
)
def test_manifest_is_checked(folder, tmp_path, old, new, message):
    text = (folder / MANIFEST).read_text()
    assert old in text
    (tmp_path / MANIFEST).write_text(text.replace(old, new))
    with pytest.raises(UserError) as caught:
        placement.load(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("deploy the placement again")


def test_changed_models_are_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for suffix in (".bin", ".xml"):
        (file,) = tmp_path.glob(f"model-*{suffix}")
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        said = rf"{file.name}' has changed since it was written; .*again$"
        with pytest.raises(UserError, match=said):
            placement.load(tmp_path)
        file.unlink()
        with pytest.raises(UserError, match=rf"{file.name}' cannot be read: No such file .*again$"):
            placement.load(tmp_path)
        os.mkfifo(file)
        with pytest.raises(UserError, match=file.name):
            placement.load(tmp_path)
        file.unlink()
        shutil.copy(folder / file.name, file)
    for path in (tmp_path / "nowhere", tmp_path.parent):
        with pytest.raises(UserError, match=r"placement.json' cannot be read: No such.*pass a"):
            placement.load(path)


def test_replaced_folders_are_read_again(tmp_path, monkeypatch):
    """Another deployment replaces the manifest and the model before the model is read."""
    folder = save(tmp_path / "deploy", small.shared_constant(), SINGLE)
    later = save(tmp_path / "later", small.diamond(), SINGLE)
    read = artifact.read

    def read_early(path, **keys):
        content = read(path, **keys)
        if later.exists():
            shutil.rmtree(folder)
            later.rename(folder)
        return content

    monkeypatch.setattr(artifact, "read", read_early)
    expected = small.reference(small.diamond())([INPUT])[0]
    with placement.load(folder) as net:
        np.testing.assert_allclose(net.infer([INPUT])[0], expected, atol=0.02 * np.ptp(expected))


def test_loading_needs_no_jax(folder):
    heavy = "[name for name in ('jax', 'openvino', 'numpy') if name in sys.modules]"
    program = f"""
import sys
import placement
print({heavy})
placement.load({str(folder)!r}).close()
print({heavy})
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["[]", "['openvino', 'numpy']"]
