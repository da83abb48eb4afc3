"""Scotch as a program: found, run, and refused in one line."""

import shutil
import stat
from pathlib import Path

import pytest

from placement.errors import UserError
from placement.runtime import scotch

# Two pairs of vertices joined by a light edge, on two equal parts.
PAIRS = "0\n4 6\n0 011\n1 1 9 1\n1 2 9 0 1 2\n1 2 1 1 9 3\n1 1 9 2\ncmpltw 2 1 1\n"
installed = pytest.mark.skipif(
    not (shutil.which("scotch_gmap") or shutil.which("gmap")), reason="Scotch is not installed"
)


def _program(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))


@installed
def test_scotch_maps_a_graph():
    count, *pairs = scotch.run_gmap(PAIRS).split()
    assert (count, pairs[::2]) == ("4", ["0", "1", "2", "3"])
    assert pairs[1::2] in (["0", "0", "1", "1"], ["1", "1", "0", "0"])
    with pytest.raises(UserError, match="failed: gmap: ERROR: ") as error:
        scotch.run_gmap(PAIRS.replace("4 6", "4 5"))
    assert "\n" not in str(error.value)


def test_program_runs_on_one_thread(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"scotch is not installed.*apt-get install scotch$"):
        scotch.run_gmap(PAIRS)
    _program(tmp_path, monkeypatch, "gmap", "echo own")
    assert scotch.run_gmap("") == "own\n"
    script = 'echo "$@" $SCOTCH_PTHREAD_NUMBER; read line; echo "$line"'
    _program(tmp_path, monkeypatch, "scotch_gmap", script)  # preferred to gmap
    assert scotch.run_gmap("text\n") == "- - - 1\ntext\n"


@pytest.mark.parametrize(
    ("script", "cause"),
    [("exit 3", "ended with 3"), ("echo 'ERROR: bad' >&2", "ERROR: bad"), ("kill -9 $$", "-9")],
)
def test_failures_are_told(tmp_path, monkeypatch, script, cause):
    _program(tmp_path, monkeypatch, "scotch_gmap", script)
    with pytest.raises(UserError, match=f"scotch_gmap failed: .*{cause}"):
        scotch.run_gmap(PAIRS)
