import io

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from placement.reporting import printable
from placement.reporting.tables import grids


def test_unprintable_characters_are_escaped():
    texts = {
        "conv_1 (größe)": "conv_1 (größe)",
        "a\x1b[31mb": "a\\x1b[31mb",
        "a\nb\tc": "a\\nb\\tc",
        "\ud800 \u202e \u2028 \x85": "\\ud800 \\u202e \\u2028 \\x85",
    }
    assert {text: printable.text(text) for text in texts} == texts
    given = {"rows": [{"status": "a\nb\x07", "n": 1}], "none": None, "pair": ("\x00", 0.5)}
    shown = {"rows": [{"status": "a\nb\\x07", "n": 1}], "none": None, "pair": ["\\x00", 0.5]}
    assert printable.data(given) == shown


@pytest.mark.parametrize(
    "name", ["[a](b)", "![a][b]", "*a*", "<b>a</b>", "a|b", "a\\*b", "\\<b>", "C:\\<", "# a", "> a"]
)
def test_markdown_shows_names_literally(name):
    *around, inline, _ = MarkdownIt().parse(printable.markdown(name))
    assert [token.type for token in around] == ["paragraph_open"]
    assert {token.type for token in inline.children} <= {"text", "text_special"}
    assert "".join(token.content for token in inline.children) == name
    assert printable.markdown({"a": ["`x`\n# y", 1]}) == {"a": ["'x' # y", 1]}


def test_grid_shows_texts_literally():
    table = grids.Grid(["[red]graph[/red]", "[x]"], title="[green]title")
    table.add_row("[/bold]a", grids.bold("[1]"))
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=80)
    console.print(table)
    printed = console.file.getvalue()
    assert all(text in printed for text in ("[red]graph[/red]", "[x]", "[green]title", "[/bold]a"))
    assert "\x1b[1m[1]" in printed
    assert grids.Grid(["a|b", "c"]).markdown().splitlines()[0] == "| a\\|b | c |"
