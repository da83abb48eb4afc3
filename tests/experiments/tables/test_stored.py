"""The stored runs, and the command that makes tables of them."""

import functools
import zipfile

import pytest

from experiments.tables import __main__ as command
from experiments.tables import readers, stored
from placement.errors import UserError


@pytest.mark.nightly
def test_runs_are_made_and_stored(tmp_path, monkeypatch):
    code = "import json; print('first'); print(json.dumps([1]))"
    (tmp_path / "printing.py").write_text(code)
    (tmp_path / "failing.py").write_text("raise SystemExit(1)")
    (tmp_path / "listing").mkdir()
    (tmp_path / "listing" / "report.md").write_text("report")
    monkeypatch.setattr(stored, "FOLDER", tmp_path)
    monkeypatch.setattr(stored, "ARCHIVE", tmp_path / "runs.zip")
    zipfile.ZipFile(stored.ARCHIVE, "w").close()
    monkeypatch.setattr(stored, "_read_archive", functools.cache(stored._read_archive.__wrapped__))
    commands = {"listing": "--task=list", "printing": "printing", "failing": "failing"}
    monkeypatch.setattr(stored, "COMMANDS", commands)
    archives = []
    for _ in range(2):
        assert command.main(["run", "listing", "print*"]) == 0
        archives.append(stored.ARCHIVE.read_bytes())
    assert archives[0] == archives[1]
    assert stored.read("listing", "report.md") == "report"
    assert stored.read_json("printing", stored.PRINTED) == [1]
    with pytest.raises(UserError, match="'failing' failed"):
        command.main(["run", "failing"])


def test_mistakes_are_user_errors():
    for words in (["make"], ["run"], ["run", "nothing"], ["audit", "nothing"]):
        with pytest.raises(UserError):
            command.main(words)


def test_tables_are_replaced_in_place(monkeypatch):
    grid = (["graph", "ms"], [["a", "1.01"], ["b", "**3.00**"]])
    monkeypatch.setattr(readers, "TABLES", {"one": lambda: grid})
    page = "# A\n\n<!-- documents: one -->\n\n{}\n| a | 1.01 |\n| b | {} |\n\nAfter.\n"
    for header in ("| graph | ms |\n| --- | --- |", "| graph | s |\n| --- | --- |"):
        text, changed = command.replace_tables(page.format(header, "2.00"))
        rule = "---" if "ms" in header else "---:"  # kept under the same header
        assert text == page.format(f"| graph | ms |\n| --- | {rule} |", "**3.00**")
        assert changed == ["one"]
        assert command.replace_tables(text) == (text, [])
