"""Tables that compare runs with the figures of the Hierarchical Planner's paper.

Latencies of different machines cannot be compared, so the tables have ratios to the best
single device of the same source. A file of `third_party/published/` names its source and has a row
for each graph: `values` by method, and the published `reduction` in percent against the best of
other methods. Methods are named like those of a comparison; 'CPU only' and 'GPU only' are the
fastest single device of that kind, and 'METHOD, best', 'median' and 'worst' are over seeds.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from experiments.tables import stored
from experiments.tables.audit import Grid
from placement.reporting.tables import comparison, grids

PUBLISHED = stored.ROOT / "third_party" / "published"
_SINGLES = {"cpu": "CPU only", "gpu": "GPU only"}  # by a part of a single device's name
_SEED_STATISTICS: dict[str, Callable[..., Any]] = {
    "best": np.min,
    "median": np.median,
    "worst": np.max,
}


def read_published(name: str, runs: Iterable[str]) -> Grid:
    """Reads a published table next to our runs: 'ours vs theirs', the lowest of a side in bold."""
    source = json.loads((PUBLISHED / f"{name}.json").read_text("utf-8"))
    methods = list(source["rows"][0]["values"])
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
        for method in methods:
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
    return ["graph", "accelerators, theirs", *methods, "reduction"], rows
