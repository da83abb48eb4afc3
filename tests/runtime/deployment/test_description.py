"""What is believed of a deployed folder."""

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.sax import saxutils

import pytest

import placement
from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import artifact, description
from tests.runtime import small
from tests.runtime.deployment.test_deploy import ROOT, A, B, saved

CASES = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("deploy")
    return saved(path, small.diamond(), form=artifact.CONCURRENT, left=B)


def test_a_folder_is_right_or_refused_whatever_happened_to_it(folder, tmp_path):
    other = saved(tmp_path, small.shared_constant(), form=artifact.HETERO, second=B)
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.tampering", folder, other, "0", str(CASES)],
        cwd=ROOT,
        capture_output=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"refused", "right"}, found
    assert found["refused"] > CASES / 2


def edited(folder: Path, to: Path, key: str, old: str, new: str) -> Path:
    """A copy of the folder that says something else, and is sealed all the same."""
    for name in ("model.xml", "model.bin"):
        (to / name).write_bytes((folder / name).read_bytes())
    text = (to / "model.xml").read_text()
    found = re.search(rf'<{key} value="([^"]*)" />', text)
    value = saxutils.unescape(found[1], {"&quot;": '"'})
    assert old in value
    element = f"<{key} value={saxutils.quoteattr(value.replace(old, new))} />"
    (to / "model.xml").write_text(text.replace(found[0], element))
    description.seal(to / "model.xml")
    return to


@pytest.mark.parametrize(
    ("key", "old", "new", "said"),
    [
        (
            "form",
            "concurrent",
            "parallel",
            "unknown form 'parallel'; valid are single, hetero, mixed precision, concurrent",
        ),
        ("form", "concurrent", "single", "form 'single' does not fit device 'HETERO:"),
        ("device", "HETERO", "AUTO", "'device' is neither a device nor HETERO"),
        ("device", A, "GPU.7", "'device' names unknown devices"),
        ("affinity", f'"{B}"', '"GPU.7"', "'affinity' names unknown devices"),
        ("segments", '["left"]', "[7]", "a segment lists something other than names of operations"),
        ("devices", '"core"', '"kernel"', "'devices' has unknown or missing fields"),
        ("devices", '"ENABLE_CPU_PINNING"', '"CACHE_DIR"', "the property 'CACHE_DIR'; known are"),
        ("devices", '"num_threads": 1', '"num_threads": NaN', "an invalid num_threads"),
        ("devices", f'"{A}"', '"GPU"', "the name 'GPU', but is made of the CPU"),
    ],
)
def test_what_it_says_is_checked(folder, tmp_path, key, old, new, said):
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        placement.load(edited(folder, tmp_path, key, old, new))
    assert "\n" not in str(caught.value)


def test_the_properties_of_the_devices_count_and_no_others(folder, tmp_path):
    """`config` is for those who load the model without this package."""
    copy = edited(folder, tmp_path, "config", '"ENABLE_CPU_PINNING"', '"CACHE_DIR"')
    placement.load(copy, concurrent=False).close()


@pytest.mark.parametrize("spec", ["auto", "host", "CPU"])
def test_devices_that_are_made_are_believed(spec):
    for device in (*devices.resolve(spec), *devices.list_references(devices.resolve(spec))):
        assert devices.describe_invalid_device(device) == ""


def test_other_weights_of_the_same_size_are_refused(folder, tmp_path):
    for name in ("model.xml", "model.bin"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    placement.load(tmp_path).close()
    (tmp_path / "model.bin").write_bytes(bytes((folder / "model.bin").stat().st_size))
    with pytest.raises(UserError, match="have changed since they were written; deploy it again"):
        placement.load(tmp_path)


def test_a_digest_that_nobody_checked_is_none(folder, tmp_path):
    """OpenVINO reads it however it is written."""
    (tmp_path / "model.bin").write_bytes((folder / "model.bin").read_bytes())
    text = (folder / "model.xml").read_text()
    (tmp_path / "model.xml").write_text(text.replace("<digest value=", "<digest  value="))
    with pytest.raises(UserError, match="it has no digest"):
        placement.load(tmp_path)


@pytest.mark.parametrize("size", [10, 400])
def test_a_truncated_model_is_refused_without_a_log(folder, tmp_path, capfd, size):
    (tmp_path / "model.bin").write_bytes((folder / "model.bin").read_bytes())
    (tmp_path / "model.xml").write_bytes((folder / "model.xml").read_bytes()[:size])
    with pytest.raises(UserError, match=r"cannot be read: .*; deploy it again$"):
        placement.load(tmp_path)
    assert capfd.readouterr().err == ""
