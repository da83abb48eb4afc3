"""Helpers of the tables over graphs and seeds: intervals, formatted means, and the grid.

A grid is a header and rows of texts. Its first column is left-aligned, the others right-aligned.
A text is emphasised as a whole by `BOLD_MARKDOWN` or `BOLD_RICH`. A terminal shows everything else
in it literally.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text
from scipy import special

from placement.reporting import printable, units
from placement.reporting.statistics import MIN_RUNS
from placement.reporting.wrapped_text import WrappedText

BOLD_MARKDOWN = "**{}**"
BOLD_RICH = "[bold]{}[/bold]"
BOLD_LATEX = r"\textbf{{{}}}"


class Estimate(NamedTuple):
    """A mean over seeds."""

    mean: float  # not finite where a seed's number is not
    half_width: float  # half the width of the 95% interval; nan for fewer than `MIN_RUNS` seeds

    def write(self, unit: units.Unit) -> str:
        """Returns '1.500 ± 0.020', without the unit's name; the mean alone without an interval."""
        text = unit.write(self.mean)
        return text if math.isnan(self.half_width) else f"{text} ± {unit.write(self.half_width)}"


def estimate(values: Sequence[float] | np.ndarray) -> Estimate:
    """Returns the mean of [K] values and half the width of its 95% interval, by Student's t."""
    half_width = math.nan
    if len(values) >= MIN_RUNS and np.isfinite(values).all():
        standard_error = np.std(values, ddof=1) / math.sqrt(len(values))
        half_width = float(special.stdtrit(len(values) - 1, 0.975) * standard_error)
    return Estimate(float(np.mean(values)), half_width)


def new_table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """Makes an empty table for a terminal: columns of texts, then right-aligned ones of numbers."""
    table = Table(title=Text(printable.text(title)) if title else None, box=box.SIMPLE_HEAD)
    for column in texts:
        table.add_column(column)
    for column in numbers:
        table.add_column(column, justify="right")
    return table


def markdown(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numeric: Sequence[bool] | None = None,
) -> str:
    """Returns the grid in Markdown, without a final newline.

    `numeric` says whether each column is right-aligned; by default all but the first are.
    """
    numeric = [False, *[True] * (len(header) - 1)] if numeric is None else numeric
    rule = ["---:" if right else "---" for right in numeric]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        for cells in [header, rule, *rows]
    )


def latex(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns the grid as a LaTeX tabular, which needs the package booktabs."""
    start, end = BOLD_LATEX.format("|").split("|")

    def write(text: str) -> str:
        if text.startswith(start) and text.endswith(end):
            return BOLD_LATEX.format(write(text.removeprefix(start).removesuffix(end)))
        escaped = "".join(f"\\{c}" if c in "&%$#_{}" else c for c in text)
        return escaped.replace("±", r"$\pm$")

    lines = [" & ".join(map(write, row)) + r" \\" for row in (header, *rows)]
    columns = "l" + "r" * (len(header) - 1)
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{columns}}}",
            *(r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"),
            r"\end{tabular}",
        ]
    )


def rich_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str) -> Table:
    """Makes the grid for a terminal; where that is too narrow, texts wrap but numbers do not."""
    table = Table(title=Text(title), box=box.SIMPLE_HEAD)
    for number, name in enumerate(header):
        table.add_column(WrappedText(name), justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(text: str) -> WrappedText:
    start, end = BOLD_RICH.split("{}")
    if text.startswith(start) and text.endswith(end):
        return WrappedText(text.removeprefix(start).removesuffix(end), style="bold")
    return WrappedText(text)
