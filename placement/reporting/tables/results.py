"""Tables of a summary (the content of `summary.json`): for the terminal, in Markdown, as a report.

A table has one unit of latency, chosen by the magnitude of its numbers. A number that is missing,
null, NaN or infinite prints as a dash; the status of a failed row says why it failed. Rows marked
`reference` (devices outside the placement) come last, behind a separator.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from placement.reporting import summaries, units
from placement.reporting import verdict as verdict_lib
from placement.reporting.summaries import Row, Summary
from placement.reporting.tables import divisions, grids, unsupported
from placement.reporting.wrapped_text import WrappedText

_TEXT_WIDTH = 16  # columns of text in the terminal
_LONGEST_CAUSE = 200  # characters in the terminal; Markdown has the whole cause
LEGEND = (
    "Measured: the median and its 95% interval. `vs best single` is the ratio to the fastest "
    "single device: of measured latencies, paired by rounds, where there are any, else of "
    "predicted ones. Below 1 is faster. Bounds, gaps and `optimal in simulation` are about "
    "predicted latencies."
)
HOST_NOTE = (
    "Devices labelled `host` are cores of one processor, each opened as an OpenVINO device of its "
    "own: the numbers show that measuring works, and say nothing about GPUs."
)


class Column(NamedTuple):
    """A column of a table."""

    header: str  # with the line breaks that a terminal needs
    cell: Callable[[Row], str]
    numeric: bool = True

    @property
    def title(self) -> str:
        """The header in one line."""
        return self.header.replace("-\n", "").replace("\n", " ")


def rich_table(summary: Summary) -> Table:
    """Makes the table for a terminal of 80 columns or more, and for a file.

    The best row of each graph is bold, reference rows stand below a line, and causes of failures
    stand below the table.
    """
    shown = columns(summary["rows"])
    table = Table(
        title=Text(title(summary)),
        caption=Text("\n".join(_notes(summary))),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    for column in shown:
        table.add_column(
            WrappedText(column.title, terminal_text=column.header),
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
        )
    best = best_rows(summary)
    for graph in summaries.group_by_graph(summary["rows"]):
        for rows in summaries.split_references(graph):
            for row in rows:
                texts = (
                    WrappedText(
                        column.cell(_strip_cause(row)),
                        widest=None if column.numeric else _TEXT_WIDTH,
                    )
                    for column in shown
                )
                table.add_row(*texts, style="bold" if row in best else None)
            table.add_section()
    return table


def markdown_table(summary: Summary) -> str:
    """Writes the table in Markdown, with complete causes of failures, without a final newline."""
    shown = columns(summary["rows"])
    best = best_rows(summary)
    placements, references = summaries.split_references(summary["rows"])
    lines = []
    for row in (*placements, *references):
        if references and row is references[0]:
            lines.append(["*for reference:*", *[""] * (len(shown) - 1)])
        text = grids.BOLD_MARKDOWN if row in best else "{}"
        lines.append([text.format(_one_line(column.cell(row))) for column in shown])
    header, numeric = zip(*((column.title, column.numeric) for column in shown), strict=True)
    return grids.markdown(header, lines, numeric=numeric)


def compare_markdown(summary: Summary) -> str:
    """Writes a Markdown table for each graph; several tables have names and verdicts above them."""
    graphs = summaries.group_by_graph(summary["rows"])
    if len(graphs) < 2:
        return markdown_table(summary)
    parts = []
    for rows in graphs:
        sentences = graph_sentences(rows, summary["objective"])
        parts += [f"### {rows[0]['graph']}", *sentences, markdown_table({**summary, "rows": rows})]
    return "\n\n".join(parts)


def report_markdown(summary: Summary) -> str:
    """Writes the whole report: the verdict, the facts about the run, and the table.

    Args:
      summary: the content of `summary.json`, its texts escaped by `printable.markdown`.

    Returns:
      Markdown that ends with a newline.
    """
    graph, is_comparison = summary["graph"], "graph" in summary["rows"][0]
    facts = [
        f"- operations: {graph['num_ops']}, edges: {graph['num_edges']}",
        "- devices: " + ", ".join(f"`{label}`" for label in summary["devices"]),
        f"- objective: `{summary['objective']}`",
        f"- seed: {summary['seed']}",
    ]
    if units.number(graph.get("optimum_s")) is not None:
        optimum = units.duration(graph["optimum_s"])
        facts.append(f"- optimum: {optimum}, known from the graph's generator; bounds are the same")
    if summary.get("memory"):
        facts.append(f"- memory of the best placement: {_memory(summary)}")
    if units.number(summary.get("wall_s")) is not None:
        facts.append(f"- time taken: {summary['wall_s']:.1f} s")
    parts = [
        f"# Placement of {graph['name']}",
        *([] if is_comparison else [verdict(summary)]),  # a comparison begins with it
        *mispredictions(summary),
        "\n".join(facts),
        "## Result",
        compare_markdown(summary),
        LEGEND,
    ]
    if summary.get("unsupported"):
        parts += [f"## {unsupported.TITLE}", unsupported.markdown(summary["unsupported"])]
    if summary.get("divisions"):
        parts += [f"## {divisions.TITLE}", divisions.markdown(summary["divisions"])]
    if not is_comparison:  # each cell of a comparison has its own placement.json
        parts.append(
            "`placement.json` beside this file gives the device of every operation in the best "
            "placement, and says how it was obtained."
        )
    if has_host(summary):
        parts.append(HOST_NOTE)
    return "\n\n".join(parts) + "\n"


def title(summary: Summary) -> str:
    """Returns a title: the graph and its size, or the number of graphs, and the objective."""
    graph, count = summary["graph"], len(summaries.group_by_graph(summary["rows"]))
    sizes = f"{graph['name']}: {graph['num_ops']} operations, {graph['num_edges']} edges"
    return f"{sizes if count < 2 else f'{count} graphs'}; objective {summary['objective']}"


def best_rows(summary: Summary) -> list[Row]:
    """Returns the winning row of each graph: a placement, a single device or a reference."""
    verdicts = map(verdict_lib.decide, summaries.group_by_graph(summary["rows"]))
    return [verdict.winner.row for verdict in verdicts if verdict.winner]


def columns(rows: Iterable[Row]) -> list[Column]:
    """Returns the columns in which some row has a value."""
    rows = list(rows)
    latency = summaries.unit(rows)
    columns = [
        Column(key, _text_of(key), numeric=key == "seed")
        for key in ("graph", "seed")
        if len({row[key] for row in rows if key in row}) > 1
    ]
    columns += [
        Column("method", summaries.label, numeric=False),
        Column(f"predic-\nted {latency.name}", lambda row: latency.write(row.get("predicted_s"))),
    ]
    if any(summaries.median_s(row) is not None for row in rows):
        columns.append(
            Column(f"measured {latency.name}\n[low, high]", lambda row: _measured(row, latency))
        )
    if any("output_error" in row for row in rows):
        columns.append(Column("output\nerror", lambda row: _significant(row.get("output_error"))))
    columns.append(
        Column("vs best\nsingle", lambda row: _fixed(row.get("versus_best_single_device"), 3))
    )
    if any(units.number(row.get("bound_s")) is not None for row in rows):
        columns.append(
            Column(f"bound\n{latency.name}", lambda row: latency.write(row.get("bound_s")))
        )
        columns.append(Column("gap\n%", lambda row: _fixed(100 * units.or_nan(row.get("gap")), 1)))
    return [
        *columns,
        Column("search\ns", lambda row: _fixed(row.get("search_s"), 2)),
        Column("evalu-\nations", _text_of("evaluations")),
        Column("status", _status, numeric=False),
    ]


def _text_of(key: str) -> Callable[[Row], str]:
    return lambda row: str(row.get(key, units.NONE))


def _status(row: Row) -> str:
    """Returns the status; a proof holds for the simulation, not for a measured latency."""
    status = str(row["status"])
    if status.startswith("optimal") and summaries.median_s(row) is not None:
        return f"optimal in simulation{status.removeprefix('optimal')}"
    return status


def _measured(row: Row, latency: units.Unit) -> str:
    if summaries.median_s(row) is None:
        return units.NONE
    low, high = (latency.write(row["measured_s"].get(key)) for key in ("low", "high"))
    return f"{latency.write(summaries.median_s(row))} [{low}, {high}]"


def _fixed(value: Any, decimals: int) -> str:
    number = units.number(value)
    return units.NONE if number is None else f"{number:.{decimals}f}"


def _significant(value: Any) -> str:
    number = units.number(value)
    return units.NONE if number is None else f"{number:.2g}"


def _notes(summary: Summary) -> list[str]:
    lines = [line.replace("`", "") for line in (verdict(summary), *mispredictions(summary))]
    for row in summary["rows"]:
        if _strip_cause(row) != row:
            lines.append(f"{row['method']} {_one_line(row['status'])[:_LONGEST_CAUSE]}")
    if summary.get("memory"):
        lines.append(f"memory of the best placement: {_memory(summary)}")
    if has_host(summary):
        lines.append(
            "host: the devices are cores of one processor; the numbers say nothing about GPUs."
        )
    return lines


def _memory(summary: Summary) -> str:
    """Says how much memory of each device the best placement needs."""
    texts = []
    for name, memory in summary["memory"].items():
        capacity_bytes = units.number(memory["capacity_bytes"])
        limit = "(no limit)" if capacity_bytes is None else f"of {units.size(capacity_bytes)}"
        texts.append(f"{name} {units.size(memory['placement_bytes'])} {limit}")
    return ", ".join(texts)


def verdict(summary: Summary) -> str:
    """Returns the verdict in Markdown; for several graphs, the best method over all of them."""
    return verdict_lib.closing_sentence(summary["rows"], summary["objective"])


def mispredictions(summary: Summary) -> list[str]:
    """Returns sentences in Markdown about wrong predictions for one graph.

    For several graphs, `graph_sentences` has them.
    """
    graphs = summaries.group_by_graph(summary["rows"])
    return [*filter(None, map(verdict_lib.misprediction, graphs))] if len(graphs) == 1 else []


def graph_sentences(rows: list[Row], objective: str) -> list[str]:
    """Returns the verdict on one of several graphs and its wrong predictions, in Markdown."""
    sentence = verdict_lib.sentence(verdict_lib.decide(rows), objective)
    return [sentence, *filter(None, [verdict_lib.misprediction(rows)])]


def has_host(summary: Summary) -> bool:
    """Returns whether `HOST_NOTE` applies."""
    return any("host" in label for label in summary["devices"])


def _strip_cause(row: Row) -> Row:
    """Returns the row with its status cut from 'failed: compile: why' to 'failed: compile'."""
    return {**row, "status": ":".join(row["status"].split(":")[:2])}


def _one_line(text: str) -> str:
    return " ".join(text.split())
