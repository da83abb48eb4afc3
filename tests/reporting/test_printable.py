import io

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from placement.reporting import printable
from placement.reporting.tables import grids


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("conv_1 (größe)", "conv_1 (größe)"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\ud800 \u202e \u2028 \x85", "\\ud800 \\u202e \\u2028 \\x85"),
    ],
)
def test_what_is_none_to_print_is_written_as_in_python(given, shown):
    assert printable.text(given) == shown


def test_every_text_of_data_is_printable_and_keeps_its_lines():
    given = {"rows": [{"status": "a\nb\x07", "n": 1}], "none": None, "pair": ("\x00", 0.5)}
    shown = {"rows": [{"status": "a\nb\\x07", "n": 1}], "none": None, "pair": ["\\x00", 0.5]}
    assert printable.data(given) == shown


@pytest.mark.parametrize(
    "name", ["[a](b)", "![a][b]", "*a*", "<b>a</b>", "a|b", "a\\*b", "\\<b>", "C:\\<", "# a", "> a"]
)
def test_a_name_means_nothing_in_markdown(name):
    *around, inline, _ = MarkdownIt().parse(printable.markdown(name))
    assert [token.type for token in around] == ["paragraph_open"]
    assert {token.type for token in inline.children} <= {"text", "text_special"}
    assert "".join(token.content for token in inline.children) == name


def test_a_name_stays_within_its_backquotes_and_its_line():
    assert printable.markdown({"a": ["`x`\n# y", 1]}) == {"a": ["'x' # y", 1]}


def test_a_grid_takes_all_but_its_own_marks_literally():
    header, row = ["[red]graph[/red]", "[x]"], ["[/bold]a", grids.BOLD_RICH.format("[1]")]
    table = grids.rich_table(header, [row], title="[green]title")
    assert table.title.plain == "[green]title"
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=80)
    console.print(table)
    printed = console.file.getvalue()
    assert all(text in printed for text in (*header, "[/bold]a"))
    assert "\x1b[1m[1]" in printed
    assert grids.markdown(["a|b", "c"], []).splitlines()[0] == "| a\\|b | c |"
