"""How the tables of the pages are read from what their runs leave.

A reader takes the folder of the runs and gives a `Grid`; most are made for the names of some runs.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import gaps as gaps_lib
from experiments.benchmarks.scale import Phase, exponent
from experiments.benchmarks.unseen import Cell
from experiments.benchmarks.unseen import ratios as ratios_to_search
from experiments.reproduction import published as published_lib
from experiments.reproduction.questions import BUDGETS, OfObjective, OfRoles
from placement import files
from placement import methods as methods_lib
from placement.reporting import runs, summaries
from placement.reporting import statistics as statistics_lib
from placement.reporting.tables import comparison

Grid = tuple[list[str], list[list[str]]]  # a header, and rows
PRINTED = "printed.json"  # in the work directory of a module that is not experiments.main


def cells(line: str) -> list[str]:
    """Returns the cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read_json(path: Path) -> dict[str, Any]:
    """Reads what a run has left.

    Raises:
      UserError: it is not there, or is something else.
    """
    return files.read_json(path, {str: object}, remedy="run its command again")


def _summary(folder: Path, run: str) -> dict[str, Any]:
    return runs.read_summary(folder / run)


def reported(run: str, *columns: str, without: tuple[str, ...] = ()) -> Callable[[Path], Grid]:
    """Returns the reader of a run's first table that has these columns, without some."""

    def read(folder: Path) -> Grid:
        lines = (folder / run / "report.md").read_text().splitlines()
        heads = [i for i, line in enumerate(lines) if line.startswith("| ---")]
        head = next(i for i in heads if {*columns} <= {*cells(lines[i - 1])}) - 1
        end = head
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        header, _, *rows = [cells(line) for line in lines[head:end]]
        kept = [i for i, column in enumerate(header) if column not in without]
        return [header[i] for i in kept], [[row[i] for i in kept] for row in rows]

    return read


def merged(*runs: str) -> Callable[[Path], Grid]:
    """Returns the reader of what several runs compare, side by side."""

    def read(folder: Path) -> Grid:
        rows = [row for run in runs for row in _summary(folder, run)["rows"]]
        learned = methods_lib.of_kind("learned")
        lines = comparison.markdown(comparison.compare(rows, learned)).splitlines()
        header, _, *found = map(cells, lines)
        return header, found

    return read


def published(name: str, reference: str, *runs: str) -> Callable[[Path], Grid]:
    """Returns the reader of a published table, over a reference, beside what several runs found."""

    def read(folder: Path) -> Grid:
        found = [_summary(folder, run) for run in runs]
        rows = [row for summary in found for row in summary["rows"]]
        sources = published_lib.read(published_lib.PUBLISHED)
        pairs = published_lib.pair(sources, rows, found[0]["objective"])
        (paired,) = (p for p in pairs if (p.source.name, p.reference) == (name, reference))
        return published_lib.grid(paired)

    return read


def fidelity(names: dict[str, str]) -> Callable[[Path], Grid]:
    """Returns the reader of how far predictions are right, by graph: of `--task=profile`."""
    header = ["graph", "predicted by", "costs", "placements", "Spearman", "median error"]
    header.append("90th percentile")

    def read(folder: Path) -> Grid:
        rows = []
        for run in names:
            fidelity = read_json(folder / run / "fidelity.json")
            rows += [
                [
                    *(fidelity["graph"], row["predicted by"], row["costs"]),
                    *(str(row["placements"]), f"{row['spearman']:.3f}"),
                    *(f"{row['median_error']:.1%}", f"{row['p90_error']:.1%}"),
                ]
                for row in fidelity["rows"]
                if row["kind"] == "all"
            ]
        return header, rows

    return read


def _ms(seconds: float | None) -> str:
    """Formats seconds as milliseconds with four digits."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    before = len(str(int(1e3 * seconds)))
    return f"{1e3 * seconds:.{max(0, 4 - before)}f}"


def gains(names: dict[str, str], method: str) -> Callable[[Path], Grid]:
    """Returns the reader of a method's gain, beside the best single device and the whole CPU."""
    header = ["graph", "devices", "single ms", "predicted ms", "measured ms", "ratio"]

    def read(folder: Path) -> Grid:
        rows, beside = [], dict[str, None]()
        for run in names:
            summary = _summary(folder, run)
            by_name = {row["method"]: row for row in summary["rows"]}
            row = by_name[method]
            medians = {name: summaries.median_s(row) for name, row in by_name.items()}
            others = {n: s for n, s in medians.items() if by_name[n].get("reference")}
            beside |= dict.fromkeys(others)
            singles = [s for n, s in medians.items() if n.startswith("single:") and s]
            low, high = row["versus_interval"] or (math.nan, math.nan)
            ratio = f"{row['versus_best_single_device']:.3f} [{low:.3f}, {high:.3f}]"
            given = read_json(folder / run / "config.json")
            seconds = (min(singles), row["predicted_s"], medians[method])
            rows.append(
                [summary["graph"]["name"], f"`{given['devices']}`", *map(_ms, seconds), ratio]
            )
            rows[-1] += [_ms(others.get(name)) for name in beside]
        return [*header, *(name.removeprefix("reference:") for name in beside)], rows

    return read


def by_method(
    names: dict[str, str], seeds: dict[str, str], column: str, methods: tuple[str, ...]
) -> Callable[[Path], Grid]:
    """Returns the reader of predicted latencies, milliseconds: the best in bold, bound and gap."""
    header = ["graph", column, "single", *methods, "bound", "gap of the best"]

    def read(folder: Path) -> Grid:
        rows = []
        for run in names:
            found = _summary(folder, run)["rows"]
            compared = comparison.compare(found, ())
            for graph in compared.graphs:
                cells = compared.cells[graph]
                values = [cells[m].latency_s.mean for m in (comparison.SINGLE, *methods)]
                texts = [_ms(v) if math.isfinite(v) else comparison.OOM for v in values]
                best = texts[values.index(min(values))]
                bound_s = max(row["bound_s"] or 0.0 for row in found if row["graph"] == graph)
                marked = [f"**{text}**" if text == best else text for text in texts]
                gap = f"{min(values) / bound_s - 1:z.1%}"
                rows.append([graph, seeds[run], *marked, _ms(bound_s), gap])
        return header, rows

    return read


def gaps(names: dict[str, str], exact: str, methods: tuple[str, ...]) -> Callable[[Path], Grid]:
    """Returns the reader of how far methods are from the optimum that one of them proves."""
    header = ["graph", "devices", "optimum ms", "single", *methods]

    def read(folder: Path) -> Grid:
        rows = []
        for run in names:
            summary = _summary(folder, run)
            given = read_json(folder / run / "config.json")
            compared = comparison.compare(
                [row | {"measured_s": None} for row in summary["rows"]], ()
            )
            for graph in compared.graphs:
                cells = compared.cells[graph]
                optimum_s = cells[exact].latency_s.mean
                chosen = [cells[m].latency_s.mean for m in (comparison.SINGLE, *methods)]
                gaps = [f"{value / optimum_s - 1:z.1%}" for value in chosen]
                rows.append([graph, given["devices"], _ms(optimum_s), *gaps])
        return header, rows

    return read


def scores(run: str, *against: str) -> Callable[[Path], Grid]:
    """Returns the reader of methods over the best known latency of each graph, means over seeds.

    Then of the graphs with room, or of all where none has any, the interquartile mean and how
    likely a run of each of `against` is faster, with 95% intervals where there are several runs.
    """

    def read(folder: Path) -> Grid:
        summary = _summary(folder, run)
        compared, told = comparison.compare(summary["rows"], ()), summary["statistics"]
        title, scope = next(iter(told["scopes"].items()))
        faster = [scope["probability_of_improvement"].get(other, {}) for other in against]
        rows = []
        for method, mean in scope["interquartile_mean"].items():
            ratios = [
                f"{compared.cells[graph][method].latency_s.mean / of['best_s']:.3f}"
                if method in compared.cells[graph]
                else "-"
                for graph, of in told["graphs"].items()
            ]
            beside = [_interval(of[method], 2) if method in of else "-" for of in faster]
            rows.append([f"`{method}`", *ratios, _interval(mean, 3), *beside])
        header = ["method", *told["graphs"], title, *(f"`{m}` is faster" for m in against)]
        return header, rows

    return read


def ranking(run: str) -> Callable[[Path], Grid]:
    """Returns the reader of the interquartile means alone."""

    def read(folder: Path) -> Grid:
        header, rows = scores(run)(folder)
        return [header[0], header[-1]], [[row[0], row[-1]] for row in rows]

    return read


def _interval(found: dict[str, float | None], decimals: int) -> str:
    low, high = found["low"], found["high"]
    text = f"{found['value']:.{decimals}f}"
    return text if low is None else f"{text} [{low:.{decimals}f}, {high:.{decimals}f}]"


def rooms(run: str) -> Callable[[Path], Grid]:
    """Returns the reader of what there is to gain on each graph, and who found it."""

    def read(folder: Path) -> Grid:
        graphs = _summary(folder, run)["statistics"]["graphs"]
        header = ["graph", "best single device, ms", "best known, ms", "room", "found by"]
        return header, [
            [
                *(graph, _ms(room["single_s"]), _ms(room["best_s"])),
                *(f"{room['room']:.3f}", f"`{room['method']}`"),
            ]
            for graph, room in graphs.items()
        ]

    return read


def phases(names: dict[str, str]) -> Callable[[Path], Grid]:
    """Returns the reader of each phase's seconds by the graph's size, and the largest's memory."""

    def read(folder: Path) -> Grid:
        sizes = tuple(int(name.rpartition("-")[2]) for name in names)
        measured = [
            [Phase(*phase) for phase in json.loads((folder / name / PRINTED).read_text())]
            for name in names
        ]
        header = ["phase", *(f"{size:,} operations, s" for size in sizes), "GB", "exponent"]
        rows = []
        for some in zip(*measured, strict=True):
            seconds = [phase.seconds for phase in some]
            texts = [f"{s:.2f}" if s < 10 else f"{s:.1f}" for s in seconds]
            gigabytes = f"{some[-1].peak_bytes / 1e9:.1f}"
            rows.append([some[0].name, *texts, gigabytes, exponent(sizes, seconds)])
        return header, rows

    return read


def _unseen(folder: Path) -> list[Cell]:
    return [Cell(*cell) for cell in json.loads((folder / "unseen" / PRINTED).read_text())]


def unseen_by_devices(folder: Path) -> Grid:
    """Reads of a policy on unseen families, by devices: median (worst) over a whole search."""
    cells, rows = _unseen(folder), []
    for devices in dict.fromkeys(cell.devices for cell in cells):
        some = [cell for cell in cells if cell.devices == devices]
        faster = sum(cell.zero_shot_s < cell.heft_s for cell in some) / len(some)
        of = [ratios_to_search(cell) for cell in some]
        texts = [
            f"{statistics.median(r[i] for r in of):.3f} ({max(r[i] for r in of):.3f})"
            for i in (3, 2)
        ]
        rows.append([devices.partition(":")[2].replace(",", ", "), f"{faster:.0%}", *texts])
    return ["devices", "faster than HEFT", "`zero_shot`", "untrained"], rows


def unseen_by_family(folder: Path) -> Grid:
    """Reads the same by family: geometric means over all devices."""
    cells, rows = _unseen(folder), []
    for family in dict.fromkeys(cell.family for cell in cells):
        of = [ratios_to_search(cell) for cell in cells if cell.family == family]
        means = [statistics.geometric_mean(column) for column in zip(*of, strict=True)]
        rows.append([f"`{family}`", *(f"{mean:.3f}" for mean in means)])
    return ["family", "best single device", "HEFT", "untrained", "`zero_shot`"], rows


def gaps_by_family(folder: Path) -> Grid:
    """Reads how far the best known is from what is proven, by family."""
    printed = json.loads((folder / "gaps" / PRINTED).read_text())
    return list(gaps_lib.HEADER), gaps_lib.by_family([gaps_lib.Cell(*cell) for cell in printed])


def roles_of_search(folder: Path) -> Grid:
    """Reads of `search` with some roles: over the best known, interquartile means of seeds."""
    printed = json.loads((folder / "roles_search" / PRINTED).read_text())
    found = [OfRoles(*cell) for cell in printed]
    known_s = {of.graph: min(min(c.best_s) for c in found if c.graph == of.graph) for of in found}
    header, rows = ["roles"], []
    for told in dict.fromkeys(cell.told for cell in found):
        some = [cell for cell in found if cell.told == told]
        texts = [text for cell in some for text in _of_roles(cell, known_s[cell.graph])]
        rows.append([told, *(cell for _, cell in texts)])
        header = ["roles", *(head for head, _ in texts)]
    return header, rows


def _of_roles(cell: OfRoles, known_s: float) -> Iterator[tuple[str, str]]:
    """Columns of a cell of `questions`, with their heads."""
    if cell.budget == BUDGETS[0]:
        yield f"{cell.graph}, decisions", f"{cell.decisions:,}"
    mean = statistics_lib.interquartile_mean([np.array(cell.best_s) / known_s])
    yield f"{cell.budget:,} evaluations", _interval(mean._asdict(), 3)


def objectives(folder: Path) -> Grid:
    """Reads what placements of several objectives cut, and what they are worth under makespan."""
    printed = json.loads((folder / "objectives" / PRINTED).read_text())
    header = ["graph", "placement", "MB cut", "makespan", "after a search from there"]
    return header, [
        [
            *(cell.graph, cell.found_by, f"{cell.cut_bytes / 1e6:.2f}"),
            *(f"{s / cell.single_s:.3f}" for s in (cell.makespan_s, cell.refined_s)),
        ]
        for cell in (OfObjective(*each) for each in printed)
    ]


def solved(kind: str, files: Mapping[str, tuple[str, ...]]) -> Callable[[Path], Grid]:
    """Returns the reader of what solvers find of workloads: value, seconds and status of each."""
    methods = tuple(dict.fromkeys(m for chosen in files.values() for m in chosen))

    def read(folder: Path) -> Grid:
        header = [f"`{kind}`", *(text for m in methods for text in (f"`{m}`", "s", "status"))]
        rows = []
        for name, chosen in files.items():
            cells = [name.replace("_", " ")]
            for method in methods:
                if method not in chosen:
                    cells += ["", "", ""]
                    continue
                summary = _summary(folder, f"{kind}-{name}-{method}")
                (row,) = (row for row in summary["rows"] if row["method"] == method)
                cells += [f"{row['predicted_s']:.4f}", f"{row['search_s']:.2f}", row["status"]]
            rows.append(cells)
        return header, rows

    return read
