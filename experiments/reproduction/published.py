"""Published figures beside ours.

Latencies of other machines cannot be compared, so what stands side by side are ratios to the best
single device of the same source: ours to our best one, theirs to theirs. Where a table is of the
very costs that are ours too (`same_costs`), its values are comparable, and our best single device
is the unit of both.

A file of published figures is a JSON object of `Table`'s fields but `name`; its rows are objects of
`Row`'s fields, `reduction` in them of `Reduction`'s. What has a default may be left out.
Methods are named as rows of a comparison are, with these exceptions: 'CPU only' and 'GPU only' are
the fastest single device of that kind, and 'METHOD, best', 'METHOD, median' and 'METHOD, worst' are
over seeds.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from placement.reporting import runs
from placement.reporting.tables import comparison, grids

_SINGLES = {"cpu": "CPU only", "gpu": "GPU only"}  # by what a single device's name contains
_AS_PUBLISHED = "variant=paper"  # a method with this argument is the one that its paper means
_OVER_SEEDS: dict[str, Callable[[list[float]], Any]] = {
    "best": min,
    "median": np.median,
    "worst": max,
}
_LEGEND = (
    "Ours vs theirs, each as a ratio to the {} of the same source; ours are means "
    "over the seeds. In brackets the value itself. OOM: out of memory; a dash: no number."
)


class Reduction(NamedTuple):
    """By how much a method's value is lower than that of others, in percent."""

    method: str
    against: tuple[str, ...]
    percent: float
    largest: bool = False  # over the row's graphs and `against`; else against the best of these


class Row(NamedTuple):
    """What a source says of a graph, or of several together."""

    graphs: tuple[str, ...]  # several only where no values are given
    aliases: tuple[str, ...] = ()  # other names of the graph
    objective: str | None = None  # the only one that the row is about
    accelerators: int | None = None
    values: Mapping[str, float | None] = {}  # by method; None: not given; inf: out of memory
    reduction: Reduction | None = None


class Table(NamedTuple):
    """A table of one source."""

    name: str  # the file's, without its suffix
    title: str  # the source: title, authors, where and when
    table: str  # where it stands there, and what its figures are
    differs: str  # what is different from ours
    unit: str  # of the values; '' where they have none
    rows: tuple[Row, ...]
    same_costs: bool = False  # our values are of the same costs
    references: tuple[str, ...] = ()  # methods over which the table is shown once more


class Pair(NamedTuple):
    """A method on a graph, ours and theirs; nan is what there is not, inf is out of memory."""

    ours: float  # over our reference, such as the best single device
    theirs: float  # over theirs
    our_value: float
    their_value: float


class OurReduction(NamedTuple):
    """What stands beside a published reduction; fractions, nan where there is none."""

    value: float
    # Of the best single device, over the same graphs: what is left of `value` where a slow baseline
    # made it large.
    of_single: float


class PairedRow(NamedTuple):
    """A row of a published table, ours beside theirs."""

    label: str
    accelerators: int | None  # in theirs
    pairs: tuple[Pair, ...]
    our_reductions: Mapping[str, OurReduction]  # of ours that are the published method
    reduction: float  # theirs, a fraction; nan where not given
    largest: bool  # as `Reduction.largest`, both


class Paired(NamedTuple):
    """A published table with ours beside it."""

    source: Table
    reference: str  # what both sides are divided by, each by its own
    methods: tuple[str, ...]  # of the pairs, as ours are named where there are such
    rows: tuple[PairedRow, ...]


def read(directory: runs.StrPath) -> tuple[Table, ...]:
    """Reads the tables in a directory's JSON files, by name; none of a missing directory.

    Raises:
      ValueError: a file is not as the module's docstring says.
    """
    return tuple(_table(path) for path in sorted(Path(directory).glob("*.json")))


def pair(
    sources: Iterable[Table], rows: Iterable[comparison.Row], objective: str
) -> tuple[Paired, ...]:
    """Pairs every published table that shares a graph and a method with ours.

    Methods and graphs that a table lacks are left out of it: `comparison` has them.

    Args:
      sources: from `read`.
      rows: of a comparison, see `comparison.compare`.
      objective: of these rows.
    """
    ours = _ours(list(rows))
    pairs = (
        _paired(source, ours, objective, reference)
        for source in sources
        for reference in (comparison.SINGLE, *source.references)
    )
    return tuple(paired for paired in pairs if paired is not None)


def markdown(paired: Paired) -> str:
    """Writes a Markdown section: the table, what its cells are, and its source."""
    source = paired.source
    over = "" if paired.reference == comparison.SINGLE else f", over {paired.reference}"
    parts = [
        f"### Published figures: {source.name}{over}",
        grids.markdown(*grid(paired)),
        _LEGEND.format(paired.reference),
        f"{source.title}; {source.table}.",
        source.differs,
    ]
    return "\n\n".join(parts)


def _table(path: Path) -> Table:
    try:
        given = json.loads(path.read_text("utf-8"))
        rows, references = map(_row, given["rows"]), given.get("references", ())
        read = given | {"rows": tuple(rows), "references": tuple(references)}
        table = Table(name=path.stem, **read)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is no table of published figures: {error!r}") from error
    for text in ("title", "table", "differs"):
        if not getattr(table, text):
            raise ValueError(f"{path} has an empty {text!r}; say where its figures are from")
    for row in table.rows:
        if not row.graphs or (len(row.graphs) > 1 and row.values):
            raise ValueError(f"{path} has values of {list(row.graphs)}; give one graph a row")
    return table


def _row(given: Mapping[str, Any]) -> Row:
    values = given.get("values", {}).items()
    reduction = given.get("reduction")
    return Row(
        **{
            **given,
            "graphs": tuple(given["graphs"]),
            "aliases": tuple(given.get("aliases", ())),
            "values": {m: _value(value) for m, value in values},
            "reduction": reduction
            and Reduction(**{**reduction, "against": tuple(reduction["against"])}),
        }
    )


def _value(given: Any) -> float | None:
    return math.inf if given == comparison.OOM else None if given is None else float(given)


_Values = dict[str, dict[str, float]]  # by graph and method; inf: out of memory


def _ours(rows: list[comparison.Row]) -> _Values:
    """Computes means over the seeds, and what is best, median and worst of them."""
    ours = _means(rows)
    by_seed = [
        _means([row for row in rows if row["seed"] == seed]) for seed in {r["seed"] for r in rows}
    ]
    for graph, means in ours.items():
        for method in tuple(means):
            values = [seed[graph][method] for seed in by_seed if method in seed.get(graph, {})]
            means |= {f"{method}, {key}": float(of(values)) for key, of in _OVER_SEEDS.items()}
    return ours


def _means(rows: list[comparison.Row]) -> _Values:
    """Averages the methods and, beside the best single device, single devices by kind."""
    kinds = [{**row, "method": _kind(row["method"])} for row in rows]
    compared = comparison.compare([*rows, *(row for row in kinds if row["method"])], ())
    return {
        graph: {
            m: math.inf if c.out_of_memory else c.latency_s.mean
            for m, c in cells.items()
            if c.out_of_memory or math.isfinite(c.latency_s.mean)
        }
        for graph, cells in compared.cells.items()
    }


def _kind(method: str) -> str | None:
    prefix, _, device = method.partition(":")
    kinds = (kind for key, kind in _SINGLES.items() if key in device.lower())
    return next(kinds, None) if prefix == "single" else None


def _paired(source: Table, ours: _Values, objective: str, reference: str) -> Paired | None:
    rows = [row for row in source.rows if row.objective in (None, objective)]
    if not any(_graph(row, graph, ours) in ours for row in rows for graph in row.graphs):
        return None
    methods = {method for row in rows for method in row.values} - set(_SINGLES.values())
    methods |= {row.reduction.method for row in rows if row.reduction is not None}
    if not any(_names(method, ours) for method in methods):
        return None
    published = dict.fromkeys(method for row in rows for method in row.values)
    columns = [(name, method) for method in published for name in _names(method, ours) or [method]]
    paired = []
    for row in rows:
        theirs = row.reduction
        paired.append(
            PairedRow(
                label=_label(row, ours),
                accelerators=row.accelerators,
                pairs=_pairs(source, row, columns, ours, reference),
                our_reductions=_reductions(row, ours),
                reduction=math.nan if theirs is None else theirs.percent / 100,
                largest=theirs is not None and theirs.largest,
            )
        )
    return Paired(source, reference, tuple(name for name, _ in columns), tuple(paired))


def _graph(row: Row, graph: str, ours: _Values) -> str:
    """Returns what the graph is called in ours."""
    return next((alias for alias in row.aliases if alias in ours), graph)


def _names(method: str, ours: _Values) -> list[str]:
    """Returns what a published method is called in ours: arguments may be in another order."""
    names = dict.fromkeys(name for means in ours.values() for name in means)
    return [name for name in names if _parts(name) == _parts(method)]


def _parts(method: str) -> tuple[str, frozenset[str], str]:
    """Splits 'NAME:A=1,B=2, best' into name, arguments and what it is over seeds."""
    text, _, over_seeds = method.partition(", ")
    name, _, arguments = text.partition(":")
    return name, frozenset(arguments.split(",")) - {"", _AS_PUBLISHED}, over_seeds


def _pairs(
    source: Table,
    row: Row,
    columns: Sequence[tuple[str, str]],
    ours: _Values,
    reference: str,
) -> tuple[Pair, ...]:
    means = ours.get(_graph(row, row.graphs[0], ours), {})
    our_unit = means.get(reference, math.nan)
    over = _SINGLES.values() if reference == comparison.SINGLE else (reference,)
    theirs = [row.values.get(name) for name in over]
    their_unit = min((value for value in theirs if value is not None), default=math.nan)
    if source.same_costs:
        their_unit = our_unit
    pairs = []
    for name, method in columns:
        our_value, their_value = means.get(name, math.nan), row.values.get(method)
        their_value = math.nan if their_value is None else their_value
        pairs.append(Pair(our_value / our_unit, their_value / their_unit, our_value, their_value))
    return tuple(pairs)


def _reductions(row: Row, ours: _Values) -> dict[str, OurReduction]:
    """Computes reductions, by our names of the published method, against others that ran."""
    if row.reduction is None:
        return {}
    others = [name for method in row.reduction.against for name in _names(method, ours)]
    reference = max if row.reduction.largest else min
    reductions = {}
    for name in _names(row.reduction.method, ours):
        value = _largest(row, ours, name, others, reference)
        if not math.isnan(value):
            of_single = _largest(row, ours, name, [comparison.SINGLE], min)
            reductions[name] = OurReduction(value, of_single)
    return reductions


def _largest(
    row: Row, ours: _Values, name: str, others: Sequence[str], reference: Callable[..., float]
) -> float:
    """Returns the largest reduction over the row's graphs, against what `reference` picks."""
    reductions = []
    for graph in row.graphs:
        means = ours.get(_graph(row, graph, ours), {})
        values = [means[other] for other in others if math.isfinite(means.get(other, math.nan))]
        if values and math.isfinite(means.get(name, math.nan)):
            reductions.append(1 - means[name] / reference(values))
    return max(reductions, default=math.nan)


def _label(row: Row, ours: _Values) -> str:
    if row.reduction is None or not row.reduction.largest:
        return ", ".join(row.graphs)
    text = f"{', '.join(row.graphs)}: largest against {', '.join(row.reduction.against)}"
    missing = [graph for graph in row.graphs if graph not in ours]
    return f"{text}; ours without {', '.join(missing)}" if missing else text


def grid(paired: Paired) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of the table, as `markdown` writes them."""
    header = ["graph", "accelerators, theirs", *paired.methods]
    reduced = any(row.our_reductions or not math.isnan(row.reduction) for row in paired.rows)
    rows = []
    for row in paired.rows:
        accelerators = "-" if row.accelerators is None else str(row.accelerators)
        cells = [row.label, accelerators, *_cells(row.pairs, paired.source)]
        rows.append([*cells, _reduction_text(row)] if reduced else cells)
    header += ["reduction"] if reduced else []
    return header, rows


def _cells(pairs: Sequence[Pair], source: Table) -> list[str]:
    our_unit = source.unit if source.same_costs else None
    ours = _side([(p.our_value, p.ours) for p in pairs], our_unit)
    theirs = _side([(p.their_value, p.theirs) for p in pairs], source.unit)
    return [
        "-" if our == their == "-" else f"{our} vs {their}"
        for our, their in zip(ours, theirs, strict=True)
    ]


def _side(known: Sequence[tuple[float, float]], unit: str | None) -> list[str]:
    """Values and their ratios, written: the lowest and what is written like it in bold."""
    texts = [_text(value, ratio, unit) for value, ratio in known]
    lowest = min(
        ((value, text) for (value, _), text in zip(known, texts, strict=True) if text != "-"),
        default=(math.nan, ""),
    )[1]
    return [grids.BOLD_MARKDOWN.format(text) if text == lowest else text for text in texts]


def _text(value: float, ratio: float, unit: str | None) -> str:
    """Returns the ratio and, unless its unit is None, the value in brackets."""
    if math.isinf(value):
        return comparison.OOM
    text = "-" if math.isnan(ratio) else f"{ratio:.3f}"
    if unit is None or math.isnan(value):
        return text
    return f"{text} ({f'{value:.6g} {unit}'.strip()})"


def _reduction_text(row: PairedRow) -> str:
    texts = []
    for name, (value, of_single) in row.our_reductions.items():
        remarks = [name] if len(row.our_reductions) > 1 else []
        if row.largest and not math.isnan(of_single):
            remarks.append(f"{of_single:z.1%} against the best single device")
        texts.append(f"{value:z.1%}" + (f" ({'; '.join(remarks)})" if remarks else ""))
    theirs = "-" if math.isnan(row.reduction) else f"{100 * row.reduction:.4g}%"
    return "-" if not texts and theirs == "-" else f"{', '.join(texts) or '-'} vs {theirs}"
