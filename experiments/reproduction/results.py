"""The results of the runs behind the tables, in one archive in the repository.

For each run the archive has its command and the files that `table_readers` reads. The values of all
methods, graphs and seeds are the rows of `summary.json`, or what a benchmark printed. The runs of
the audit are stored by `experiments.audit.runs`.
"""

import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from experiments.reproduction.table_readers import PRINTED
from placement.pipeline.results import advice
from placement.reporting import runs

STORED = Path(__file__).parent / "runs.zip"
COMMAND = "documents.json"  # in a run's directory once its command has succeeded
_FILES = (
    *(COMMAND, PRINTED, runs.SUMMARY, advice.FILE),
    *("config.json", "fidelity.json", "report.md"),
)
_DATE = (1980, 1, 1, 0, 0, 0)  # of every file, so that equal results make equal bytes


def read_commands(path: Path) -> dict[str, str]:
    """Returns the command of each stored run, by the run's name."""
    return {
        name.removesuffix(f"/{COMMAND}"): json.loads(content)
        for name, content in _read(path).items()
        if name.endswith(f"/{COMMAND}")
    }


def unpack(folder: Path, path: Path) -> None:
    """Writes the stored files of all runs into a folder."""
    for name, content in _read(path).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def store(folder: Path, names: Iterable[str], path: Path) -> None:
    """Stores the runs of these names from a folder in place of earlier ones."""
    names = set(names)
    contents = {n: c for n, c in _read(path).items() if n.partition("/")[0] not in names}
    for file in (folder / run / name for run in names for name in _FILES):
        if file.exists():
            contents[file.relative_to(folder).as_posix()] = file.read_bytes()
    _write(contents, path)


def _read(path: Path) -> dict[str, bytes]:
    if not path.exists():
        return {}
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write(contents: Mapping[str, bytes], path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(contents):
            archive.writestr(zipfile.ZipInfo(name, _DATE), contents[name], zipfile.ZIP_DEFLATED)
