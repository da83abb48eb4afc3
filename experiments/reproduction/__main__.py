"""Makes the measured tables of the documents, and prints the numbers that changed.

    python -m experiments.reproduction [NAME ...]
    python -m experiments.reproduction measure [NAME ...]

A page has a line `<!-- documents: NAME -->` above each such table, and `<!-- sentences: NAME -->`
above a list of sentences that follow from a table. `page_tables.TABLES` lists the commands behind
each table and the reader of their results.

The first command makes tables from stored results (`results.STORED`, and `experiments.audit.runs`),
by default all of them, in seconds. `measure` runs the commands first and stores their results. All
commands together take a night. Runs stay in `runs/documents`. A finished run is not repeated, so an
interrupted night continues; remove the folder to measure again. Tables of Tarnawski et al.'s
workloads need their files in `runs/documents/workloads`; the other tables do not.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from markdown_it import MarkdownIt

from experiments.reproduction import results
from experiments.reproduction.page_tables import SENTENCES, TABLES, Table
from experiments.reproduction.table_readers import PRINTED, Grid, split_cells
from placement import arguments, files
from placement.errors import UserError
from placement.pipeline.console import exits
from placement.reporting import runs

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "runs" / "documents"
MARK = "<!-- documents: {} -->"
SENTENCES_MARK = "<!-- sentences: {} -->"
_WIDTH = 105  # of a page's lines
_TOLERANCE = 0.05  # relative; a number that differs by less counts as unchanged


def make_tables(names: Iterable[str]) -> None:
    """Writes tables of stored results into their pages and prints the changes."""
    commands = results.read_commands(results.STORED)
    with tempfile.TemporaryDirectory() as directory:
        results.unpack(Path(directory), results.STORED)
        for name in names:
            table = TABLES[name]
            if missing := find_missing(table, commands):
                counts = f"{len(missing)} of its {len(table.runs)} runs are not stored"
                print(f"{name}: unchanged, because {counts}; 'measure {name}' makes them")
                continue
            for line in replace_table(ROOT / table.page, name, table.read(Path(directory))):
                print(f"{name}: {line}", flush=True)
            if name in SENTENCES:
                page, make = SENTENCES[name]
                replace_sentences(ROOT / page, name, make(Path(directory)))


def find_missing(table: Table, commands: Mapping[str, str]) -> list[str]:
    """Returns the runs of a table that are not stored, or with another command."""
    return [run for run, command in table.runs.items() if commands.get(run) != command]


def measure(names: Iterable[str]) -> None:
    """Runs the commands of tables, stores the results and makes the tables."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        table = TABLES[name]
        if table.needed_path and not (FOLDER / table.needed_path).exists():
            print(f"{name}: unchanged, without {FOLDER / table.needed_path}", flush=True)
            continue
        failed = [run for run, command in table.runs.items() if not _run_command(run, command)]
        if failed:
            print(f"{name}: unchanged, because {', '.join(failed)} failed", flush=True)
            continue
        results.store(FOLDER, table.runs, results.STORED)
        make_tables([name])


def replace_table(page: Path, name: str, grid: Grid) -> list[str]:
    """Replaces a page's table by a grid and returns one line for each change.

    A number that changes by less than `_TOLERANCE` is not reported. The table's alignment stays
    unless its header changes.

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
    old_header, old_alignment, *old_rows = [split_cells(line) for line in lines[start:end]]
    header, rows = grid
    default_alignment = ["---", *["---:"] * (len(header) - 1)]
    alignment = old_alignment if old_header == header else default_alignment
    lines[start:end] = [f"| {' | '.join(row)} |" for row in (header, alignment, *rows)]
    runs.write_text(page, "\n".join(lines) + "\n")

    old_cells: dict[tuple[str, str], list[str]] = {}  # by the row's first cell and the column
    for row in old_rows:
        for column, cell in zip(old_header, row, strict=False):
            old_cells.setdefault((row[0], column), []).append(cell)
    changes = []
    for row in rows:
        for column, cell in zip(header, row, strict=True):
            candidates = old_cells.get((row[0], column))
            old_cell = candidates.pop(0) if candidates else "nothing"
            if _differs(old_cell, cell):
                changes.append(f"{row[0]}, {column}: {old_cell} -> {cell}")
    return changes


def replace_sentences(page: Path, name: str, sentences: Sequence[str]) -> None:
    """Replaces a page's list below the mark of sentences by others.

    Raises:
      UserError: the page has no such mark.
    """
    lines = page.read_text("utf-8").splitlines()
    if SENTENCES_MARK.format(name) not in lines:
        raise UserError(
            f"{page} has no line {SENTENCES_MARK.format(name)!r}; put it above the list"
        )
    start = lines.index(SENTENCES_MARK.format(name)) + 2
    end = start + next(i for i, line in enumerate([*lines[start:], ""]) if not line)
    lines[start:end] = format_list(sentences)
    runs.write_text(page, "\n".join(lines) + "\n")


def format_list(sentences: Iterable[str]) -> list[str]:
    """Returns the lines of a list in Markdown."""
    return [
        line
        for sentence in sentences
        for line in textwrap.wrap(
            f"- {sentence}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False
        )
    ]


def _differs(old: str, new: str) -> bool:
    old_number, new_number = _first_number(old), _first_number(new)
    if old_number is None or new_number is None:
        return old.strip("*") != new.strip("*")
    return abs(old_number - new_number) > _TOLERANCE * max(abs(old_number), abs(new_number))


def _first_number(cell: str) -> float | None:
    """Returns the number that a cell begins with, if any."""
    text = cell.strip("*~ ").split(" ")[0].rstrip("%,x").replace(",", "")
    try:
        return float(text)
    except ValueError:
        return None


def _run_command(name: str, command: str) -> bool:
    """Runs a command unless it has finished before; returns whether it succeeded.

    The last line that a module other than `experiments.main` prints is kept in
    `table_readers.PRINTED`.
    """
    workdir = FOLDER / name
    finished = workdir / results.COMMAND
    if finished.exists() and files.read_json(finished, object, remedy="remove it") == command:
        print(f"made before: {name}", flush=True)
        return True
    if "model.onnx" in command:  # made by the first code of the tutorial
        text = (ROOT / "docs/TUTORIAL.md").read_text("utf-8")
        tokens = MarkdownIt("commonmark").parse(text)
        code = next(token.content for token in tokens if token.info.strip() == "python")
        subprocess.run([sys.executable, "-c", code], cwd=FOLDER, check=True)
    print(f"{name}: {command}", flush=True)
    is_main = command.startswith("--")
    words = shlex.split(command)
    if is_main:
        words = ["experiments.main", f"--workdir={workdir}", *words, "--verbosity=-1"]
    process = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=FOLDER,
        env={**os.environ, "PYTHONPATH": str(ROOT)},  # `experiments` is not installed
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if process.returncode == 0:
        workdir.mkdir(exist_ok=True)
        if not is_main:
            runs.write_text(workdir / PRINTED, process.stdout.splitlines()[-1])
        runs.write_json(finished, command)
    return process.returncode == 0


def main(words: list[str]) -> None:
    """Makes the tables that the command line names; a mistake exits with 2."""
    is_measured = words[:1] == ["measure"]
    names = (words[1:] if is_measured else words) or [*TABLES]
    try:
        for name in names:
            arguments.check_choice("table", name, TABLES)
        (measure if is_measured else make_tables)(names)
    except UserError as error:
        exits.report_mistake(error)


if __name__ == "__main__":
    main(sys.argv[1:])
