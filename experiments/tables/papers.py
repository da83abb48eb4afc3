"""Tables that compare runs with the Hierarchical Planner's paper: its figures, and conclusions.

*Figures.* Latencies of different machines cannot be compared, so the tables have ratios to the best
single device of the same source. A file of `third_party/published/` names its source and has a row
for each graph: `values` by method, and the published `reduction` in percent against the best of
other methods. Methods are named like those of a comparison; 'CPU only' and 'GPU only' are the
fastest single device of that kind, and 'METHOD, best', 'median' and 'worst' are over seeds.

*Conclusions.* A conclusion says that one method's latencies are lower than another's on a graph, or
not lower. The figure is the ratio of the two means with its 95% interval after Fieller's theorem
for independent means (Student's t with the smaller degrees of freedom; a deterministic method
contributes no variance). The conclusion holds if the whole interval lies on its side of 1, and does
not hold if the whole interval lies on the other side.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from experiments.tables import stored
from experiments.tables.audit import Grid
from placement.reporting.statistics import Interval
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


# Chosen to match the published single devices (docs/DEVICES.md).
_NMT_SIZES = "steps=40,batch=40,vocabulary=56000"
_PLANNER, _RANDOM = "hierarchical:variant=tuned", "hierarchical:variant=tuned,grouping=random"
_NMT = [f"nmt:layers={layers},{_NMT_SIZES},training=1" for layers in (2, 4, 8)]
GRAPHS = {
    "Inception-V3": "inception_v3:training=1",
    "ResNet-152": "resnet:depth=152,batch=14,training=1",
    "RNNLM": "rnnlm:training=1",
    **dict(zip(("NMT (2 layers)", "NMT (4 layers)", "NMT (8 layers)"), _NMT, strict=True)),
}


class Conclusion(NamedTuple):
    """A paper's statement about two methods on some networks."""

    text: str
    method: str
    baselines: tuple[str, ...]  # the method is compared with the best of these
    networks: tuple[str, ...] = tuple(GRAPHS)
    higher: tuple[str, ...] = ()  # the networks on which the method's latency is not lower


CONCLUSIONS = (
    Conclusion("the Planner is below Scotch and MinCut", _PLANNER, ("scotch", "min_cut")),
    Conclusion(
        "NMT is below the human expert on 2 and 4 GPUs, and not on 8",
        *(_PLANNER, ("human_expert",), ("NMT (2 layers)", "NMT (4 layers)", "NMT (8 layers)")),
        higher=("NMT (8 layers)",),
    ),
    Conclusion(
        # Here the learned groups start from slices of the topological order; random ones do not.
        "learned groups that start from slices are better than random ones",
        *(_PLANNER, (_RANDOM,)),
        ("Inception-V3", "NMT (2 layers)", "NMT (4 layers)", "NMT (8 layers)"),
    ),
    Conclusion(
        "nothing is gained on ResNet",
        *(_PLANNER, (comparison.SINGLE,), ("ResNet-152",), ("ResNet-152",)),
    ),
)


def read_conclusions(runs: Iterable[str]) -> Grid:
    """Reads a row for each conclusion and network."""
    cells_by_graph = comparison.compare(stored.read_rows(runs), ()).cells
    table = []
    for conclusion in CONCLUSIONS:
        for network in conclusion.networks:
            cells = cells_by_graph[GRAPHS[network]]
            baseline = min(conclusion.baselines, key=lambda m: cells[m].latency_s.mean)
            ratio = compute_ratio(cells[conclusion.method].runs_s, cells[baseline].runs_s)
            verdict = judge(ratio, network not in conclusion.higher)
            table.append([conclusion.text, network, verdict, f"{ratio.write()} of `{baseline}`"])
    return ["conclusion", "network", "here", "figure"], table


def judge(ratio: Interval, is_lower: bool) -> str:
    """Says whether a ratio agrees with a conclusion that it is, or is not, below 1."""
    if ratio.low <= 1 <= ratio.high and ratio.low < ratio.high:
        return "inconclusive"
    return "holds" if (ratio.high < 1) == is_lower else "does not"


def compute_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Computes the ratio of the means of two methods' runs, and Fieller's interval.

    Args:
      numerators: values of independent runs; a single one of a deterministic method.
      denominators: the same of the other method.
    """
    samples = numerators, denominators
    means = float(np.mean(numerators)), float(np.mean(denominators))
    if not (math.isfinite(means[0]) and math.isfinite(means[1])):  # out of memory
        value = 0.0 if math.isfinite(means[0]) else math.inf
        return Interval(value, value, value)
    value = means[0] / means[1]
    errors = [
        float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
        for values in samples
    ]
    counts = [len(values) for values, error in zip(samples, errors, strict=True) if error]
    if not counts:
        return Interval(value, value, value)
    t = float(stats.t.ppf(0.975, min(counts) - 1))
    # The squared relative half-widths g of both means.
    g_numerator, g_denominator = (
        (t * error / mean) ** 2 for error, mean in zip(errors, means, strict=True)
    )
    if g_denominator >= 1:  # the denominator may be zero
        return Interval(value, 0.0, math.inf)
    centre = 1 / (1 - g_denominator)
    half_width = centre * math.sqrt(g_numerator + g_denominator - g_numerator * g_denominator)
    return Interval(value, value * (centre - half_width), value * (centre + half_width))
