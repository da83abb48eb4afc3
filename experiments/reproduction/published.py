"""Published figures next to those of a comparison.

Latencies of different machines cannot be compared. The tables therefore show ratios to the best
single device of the same source: ours to our best one, theirs to theirs. If a published table uses
the same costs as ours (`same_costs`), its values are comparable, and both sides are divided by our
best single device.

A file of published figures is a JSON object with the fields of `Table` except `name`; its rows have
the fields of `Row`, and `reduction` those of `Reduction`. Fields with a default may be left out.
Methods are named like the rows of a comparison, with these exceptions: 'CPU only' and 'GPU only'
are the fastest single device of that kind; 'METHOD, best', 'METHOD, median' and 'METHOD, worst' are
over seeds.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placement.reporting import printable, runs
from placement.reporting.tables import comparison, grids

PUBLISHED = Path(__file__).parents[2] / "third_party" / "published"
FILE = "published.md"  # in a comparison's run directory
_SINGLES = {"cpu": "CPU only", "gpu": "GPU only"}  # by a part of a single device's name
_AS_PUBLISHED = "variant=paper"  # a method with this argument is the one of its paper
_SEED_STATISTICS: dict[str, Callable[[list[float]], Any]] = {
    "best": min,
    "median": np.median,
    "worst": max,
}
_LEGEND = (
    "Ours vs theirs, each as a ratio to the {} of the same source; ours are means "
    "over the seeds. In brackets the value itself. OOM: out of memory; a dash: no number."
)


class Reduction(NamedTuple):
    """A published percentage by which a method's value is lower than others'."""

    method: str
    against: tuple[str, ...]
    percent: float
    largest: bool = False  # over the row's graphs and `against`; else against the best of these


class Row(NamedTuple):
    """A source's figures for one graph, or for several together."""

    graphs: tuple[str, ...]  # several only if the row has no values
    aliases: tuple[str, ...] = ()  # further names of the graph
    objective: str | None = None  # the only objective that the row is about
    accelerators: int | None = None
    values: Mapping[str, float | None] = {}  # by method; None: not given; inf: out of memory
    reduction: Reduction | None = None


class Table(NamedTuple):
    """A table of one source."""

    name: str  # the file's, without its suffix
    title: str  # the source: title, authors, venue and year
    table: str  # the table's number in the source and the meaning of its figures
    differs: str  # the differences from our setting
    unit: str  # of the values; '' if there are none
    rows: tuple[Row, ...]
    same_costs: bool = False  # our values are of the same costs
    references: tuple[str, ...] = ()  # further methods to divide both sides by


class Pair(NamedTuple):
    """A method's value on a graph in both sources; nan: missing, inf: out of memory."""

    ours: float  # over our reference, such as the best single device
    theirs: float  # over theirs
    our_value: float
    their_value: float


class PairedRow(NamedTuple):
    """A row of a published table with our figures."""

    label: str
    published: Row
    pairs: tuple[Pair, ...]
    # By our name of the published method: our counterpart of the published reduction, and that
    # against the best single device over the same graphs, which shows how much remains of the first
    # if a slow baseline made it large; fractions, the second nan if missing.
    our_reductions: Mapping[str, tuple[float, float]]


class Paired(NamedTuple):
    """A published table with our figures."""

    source: Table
    reference: str  # each side is divided by its own value of this method
    methods: tuple[str, ...]  # of the pairs; our names where we have them
    rows: tuple[PairedRow, ...]


def write(workdir: Path) -> Path | None:
    """Writes published figures next to those of a finished comparison.

    Args:
      workdir: the run directory of --task=compare.

    Returns:
      The file; None if no published table shares a graph and a method with the comparison, or if
      the directory cannot be written to.
    """
    summary = runs.read_summary(workdir)
    if "graph" not in summary["rows"][0] or not os.access(workdir, os.W_OK):
        return None
    summary = printable.markdown(summary)
    paired_tables = pair(read(PUBLISHED), summary["rows"], summary["objective"])
    if not paired_tables:
        return None
    runs.write_text(workdir / FILE, "\n\n".join(map(markdown, paired_tables)))
    return workdir / FILE


def read(directory: runs.StrPath) -> tuple[Table, ...]:
    """Reads the tables in a directory's JSON files, by name; none if the directory is missing.

    Raises:
      ValueError: a file does not have the form that the module's docstring describes.
    """
    return tuple(_read_table(path) for path in sorted(Path(directory).glob("*.json")))


def pair(
    sources: Iterable[Table], rows: Iterable[comparison.Row], objective: str
) -> tuple[Paired, ...]:
    """Pairs every published table that shares a graph and a method with ours.

    Methods and graphs that a published table lacks are left out.

    Args:
      sources: from `read`.
      rows: of a comparison, see `comparison.compare`.
      objective: of these rows.
    """
    ours = _our_values(list(rows))
    tables = (
        _pair_table(source, ours, objective, reference)
        for source in sources
        for reference in (comparison.SINGLE, *source.references)
    )
    return tuple(table for table in tables if table is not None)


def markdown(paired: Paired) -> str:
    """Returns a Markdown section: the table, a legend and the source."""
    source = paired.source
    suffix = "" if paired.reference == comparison.SINGLE else f", over {paired.reference}"
    parts = [
        f"### Published figures: {source.name}{suffix}",
        grids.markdown(*make_grid(paired)),
        _LEGEND.format(paired.reference),
        f"{source.title}; {source.table}.",
        source.differs,
    ]
    return "\n\n".join(parts)


def _read_table(path: Path) -> Table:
    def number(value: Any) -> float | None:
        return math.inf if value == comparison.OOM else None if value is None else float(value)

    try:
        data = json.loads(path.read_text("utf-8"))
        rows = []
        for row in data["rows"]:
            fields = {**row, "graphs": tuple(row["graphs"])}
            fields["aliases"] = tuple(row.get("aliases", ()))
            fields["values"] = {m: number(value) for m, value in row.get("values", {}).items()}
            if reduction := row.get("reduction"):
                baselines = tuple(reduction["against"])
                fields["reduction"] = Reduction(**{**reduction, "against": baselines})
            rows.append(Row(**fields))
        references = tuple(data.get("references", ()))
        data |= {"rows": tuple(rows), "references": references}
        table = Table(name=path.stem, **data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is no table of published figures: {error!r}") from error
    for text in ("title", "table", "differs"):
        if not getattr(table, text):
            raise ValueError(f"{path} has an empty {text!r}; say where its figures are from")
    for row in table.rows:
        if not row.graphs or (len(row.graphs) > 1 and row.values):
            raise ValueError(f"{path} has values of {list(row.graphs)}; give one graph a row")
    return table


_Values = dict[str, dict[str, float]]  # by graph and method; inf: out of memory


def _our_values(rows: list[comparison.Row]) -> _Values:
    """Computes means over the seeds, and the best, median and worst seed."""
    ours = _means(rows)
    means_by_seed = [
        _means([row for row in rows if row["seed"] == seed]) for seed in {r["seed"] for r in rows}
    ]
    for graph, means in ours.items():
        for method in tuple(means):
            values = [
                seed[graph][method] for seed in means_by_seed if method in seed.get(graph, {})
            ]
            for key, statistic in _SEED_STATISTICS.items():
                means[f"{method}, {key}"] = float(statistic(values))
    return ours


def _means(rows: list[comparison.Row]) -> _Values:
    """Averages every method, and also the fastest single device of each kind."""
    renamed = []
    for row in rows:
        prefix, _, device = row["method"].partition(":")
        kinds = [kind for key, kind in _SINGLES.items() if key in device.lower()]
        if prefix == "single" and kinds:
            renamed.append({**row, "method": kinds[0]})
    compared = comparison.compare([*rows, *renamed], ())
    return {
        graph: {
            method: math.inf if cell.out_of_memory else cell.latency_s.mean
            for method, cell in cells.items()
            if cell.out_of_memory or math.isfinite(cell.latency_s.mean)
        }
        for graph, cells in compared.cells.items()
    }


def _pair_table(source: Table, ours: _Values, objective: str, reference: str) -> Paired | None:
    rows = [row for row in source.rows if row.objective in (None, objective)]
    if not any(_our_graph(row, graph, ours) in ours for row in rows for graph in row.graphs):
        return None
    published = dict.fromkeys(method for row in rows for method in row.values)
    methods = {*published} - set(_SINGLES.values())
    methods |= {row.reduction.method for row in rows if row.reduction is not None}
    if not any(_our_names(method, ours) for method in methods):
        return None
    columns = [
        (name, method) for method in published for name in _our_names(method, ours) or [method]
    ]
    paired = []
    for row in rows:
        reduction = row.reduction
        label = ", ".join(row.graphs)
        if reduction is not None and reduction.largest:
            label += f": largest against {', '.join(reduction.against)}"
            if missing := [graph for graph in row.graphs if graph not in ours]:
                label += f"; ours without {', '.join(missing)}"
        pairs = _pair_row(source, row, columns, ours, reference)
        paired.append(PairedRow(label, row, pairs, _our_reductions(row, ours)))
    return Paired(source, reference, tuple(name for name, _ in columns), tuple(paired))


def _our_graph(row: Row, graph: str, ours: _Values) -> str:
    """Returns our name of a published graph."""
    return next((alias for alias in row.aliases if alias in ours), graph)


def _our_names(method: str, ours: _Values) -> list[str]:
    """Returns our names of a published method; its arguments may be in another order."""

    def split(name: str) -> tuple[str, frozenset[str], str]:
        # 'NAME:A=1,B=2, best' -> the name, its arguments and the statistic over seeds
        text, _, statistic = name.partition(", ")
        name, _, arguments = text.partition(":")
        return name, frozenset(arguments.split(",")) - {"", _AS_PUBLISHED}, statistic

    names = dict.fromkeys(name for means in ours.values() for name in means)
    return [name for name in names if split(name) == split(method)]


def _pair_row(
    source: Table,
    row: Row,
    columns: Sequence[tuple[str, str]],
    ours: _Values,
    reference: str,
) -> tuple[Pair, ...]:
    means = ours.get(_our_graph(row, row.graphs[0], ours), {})
    our_unit = means.get(reference, math.nan)
    references = _SINGLES.values() if reference == comparison.SINGLE else (reference,)
    units = [value for name in references if (value := row.values.get(name)) is not None]
    their_unit = our_unit if source.same_costs else min(units, default=math.nan)
    pairs = []
    for name, method in columns:
        our_value, their_value = means.get(name, math.nan), row.values.get(method)
        their_value = math.nan if their_value is None else their_value
        pairs.append(Pair(our_value / our_unit, their_value / their_unit, our_value, their_value))
    return tuple(pairs)


def _our_reductions(row: Row, ours: _Values) -> dict[str, tuple[float, float]]:
    """Computes our reductions, by our names of the method, against those baselines that ran."""
    if row.reduction is None:
        return {}
    baselines = [name for method in row.reduction.against for name in _our_names(method, ours)]

    def largest(name: str, others: Sequence[str], pick: Callable[..., float]) -> float:
        # Over the row's graphs, against the baseline that `pick` selects.
        reductions = []
        for graph in row.graphs:
            means = ours.get(_our_graph(row, graph, ours), {})
            values = [means[m] for m in others if math.isfinite(means.get(m, math.nan))]
            if values and math.isfinite(means.get(name, math.nan)):
                reductions.append(1 - means[name] / pick(values))
        return max(reductions, default=math.nan)

    reductions = {}
    for name in _our_names(row.reduction.method, ours):
        value = largest(name, baselines, max if row.reduction.largest else min)
        if not math.isnan(value):
            reductions[name] = value, largest(name, [comparison.SINGLE], min)
    return reductions


def make_grid(paired: Paired) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of the table, as `markdown` writes them."""
    source = paired.source
    has_reductions = any(row.our_reductions or row.published.reduction for row in paired.rows)
    rows = []
    for row in paired.rows:
        our_unit = source.unit if source.same_costs else None
        ours = _format_side([(p.our_value, p.ours) for p in row.pairs], our_unit)
        theirs = _format_side([(p.their_value, p.theirs) for p in row.pairs], source.unit)
        rows.append(
            [
                row.label,
                str(row.published.accelerators or "-"),
                *(
                    "-" if o == t == "-" else f"{o} vs {t}"
                    for o, t in zip(ours, theirs, strict=True)
                ),
                *([_format_reductions(row)] if has_reductions else []),
            ]
        )
    heads = ["reduction"] if has_reductions else []
    return ["graph", "accelerators, theirs", *paired.methods, *heads], rows


def _format_side(values: Sequence[tuple[float, float]], unit: str | None) -> list[str]:
    """Formats (value, ratio) pairs, the lowest and all that are written like it in bold.

    The value follows in brackets unless its unit is None.
    """
    texts = []
    for value, ratio in values:
        text = "-" if math.isnan(ratio) else f"{ratio:.3f}"
        if math.isinf(value):
            text = comparison.OOM
        elif unit is not None and not math.isnan(value):
            text += f" ({f'{value:.6g} {unit}'.strip()})"
        texts.append(text)
    values_and_texts = [
        (value, text) for (value, _), text in zip(values, texts, strict=True) if text != "-"
    ]
    _, lowest = min(values_and_texts, default=(math.nan, ""))
    return [grids.BOLD_MARKDOWN.format(text) if text == lowest else text for text in texts]


def _format_reductions(row: PairedRow) -> str:
    texts, reduction = [], row.published.reduction
    for name, (value, against_single) in row.our_reductions.items():
        remarks = [name] if len(row.our_reductions) > 1 else []
        if reduction and reduction.largest and not math.isnan(against_single):
            remarks.append(f"{against_single:z.1%} against the best single device")
        texts.append(f"{value:z.1%}" + (f" ({'; '.join(remarks)})" if remarks else ""))
    theirs = "-" if reduction is None else f"{reduction.percent:.4g}%"
    return "-" if not texts and theirs == "-" else f"{', '.join(texts) or '-'} vs {theirs}"
