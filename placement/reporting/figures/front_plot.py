"""Figure of the Pareto front: latency against time for each request, memory as colour."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from placement.reporting import units
from placement.reporting.figures import plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def front(contents: Mapping[str, Any]) -> "Figure":
    """Draws the content of front.json, as predicted; knees have their numbers.

    Raises:
      NothingToDrawError: the front is empty.
    """
    points = contents["points"]
    if not points:
        raise plots.NothingToDrawError("no placement can run")
    columns = [np.array([point[axis] for point in points]) for axis in contents["axes"]]
    seconds = units.latency_unit([*columns[0], *columns[1]])
    latency, request = (column * seconds.per_s for column in columns[:2])
    figure = plots.new_figure(6.4, 4.2)
    axes = figure.subplots()
    points_drawn = axes.scatter(
        latency, request, c=columns[2] / 1e6, s=18, cmap="cividis", zorder=2
    )
    figure.colorbar(points_drawn, ax=axes, label="fullest device, MB")
    bounds = [contents["bounds"][axis] for axis in contents["axes"]]
    for bound, line in zip(bounds, (axes.axvline, axes.axhline), strict=False):
        if (bound_s := units.number(bound)) is not None:
            line(bound_s * seconds.per_s, **plots.BOUND)
    for point in points:
        if point["knee"]:
            position = (point["latency_s"] * seconds.per_s, point["request_s"] * seconds.per_s)
            axes.annotate(str(point["number"]), position, xytext=(4, 4), textcoords="offset points")
    axes.set_xlabel(f"latency of a request, {seconds.name}")
    axes.set_ylabel(f"time a request adds to a stream, {seconds.name}")
    axes.set_title(f"{contents['graph']}: {len(points)} placements that none beats")
    axes.legend(handles=[plots.line_key("no placement is below", plots.BOUND)])
    return figure
