"""What the tables over graphs and seeds share: intervals, how a mean is written, and the grid.

A grid is a header and rows of texts. Its first column is left-aligned, the others right-aligned.
What a text emphasises as a whole it marks itself, with `BOLD_MARKDOWN` or `BOLD_RICH`; all else in
a text is taken literally by a terminal.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text
from scipy import stats

from placement.reporting.tables import results
from placement.reporting.words import Words

BOLD_MARKDOWN = "**{}**"
BOLD_RICH = "[bold]{}[/bold]"


def half_width(values: np.ndarray) -> float:
    """Half the width of the 95% interval of the mean of [K] values, by Student's t.

    nan where they are fewer than two, or one is not finite.
    """
    if len(values) < 2 or not np.isfinite(values).all():
        return math.nan
    return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))


def mean_text(unit: results.Unit, mean_s: float, half_width_s: float) -> str:
    """'1.500 ± 0.020', without the unit's name; the mean alone where there is no interval."""
    text = unit.write(mean_s)
    return text if math.isnan(half_width_s) else f"{text} ± {unit.write(half_width_s)}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The grid in Markdown, without a final newline."""
    return "\n".join(map(_line, [header, ["---", *["---:"] * (len(header) - 1)], *rows]))


def rich_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str, caption: str = ""
) -> Table:
    """The grid to print: where a terminal is too narrow, texts fold, and no digit is lost."""
    table = Table(
        title=Text(title),
        caption=Text(caption) if caption else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for number, name in enumerate(header):
        table.add_column(Words(name), justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(text: str) -> Words:
    start, end = BOLD_RICH.split("{}")
    if text.startswith(start) and text.endswith(end):
        return Words(text.removeprefix(start).removesuffix(end), style="bold")
    return Words(text)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
