"""The tables of the pages that runs stand behind: their commands, and how they are read.

`experiments.benchmarks.documents` runs the commands and writes the tables.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmarks import conclusions, server
from experiments.benchmarks.questions import BUDGETS, OfObjective, OfRoles
from experiments.benchmarks.scale import Phase, exponent
from experiments.benchmarks.unseen import Cell
from experiments.benchmarks.unseen import ratios as ratios_to_search
from placement import files
from placement import methods as methods_lib
from placement.reporting import runs
from placement.reporting import statistics as statistics_lib
from placement.reporting.tables import comparison
from placement.reporting.tables import results as tables_lib

Grid = tuple[list[str], list[list[str]]]  # a header, and rows
PRINTED = "printed.json"  # in the work directory of a module that is not experiments.main


class Table(NamedTuple):
    """A table of a page."""

    page: str
    # The command of each run, by the name of its work directory: the flags of experiments.main, or
    # another module with its arguments, which prints JSON.
    runs: dict[str, str]
    read: Callable[[Path], Grid]  # of the folder that the work directories are in
    needs: str = ""  # a file in that folder, of others


def cells(line: str) -> list[str]:
    """Returns the cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _read(path: Path) -> dict[str, Any]:
    return files.read_json(path, {str: object}, remedy="run its command again")


def _summary(folder: Path, run: str) -> dict[str, Any]:
    return runs.read_summary(folder / run)


def report(run: str, *columns: str, without: tuple[str, ...] = ()) -> Callable[[Path], Grid]:
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
        lines = comparison.markdown(comparison.compare(rows, methods_lib.LEARNED)).splitlines()
        header, _, *found = map(cells, lines)
        return header, found

    return read


def section(run: str, title: str) -> Callable[[Path], Grid]:
    """Returns the reader of the table below a heading of a run's report."""

    def read(folder: Path) -> Grid:
        lines = (folder / run / "report.md").read_text().splitlines()
        begin = lines.index(f"### {title}") + 2
        end = lines.index("", begin)
        header, _, *rows = [cells(line) for line in lines[begin:end]]
        return header, rows

    return read


def fidelity(names: dict[str, str]) -> Callable[[Path], Grid]:
    """Returns the reader of how far predictions are right, by graph: of `--task=profile`."""
    header = ["graph", "predicted by", "costs", "placements", "Spearman", "median error"]
    header.append("90th percentile")

    def read(folder: Path) -> Grid:
        rows = []
        for run in names:
            fidelity = _read(folder / run / "fidelity.json")
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
            medians = {name: tables_lib.median_s(row) for name, row in by_name.items()}
            others = {n: s for n, s in medians.items() if by_name[n].get("reference")}
            beside |= dict.fromkeys(others)
            singles = [s for n, s in medians.items() if n.startswith("single:") and s]
            low, high = row["versus_interval"] or (math.nan, math.nan)
            ratio = f"{row['versus_best_single_device']:.3f} [{low:.3f}, {high:.3f}]"
            given = _read(folder / run / "config.json")
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
            given = _read(folder / run / "config.json")
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


def _solved(kind: str, files: Mapping[str, tuple[str, ...]]) -> Callable[[Path], Grid]:
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


def _solving(kind: str, files: Mapping[str, tuple[str, ...]], more: str) -> dict[str, str]:
    folder = {"max_load": "throughput", "subgraph": "latency"}[kind]
    return {
        f"{kind}-{name}-{method}": (
            f"--config=solvers --task=solve --config.devices=auto --config.objective={kind} "
            f"--config.methods={method} --config.graph=workloads/{folder}/{name}.json {more}"
        )
        for name, methods in files.items()
        for method in methods
    }


_QUICK = "--config=quickstart"
_FIDELITY = {
    f"fidelity-{graph}": f"{_QUICK} --task=profile --config.devices=host --config.graph={graph}"
    for graph in ("inception_v3", "resnet50", "two_stream")
}
_GAINS = {
    f"gains-{graph}-{devices.replace(':', '-')}": (
        f"{_QUICK} --config.graph={graph} --config.devices={devices}"
    )
    for graph, devices in (
        *(("inception_v3", "host:bf16,bf16"), ("two_stream", "host:bf16,bf16")),
        ("inception_v3", "host"),
    )
}
_LIST = ("heft", "peft", "m_etf", "annealing", "genetic", "lns", "hsdag", "cpsat")
_SIMULATED = "--config=compare --task=compare --config.evaluate=simulate"
_LISTS = {
    f"list-{count}": (
        f"{_SIMULATED} --config.methods={','.join(_LIST)} "
        "--config.graphs=inception_v3,rnnlm,nmt:layers=2 --config.objective=makespan "
        f"--config.devices=roofline:cpu{',gpu' * count} --config.time_limit_s=45"
    )
    for count in (2, 4)
}
_SERIAL_METHODS = ("hsdag", "hierarchical", "local_search")
_SERIAL = {
    "serial-described": (
        f"{_SIMULATED} --config.methods=graph_cut,{','.join(_SERIAL_METHODS)} "
        "--config.graphs=inception_v3,resnet50,bert_base --config.devices=roofline:igpu,npu"
    ),
    "serial-host": (
        f"{_SIMULATED} --config.methods=graph_cut,{','.join(_SERIAL_METHODS)} "
        "--config.graphs=inception_v3,resnet50 --config.devices=host"
    ),
}
_AUDIT = "--config=audit --task=compare"
_SYNTHETIC = [f"synthetic:family={f},ops=300" for f in ("layered", "series_parallel")]
_WITH_ROOM = ",".join(["rnnlm", "nmt:layers=2", *_SYNTHETIC])
_PAPER = "hsdag:variant=paper"
_OTHERS = "hierarchical,colocrl,placeto,search,lns"
_AUDITS = {
    "audit": (
        "hsdag",
        f"{_AUDIT} --config.graphs={_WITH_ROOM},inception_v3 --config.seeds=2 "
        f"--config.budget=8000 --config.time_limit_s=120 --config.methods={_PAPER},hsdag,"
        f"hsdag:variant=untrained,hierarchical:slices=0,scheduler,{_OTHERS},"
        "heft,peft,m_etf,cpsat,human_expert,metis,scotch",
    ),
    "audit_wall": (
        "hsdag",
        f"{_AUDIT} --config.graphs={_WITH_ROOM} --config.seeds=2 --config.budget=1000000000 "
        "--config.time_limit_s=30 --config.methods=hsdag:variant=released,"
        f"hsdag:variant=released,faults=0,{_PAPER},hsdag,hsdag:variant=untrained,{_OTHERS}",
    ),
    "audit_long": (
        "hsdag",
        f"{_AUDIT} --config.graphs={_WITH_ROOM} --config.seeds=4 --config.budget=32000 "
        "--config.methods=hsdag,hsdag:variant=untrained,search,lns,heft",
    ),
    "ablation": (
        _PAPER,
        f"{_AUDIT} --config.graphs={','.join(_SYNTHETIC)} --config.seeds=3 --config.budget=8000 "
        f"--config.methods={_PAPER},{_PAPER},features=op_type+degrees+fractal+positional,"
        f"{_PAPER},features=op_type+degrees+fractal+output_shape,"
        f"{_PAPER},features=op_type+output_shape",
    ),
}
_UNTRAINED = "hsdag:variant=untrained"
_ROLES = "hierarchical:grouping=roles,num_groups=128"
_QUESTIONS = {
    "specifications": (
        (_UNTRAINED, "scheduler"),
        f"{_AUDIT} --config.graphs={_WITH_ROOM} --config.seeds=3 --config.budget=2000 "
        f"--config.methods={_UNTRAINED},{_UNTRAINED},specifications=False,"
        "scheduler,scheduler:specifications=False",
    ),
    "readers": (
        ("hierarchical",),
        f"{_AUDIT} --config.graphs={_WITH_ROOM} --config.seeds=3 --config.budget=2000 "
        "--config.methods=hierarchical:num_readers=1,hierarchical,hierarchical:num_readers=32",
    ),
    "roles_planner": (
        ("hierarchical",),
        f"{_AUDIT} --config.graphs=rnnlm,nmt:layers=2 --config.seeds=2 --config.budget=2000 "
        f"--config.methods=hierarchical,{_ROLES},{_ROLES},roles=neighbours,human_expert",
    ),
}
_PLANNER = {"hierarchical": "--config=reproduce_hierarchical --task=compare"}
_EXACT = {
    "hierarchical-exact": f"{_PLANNER['hierarchical']} --config.methods=cpsat --config.seeds=1"
}
_LARGER = {
    f"hierarchical-{count}": (
        f"{_PLANNER['hierarchical']} --config.graphs=nmt:layers={count},{server.NMT},training=1 "
        f"--config.seeds=3 --config.devices=roofline:server_cpu{',server_gpu' * count}"
    )
    for count in (4, 8)
}
_PLANNERS = (
    *("human_expert", "scotch", "min_cut", "hierarchical", "hierarchical:grouping=random"),
    *("colocrl", "placeto", "hsdag", "search"),
)
_BOUNDS = ("bound", "gap of the best")
_PROOFS = {
    "layer_bert24_inference": ("ideals_dp", "cpsat"),
    "layer_gnmt_inference": ("ideals_dp", "cpsat"),
    "layer_resnet50_inference": ("ideals_dp",),
    "layer_resnet50_training": ("ideals_dp",),
    "operator_bert3_inference": ("ideals_dp", "cpsat"),
    "operator_bert3_training": ("ideals_dp",),
}
_PATHS = {
    name: ("greedy", "cpsat")
    for name in ("layer_bert24_inference", "layer_gnmt_inference", "operator_bert3_inference")
}
_SIZES = {f"scale-{size}": f"experiments.benchmarks.scale {size}" for size in (10_000, 100_000)}
_POLICY = "../../placement/methods/pretrained/policy.msgpack"  # from the folder of the runs
_UNSEEN = {"unseen": f"experiments.benchmarks.unseen {_POLICY}"}
TABLES = {
    "quickstart": Table("README.md", {"quickstart": _QUICK}, report("quickstart", "status")),
    "tutorial": Table(
        "docs/TUTORIAL.md",
        {"tutorial": f"{_QUICK} --config.graph=model.onnx"},
        report("tutorial", "status"),
    ),
    "concurrent_fidelity": Table("docs/CONCURRENT.md", _FIDELITY, fidelity(_FIDELITY)),
    "concurrent_gains": Table("docs/CONCURRENT.md", _GAINS, gains(_GAINS, "search")),
    "solvers_max_load": Table(
        "docs/SOLVERS.md",
        _solving("max_load", _PROOFS, "--config.time_limit_s=100"),
        _solved("max_load", _PROOFS),
        needs="workloads/throughput",
    ),
    "solvers_subgraph": Table(
        "docs/SOLVERS.md",
        _solving("subgraph", _PATHS, "--config.time_limit_s=280"),
        _solved("subgraph", _PATHS),
        needs="workloads/latency",
    ),
    "solvers_makespan": Table(
        "docs/SOLVERS.md",
        _LISTS,
        by_method(_LISTS, {"list-2": "2", "list-4": "4"}, "GPUs", _LIST),
    ),
    "solvers_serial": Table(
        "docs/SOLVERS.md", _SERIAL, gaps(_SERIAL, "graph_cut", _SERIAL_METHODS)
    ),
    "methods": Table("README.md", {"audit": _AUDITS["audit"][1]}, ranking("audit")),
    "rooms": Table("docs/REPRODUCTION.md", {"audit": _AUDITS["audit"][1]}, rooms("audit")),
    **{
        name: Table("docs/REPRODUCTION.md", {name: command}, scores(name, against))
        for name, (against, command) in _AUDITS.items()
    },
    "hierarchical": Table("docs/REPRODUCTION.md", _PLANNER | _EXACT, merged(*_PLANNER, *_EXACT)),
    **{
        f"published_{name}": Table(
            "docs/REPRODUCTION.md",
            _PLANNER,
            section("hierarchical", f"Published figures: {title}"),
        )
        for name, title in (
            ("planner", "hierarchical_planner"),
            ("planner_expert", "hierarchical_planner, over human_expert"),
            ("random_groups", "hierarchical_random_groups"),
        )
    },
    "conclusions": Table(
        "docs/REPRODUCTION.md",
        _PLANNER | _LARGER,
        lambda folder: conclusions.read(folder, tuple(_PLANNER | _LARGER)),
    ),
    "hierarchical_larger": Table(
        "docs/REPRODUCTION.md",
        _LARGER,
        by_method(_LARGER, {"hierarchical-4": "4", "hierarchical-8": "8"}, "GPUs", _PLANNERS),
    ),
    "hsdag": Table(
        "docs/REPRODUCTION.md",
        {"hsdag": "--config=reproduce_hsdag --task=compare"},
        report("hsdag", "reduction", without=_BOUNDS),
    ),
    **{
        name: Table("docs/QUESTIONS.md", {name: command}, scores(name, *against))
        for name, (against, command) in _QUESTIONS.items()
    },
    "roles_search": Table(
        "docs/QUESTIONS.md",
        {"roles_search": "experiments.benchmarks.questions roles"},
        roles_of_search,
    ),
    "objectives": Table(
        "docs/QUESTIONS.md",
        {"objectives": "experiments.benchmarks.questions objectives"},
        objectives,
    ),
    "scale": Table("docs/SCALE.md", _SIZES, phases(_SIZES)),
    "unseen_devices": Table("docs/PRETRAINING.md", _UNSEEN, unseen_by_devices),
    "unseen_families": Table("docs/PRETRAINING.md", _UNSEEN, unseen_by_family),
}
