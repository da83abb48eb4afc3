"""Whether the conclusions of the papers hold in runs of their tables, a line each.

A conclusion says that one method's runs are lower than another's on a graph, or that they are not.
The figure is the ratio of the means, with the 95% interval of Fieller's theorem for independent
means (Student's t with the lesser degrees of freedom; a method that no seed changes has none of
its own). It holds where the whole interval is on its side of 1, does not where all of it is on the
other, and cannot be told where 1 is inside.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from experiments.reproduction.server import NMT
from placement.reporting.tables import comparison

PLANNER, RANDOM = "hierarchical", "hierarchical:grouping=random"
_CONFIDENCE = 0.95
_GRAPHS = {
    "Inception-V3": "inception_v3:training=1",
    "ResNet-152": "resnet:depth=152,batch=14,training=1",
    "RNNLM": "rnnlm:training=1",
    **{f"NMT, {n} layers": f"nmt:layers={n},{NMT},training=1" for n in (2, 4, 8)},
}


class Conclusion(NamedTuple):
    """What a paper concludes of two methods on some graphs."""

    text: str
    method: str
    others: tuple[str, ...]  # against the best of them
    lower: Mapping[str, bool]  # by network: whether the method is lower


CONCLUSIONS = (
    Conclusion(
        "the Planner is below Scotch and MinCut",
        PLANNER,
        ("scotch", "min_cut"),
        dict.fromkeys(_GRAPHS, True),
    ),
    Conclusion(
        "NMT is far below the human expert on 2 and 4 GPUs, and not on 8",
        PLANNER,
        ("human_expert",),
        {"NMT, 2 layers": True, "NMT, 4 layers": True, "NMT, 8 layers": False},
    ),
    Conclusion(
        "learned groups are better than random ones",
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


class Ratio(NamedTuple):
    """Of two means, with its interval."""

    value: float
    low: float
    high: float

    def verdict(self, lower: bool) -> str:
        """Whether it is, or is not, below 1."""
        if self.low <= 1 <= self.high and self.low < self.high:
            return "cannot be told"
        return "holds" if (self.high < 1) == lower else "does not"


def ratio(ours: tuple[float, ...], theirs: tuple[float, ...]) -> Ratio:
    """Computes the ratio of two means, each of several runs or of one that no seed changes."""
    means = float(np.mean(ours)), float(np.mean(theirs))
    if not (math.isfinite(means[0]) and math.isfinite(means[1])):  # out of memory
        value = 0.0 if math.isfinite(means[0]) else math.inf
        return Ratio(value, value, value)
    value = means[0] / means[1]
    errors = [
        float(np.std(runs, ddof=1) / math.sqrt(len(runs))) if len(runs) > 1 else 0.0
        for runs in (ours, theirs)
    ]
    counts = [len(runs) for runs, error in zip((ours, theirs), errors, strict=True) if error]
    if not counts:
        return Ratio(value, value, value)
    t = float(stats.t.ppf((1 + _CONFIDENCE) / 2, min(counts) - 1))
    own, other = ((t * error / mean) ** 2 for error, mean in zip(errors, means, strict=True))
    if other >= 1:  # the other mean may be zero
        return Ratio(value, 0.0, math.inf)
    middle, half = 1 / (1 - other), math.sqrt(own + other - own * other) / (1 - other)
    return Ratio(value, value * (middle - half), value * (middle + half))


def read(folder: Path, runs: tuple[str, ...]) -> tuple[list[str], list[list[str]]]:
    """Reads the summaries of some runs; a table of conclusions, a row each and network."""
    rows = []
    for run in runs:
        rows += json.loads((folder / run / "summary.json").read_text())["rows"]
    cells = comparison.compare(rows, ()).cells
    table = []
    for conclusion in CONCLUSIONS:
        for network, lower in conclusion.lower.items():
            found = cells.get(_GRAPHS[network], {})
            if conclusion.method in found and set(conclusion.others) <= set(found):
                other = min(conclusion.others, key=lambda m: found[m].latency_s.mean)
                of = ratio(found[conclusion.method].runs_s, found[other].runs_s)
                figure = f"{of.value:.3f} [{of.low:.3f}, {of.high:.3f}] of `{other}`"
                table.append([conclusion.text, network, of.verdict(lower), figure])
    return ["conclusion", "network", "here", "figure"], table
