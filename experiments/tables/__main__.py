"""Makes the tables of README.md and docs/ from stored runs, and makes new runs.

    python -m experiments.tables
    python -m experiments.tables --check
    python -m experiments.tables run RUN ...
    python -m experiments.tables audit FOLDER [PART PARTS]

The first command writes the table below each line `<!-- documents: NAME -->` of a page, in seconds.
`--check` only names the tables that differ, and exits with 1 if there are any. `run` repeats
commands of `commands.json`, by name or by a pattern such as 'gains-*', and stores their results;
all of them take a night. The folder `runs/tables` needs the workloads of Tarnawski et al. as
`workloads`. `audit` makes missing runs of the audit and stores them
(`experiments.tables.audit_runs`).
"""

import re
import sys
from pathlib import Path

from experiments.tables import audit_runs, readers, stored
from placement.errors import UserError
from placement.pipeline.console import faults

_TABLE = re.compile(r"(<!-- documents: (\w+) -->\n\n)((?:\|.*\n)+)")


def replace_tables(text: str) -> tuple[str, list[str]]:
    """Returns a page with all tables made again, and the names of those that changed.

    A table keeps its alignment if it keeps its header.
    """
    changed = []

    def replace(match: re.Match[str]) -> str:
        mark, name, table = match.groups()
        header, rows = readers.TABLES[name]()
        old_header, old_rule, *_ = map(readers.split_cells, table.splitlines())
        rule = old_rule if old_header == header else ["---", *["---:"] * (len(header) - 1)]
        lines = [f"| {' | '.join(cells)} |\n" for cells in (header, rule, *rows)]
        if "".join(lines) != table:
            changed.append(name)
        return mark + "".join(lines)

    return _TABLE.sub(replace, text), changed


def find_stale(*, write: bool) -> list[str]:
    """Returns the names of tables that differ from the stored runs, and perhaps writes them."""
    stale = []
    for page in (stored.ROOT / "README.md", *sorted((stored.ROOT / "docs").glob("*.md"))):
        text, changed = replace_tables(page.read_text("utf-8"))
        stale += changed
        if write and changed:
            page.write_text(text, "utf-8")
    return stale


def main(words: list[str]) -> int:
    """Runs a command and returns the exit code."""
    match words:
        case [] | ["--check"]:
            stale = find_stale(write=not words)
            print(f"tables that differ: {', '.join(stale) or 'none'}")
            return 1 if stale and words else 0
        case ["run", _, *_]:
            for run in stored.find(*words[1:]):
                stored.make(run)
        case ["audit", folder]:
            audit_runs.store(Path(folder))
        case ["audit", folder, part, parts] if part.isdecimal() and parts.isdecimal():
            audit_runs.run(Path(folder), int(part), int(parts))
        case _:
            usage = (__doc__ or "").split("\n\n")[1].split("\n")
            raise UserError(f"set one of: {'; '.join(line.strip() for line in usage)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as mistake:
        faults.exit_with(2, f"error: {mistake}")
