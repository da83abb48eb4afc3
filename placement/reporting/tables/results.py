"""The table of a summary (the content of `summary.json`), and the report around it.

A table has one unit of latency, chosen by the magnitude of its numbers. A number that is missing,
null, NaN or infinite prints as a dash; the status of a failed row says why it failed. Rows marked
`reference` (plain OpenVINO on devices outside the placement) come last.
"""

import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placement.reporting import printable, summaries, units
from placement.reporting import verdict as verdict_lib
from placement.reporting.summaries import Row, Summary
from placement.reporting.tables import grids

_LONGEST_CAUSE = 200  # characters in the terminal; Markdown has the whole cause
_BAR = 12  # characters in the terminal
_LEGEND = (
    "Measured: the median and its 95% interval. `vs best single` is the ratio to the fastest "
    "single device: of measured latencies, paired by rounds, where there are any, else of "
    "predicted ones. Below 1 is faster. `own best` is the best that a learned method drew, without "
    "the starts."
)
_HOST_NOTE = (
    "Devices labelled `host` are cores of one processor: the numbers show that measuring works, "
    "and say nothing about GPUs."
)
_INCOMPLETE = "The run is incomplete: it was interrupted, or something in it failed."


def terminal_table(summary: Summary) -> grids.Grid:
    """Makes the table for a terminal of 100 columns, with the verdict and causes of failures."""
    rows = summary["rows"]
    table = table_of(rows, best_rows(rows), has_bars=True)
    graphs = summaries.group_by_graph(rows)
    graph = summary["graph"]
    size = f"{graph['name']}: {graph['num_ops']} operations, {graph['num_edges']} edges"
    table.title = f"{size if len(graphs) < 2 else f'{len(graphs)} graphs'}; objective "
    table.title += f"{summary['objective']}; starts: {summary['starts']}"
    sentences = verdict_lib.sentences(rows, summary["objective"])
    notes = [line.replace("`", "") for line in sentences]
    statuses = summaries.group(summary["rows"], _status)
    statuses.pop("finished", None)
    for status, group in statuses.items():
        methods = ", ".join(dict.fromkeys(summaries.label(row) for row in group))
        notes.append(f"{methods}: {' '.join(status.split())[:_LONGEST_CAUSE]}")
    if summary.get("memory"):
        notes.append(f"memory of the best placement: {_memory(summary)}")
    if any("host" in label for label in summary["devices"]):
        notes.append(_HOST_NOTE.replace("`", ""))
    table.notes = notes
    return table


def report(
    summary: Summary,
    sections: Mapping[str, str] | None = None,
    *,
    facts: Mapping[str, str] | None = None,
    warnings: Sequence[str] = (),
) -> str:
    """Writes the report in Markdown: the verdict, facts about the run, and a table for each graph.

    Args:
      summary: the content of `summary.json`, its texts escaped by `printable.markdown`.
      sections: further sections, by title; they come before the results.
      facts: further facts, by name; they come first.
      warnings: further warnings; they come below the verdict.

    Returns:
      Markdown that ends with a newline.
    """
    graph, graphs = summary["graph"], summaries.group_by_graph(summary["rows"])
    title = f"Placement of {len(graphs)} graphs"
    if len(graphs) < 2:
        title = f"{graph['name']}: {verdict_lib.headline(verdict_lib.decide(summary['rows']))}"
    facts = dict(facts or {})
    facts["graph"] = f"{graph['num_ops']} operations, {graph['num_edges']} edges"
    facts["devices"] = ", ".join(f"`{label}`" for label in summary["devices"])
    facts |= {"objective": f"`{summary['objective']}`", "starts": f"`{summary['starts']}`"}
    facts["seed"] = str(summary["seed"])
    if units.number(graph.get("optimum_s")) is not None:
        optimum = units.duration(graph["optimum_s"])
        facts["optimum"] = f"{optimum}, known from the graph's generator; bounds are the same"
    if summary.get("memory"):
        facts["memory of the best placement"] = _memory(summary)
    if units.number(summary.get("wall_s")) is not None:
        facts["time taken"] = f"{summary['wall_s']:.1f} s"
    sentence, *flaws = verdict_lib.sentences(summary["rows"], summary["objective"])
    flaws += [*warnings, *([] if summary.get("complete", True) else [_INCOMPLETE])]
    flaws += [_HOST_NOTE] if any("host" in label for label in summary["devices"]) else []
    parts = [f"# {title}", sentence, *(f"> {flaw}" for flaw in flaws)]
    parts.append("\n".join(f"- {name}: {text}" for name, text in facts.items()))
    for title, text in (sections or {}).items():
        parts += [f"## {title}", text]
    parts.append("## Result")
    for rows in graphs:
        if len(graphs) > 1:
            sentences = verdict_lib.sentences(rows, summary["objective"])
            parts += [f"### {rows[0]['graph']}", *sentences]
        parts.append(table_of(rows, best_rows(rows)).markdown())
    parts.append(_LEGEND)
    if summary.get("unsupported"):
        parts += ["## Operations that a device cannot run", unsupported(summary["unsupported"])]
    if summary.get("divisions"):
        parts += ["## Operations kept off a device", divisions(summary["divisions"])]
    return "\n\n".join(parts) + "\n"


def unsupported(records: Sequence[dict[str, str]]) -> str:
    """Lists operations that devices cannot run, in Markdown: counts, then a row for each reason.

    The records are those of `placement.runtime.models.support.UnsupportedOp`.
    """
    reason = operator.itemgetter("device", "op_type", "inputs", "reason")
    table = grids.new_table("", ("device", "operations", "type", "inputs", "reason"), ())
    for (device, *others), group in summaries.group(records, reason).items():
        table.add_row(device, grids.listed([record["name"] for record in group]), *others)
    counts = Counter(record["device"] for record in records).items()
    counted = ", ".join(f"{count} on {device}" for device, count in counts)
    return f"Operations that cannot run: {counted}.\n\n{table.markdown()}"


def divisions(records: Sequence[dict[str, Any]]) -> str:
    """Lists operations that are kept off a device because it computes them wrong, in Markdown.

    The records are those of `placement.pipeline.accuracy.Division.to_json`.
    """
    sentences = []
    table = grids.Grid(
        ("device", "operations", "output error", "run on"), (False, False, True, False)
    )
    for record in records:
        whole_error = record["whole_error"]
        differ = "are not finite" if whole_error is None else f"differ by {whole_error:.3g}"
        count = sum(len(culprit["ops"]) for culprit in record["culprits"])
        sentences.append(
            f"With the whole model on `{record['label']}`, outputs {differ}, relative to their "
            f"spread on the plain f32 CPU; {record['max_error']:g} is accepted. Without the "
            f"{count} operations below, they differ by {record['error']:.3g}."
        )
        for culprit in record["culprits"]:
            error = "not finite" if culprit["error"] is None else f"{culprit['error']:.2g}"
            run_on = ", ".join(culprit["run_on"])
            table.add_row(record["device"], grids.listed(culprit["ops"]), error, run_on)
    legend = (
        "An output error is that of the model with only the row's operations, and those next to "
        "them if they were measured together, on the device."
    )
    return "\n\n".join([*sentences, table.markdown(), legend])


def deployment_table(record: Mapping[str, Any]) -> grids.Grid:
    """Makes the table of a deployment from its manifest; the deployed row is bold."""
    rows = record["rows"]
    return table_of(rows, [row for row in rows if summaries.label(row) == record["deployed"]])


def deployment_report(record: Mapping[str, Any], folder: str) -> str:
    """Writes deploy.md, for the manifest of a model that is deployed in a folder."""
    record = printable.markdown(record)
    parts = [
        f"# Deployment of {record['graph']}",
        grids.bold(record["decision"]),
        deployment_table(record).markdown(),
        "Medians and their 95% intervals, of interleaved inferences; ratios are paired, below 1 is "
        "faster. An output error is the largest difference from the plain f32 CPU over the spread "
        "of its output. In brackets: the tolerance, which follows the least precise device that "
        "computed.",
    ]
    if record["divisions"]:
        parts += ["## Operations kept off a device", divisions(record["divisions"])]
    parts += [
        "## Checked on this machine",
        "\n".join(f"- {name}: {result}" for name, result in record["checks"].items()),
        "## To run it",
        "```python\nimport placement\n\n"
        f"with placement.load({folder!r}) as net:\n"
        "    outputs = net.infer(inputs)  # a list of arrays, or a dict of them by name\n```",
    ]
    return "\n\n".join(parts) + "\n"


def best_rows(rows: Sequence[Row]) -> list[Row]:
    """Returns the winning row of each graph: a placement, a single device or a reference."""
    verdicts = map(verdict_lib.decide, summaries.group_by_graph(rows))
    return [verdict.winner.row for verdict in verdicts if verdict.winner]


def table_of(rows: Sequence[Row], best: Sequence[Row], *, has_bars: bool = False) -> grids.Grid:
    """Makes the table of rows, the best in bold, with the columns in which some row has a value.

    A bar shows the ratio to the best single device, in place of the evaluations and the status. The
    longest is that of the slowest row, or of 1.5 times the best single device; then '+' ends it.

    Bounds of predictions say nothing about measured latencies, so they are not shown next to them.
    """
    rows = [row for part in summaries.split_references(rows) for row in part]
    latency = summaries.unit(rows)
    is_measured = any(summaries.median_s(row) is not None for row in rows)
    ratios = [units.or_nan(row["versus_best_single_device"]) for row in rows]
    longest = min(1.5, max([1.0, *filter(math.isfinite, ratios)]))

    def method(row: Row) -> str:
        name = f"{'plain ' if row.get('reference') else ''}{summaries.label(row)}"
        return f"{name} = {row['same_as']}" if row.get("same_as") else name

    def bar(row: Row) -> str:
        ratio = units.number(row["versus_best_single_device"])
        if ratio is None:
            return units.NONE
        length = round(_BAR * min(1.0, ratio / longest))
        text = grids.FILLED * length + grids.EMPTY * (_BAR - length)
        return text if ratio <= longest else f"{text[:-1]}+"

    def measured(row: Row) -> str:
        interval = row.get("measured_s") or {}
        median, low, high = (interval.get(key) for key in ("median", "low", "high"))
        return units.with_interval(median, low, high, latency.write)

    def error(row: Row) -> str:
        text = units.write(row.get("output_error"), ".2g")
        tolerance = row.get("tolerance")  # of deployments
        return text if tolerance is None else f"{text} [{tolerance:g}]"

    columns: dict[str, Callable[[Row], str]] = {  # a cell's text, by header
        "graph": lambda row: str(row.get("graph", units.NONE)),
        "seed": lambda row: str(row.get("seed", units.NONE)),
        "method": method,
        f"predic-\nted {latency.name}": lambda row: latency.write(row.get("predicted_s")),
        f"own\nbest {latency.name}": lambda row: latency.write(row.get("own_best_s")),
        f"measured {latency.name}\n[low, high]": measured,
        "output\nerror": error,
        "vs best\nsingle": lambda row: units.write(row["versus_best_single_device"], ".3f"),
        "": bar,
        f"bound\n{latency.name}": lambda row: latency.write(row.get("bound_s")),
        "gap\n%": lambda row: units.write(100 * units.or_nan(row.get("gap")), ".1f"),
        "search\ns": lambda row: units.write(row.get("search_s"), ".2f"),
        "evalu-\nations": lambda row: str(row.get("evaluations", units.NONE)),
        "status": _status,
    }
    for header in ("evalu-\nations", "status") if has_bars else ("",):
        del columns[header]
    if is_measured:
        del columns[f"bound\n{latency.name}"], columns["gap\n%"]
    texts = {header: [*map(cell, rows)] for header, cell in columns.items()}
    for header, cells in [*texts.items()]:
        needed = 2 if header in ("graph", "seed") else 1  # values, so that they distinguish rows
        if len({*cells} - {units.NONE}) < needed or {*cells} == {"finished"}:
            del texts[header]
    numeric = [header not in ("graph", "method", "status") for header in texts]
    table = grids.Grid([*texts], numeric)
    for row, *cells in zip(rows, *texts.values(), strict=True):
        table.add_row(*(map(grids.bold, cells) if row in best else cells))
    return table


def _status(row: Row) -> str:
    """Returns a row's status; a proof holds for the simulation, not for a measured latency."""
    text = str(row["status"])
    if text.startswith("optimal") and summaries.median_s(row) is not None:
        return f"optimal in simulation{text.removeprefix('optimal')}"
    return text


def _memory(summary: Summary) -> str:
    """Says how much memory of each device the best placement needs."""
    texts = []
    for name, memory in summary["memory"].items():
        capacity_bytes = units.number(memory["capacity_bytes"])
        limit = "(no limit)" if capacity_bytes is None else f"of {units.size(capacity_bytes)}"
        texts.append(f"{name} {units.size(memory['placement_bytes'])} {limit}")
    return ", ".join(texts)
