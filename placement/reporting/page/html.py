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

from markdown_it import MarkdownIt

from placement.reporting.details import Details
from placement.reporting.page import data


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
    sections = []
    if details is not None:
        # Without '<', so that no name can end the script or open a comment.
        columns = json.dumps(data.columns(details), separators=(",", ":"), allow_nan=False)
        sections.append(_part("graph.html", data=columns.replace("<", "\\u003c")))
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
    return _part(
        "report.html",
        title=title,
        report=markdown.render(report),
        sections="\n".join(sections),
        style=_read("report.css"),
        script=_read("report.js"),
    )


def _read(name: str) -> str:
    return (resources.files("placement.reporting") / "page" / name).read_text("utf-8")


def _part(name: str, **texts: str) -> str:
    return Template(_read(name)).substitute(texts)
