"""The stored runs of the tables, and the commands that make them.

`commands.json` has the command of each run by the run's name: the flags of `experiments.main`, or
another module with its arguments, which prints JSON. `runs.zip` has the results of each run. The
runs of the audit are separate (`experiments.tables.audit`).
"""

import fnmatch
import functools
import json
import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from placement import methods
from placement.errors import UserError
from placement.reporting import runs

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "runs" / "tables"
COMMANDS: dict[str, str] = json.loads(Path(__file__).with_name("commands.json").read_text("utf-8"))
ARCHIVE = Path(__file__).with_name("runs.zip")
PRINTED = "printed.json"  # the last line that a module other than experiments.main printed
_FILES = "advice.json", "config.json", PRINTED, "report.md", runs.SUMMARY
_DATE = (1980, 1, 1, 0, 0, 0)  # of every file, so that equal results make equal bytes


@functools.cache
def _read_archive() -> dict[str, bytes]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def read(run: str, file: str) -> str:
    """Returns the text of a stored file of a run."""
    return _read_archive()[f"{run}/{file}"].decode()


def read_json(run: str, file: str = runs.SUMMARY) -> Any:
    """Returns the content of a stored JSON file of a run."""
    return json.loads(read(run, file))


def read_rows(names: Iterable[str]) -> list[dict[str, Any]]:
    """Returns the rows of several runs' summaries, without methods that are removed by now."""
    rows = [row for run in names for row in read_json(run)["rows"]]
    return [row for row in rows if row["method"].partition(":")[0] in methods.METHODS]


def find(*patterns: str) -> list[str]:
    """Returns the names of runs that match any pattern, such as 'gains-*'; each matches some."""
    for pattern in patterns:
        if not fnmatch.filter(COMMANDS, pattern):
            raise UserError(f"no run matches {pattern!r}; set one of: {', '.join(COMMANDS)}")
    return [run for run in COMMANDS if any(fnmatch.fnmatch(run, p) for p in patterns)]


def make(run: str) -> None:
    """Runs a command again, in the folder of its run, and stores the results."""
    workdir, words = FOLDER / run, shlex.split(COMMANDS[run])
    workdir.mkdir(parents=True, exist_ok=True)
    is_main = words[0].startswith("--")
    if is_main:
        words = ["experiments.main", f"--workdir={workdir}", *words, "--verbosity=-1"]
    print(f"{run}: {COMMANDS[run]}", flush=True)
    process = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=FOLDER,
        env={**os.environ, "PYTHONPATH": str(ROOT)},  # `experiments` is not installed
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if process.returncode:
        raise UserError(f"the run {run!r} failed; its message is above")
    if not is_main:
        (workdir / PRINTED).write_text(process.stdout.splitlines()[-1])
    contents = {n: c for n, c in _read_archive().items() if not n.startswith(f"{run}/")}
    contents |= {
        f"{run}/{file}": (workdir / file).read_bytes()
        for file in _FILES
        if (workdir / file).exists()
    }
    with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(contents):
            archive.writestr(zipfile.ZipInfo(name, _DATE), contents[name], zipfile.ZIP_DEFLATED)
    _read_archive.cache_clear()
