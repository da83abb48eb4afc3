"""The figure of performance profiles: the share of a method's runs near the best known latency."""

import itertools
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.reporting import statistics
from placement.reporting.figures import labels, plots
from placement.reporting.tables.aggregates import Aggregates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))


def profiles(aggregates: Aggregates, learned: Collection[str]) -> "Figure":
    """Draws the share of runs with a score of at most a threshold, over the threshold.

    Each scope has a row of two panels, learned methods and others. A line that is higher and
    further left is better.

    Raises:
      NothingToDrawError: no method has a run on every graph, or matplotlib is not installed.
    """
    scopes = [scope for scope in aggregates.scopes if scope.scores]
    if not scopes:
        raise plots.NothingToDrawError("no method has a latency on every graph")
    methods = list(dict.fromkeys(method for scope in scopes for method in scope.means))
    panels = {
        "learned": [method for method in methods if method in learned],
        "others": [method for method in methods if method not in learned],
    }
    panels = {title: panel_methods for title, panel_methods in panels.items() if panel_methods}
    styles: list[dict[str, Any]] = [
        {"color": colour, "linestyle": line}
        for line, colour in itertools.product(_LINES, plots.COLOURS)
    ]
    style = {method: styles[i % len(styles)] for i, method in enumerate(methods)}
    height = 0.6 + 3.0 * len(scopes) + 0.2 * len(methods)
    figure = plots.new_figure(4.6 * len(panels), height)
    axes = figure.subplots(len(scopes), len(panels), sharex=True, sharey=True, squeeze=False)
    scores = [runs for scope in scopes for graphs in scope.scores.values() for runs in graphs]
    values = np.concatenate(scores)
    highest = 1.05 * float(values.max(initial=1.0, where=np.isfinite(values)))
    thresholds = np.linspace(1.0, min(2.0, highest), 512)  # a score beyond lies outside
    for row, scope in zip(axes, scopes, strict=True):
        for panel, (title, panel_methods) in zip(row, panels.items(), strict=True):
            panel.set_title(f"{title}, {scope.title}", loc="left", fontsize=10)
            for method in filter(scope.scores.__contains__, panel_methods):
                shares = statistics.performance_profile(scope.scores[method], thresholds)
                panel.step(thresholds, shares, where="post", label=method, **style[method])
            panel.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylim(-0.02, 1.02)
    for panel in axes[:, 0]:
        panel.set_ylabel("share of runs")
    for panel in axes[-1]:
        panel.set_xlabel("latency over the best known, at most")
    labels.legend_below(figure, [plots.line_key(m, style[m]) for m in methods])
    return figure
