"""What others put where abandoned folders are looked for."""

import os
import tempfile
import threading
from pathlib import Path

import pytest

from placement.runtime.tempdir import TempDir


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def abandoned(path: Path) -> Path:
    path.mkdir()
    for name in ("lock", "model.xml"):
        (path / name).touch()
    return path


def make_and_close() -> None:
    """Ends within the time that a folder takes, whatever is there."""
    thread = threading.Thread(target=lambda: TempDir().close(), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it waits for what another left there"


def test_only_abandoned_folders_go(temporary):
    killed = abandoned(temporary / "placement-worker-killed")
    pipe = abandoned(temporary / "placement-worker-pipe")
    (pipe / "lock").unlink()
    os.mkfifo(pipe / "lock")
    elsewhere = abandoned(temporary / "elsewhere")
    (temporary / "placement-worker-folder").symlink_to(elsewhere)
    linked = abandoned(temporary / "placement-worker-lock")
    (linked / "lock").unlink()
    (linked / "lock").symlink_to(elsewhere / "lock")
    make_and_close()
    assert not killed.exists()
    assert pipe.exists()
    assert (elsewhere / "model.xml").exists()
    assert linked.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to give files away")
@pytest.mark.parametrize("given", [".", "lock"])
def test_folders_of_others_stay(temporary, given):
    folder = abandoned(temporary / "placement-worker-other")
    os.chown(folder / given, 65534, -1)
    make_and_close()
    assert (folder / "model.xml").exists()
