"""Readers of the pages' tables: each makes a `Grid` from the results of finished runs.

A reader takes the folder of the runs first, then the names of the runs that its table shows; a
run's name is that of its work directory. `page_tables` binds all arguments but the folder.
"""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks import memory, proposals, servers, unseen
from experiments.benchmarks.cells import Cell
from experiments.benchmarks.scale import Phase, format_exponent
from experiments.reproduction import published as published_lib
from experiments.reproduction.questions import BUDGETS, ObjectiveResult, RolesResult
from placement import files
from placement import methods as methods_lib
from placement.pipeline.results import advice
from placement.reporting import runs as runs_lib
from placement.reporting import statistics as statistics_lib
from placement.reporting import summaries, units
from placement.reporting import verdict as verdict_lib
from placement.reporting.tables import comparison

Grid = tuple[list[str], list[list[str]]]  # a header, and rows
PRINTED = "printed.json"  # the last line that a module other than experiments.main printed


def split_cells(line: str) -> list[str]:
    """Returns the cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _read_json(path: Path) -> dict[str, Any]:
    return files.read_json(path, {str: object}, remedy="run its command again")


def _read_printed(folder: Path, run: str) -> list[list[Any]]:
    return json.loads((folder / run / PRINTED).read_text())


def read_report_table(
    folder: Path, run: str, columns: Sequence[str], dropped: Sequence[str] = ()
) -> Grid:
    """Reads the first table of a run's report that has some columns, and drops others."""
    lines = (folder / run / "report.md").read_text().splitlines()
    rulers = [i for i, line in enumerate(lines) if line.startswith("| ---")]
    start = next(i for i in rulers if {*columns} <= {*split_cells(lines[i - 1])}) - 1
    end = start
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return _drop_columns(lines[start:end], dropped)


def read_verdict(folder: Path, run: str) -> list[str]:
    """Returns the verdict on a run."""
    summary = runs_lib.read_summary(folder / run)
    return [verdict_lib.closing_sentence(summary["rows"], summary["objective"])]


def read_merged_comparison(folder: Path, runs: Iterable[str], dropped: Sequence[str] = ()) -> Grid:
    """Reads the comparisons of several runs as one, and drops some columns."""
    rows = [row for run in runs for row in runs_lib.read_summary(folder / run)["rows"]]
    lines = comparison.markdown(
        comparison.compare(rows, methods_lib.of_kind("learned"))
    ).splitlines()
    return _drop_columns(lines, dropped)


def _drop_columns(lines: Sequence[str], dropped: Sequence[str]) -> Grid:
    """Splits the lines of a table, and leaves some columns out."""
    header, _, *rows = map(split_cells, lines)
    indices = [i for i, column in enumerate(header) if column not in dropped]
    return [header[i] for i in indices], [[row[i] for i in indices] for row in rows]


def read_published(folder: Path, runs: Iterable[str], table: str) -> Grid:
    """Reads several runs next to a published table, as ratios to the best single device."""
    summaries_ = [runs_lib.read_summary(folder / run) for run in runs]
    rows = [row for summary in summaries_ for row in summary["rows"]]
    sources = published_lib.read(published_lib.PUBLISHED)
    pairs = published_lib.pair(sources, rows, summaries_[0]["objective"])
    (paired,) = (p for p in pairs if (p.source.name, p.reference) == (table, comparison.SINGLE))
    return published_lib.make_grid(paired)


def read_fidelity(folder: Path, runs: Iterable[str]) -> Grid:
    """Reads the accuracy of predictions from runs of `--task=profile`."""
    header = ["graph", "predicted by", "costs", "placements", "Spearman", "median error"]
    rows = []
    for run in runs:
        fidelity = _read_json(folder / run / "fidelity.json")
        rows += [
            [
                *(fidelity["graph"], row["predicted by"], row["costs"]),
                *(str(row["placements"]), f"{row['spearman']:.3f}"),
                *(f"{row['median_error']:.1%}", f"{row['p90_error']:.1%}"),
            ]
            for row in fidelity["rows"]
            if row["kind"] == "all"
        ]
    return [*header, "90th percentile"], rows


def describe_fidelity(folder: Path, runs: Iterable[str]) -> list[str]:
    """Returns a sentence on the errors of each kind of prediction over all runs."""
    errors: dict[tuple[str, str], list[float]] = {}
    correlations: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        for row in _read_json(folder / run / "fidelity.json")["rows"]:
            if row["kind"] == "all":
                kind = row["predicted by"], row["costs"]
                errors.setdefault(kind, []).append(row["median_error"])
                correlations.setdefault(kind, []).append(row["spearman"])
    return [
        f"Predictions by {predictor} with {costs} costs have a median error of "
        f"{min(values):.1%} to {max(values):.1%}, and a rank correlation of at least "
        f"{min(correlations[predictor, costs]):.3f}."
        for (predictor, costs), values in errors.items()
    ]


def _format_ms(seconds: float | None) -> str:
    """Formats seconds as milliseconds with four digits."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    integer_digits = len(str(int(1e3 * seconds)))
    return f"{1e3 * seconds:.{max(0, 4 - integer_digits)}f}"


def read_gains(folder: Path, runs: Iterable[str], method: str) -> Grid:
    """Reads a method's gain over the best single device and, in further columns, references."""
    rows, references = [], dict[str, None]()
    for run in runs:
        summary = runs_lib.read_summary(folder / run)
        by_name = {row["method"]: row for row in summary["rows"]}
        row = by_name[method]
        medians = {name: summaries.median_s(row) for name, row in by_name.items()}
        references |= dict.fromkeys(name for name in medians if by_name[name].get("reference"))
        singles_s = [s for n, s in medians.items() if n.startswith("single:") and s]
        low, high = row["versus_interval"] or (math.nan, math.nan)
        devices = _read_json(folder / run / "config.json")["devices"]
        seconds = (min(singles_s), row["predicted_s"], medians[method])
        rows.append(
            [
                *(summary["graph"]["name"], f"`{devices}`", *map(_format_ms, seconds)),
                f"{row['versus_best_single_device']:.3f} [{low:.3f}, {high:.3f}]",
                *(_format_ms(medians.get(name)) for name in references),
            ]
        )
    header = ["graph", "devices", "single ms", "predicted ms", "measured ms", "ratio"]
    return [*header, *(name.removeprefix("reference:") for name in references)], rows


def describe_gains(folder: Path, runs: Iterable[str], method: str) -> list[str]:
    """Returns sentences that compare a method with the best single device and the references.

    A reference is faster or slower than the method where the intervals of their ratios to the best
    single device do not overlap.
    """
    ratios = []
    verdicts: dict[str, dict[str, list[str]]] = {}  # graphs, by reference and verdict
    for run in runs:
        summary = runs_lib.read_summary(folder / run)
        by_name = {row["method"]: row for row in summary["rows"]}
        ratios.append(by_name[method]["versus_best_single_device"])
        low, high = by_name[method]["versus_interval"]
        for name, row in by_name.items():
            if row.get("reference"):
                other_low, other_high = row["versus_interval"]
                verdict = "undecided"
                if other_high < low or other_low > high:
                    verdict = "faster" if other_high < low else "slower"
                graphs = verdicts.setdefault(name, {}).setdefault(verdict, [])
                graphs.append(summary["graph"]["name"].partition(":")[0])
    sentences = [
        f"The placements of `{method}` take {min(ratios):.2f} to {max(ratios):.2f} of the time of "
        "the best single device."
    ]
    for name, graphs_by_verdict in verdicts.items():
        texts = [f"{verdict} on {', '.join(g)}" for verdict, g in graphs_by_verdict.items()]
        reference = name.removeprefix("reference:")
        sentences.append(f"Compared with them, `{reference}` is {'; '.join(texts)}.")
    return sentences


def read_precisions(folder: Path, runs: Iterable[str], method: str) -> Grid:
    """Reads a method's placements on the CPU in two precisions, with the errors of outputs."""
    header = ["network", "error in bf16", "error mixed", "operations in f32", "f32 ms", "mixed ms"]
    rows = []
    for run in runs:
        summary = runs_lib.read_summary(folder / run)
        (division,) = summary["divisions"]
        by_name = {row["method"]: row for row in summary["rows"]}
        row = by_name[method]
        low, high = row["versus_interval"]
        num_ops = sum(len(culprit["ops"]) for culprit in division["culprits"])
        rows.append(
            [
                *(summary["graph"]["name"], f"{division['whole_error']:.4f}"),
                *(f"{row['output_error']:.4f}", f"{num_ops} of {summary['graph']['num_ops']}"),
                _format_ms(summaries.median_s(by_name["single:CPU_F32"])),
                _format_ms(summaries.median_s(row)),
                f"{row['versus_best_single_device']:.3f} [{low:.3f}, {high:.3f}]",
                f"{division['seconds']:.0f}",
            ]
        )
    return [*header, "mixed / f32", "s to find all"], rows


def describe_precisions(folder: Path, runs: Iterable[str], method: str) -> list[str]:
    """Returns sentences on a method's placements on the CPU in two precisions."""
    ratios, errors, whole_errors = [], [], []
    for run in runs:
        summary = runs_lib.read_summary(folder / run)
        (row,) = (row for row in summary["rows"] if row["method"] == method)
        ratios.append(row["versus_best_single_device"])
        errors.append(row["output_error"])
        whole_errors.append(summary["divisions"][0]["whole_error"])
    return [
        f"The placements of `{method}` take {min(ratios):.2f} to {max(ratios):.2f} of the time of "
        f"the CPU in f32, with output errors of at most {max(errors):.4f}.",
        f"In bf16 alone the errors are {min(whole_errors):.4f} to {max(whole_errors):.4f}.",
    ]


def read_gaps(folder: Path, runs: Iterable[str], exact: str, methods: Sequence[str]) -> Grid:
    """Reads the gaps of methods to the optimum that an exact method proves."""
    rows = []
    for run in runs:
        summary = runs_lib.read_summary(folder / run)
        devices = _read_json(folder / run / "config.json")["devices"]
        predicted = [row | {"measured_s": None} for row in summary["rows"]]
        compared = comparison.compare(predicted, ())
        for graph in compared.graphs:
            cells = compared.cells[graph]
            optimum_s = cells[exact].latency_s.mean
            values = [cells[m].latency_s.mean for m in (comparison.SINGLE, *methods)]
            gaps = [f"{value / optimum_s - 1:z.1%}" for value in values]
            rows.append([graph, devices, _format_ms(optimum_s), *gaps])
    return ["graph", "devices", "optimum ms", "single", *methods], rows


def read_scores(folder: Path, run: str, baselines: Sequence[str] = ()) -> Grid:
    """Reads the ratio of each method to the best known latency of each graph, means over seeds.

    The next columns hold, over the graphs with headroom (over all graphs where none has any), the
    interquartile mean and the probability that a run of each baseline is faster, with 95% intervals
    where there are several runs.
    """
    summary = runs_lib.read_summary(folder / run)
    cells, results = comparison.compare(summary["rows"], ()).cells, summary["statistics"]
    title, scope = next(iter(results["scopes"].items()))
    faster = [scope["probability_of_improvement"].get(baseline, {}) for baseline in baselines]
    rows = []
    for method, mean in scope["interquartile_mean"].items():
        ratios = [
            f"{cells[graph][method].latency_s.mean / result['best_s']:.3f}"
            if method in cells[graph]
            else "-"
            for graph, result in results["graphs"].items()
        ]
        probabilities = [_format_interval(p[method], 2) if method in p else "-" for p in faster]
        rows.append([f"`{method}`", *ratios, _format_interval(mean, 3), *probabilities])
    heads = (f"`{baseline}` is faster" for baseline in baselines)
    return ["method", *results["graphs"], title, *heads], rows


def _format_interval(estimate: dict[str, float | None], decimals: int) -> str:
    """Formats an interval of summary.json, where None stands for nan."""
    numbers = {k: math.nan if value is None else value for k, value in estimate.items()}
    return statistics_lib.Interval(**numbers).write(decimals)


def read_phases(folder: Path, runs: Iterable[str]) -> Grid:
    """Reads the seconds of each phase by the graph's size, and the memory of the largest."""
    runs = list(runs)
    sizes = tuple(int(name.rpartition("-")[2]) for name in runs)
    phases_by_size = [[Phase(*phase) for phase in _read_printed(folder, run)] for run in runs]
    rows = []
    for phases in zip(*phases_by_size, strict=True):
        seconds = [phase.seconds for phase in phases]
        texts = [f"{s:.2f}" if s < 10 else f"{s:.1f}" for s in seconds]
        gigabytes = f"{phases[-1].peak_bytes / 1e9:.1f}"
        rows.append([phases[0].name, *texts, gigabytes, format_exponent(sizes, seconds)])
    heads = (f"{size:,} operations, s" for size in sizes)
    return ["phase", *heads, "GB", "exponent"], rows


def read_unseen_by_devices(folder: Path) -> Grid:
    """Reads a policy's ratios to a whole search on unseen families: median (worst) by devices."""
    cells = [Cell(*cell) for cell in _read_printed(folder, "unseen")]
    rows = [
        [devices.replace(",", ", "), *texts]
        for devices, _, *texts, _ in unseen.make_device_rows(cells)
    ]
    return ["devices", "faster than HEFT", "`zero_shot`", "untrained"], rows


def read_unseen_by_family(folder: Path) -> Grid:
    """Reads the same ratios by family: geometric means over all devices."""
    cells, rows = [Cell(*cell) for cell in _read_printed(folder, "unseen")], []
    for family in dict.fromkeys(cell.family for cell in cells):
        ratios = [unseen.compute_ratios(cell) for cell in cells if cell.family == family]
        means = [statistics.geometric_mean(column) for column in zip(*ratios, strict=True)]
        rows.append([f"`{family}`", *(f"{mean:.3f}" for mean in means)])
    return ["family", "best single device", "HEFT", "untrained", "`zero_shot`"], rows


def read_servers(folder: Path) -> Grid:
    """Reads the simulated latencies on groups of cores of servers."""
    results = [servers.Result(*result) for result in _read_printed(folder, "servers")]
    return list(servers.HEADER), servers.make_rows(results)


def read_memory(folder: Path) -> Grid:
    """Reads the memory of the plug-in for networks and their halves."""
    results = [memory.Result(*result) for result in _read_printed(folder, "memory")]
    return list(memory.HEADER), memory.make_rows(results)


def read_proposals(folder: Path, table: int, header: Sequence[str]) -> Grid:
    """Reads the scores of searches with learned proposals: groups (table 0) or moves (1)."""
    printed = _read_printed(folder, "proposals")[table]
    return list(header), proposals.make_rows(proposals.Result(*result) for result in printed)


def read_roles(folder: Path) -> Grid:
    """Reads results of `search` with different roles, over the best known of each graph."""
    results = [RolesResult(*result) for result in _read_printed(folder, "roles_search")]
    best_s: dict[str, float] = {}
    for result in results:
        best_s[result.graph] = min(best_s.get(result.graph, math.inf), *result.best_s)
    header, rows = ["roles"], []
    for roles in dict.fromkeys(result.roles for result in results):
        header, row = ["roles"], [roles]
        for result in results:
            if result.roles != roles:
                continue
            if result.budget == BUDGETS[0]:
                header.append(f"{result.graph}, decisions")
                row.append(f"{result.decisions:,}")
            ratios = np.array(result.best_s) / best_s[result.graph]
            mean = statistics_lib.interquartile_mean([ratios])
            header.append(f"{result.budget:,} evaluations")
            row.append(mean.write())
        rows.append(row)
    return header, rows


def read_objectives(folder: Path) -> Grid:
    """Reads the bytes that placements of several objectives cut, and their makespans."""
    header = ["graph", "placement", "MB cut", "makespan", "after a search from there"]
    return header, [
        [
            *(result.graph, result.found_by, f"{result.cut_bytes / 1e6:.2f}"),
            *(f"{s / result.single_s:.3f}" for s in (result.makespan_s, result.refined_s)),
        ]
        for result in (ObjectiveResult(*row) for row in _read_printed(folder, "objectives"))
    ]


def read_workloads(folder: Path, kind: str, methods_by_file: Mapping[str, Sequence[str]]) -> Grid:
    """Reads the value, seconds and status of each solver on each workload."""
    all_methods = dict.fromkeys(m for methods in methods_by_file.values() for m in methods)
    rows = []
    for name, methods in methods_by_file.items():
        cells = [name.replace("_", " ")]
        for method in all_methods:
            if method not in methods:
                cells += ["", "", ""]
                continue
            summary = runs_lib.read_summary(folder / f"{kind}-{name}-{method}")
            (row,) = (row for row in summary["rows"] if row["method"] == method)
            cells += [f"{row['predicted_s']:.4f}", f"{row['search_s']:.2f}", row["status"]]
        rows.append(cells)
    heads = (text for method in all_methods for text in (f"`{method}`", "s", "status"))
    return [f"`{kind}`", *heads], rows


def read_verdicts(folder: Path, runs: Mapping[str, str], objectives: Sequence[str]) -> Grid:
    """Reads the best possible ratio of `--task=advise`, a row for each run.

    A cell is the bound over the fastest device without placing, under the same objective.

    Args:
      folder: holds the runs.
      runs: the devices of each run.
      objectives: a column each.
    """
    rows = []
    for run, devices in runs.items():
        record = _read_json(folder / run / advice.FILE)
        ratios = {row["objective"]: row["ratio"] for row in record["rows"]}
        cells = []
        for ratio in map(ratios.get, objectives):
            if ratio is None:  # not known
                cells.append(units.NONE)
            else:
                cells.append(f"{ratio:.2f}" + (", stop" if ratio >= advice.HOPELESS else ""))
        rows.append([record["graph"].partition(":")[0], f"`{devices}`", *cells])
    return ["graph", "devices", *objectives], rows
