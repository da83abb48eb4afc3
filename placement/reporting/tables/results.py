"""The table of a summary (the content of `summary.json`), and the report around it.

A table has one unit of latency, chosen by the magnitude of its numbers. A number that is missing,
null, NaN or infinite prints as a dash; the status of a failed row says why it failed. Rows marked
`reference` (devices outside the placement) come last.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placement.reporting import printable, summaries, units
from placement.reporting import verdict as verdict_lib
from placement.reporting.summaries import Row, Summary
from placement.reporting.tables import grids

_LONGEST_CAUSE = 200  # characters in the terminal; Markdown has the whole cause
_LEGEND = (
    "Measured: the median and its 95% interval. `vs best single` is the ratio to the fastest "
    "single device: of measured latencies, paired by rounds, where there are any, else of "
    "predicted ones. Below 1 is faster. `own best` is the best that a learned method drew, without "
    "the starts. Bounds, gaps and `optimal in simulation` are about predicted latencies."
)
_STARTS = {
    "heuristics": "the single devices and what heuristics find",
    "single": "the single devices",
}
_HOST_NOTE = (
    "Devices labelled `host` are cores of one processor, each opened as a separate OpenVINO "
    "device: the numbers show that measuring works, and say nothing about GPUs."
)


def terminal_table(summary: Summary) -> grids.Grid:
    """Makes the table for a terminal of 100 columns, with the verdict and causes of failures."""
    # The cause, as in 'failed: compile: why', goes below the table.
    rows = [{**row, "status": ":".join(row["status"].split(":")[:2])} for row in summary["rows"]]
    table = table_of(rows, best_rows(rows))
    graphs = summaries.group_by_graph(rows)
    graph = summary["graph"]
    size = f"{graph['name']}: {graph['num_ops']} operations, {graph['num_edges']} edges"
    table.title = f"{size if len(graphs) < 2 else f'{len(graphs)} graphs'}; objective "
    table.title += f"{summary['objective']}; starts: {summary['starts']}"
    sentences = verdict_lib.sentences(rows, summary["objective"])
    notes = [line.replace("`", "") for line in sentences]
    for row, stripped in zip(summary["rows"], rows, strict=True):
        if stripped != row:
            cause = " ".join(row["status"].split())
            notes.append(f"{row['method']} {cause[:_LONGEST_CAUSE]}")
    if summary.get("memory"):
        notes.append(f"memory of the best placement: {_memory(summary)}")
    if any("host" in label for label in summary["devices"]):
        notes.append(_HOST_NOTE.replace("`", ""))
    table.notes = notes
    return table


def report(summary: Summary, sections: Mapping[str, str] | None = None) -> str:
    """Writes the report in Markdown: the verdict, facts about the run, and a table for each graph.

    Args:
      summary: the content of `summary.json`, its texts escaped by `printable.markdown`.
      sections: further sections, by title; they come before the results.

    Returns:
      Markdown that ends with a newline.
    """
    graph, is_comparison = summary["graph"], "graph" in summary["rows"][0]
    graphs = summaries.group_by_graph(summary["rows"])
    name = graph["name"] if len(graphs) < 2 else f"{len(graphs)} graphs"
    facts = [f"- operations: {graph['num_ops']}, edges: {graph['num_edges']}"]
    facts.append("- devices: " + ", ".join(f"`{label}`" for label in summary["devices"]))
    facts += [f"- objective: `{summary['objective']}`", f"- seed: {summary['seed']}"]
    facts.append(f"- starts of all searches: {_STARTS[summary['starts']]}")
    if units.number(graph.get("optimum_s")) is not None:
        optimum = units.duration(graph["optimum_s"])
        facts.append(f"- optimum: {optimum}, known from the graph's generator; bounds are the same")
    if summary.get("memory"):
        facts.append(f"- memory of the best placement: {_memory(summary)}")
    if units.number(summary.get("wall_s")) is not None:
        facts.append(f"- time taken: {summary['wall_s']:.1f} s")
    parts = [f"# Placement of {name}"]
    parts += verdict_lib.sentences(summary["rows"], summary["objective"])
    parts.append("\n".join(facts))
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
    if not is_comparison:  # each cell of a comparison has its own placement.json
        parts.append(
            "`placement.json` next to this file gives the device of every operation in the best "
            "placement, and says how it was obtained."
        )
    if any("host" in label for label in summary["devices"]):
        parts.append(_HOST_NOTE)
    return "\n\n".join(parts) + "\n"


def unsupported(records: Sequence[dict[str, str]]) -> str:
    """Lists operations that devices cannot run, in Markdown: counts, then a row for each reason.

    The records are those of `placement.runtime.models.support.UnsupportedOp`.
    """
    names: dict[tuple[str, ...], list[str]] = {}
    for record in records:
        key = tuple(record[field] for field in ("device", "op_type", "inputs", "reason"))
        names.setdefault(key, []).append(record["name"])
    table = grids.new_table("", ("device", "operations", "type", "inputs", "reason"), ())
    for (device, *others), ops in names.items():
        table.add_row(device, grids.listed(ops), *others)
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


def table_of(rows: Sequence[Row], best: Sequence[Row]) -> grids.Grid:
    """Makes the table of rows, the best in bold, with the columns in which some row has a value."""
    latency = summaries.unit(rows)

    def measured(row: Row) -> str:
        interval = row.get("measured_s") or {}
        median, low, high = (interval.get(key) for key in ("median", "low", "high"))
        return units.with_interval(median, low, high, latency.write)

    def error(row: Row) -> str:
        text = units.write(row.get("output_error"), ".2g")
        tolerance = row.get("tolerance")  # of deployments
        return text if tolerance is None else f"{text} [{tolerance:g}]"

    def status(row: Row) -> str:
        text = str(row["status"])
        if text.startswith("optimal") and summaries.median_s(row) is not None:
            # A proof holds for the simulation, not for a measured latency.
            return f"optimal in simulation{text.removeprefix('optimal')}"
        return text

    columns: dict[str, Callable[[Row], str]] = {  # a cell's text, by header
        "graph": lambda row: str(row.get("graph", units.NONE)),
        "seed": lambda row: str(row.get("seed", units.NONE)),
        "method": summaries.label,
        f"predic-\nted {latency.name}": lambda row: latency.write(row.get("predicted_s")),
        f"own\nbest {latency.name}": lambda row: latency.write(row.get("own_best_s")),
        f"measured {latency.name}\n[low, high]": measured,
        "output\nerror": error,
        "vs best\nsingle": lambda row: units.write(row["versus_best_single_device"], ".3f"),
        f"bound\n{latency.name}": lambda row: latency.write(row.get("bound_s")),
        "gap\n%": lambda row: units.write(100 * units.or_nan(row.get("gap")), ".1f"),
        "search\ns": lambda row: units.write(row.get("search_s"), ".2f"),
        "evalu-\nations": lambda row: str(row.get("evaluations", units.NONE)),
        "status": status,
    }
    texts = {header: [*map(cell, rows)] for header, cell in columns.items()}
    for header, cells in [*texts.items()]:
        needed = 2 if header in ("graph", "seed") else 1  # values, so that they distinguish rows
        if len({*cells} - {units.NONE}) < needed:
            del texts[header]
    numeric = [header not in ("graph", "method", "status") for header in texts]
    table = grids.Grid([*texts], numeric)
    for row, *cells in zip(rows, *texts.values(), strict=True):
        shown = tuple(map(grids.bold, cells) if row in best else cells)
        (table.references if row.get("reference") else table.rows).append(shown)
    return table


def _memory(summary: Summary) -> str:
    """Says how much memory of each device the best placement needs."""
    texts = []
    for name, memory in summary["memory"].items():
        capacity_bytes = units.number(memory["capacity_bytes"])
        limit = "(no limit)" if capacity_bytes is None else f"of {units.size(capacity_bytes)}"
        texts.append(f"{name} {units.size(memory['placement_bytes'])} {limit}")
    return ", ".join(texts)
