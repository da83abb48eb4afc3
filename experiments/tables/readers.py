"""Readers of the tables: each makes a header and rows from stored runs."""

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from experiments import suite
from experiments.benchmarks import scale, unseen
from experiments.tables import audit, stored
from experiments.tables.audit import Grid
from placement import methods
from placement.pipeline.results import advice
from placement.reporting import summaries, units
from placement.reporting.statistics import Interval
from placement.reporting.tables import comparison, grids, results

PUBLISHED = stored.ROOT / "third_party" / "published"
_SINGLES = {"cpu": "CPU only", "gpu": "GPU only"}  # by a part of a single device's name
_SEED_STATISTICS: dict[str, Callable[..., Any]] = {
    "best": np.min,
    "median": np.median,
    "worst": np.max,
}


def read_published(name: str, runs: Iterable[str]) -> Grid:
    """Reads a published table next to our runs: 'ours vs theirs', the lowest of a side in bold.

    Latencies of different machines cannot be compared, so the tables have ratios to the best single
    device of the same source. A file of `third_party/published/` has a row for each graph: `values`
    by method, and the published `reduction` in percent against the best of other methods.
    'METHOD, best', 'median' and 'worst' are over seeds.
    """
    source = json.loads((PUBLISHED / f"{name}.json").read_text("utf-8"))
    columns = list(source["rows"][0]["values"])
    our_rows = []
    for row in stored.read_rows(runs):  # our runs of the Planner are those of its tuned variant
        method = row["method"].replace("variant=tuned,", "").removesuffix(":variant=tuned")
        our_rows.append(row | {"method": method})
    for row in [*our_rows]:  # the fastest single device of each kind is a method, too
        prefix, _, device = row["method"].partition(":")
        kinds = [kind for key, kind in _SINGLES.items() if key in device]
        if prefix == "single" and kinds:
            our_rows.append({**row, "method": kinds[0]})
    our_means: dict[str, dict[str, float]] = {}  # by graph, of methods and statistics over seeds
    for graph, cells in comparison.compare(our_rows, ()).cells.items():
        our_means[graph] = {}
        for method, cell in cells.items():
            our_means[graph][method] = cell.latency_s.mean
            for statistic, compute in _SEED_STATISTICS.items():
                our_means[graph][f"{method}, {statistic}"] = float(compute(cell.runs_s))

    def write_ratios(values: Mapping[str, float], unit: float, unit_name: str = "") -> list[str]:
        texts = {}
        for method in columns:
            value = values.get(method, math.nan)
            texts[method] = "-" if math.isnan(value) else f"{value / unit:.3f}"
            if math.isinf(value):
                texts[method] = comparison.OOM
            elif unit_name and not math.isnan(value):
                texts[method] += f" ({value:.6g} {unit_name})"
        # In bold also where a value is written like the lowest one.
        lowest = texts[min((m for m in texts if m in values), key=lambda method: values[method])]
        return [grids.bold(text) if text == lowest else text for text in texts.values()]

    rows = []
    for row in source["rows"]:
        (ours,) = (our_means[graph] for graph in row["aliases"] if graph in our_means)
        theirs = {
            method: math.inf if value == comparison.OOM else value
            for method, value in row["values"].items()
            if value is not None
        }
        our_cells = write_ratios(ours, ours[comparison.SINGLE])
        unit = min(theirs[single] for single in _SINGLES.values() if single in theirs)
        their_cells = write_ratios(theirs, unit, source["unit"])
        texts = [f"{o} vs {t}" for o, t in zip(our_cells, their_cells, strict=True)]
        reduction = row["reduction"]
        ratio = 1 - ours[reduction["method"]] / min(ours[m] for m in reduction["against"])
        texts.append(f"{ratio:z.1%} vs {reduction['percent']:.4g}%")
        rows.append([row["graphs"][0], str(row["accelerators"]), *texts])
    return ["graph", "accelerators, theirs", *columns, "reduction"], rows


def split_cells(line: str) -> list[str]:
    """Returns the cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read_report(run: str) -> Grid:
    """Reads the table that a report of the run has, without the evaluations, as in a terminal."""
    rows = [{**row, "evaluations": "-"} for row in stored.read_json(run)["rows"]]
    table = results.table_of(rows, results.best_rows(rows))
    header, _, *cells = map(split_cells, table.markdown().splitlines())
    return header, cells


def read_comparison(names: Sequence[str], dropped: Sequence[str] = ()) -> Grid:
    """Reads the comparisons of several runs as one, and leaves some columns out."""
    rows = stored.read_rows(names)
    learners = set(filter(methods.is_learned, (row["method"] for row in rows)))
    compared = comparison.compare(rows, learners)
    header, _, *cells = map(split_cells, comparison.grid(compared).markdown().splitlines())
    indices = [i for i, column in enumerate(header) if column not in dropped]
    return [header[i] for i in indices], [[row[i] for i in indices] for row in cells]


def _format_ms(seconds: float | None) -> str:
    """Formats seconds as milliseconds with four digits."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    return f"{1e3 * seconds:.{max(0, 4 - len(str(int(1e3 * seconds))))}f}"


def _format_ratio(row: dict[str, Any]) -> str:
    """Formats the ratio of a row to the best single device, with its interval."""
    low, high = row["versus_interval"] or (math.nan, math.nan)
    return Interval(row["versus_best_single_device"], low, high).write()


def read_gains(names: Sequence[str], method: str) -> Grid:
    """Reads a method's gain over the best single device and, in further columns, references."""
    rows, references = [], dict[str, None]()
    for run in names:
        summary, devices = stored.read_json(run), stored.read_json(run, "config.json")["devices"]
        by_name = {row["method"]: row for row in summary["rows"]}
        medians = {name: summaries.median_s(row) for name, row in by_name.items()}
        references |= dict.fromkeys(name for name in medians if by_name[name].get("reference"))
        single_s = min(s for name, s in medians.items() if name.startswith("single:") and s)
        seconds = single_s, by_name[method]["predicted_s"], medians[method]
        rows.append(
            [
                *(summary["graph"]["name"], f"`{devices}`", *map(_format_ms, seconds)),
                _format_ratio(by_name[method]),
                *(_format_ms(medians.get(name)) for name in references),
            ]
        )
    header = ["graph", "devices", "single ms", "predicted ms", "measured ms", "ratio"]
    return [*header, *(name.removeprefix("reference:") for name in references)], rows


def read_precisions(names: Sequence[str], method: str) -> Grid:
    """Reads a method's placements on the CPU in two precisions, with the errors of outputs."""
    header = ["network", "error in bf16", "error mixed", "operations in f32", "f32 ms", "mixed ms"]
    rows = []
    for run in names:
        summary = stored.read_json(run)
        (division,) = summary["divisions"]
        by_name = {row["method"]: row for row in summary["rows"]}
        num_ops = sum(len(culprit["ops"]) for culprit in division["culprits"])
        rows.append(
            [
                *(summary["graph"]["name"], f"{division['whole_error']:.4f}"),
                f"{by_name[method]['output_error']:.4f}",
                f"{num_ops} of {summary['graph']['num_ops']}",
                *(
                    _format_ms(summaries.median_s(by_name[name]))
                    for name in ("single:CPU_F32", method)
                ),
                *(_format_ratio(by_name[method]), f"{division['seconds']:.0f}"),
            ]
        )
    return [*header, "mixed / f32", "s to find all"], rows


def read_gaps(names: Sequence[str], exact: str, methods: Sequence[str]) -> Grid:
    """Reads the gaps of methods to the optimum that an exact method proves."""
    rows = []
    for run in names:
        devices = stored.read_json(run, "config.json")["devices"]
        predicted = [row | {"measured_s": None} for row in stored.read_rows([run])]
        for graph, cells in comparison.compare(predicted, ()).cells.items():
            optimum_s = cells[exact].latency_s.mean
            values = [cells[m].latency_s.mean for m in (comparison.SINGLE, *methods)]
            gaps = [f"{value / optimum_s - 1:z.1%}" for value in values]
            rows.append([graph, devices, _format_ms(optimum_s), *gaps])
    return ["graph", "devices", "optimum ms", "single", *methods], rows


def read_scores(run: str, baselines: Sequence[str]) -> Grid:
    """Reads the ratio of each method to the best known latency of each graph, means over seeds.

    The next columns hold, over the graphs with headroom (over all graphs where none has any), the
    geometric mean and its ratio to that of each baseline.
    """
    compared = comparison.compare(stored.read_rows([run]), ())
    cells, results = compared.cells, comparison.aggregate(compared, compared.methods)
    title, scope = next(iter(results["scopes"].items()))

    def write(estimate: dict[str, float] | None) -> str:
        return Interval(*map(estimate.__getitem__, Interval._fields)).write() if estimate else "-"

    rows = []
    for method, mean in scope["means"].items():
        ratios = [
            f"{cells[graph][method].latency_s.mean / result['best_s']:.3f}"
            for graph, result in results["graphs"].items()
        ]
        over = [scope["ratios"][method].get(baseline) for baseline in baselines]
        rows.append([f"`{method}`", *ratios, write(mean), *map(write, over)])
    heads = (f"over `{baseline}`" for baseline in baselines)
    return ["method", *results["graphs"], title, *heads], rows


def read_phases(names: Sequence[str]) -> Grid:
    """Reads the seconds of each phase by the graph's size, and the memory of the largest."""
    sizes = tuple(int(name.rpartition("-")[2]) for name in names)
    printed = [stored.read_json(run, stored.PRINTED) for run in names]
    rows = []
    for records in zip(*printed, strict=True):
        phases = [scale.Phase(*record) for record in records]
        seconds = [phase.seconds for phase in phases]
        texts = [f"{s:.2f}" if s < 10 else f"{s:.1f}" for s in seconds]
        gigabytes = f"{phases[-1].peak_bytes / 1e9:.1f}"
        rows.append([phases[0].name, *texts, gigabytes, scale.format_exponent(sizes, seconds)])
    heads = (f"{size:,} operations, s" for size in sizes)
    return ["phase", *heads, "GB", "exponent"], rows


def read_unseen_devices() -> Grid:
    """Reads a policy's ratios to a whole search on unseen families: median (worst) by devices."""
    cells = [unseen.Cell(*cell) for cell in stored.read_json("unseen", stored.PRINTED)]
    rows = [
        [devices.replace(",", ", "), *texts]
        for devices, _, *texts, _ in unseen.make_device_rows(cells)
    ]
    return ["devices", "faster than HEFT", "`zero_shot`", "untrained"], rows


def read_unseen_families() -> Grid:
    """Reads the same ratios by family: geometric means over all devices."""
    cells = [unseen.Cell(*cell) for cell in stored.read_json("unseen", stored.PRINTED)]
    rows = []
    for family in dict.fromkeys(cell.family for cell in cells):
        ratios = [unseen.compute_ratios(cell) for cell in cells if cell.family == family]
        means = [statistics.geometric_mean(column) for column in zip(*ratios, strict=True)]
        rows.append([f"`{family}`", *(f"{mean:.3f}" for mean in means)])
    return ["family", "best single device", "HEFT", "untrained", "`zero_shot`"], rows


def read_workloads(kind: str) -> Grid:
    """Reads the value, seconds and status of each solver on each workload."""
    results: dict[str, dict[str, list[str]]] = {}  # by workload and method
    for run in stored.find(f"{kind}-*"):
        _, workload, method = run.split("-")
        (row,) = (row for row in stored.read_rows([run]) if row["method"] == method)
        cells = [f"{row['predicted_s']:.4f}", f"{row['search_s']:.2f}", row["status"]]
        results.setdefault(workload.replace("_", " "), {})[method] = cells
    methods = dict.fromkeys(method for by_method in results.values() for method in by_method)
    header = [f"`{kind}`", *(text for m in methods for text in (f"`{m}`", "s", "status"))]
    return header, [
        [workload, *(cell for m in methods for cell in by_method.get(m, ["", "", ""]))]
        for workload, by_method in results.items()
    ]


def read_verdicts(names: Iterable[str], columns: Sequence[str]) -> Grid:
    """Reads the best possible ratio of `--task=advise`: a row for each run, objectives as columns.

    A cell is the bound over the fastest device without placing, under the same objective.
    """
    rows = []
    for run in names:
        record = stored.read_json(run, "advice.json")
        ratios = {row["objective"]: row["ratio"] for row in record["rows"]}
        devices = stored.COMMANDS[run].partition("--config.devices=")[2].split()[0]
        cells = [
            units.NONE
            if ratios[column] is None
            else f"{ratios[column]:.2f}" + ", stop" * (ratios[column] >= advice.HOPELESS)
            for column in columns
        ]
        rows.append([record["graph"].partition(":")[0], f"`{devices}`", *cells])
    return ["graph", "devices", *columns], rows


_PLANNER = ("hierarchical", "hierarchical-4", "hierarchical-8")
_SERIAL_METHODS = ("hierarchical:variant=tuned", "local_search")
# The reader of each table, by the name in its mark.
TABLES: dict[str, Callable[[], Grid]] = {
    "machine": partial(read_report, "machine"),
    "verdicts": partial(read_verdicts, stored.find("advice-*"), ("serial", "makespan", "max_load")),
    "streams": partial(read_gains, stored.find("stream-*"), "ideals_dp"),
    "concurrent_gains": partial(read_gains, stored.find("gains-*"), "search"),
    "solvers_max_load": partial(read_workloads, "max_load"),
    "solvers_subgraph": partial(read_workloads, "subgraph"),
    "solvers_serial": partial(read_gaps, stored.find("serial-*"), "graph_cut", _SERIAL_METHODS),
    "front": partial(read_report, "front"),
    "laptop_155h": partial(read_comparison, ["laptop-155h"], ["reduction", "gap of the best"]),
    "laptop_358h": partial(read_comparison, ["laptop-358h"], ["reduction", "gap of the best"]),
    **audit.TABLES,
    "ablation": partial(read_scores, "ablation", ["hsdag"]),
    "hierarchical": partial(read_comparison, [*_PLANNER, *stored.find("hierarchical*-exact")]),
    "published_planner": partial(read_published, "hierarchical_planner", _PLANNER),
    "published_random_groups": partial(read_published, "hierarchical_random_groups", _PLANNER),
    "planner_search": partial(read_comparison, stored.find("hierarchical*-search"), ["reduction"]),
    "hsdag": partial(read_comparison, ["hsdag"], ["bound", "gap of the best"]),
    "scale": partial(read_phases, stored.find("scale-*")),
    "scale_methods": partial(read_comparison, ["large_methods"], ["reduction"]),
    "precisions": partial(read_precisions, stored.find("precisions-*"), "graph_cut"),
    "unseen_devices": read_unseen_devices,
    "unseen_families": read_unseen_families,
    "suite": suite.summarise,
}
