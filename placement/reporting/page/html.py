"""One run as one HTML file, which needs neither a network nor other files.

The report in Markdown is rendered as HTML; figures, the graph to zoom into, the list of operations
and the provenance follow. Names that come from a run are escaped here. In the data that the script
reads they cannot end the element that holds them.
"""

import base64
import html
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

import numpy as np
from markdown_it import MarkdownIt

from placement.graphs import dag
from placement.reporting import units
from placement.reporting.details import Details, Timeline
from placement.reporting.figures import blocks, layout

_MOST_NODES = 1_500  # drawn one by one; more nodes are drawn as blocks


def page(
    report: str,
    figures: Mapping[str, str],
    details: Details | None,
    provenance: Mapping[str, str],
) -> str:
    """Renders the whole file. An argument that is None or empty has no section.

    Args:
      report: the report in Markdown.
      figures: title -> SVG text.
      details: the best placement, for the graph and the list of operations.
      provenance: title -> text, such as the run's settings.
    """
    folder = resources.files("placement.reporting") / "page"
    names = ("report.html", "report.css", "report.js", "graph.html")
    texts = {name: (folder / name).read_text("utf-8") for name in names}
    sections = []
    if details is not None:
        # Without '<', so that no name can end the script or open a comment.
        data = json.dumps(columns(details), separators=(",", ":"), allow_nan=False)
        data = data.replace("<", "\\u003c")
        sections.append(Template(texts["graph.html"]).substitute(data=data))
    if figures:
        sections.append("<h2>Figures</h2>")
    for title, svg in figures.items():
        # An image, so that its ids and styles cannot clash with those of the page.
        label, image = html.escape(title), base64.b64encode(svg.encode()).decode()
        source = f"data:image/svg+xml;base64,{image}"
        sections.append(
            f"<figure><figcaption>{label}</figcaption>"
            f'<div class="scroll" tabindex="0"><img alt="{label}" src="{source}"></div></figure>'
        )
    if provenance:
        sections.append("<h2>Provenance</h2>")
    for title, text in provenance.items():
        sections.append(
            f"<details><summary>{html.escape(title)}</summary><pre>{html.escape(text)}</pre>"
            "</details>"
        )
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("table_open", lambda *_: '<div class="scroll" tabindex="0"><table>\n')
    markdown.add_render_rule("table_close", lambda *_: "</table></div>\n")
    title = markdown.renderInline(report.split("\n", 1)[0].removeprefix("# "))
    return Template(texts["report.html"]).substitute(
        title=title,
        report=markdown.render(report),
        sections="\n".join(sections),
        style=texts["report.css"],
        script=texts["report.js"],
    )


def columns(details: Details) -> dict[str, Any]:
    """Collects everything that the page's script shows about a placement; times are texts.

    N operations, M coarse operations, K drawn nodes, D devices.

    Returns:
      `devices`: D labels. `how`: how the times were obtained. `costs`, `clock`: the units of
      computing times and of start times. `ops`: columns of length N. `coarse`: M names, null where
      nothing was merged. `deviceOf`, `nodeOf`: device and node of the M coarse operations.
      `crossings`: the number of transfers. `blocks`: whether some nodes are blocks. `nodes`:
      columns of length K. `edges`: columns of the edges between nodes.
    """
    graph, coarse = details.graph, details.coarse
    parts = blocks.blocks(details, _MOST_NODES)  # int32 [M]: the node of every coarse operation
    costs = units.latency_unit(details.compute_s.ravel())
    clock = units.latency_unit(span.finish_s for span in details.predicted.spans)
    _, first, sizes = np.unique(parts, return_index=True, return_counts=True)
    num_nodes, device = len(sizes), details.placement[first]
    senders, receivers = dag.quotient(coarse.senders, coarse.receivers, parts)
    drawing = layout.layered(num_nodes, senders, receivers)
    node = parts[details.assignment]
    # One transfer for each tensor and other device that reads it.
    sends, reads = details.placement[coarse.senders], details.placement[coarse.receivers]
    transfers = np.stack([coarse.tensors, reads])[:, sends != reads]
    counts, seconds = np.bincount(node), np.zeros((num_nodes, len(details.devices)))
    np.add.at(seconds, node, details.compute_s)
    names, types = list(coarse.op_names), list(coarse.op_types)
    if num_nodes < coarse.num_ops:
        texts = blocks.summaries(details, parts)
        names = [f"{head}: {', '.join(kinds)}" for head, *kinds in texts]
        types = [f"{count} ops" for count in counts]
        for number in np.flatnonzero(sizes == 1):
            names[number] = coarse.op_names[first[number]]
            types[number] = coarse.op_types[first[number]]

    def write(seconds: np.ndarray, unit: units.Unit) -> list[list[str]]:
        return [[unit.write(value) for value in column] for column in seconds]

    def times(timeline: Timeline) -> list[list[str]]:
        """Returns the start of each node's first operation and the finish of its last one."""
        start_s, finish_s = np.full(num_nodes, np.inf), np.full(num_nodes, -np.inf)
        for span in timeline.spans:
            inside = parts[list(span.ops)]
            start_s[inside] = np.minimum(start_s[inside], span.start_s)
            finish_s[inside] = np.maximum(finish_s[inside], span.finish_s)
        return write(np.stack([start_s, finish_s]), clock)

    return {
        "devices": details.devices,
        "how": [line.source for line in (details.predicted, details.measured) if line],
        "costs": costs.name,
        "clock": clock.name,
        "ops": {
            "name": graph.op_names,
            "type": graph.op_types,
            "shape": [" x ".join(map(str, sizes)) for sizes in graph.output_shapes],
            "coarse": details.assignment.tolist(),
            "times": write(details.compute_s.T, costs),
            "kilobytes": [f"{size / 1000:.1f}" for size in details.memory_bytes],
        },
        "coarse": None if coarse is graph else coarse.op_names,
        "crossings": np.unique(transfers, axis=1).shape[1],
        "deviceOf": details.placement.tolist(),
        "nodeOf": parts.tolist(),
        "blocks": num_nodes < coarse.num_ops,
        "nodes": {
            "name": names,
            "type": types,
            "device": device.tolist(),
            "times": write(seconds.T, costs),
            "predicted": times(details.predicted),
            "measured": details.measured and times(details.measured),
            "x": drawing.x.astype(int).tolist(),
            "y": drawing.y.round(2).tolist(),
        },
        "edges": {
            "senders": senders.tolist(),
            "receivers": receivers.tolist(),
            "crossing": (device[senders] != device[receivers]).astype(int).tolist(),
            "paths": [path.round(2).ravel().tolist() for path in drawing.paths],
        },
    }
