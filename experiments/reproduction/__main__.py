"""Makes the tables of the pages that runs stand behind again, and says what moved.

    python -m experiments.benchmarks documents
    python -m experiments.benchmarks documents quickstart concurrent_gains

A page has a line `<!-- documents: NAME -->` above each such table; `page_tables.TABLES` says
which commands it comes from, and how it is read from what they leave. All of them take a night.
Runs stay in `runs/documents`, and one that has ended is not made again: an interrupted night goes
on, and whoever wants to measure anew removes the folder. Tables of Tarnawski et al.'s workloads
need their files in `runs/documents/workloads`; the others are made without.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from markdown_it import MarkdownIt

from experiments.reproduction.page_tables import TABLES
from experiments.reproduction.table_readers import PRINTED, Grid, cells
from placement import arguments, files
from placement.errors import UserError
from placement.reporting import runs

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "runs" / "documents"
MARK = "<!-- documents: {} -->"
_MOVED = 0.05  # relative, of a number that is said to have moved
_ENDED = "documents.json"


def run(*names: str) -> None:
    """Makes tables, by default all, writes them into their pages and prints what moved.

    Raises:
      UserError: there is no table of a name.
    """
    chosen = names or tuple(TABLES)
    for name in chosen:
        arguments.check("table", name, TABLES)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        table = TABLES[name]
        if table.needs and not (FOLDER / table.needs).exists():
            print(f"{name}: left as it is, without {FOLDER / table.needs}", flush=True)
            continue
        failed = [name for name, command in table.runs.items() if not _ran(name, command)]
        if failed:
            print(f"{name}: left as it is, as {', '.join(failed)} failed", flush=True)
            continue
        for line in replace(ROOT / table.page, name, table.read(FOLDER)):
            print(f"{name}: {line}", flush=True)


def replace(page: Path, name: str, grid: Grid) -> list[str]:
    """Puts a grid in the place of a page's table; returns what moved, a line each.

    Raises:
      UserError: the page has no such table.
    """
    lines = page.read_text("utf-8").splitlines()
    if MARK.format(name) not in lines:
        raise UserError(f"{page} has no line {MARK.format(name)!r}; put it above the table")
    start = lines.index(MARK.format(name)) + 1
    while not lines[start].startswith("|"):
        start += 1
    end = start
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    old = [cells(line) for line in lines[start:end]]
    header, rows = grid
    align = old[1] if old[0] == header else ["---", *["---:"] * (len(header) - 1)]
    lines[start:end] = [f"| {' | '.join(row)} |" for row in (header, align, *rows)]
    runs.write_text(page, "\n".join(lines) + "\n")
    return list(_moved((old[0], old[2:]), grid))


def _moved(old: Grid, new: Grid) -> Iterable[str]:
    """Numbers that differ by more than `_MOVED`, and rows that are new or gone, by first cell."""
    before: dict[tuple[str, str], list[str]] = {}
    for row in old[1]:
        for column, cell in zip(old[0], row, strict=False):
            before.setdefault((row[0], column), []).append(cell)
    for row in new[1]:
        for column, cell in zip(new[0], row, strict=True):
            known = before.get((row[0], column))
            was = known.pop(0) if known else "nothing"
            if _differs(was, cell):
                yield f"{row[0]}, {column}: {was} -> {cell}"


def _differs(was: str, now: str) -> bool:
    one, other = _number(was), _number(now)
    if one is None or other is None:
        return was.strip("*") != now.strip("*")
    return abs(one - other) > _MOVED * max(abs(one), abs(other))


def _number(cell: str) -> float | None:
    """Returns the first number of a cell; None where it does not begin with one."""
    text = cell.strip("*~ ").split(" ")[0].rstrip("%,x").replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None


def _ran(run: str, command: str) -> bool:
    """Runs a command unless it has ended before; returns whether it ended well.

    What a module other than `experiments.main` prints last is kept in `table_readers.PRINTED`.
    """
    workdir = FOLDER / run
    ended = workdir / _ENDED
    if ended.exists() and files.read_json(ended, object, remedy="remove it") == command:
        print(f"made before: {run}", flush=True)
        return True
    if "model.onnx" in command:
        _make_tutorial_model()
    print(f"{run}: {command}", flush=True)
    words = shlex.split(command)
    if command.startswith("--"):
        words = ["experiments.main", f"--workdir={workdir}", *words, "--verbosity=-1"]
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=FOLDER, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode == 0:
        workdir.mkdir(exist_ok=True)
        if not command.startswith("--"):
            runs.write_text(workdir / PRINTED, done.stdout.splitlines()[-1])
        runs.write_json(ended, command)
    return done.returncode == 0


def _make_tutorial_model() -> None:
    """Runs the first code of the tutorial, which writes model.onnx."""
    tokens = MarkdownIt("commonmark").parse((ROOT / "docs/TUTORIAL.md").read_text("utf-8"))
    code = next(token.content for token in tokens if token.info.strip() == "python")
    subprocess.run([sys.executable, "-c", code], cwd=FOLDER, check=True)
