"""One run as one HTML file, which needs neither a network nor other files.

`page/` holds the parts of the file: a frame, the sections about a placement, a style sheet and
scripts. Names that come from a run, such as those of operations, and causes of failures are escaped
here. In the data that the scripts read they cannot end the element that holds them.
"""

import base64
import html
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

from markdown_it import MarkdownIt

from placement.reporting import summaries, units
from placement.reporting.details import Details
from placement.reporting.page import data
from placement.reporting.tables import results

_SCRIPTS = ("graph.js", "view.js", "tip.js", "operations.js", "report.js")


def page(
    summary: summaries.Summary,
    *,
    details: Details | None = None,
    figures: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    provenance: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """Renders the whole file. An argument that is None or empty has no section.

    Args:
      summary: the content of `summary.json`.
      details: the best placement, for the graph and the list of operations.
      figures: title -> SVG text.
      notes: title -> section in Markdown, such as a comparison; they come first.
      provenance: title -> JSON object: the run's settings and its environment.
    """
    graph_name = html.escape(summary["graph"]["name"])
    num_graphs = len(summaries.group_by_graph(summary["rows"]))
    sections = {title: _markdown().render(text) for title, text in (notes or {}).items()}
    sections["Result"] = _results(summary)
    if figures:
        sections["Figures"] = "\n".join(_figure(title, svg) for title, svg in figures.items())
    if details is not None:
        sections["Graph"] = _part("graph.html")
        # Without '<', so that no name can end the script or open a comment.
        columns = json.dumps(data.columns(details), separators=(",", ":"), allow_nan=False)
        sections["Operations"] = _part("operations.html", data=columns.replace("<", "\\u003c"))
    if provenance:
        sections["Provenance"] = "\n".join(
            f"<h3>{html.escape(title)}</h3>\n{_facts('pairs', _flat(pairs, ''))}"
            for title, pairs in provenance.items()
        )
    return _part(
        "report.html",
        title=f"Placement of {graph_name}",
        heading="Placement of "
        + (f"<code>{graph_name}</code>" if num_graphs < 2 else f"{num_graphs} graphs"),
        headline=_headline(summary),
        contents="\n".join(f'<li><a href="#{_id(title)}">{title}</a></li>' for title in sections),
        sections="\n".join(_section(title, body) for title, body in sections.items()),
        style=_read("report.css"),
        script="\n".join(map(_read, _SCRIPTS)),
    )


def _read(name: str) -> str:
    return (resources.files("placement.reporting") / "page" / name).read_text("utf-8")


def _part(name: str, **texts: str) -> str:
    return Template(_read(name)).substitute(texts)


def _markdown() -> MarkdownIt:
    """Makes a Markdown renderer with tables that scroll; it escapes HTML."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("table_open", lambda *_: '<div class="scroll"><table>\n')
    markdown.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return markdown


def _id(title: str) -> str:
    return title.lower().replace(" ", "-")


def _section(title: str, body: str) -> str:
    label = f"{_id(title)}-heading"
    return (
        f'<section id="{_id(title)}" aria-labelledby="{label}">\n'
        f'<h2 id="{label}">{title}</h2>\n{body}\n</section>'
    )


def _headline(summary: summaries.Summary) -> str:
    """Renders the verdict and the facts about the run."""
    graph, devices = summary["graph"], "<br>".join(map(html.escape, summary["devices"]))
    facts = [
        ("operations", f"{graph['num_ops']:,}"),
        ("edges", f"{graph['num_edges']:,}"),
        ("devices", devices),
        ("objective", html.escape(summary["objective"])),
        ("seed", str(summary["seed"])),
    ]
    if units.number(summary.get("wall_s")) is not None:
        facts.append(("time taken", f"{summary['wall_s']:.1f} s"))
    verdict, notes = results.verdict(summary), results.mispredictions(summary)
    return "\n".join(
        [
            f'<p class="verdict">{_inline(verdict)}</p>',
            *(f'<p class="note">{_inline(line)}</p>' for line in notes),
            _facts("facts", facts),
        ]
    )


def _results(summary: summaries.Summary) -> str:
    """Renders one table for each graph; several tables have the graphs' names above them."""
    graphs, best = summaries.group_by_graph(summary["rows"]), results.best_rows(summary)
    parts = []
    for rows in graphs:
        name = html.escape(str(rows[0].get("graph", summary["graph"]["name"])))
        if len(graphs) > 1:
            parts.append(f"<h3>{name}</h3>")
            sentences = results.graph_sentences(rows, summary["objective"])
            parts += [f"<p>{_inline(sentence)}</p>" for sentence in sentences]
        parts.append(f'<div class="scroll" role="region" aria-label="Results of {name}">')
        parts += [*_table(rows, best), "</div>"]
    notes = [results.LEGEND, *([results.HOST_NOTE] if results.has_host(summary) else [])]
    return "\n".join([*parts, *(f'<p class="note">{_inline(note)}</p>' for note in notes)])


def _inline(text: str) -> str:
    return _markdown().renderInline(text)


def _table(rows: Sequence[summaries.Row], best: Sequence[summaries.Row]) -> Iterator[str]:
    columns = results.columns(rows)
    placements, references = summaries.split_references(rows)
    yield '<table class="sortable"><thead><tr>'
    yield from (f'<th scope="col"{_kind(c)}>{html.escape(c.title)}</th>' for c in columns)
    yield "</tr></thead><tbody>"
    yield from (_row(row, columns, best=row in best) for row in placements)
    if references:
        yield f'</tbody><tbody><tr class="divider"><th colspan="{len(columns)}">'
        yield "for reference, outside the placement</th></tr>"
    yield from (_row(row, columns, best=row in best) for row in references)
    yield "</tbody></table>"


def _row(row: summaries.Row, columns: Sequence[results.Column], *, best: bool) -> str:
    cells = []
    for column in columns:
        text = html.escape(column.cell(row))
        if column.title == "method":
            mark = ' <span class="tag">best</span>' if best else ""
            cells.append(f'<th scope="row" class="text">{text}{mark}</th>')
        else:
            cells.append(f"<td{_kind(column)}>{text}</td>")
    mark = ' class="best"' if best else ""
    return f"<tr{mark}>{''.join(cells)}</tr>"


def _kind(column: results.Column) -> str:
    return ' class="number"' if column.numeric else ' class="text"'


def _figure(title: str, svg: str) -> str:
    """Renders an image whose ids and styles cannot clash with those of the page."""
    label, image = html.escape(title), base64.b64encode(svg.encode()).decode()
    return (
        f"<figure><figcaption>{label}</figcaption>"
        f'<div class="scroll" role="region" aria-label="{label}">'
        f'<img alt="{label}" src="data:image/svg+xml;base64,{image}"></div></figure>'
    )


def _facts(kind: str, facts: Iterable[tuple[str, str]]) -> str:
    """Renders names with their values, both HTML."""
    lines = (f"<div><dt>{name}</dt><dd>{fact}</dd></div>" for name, fact in facts)
    return "\n".join([f'<dl class="{kind}">', *lines, "</dl>"])


def _flat(pairs: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Yields dotted names such as 'versions.jax', and their texts, both escaped."""
    for name, value in pairs.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            texts = map(_written, value if isinstance(value, list) else [value])
            yield html.escape(prefix + name), html.escape(", ".join(texts))


def _written(value: Any) -> str:
    """Returns a JSON value as text; numbers have four digits."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return value if value and isinstance(value, str) else json.dumps(value)
