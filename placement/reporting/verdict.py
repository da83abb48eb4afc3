"""The verdict on a run: which way of running the model to use, in a line with milliseconds.

Every task, table, page and figure takes its verdict from `decide`, and every sentence about it from
`sentence`. A model runs by a placement on several devices, on a single device, or on a *reference*
device outside the placement, such as the whole CPU. The last two need no placement, so a placement
has to be clearly faster than all of them to win: measured 95% intervals must not overlap. A
reference has to be clearly faster than the best single device. A sentence names the method of every
time in it.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from placement.reporting import summaries, units
from placement.reporting.summaries import Row
from placement.types import OUT_OF_MEMORY, Status

# The relative error of a prediction that nine of ten placements of the zoo's networks stay below.
FIDELITY = 0.25
_DID_NOT_RUN = (Status.FAILED, Status.INFEASIBLE)  # or cannot
_ROUNDING = 1e-6  # of predictions in float32
# These methods search nothing: their placements do not show what a search can find.
_BASELINES = (
    *("hetero", "hetero_pipeline", "random", "round_robin", "topological"),
    *("human_expert", "fill_in_order", "split_by_memory"),
)


class Contender(NamedTuple):
    """A way of running the model: the rows of a method on one graph, one for each seed."""

    method: str
    rows: tuple[Row, ...]
    latency_s: float  # measured, or predicted where nothing was measured; mean over the seeds
    ratio: float  # to the best single device, geometric mean over the seeds; inf without one
    ratio_interval: tuple[float, float]  # that holds the 95% intervals of all seeds, or nan
    latency_interval: tuple[float, float]

    @property
    def is_plain(self) -> bool:
        """Whether this way of running the model needs no placement."""
        return summaries.is_single(self.rows[0]) or bool(self.rows[0].get("reference"))

    @property
    def is_on_one_device(self) -> bool:
        """Whether the placement of every seed uses one device."""
        return all(row.get("num_devices") == 1 for row in self.rows)

    @property
    def is_searched(self) -> bool:
        """Whether the placement shows what a search can find."""
        return self.method not in _BASELINES

    @property
    def row(self) -> Row:
        """The row of the fastest seed."""
        return min(self.rows, key=lambda row: summaries.median_s(row) or row["predicted_s"])

    @property
    def name(self) -> str:
        """Name of the contender within a sentence, in Markdown."""
        label = summaries.label(self.rows[0])
        if summaries.is_single(self.rows[0]):
            return f"`{label.removeprefix('single:')}` alone"
        if self.is_plain:
            return f"plain OpenVINO on `{label}`"
        # `deploy` measures one placement in several forms: 'placement', 'placement, concurrent'.
        return f"the {label}" if label.startswith("placement") else f"the placement of `{label}`"

    def is_faster(self, other: "Contender") -> bool:
        """Returns whether this is clearly faster, by intervals or else by predictions.

        Ratios to the best single device come first: they are paired by rounds, so less noisy.
        """
        for interval in ("ratio_interval", "latency_interval"):
            high, low = getattr(self, interval)[1], getattr(other, interval)[0]
            if not math.isnan(high + low):
                return high < low
        return self.latency_s < other.latency_s * (1 - _ROUNDING)


class Verdict(NamedTuple):
    """The way of running a model to use, and its rival."""

    winner: Contender | None  # None where nothing has a usable latency
    placement: Contender | None  # the best on the devices of the placement, each alone included
    # What the sentence compares the winner with: the fastest without placing if a placement wins.
    # Else the best placement or, if that is clearly slower, the best one of a search; or None.
    rival: Contender | None
    is_measured: bool
    unit: units.Unit
    needs_several_devices: bool  # whether no single device has enough memory
    single_searches: tuple[str, ...]  # names of the searches that chose one device

    @property
    def saving(self) -> float:
        """Share of the fastest time without placing that the winner saves; 0 without a gain."""
        if self.winner is None or self.rival is None or self.winner.is_plain:
            return 0.0
        return 1 - units.ratio(self.winner.latency_s, self.rival.latency_s)


def decide(rows: Sequence[Row], preferred: str = "") -> Verdict:
    """Decides which way of running a model to use.

    Args:
      rows: of one graph, as `summary.json` has them. Where anything was measured, a row without a
        measured latency cannot win.
      preferred: the single device that is taken for the best one unless another is clearly faster,
        such as 'single:CPU'; '' for the one that the ratios of the rows are to.
    """
    is_measured = any(summaries.median_s(row) is not None for row in rows)
    seconds = summaries.median_s if is_measured else summaries.predicted_s
    contenders = []
    for method, group in summaries.group(rows, lambda row: row["method"]).items():
        ran = (row for row in group if not row["status"].startswith(_DID_NOT_RUN))
        latencies_s = [latency_s for latency_s in map(seconds, ran) if latency_s is not None]
        if len(latencies_s) < len(group):  # it failed with some seed
            continue
        ratios = np.array([units.or_nan(row.get("versus_best_single_device")) for row in group])
        measured = [row.get("measured_s") or {} for row in group]
        ratio_ends = [row.get("versus_interval") or (None, None) for row in group]
        latency_ends = [(each.get("low"), each.get("high")) for each in measured]
        hulls = []  # nan where an interval has no number
        for intervals in (ratio_ends, latency_ends):
            low, high = np.array([[*map(units.or_nan, ends)] for ends in intervals]).T
            hulls.append((float(low.min()), float(high.max())))
        contenders.append(
            Contender(
                method,
                tuple(group),
                latency_s=float(np.mean(latencies_s)),
                ratio=float(np.exp(np.mean(np.log(ratios)))) if np.all(ratios > 0) else math.inf,
                ratio_interval=hulls[0],
                latency_interval=hulls[1],
            )
        )
    # The best comes first, here and in every list below.
    ranked = sorted(contenders, key=lambda c: (c.ratio, c.latency_s))
    singles = [c for c in ranked if summaries.is_single(c.rows[0])]
    references = [c for c in ranked if c.rows[0].get("reference")]
    unplaced = [c for c in ranked if c.is_plain]
    # A placement on one device is that single device, however it was found.
    placements = [c for c in ranked if not (c.is_plain or (singles and c.is_on_one_device))]
    single = next(iter(singles), None)
    for candidate in singles:
        if candidate.method == preferred and single and not single.is_faster(candidate):
            single = candidate
    faster_references = (r for r in references if single is None or r.is_faster(single))
    plain = next(faster_references, single)
    gains = [c for c in placements if single is None or c.is_faster(single)]
    winners = [c for c in gains if all(map(c.is_faster, unplaced))]
    winner = next(iter(winners), plain)
    # Searches that found a placement on one device, in the order of the rows.
    searches = [c for c in contenders if not c.is_plain and c.is_on_one_device and c.is_searched]
    if winners:
        rival = next(iter(unplaced), None)
    else:
        rivals = [c for c in ranked if c in placements or (winner is not single and c in singles)]
        rival = next(iter(rivals), None)
        if winner and rival and winner.is_faster(rival):
            searched = (c for c in rivals if c.is_searched)
            rival = None if searches else next(searched, None)
    out_of_memory = Status.FAILED.describe(OUT_OF_MEMORY)
    single_statuses = [row["status"] for row in rows if summaries.is_single(row)]
    return Verdict(
        winner=winner,
        placement=next(iter(winners or gains), single),
        rival=rival,
        is_measured=is_measured,
        unit=summaries.unit(rows),
        needs_several_devices=bool(single_statuses)
        and all(status.startswith(out_of_memory) for status in single_statuses),
        single_searches=tuple(f"`{summaries.label(c.rows[0])}`" for c in searches),
    )


def sentence(verdict: Verdict, objective: str = "") -> str:
    """Says what to use, its latency, and how much it gains on the alternative; in Markdown."""
    winner, rival = verdict.winner, verdict.rival
    if winner is None:
        return "No placement has a usable latency; the column `status` says why."

    def time(contender: Contender) -> str:
        request = " a request" if objective == "max_load" else ""
        num_seeds = len(contender.rows)
        mean = f" (mean of {num_seeds} seeds)" if num_seeds > 1 else ""
        return f"{verdict.unit.write(contender.latency_s)} {verdict.unit.name}{request}{mean}"

    use = "Use" if verdict.is_measured else "In simulation, use"
    text = f"{use} {winner.name}: {time(winner)}."
    if verdict.needs_several_devices:
        text = f"No single device has enough memory. {text}"
    if rival is None:
        if winner.is_plain and verdict.single_searches:
            names = " and ".join(verdict.single_searches)
            return f"{text} {names} found no placement on several devices that is clearly faster."
        if winner.is_plain:
            return f"{text} No faster placement is known."
        return text if verdict.needs_several_devices else f"{text} No single device runs."
    if not winner.is_plain:
        less = units.percentage(verdict.saving)
        return f"{text[:-1]}, {less} less than without placing ({rival.name}: {time(rival)})."
    takes = f"{rival.name} takes {time(rival)}"
    ratio = units.ratio(rival.latency_s, winner.latency_s)
    if winner.is_faster(rival):
        more = f"{units.percentage(ratio - 1)} more" if ratio < 2 else f"{ratio:.1f} times as long"
        return f"{text} {takes[0].upper()}{takes[1:]}, {more}."
    change = f"{units.percentage(abs(ratio - 1))} {'less' if ratio < 1 else 'more'}"
    return f"{text} No placement is clearly faster than running without one: {takes}, {change}."


def headline(verdict: Verdict) -> str:
    """Says in some words what placing gains."""
    if verdict.winner is None:
        return "nothing runs"
    if verdict.winner.is_plain:
        gain = "placing saves nothing"
    elif verdict.rival is None:
        gain = "only a placement runs"
    else:
        gain = f"placing saves {units.percentage(verdict.saving)}"
    return gain if verdict.is_measured else f"{gain} (predicted)"


def next_step(verdict: Verdict, workdir: str) -> str:
    """Says what to do after a run with this directory, in Markdown."""
    if verdict.winner is None:
        return "see why each method failed"
    if not verdict.is_measured:
        return "these are predictions; place the model on its machine, which measures them"
    if verdict.winner.is_plain:
        return "run the model with OpenVINO as it is; there is nothing to deploy"
    return f"`placement deploy {workdir}` writes a folder that `placement.load` runs"


def misprediction(rows: Iterable[Row]) -> str | None:
    """Returns a sentence about predictions that are further off than `FIDELITY`, or None."""
    rows = summaries.split_references(rows)[0]
    measured = [row for row in rows if summaries.predicted_s(row) and summaries.median_s(row)]
    errors: dict[int, float] = {}  # by index; rows whose whole interval is further off
    for index, row in enumerate(measured):
        low, high = (units.or_nan(row["measured_s"].get(end)) for end in ("low", "high"))
        predicted_s = row["predicted_s"]
        if low > predicted_s * (1 + FIDELITY) or high < predicted_s / (1 + FIDELITY):
            errors[index] = abs(math.log((summaries.median_s(row) or math.nan) / predicted_s))
    if not errors:
        return None
    worst = measured[max(errors, key=errors.__getitem__)]
    unit = summaries.unit([worst])
    label, error = summaries.label(worst), f"off by more than {FIDELITY:.0%}"
    subject = f"The prediction for `{label}` is {error}"
    if len(errors) > 1:
        subject = f"{len(errors)} of {len(measured)} predictions are {error}, most for `{label}`"
    return (
        f"{subject}: {unit.write(worst['predicted_s'])} {unit.name} predicted, "
        f"{unit.write(summaries.median_s(worst))} {unit.name} measured."
    )


def rank(rows: Iterable[Row]) -> dict[str, float]:
    """Ranks all methods of a comparison, references included, the best first.

    Returns, by method, the geometric mean, over graphs and over the seeds of each, of the ratio to
    the best single device. Methods without a ratio on every graph are left out.
    """
    rows, means = list(rows), {}
    num_graphs = len(summaries.group_by_graph(rows))
    for method, group in summaries.group(rows, lambda row: row["method"]).items():
        graphs = summaries.group_by_graph(group)
        ratios = [[row["versus_best_single_device"] for row in graph] for graph in graphs]
        if len(graphs) == num_graphs and all(map(all, ratios)):
            means[method] = math.exp(np.mean([np.mean(np.log(seeds)) for seeds in ratios]))
    return dict(sorted(means.items(), key=lambda item: item[1]))


def sentences(rows: Sequence[Row], objective: str = "") -> list[str]:
    """Says which of all methods does best, over several graphs by `rank`.

    A second sentence about one graph is that of `misprediction`.
    """
    graphs = summaries.group_by_graph(rows)
    if len(graphs) == 1:
        return [sentence(decide(rows), objective), *filter(None, [misprediction(rows)])]
    ranked = [(summaries.label({"method": method}), mean) for method, mean in rank(rows).items()]
    if not ranked:
        return ["No method has a latency on every graph."]
    text = (
        f"`{ranked[0][0]}` is the fastest on average: {ranked[0][1]:.3f} of the best single device "
        f"(geometric mean, {len(graphs)} graphs)"
    )
    following = f"; next is `{ranked[1][0]}` with {ranked[1][1]:.3f}" if ranked[1:] else ""
    return [f"{text}{following}."]
