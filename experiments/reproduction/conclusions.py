"""A check of the papers' conclusions against runs of their tables.

A conclusion says that one method's latencies are lower than another's on a graph, or not lower. The
figure is the ratio of the two means with its 95% interval after Fieller's theorem for independent
means (Student's t with the smaller degrees of freedom; a deterministic method contributes no
variance). The conclusion holds if the whole interval lies on its side of 1, does not hold if the
whole interval lies on the other side, and is undecided if the interval contains 1.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from experiments.reproduction.server import NMT
from placement.methods import learned
from placement.reporting.statistics import Interval
from placement.reporting.tables import comparison

PLANNER, RANDOM = "hierarchical", "hierarchical:grouping=random"
_GRAPHS = {
    "Inception-V3": "inception_v3:training=1",
    "ResNet-152": "resnet:depth=152,batch=14,training=1",
    "RNNLM": "rnnlm:training=1",
    **{f"NMT ({n} layers)": f"nmt:layers={n},{NMT},training=1" for n in (2, 4, 8)},
}


class Conclusion(NamedTuple):
    """A paper's statement about two methods on some networks."""

    text: str
    method: str
    baselines: tuple[str, ...]  # the method is compared with the best of these
    is_lower: Mapping[str, bool]  # by network: whether the method's latency is lower


CONCLUSIONS = (
    Conclusion(
        "the Planner is below Scotch and MinCut",
        PLANNER,
        ("scotch", "min_cut"),
        dict.fromkeys(_GRAPHS, True),
    ),
    Conclusion(
        "NMT is below the human expert on 2 and 4 GPUs, and not on 8",
        PLANNER,
        ("human_expert",),
        {"NMT (2 layers)": True, "NMT (4 layers)": True, "NMT (8 layers)": False},
    ),
    Conclusion(
        # Here the learned groups start from slices of the topological order; random ones do not.
        "learned groups that start from slices are better than random ones",
        PLANNER,
        (RANDOM,),
        {name: True for name in _GRAPHS if name not in ("ResNet-152", "RNNLM")},
    ),
    Conclusion("nothing is gained on ResNet", PLANNER, (comparison.SINGLE,), {"ResNet-152": False}),
    Conclusion("HSDAG is below Placeto", "hsdag", ("placeto",), dict.fromkeys(_GRAPHS, True)),
    Conclusion(
        "HSDAG is below the recurrent policy", "hsdag", ("colocrl",), dict.fromkeys(_GRAPHS, True)
    ),
)


# A search with fewer evaluations was ended by its time limit. Its last step may not fit the budget.
_MIN_BUDGET_SHARE = 0.95
# How a sentence says each verdict.
_VERDICTS = {
    "holds": "holds on",
    "does not": "does not hold on",
    "inconclusive": "is inconclusive on",
}


def judge(ratio: Interval, is_lower: bool) -> str:
    """Says whether a ratio agrees with a conclusion that it is, or is not, below 1."""
    if ratio.low <= 1 <= ratio.high and ratio.low < ratio.high:
        return "inconclusive"
    return "holds" if (ratio.high < 1) == is_lower else "does not"


def compute_ratio(numerators: tuple[float, ...], denominators: tuple[float, ...]) -> Interval:
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


def read(folder: Path, runs: tuple[str, ...]) -> tuple[list[str], list[list[str]]]:
    """Returns a table with a row for each conclusion and network of some runs.

    Args:
      folder: holds the runs' directories.
      runs: the names of the directories.
    """
    rows = []
    for run in runs:
        rows += json.loads((folder / run / "summary.json").read_text())["rows"]
    cells_by_graph = comparison.compare(rows, ()).cells
    table = []
    for conclusion in CONCLUSIONS:
        for network, is_lower in conclusion.is_lower.items():
            cells = cells_by_graph.get(_GRAPHS[network], {})
            if {conclusion.method, *conclusion.baselines} <= set(cells):
                baseline = min(conclusion.baselines, key=lambda m: cells[m].latency_s.mean)
                ratio = compute_ratio(cells[conclusion.method].runs_s, cells[baseline].runs_s)
                figure = f"{ratio.write()} of `{baseline}`"
                table.append([conclusion.text, network, judge(ratio, is_lower), figure])
    return ["conclusion", "network", "here", "figure"], table


def describe(folder: Path, runs: tuple[str, ...]) -> list[str]:
    """Returns where the conclusions hold, and which searches made fewer evaluations than others.

    Args:
      folder, runs: as of `read`.
    """
    _, table = read(folder, runs)
    verdicts = [row[2] for row in table]
    holds, fails, unknown = (verdicts.count(verdict) for verdict in _VERDICTS)
    sentences = [
        f"Cases that hold: {holds} of {len(table)}. Cases that do not hold: {fails}. "
        f"Inconclusive: {unknown}."
    ]
    for conclusion in CONCLUSIONS:
        parts = []
        for verdict, text in _VERDICTS.items():
            networks = [row[1] for row in table if (row[0], row[2]) == (conclusion.text, verdict)]
            parts += [f"it {text} {', '.join(networks)}"] if networks else []
        text = conclusion.text[0].upper() + conclusion.text[1:]
        sentences += [f"{text}: {'; '.join(parts)}."] if parts else []
    return [*sentences, *_name_shorter_searches(folder, runs)]


def _name_shorter_searches(folder: Path, runs: tuple[str, ...]) -> list[str]:
    """Names the learned searches that the time limit ended before their budget was spent."""
    networks = {graph: network for network, graph in _GRAPHS.items()}
    parts = []
    for run in runs:
        budget = json.loads((folder / run / "config.json").read_text())["budget"]
        counts: dict[tuple[str, str], list[int]] = {}
        for row in json.loads((folder / run / "summary.json").read_text())["rows"]:
            if learned.is_learned(row["method"]):
                counts.setdefault((row["graph"], row["method"]), []).append(row["evaluations"])
        parts += [
            f"`{method}` on {networks[graph]} ({median:,.0f})"
            for (graph, method), values in counts.items()
            if (median := np.median(values)) < _MIN_BUDGET_SHARE * budget
        ]
    text = "The time limit ended these searches early (median evaluations in brackets)"
    return [f"{text}: {', '.join(parts)}."] if parts else []
