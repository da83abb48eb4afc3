"""The archive of the results behind the tables."""

import json
import zipfile

import pytest

from experiments.reproduction import __main__ as reproduction
from experiments.reproduction import results, table_readers
from experiments.reproduction.page_tables import Table


def make_run(folder, name, command, printed):
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / results.COMMAND).write_text(json.dumps(command))
    (folder / name / table_readers.PRINTED).write_text(json.dumps(printed))
    (folder / name / "trace.json").write_text("[]")


def test_what_is_stored_is_unpacked(tmp_path):
    folder, archive = tmp_path / "runs", tmp_path / "runs.zip"
    for name in ("a", "b", "c"):
        make_run(folder, name, f"command {name}", [["1"]])
    assert results.read_commands(archive) == {}
    results.store(folder, ["a", "b"], archive)
    assert results.read_commands(archive) == {"a": "command a", "b": "command b"}
    make_run(folder, "a", "command d", [["2"]])
    results.store(folder, ["a"], archive)
    assert results.read_commands(archive) == {"a": "command d", "b": "command b"}
    results.unpack(tmp_path / "unpacked", archive)
    read = {name: table_readers._read_printed(tmp_path / "unpacked", name) for name in ("a", "b")}
    assert read == {"a": [["2"]], "b": [["1"]]}
    with zipfile.ZipFile(archive) as content:
        assert "a/trace.json" not in content.namelist()


def test_equal_results_make_equal_bytes(tmp_path):
    archives = tmp_path / "first.zip", tmp_path / "second.zip"
    for archive, names in zip(archives, (["a", "b"], ["b", "a"]), strict=True):
        for name in names:
            make_run(tmp_path / archive.stem, name, "command", [])
            results.store(tmp_path / archive.stem, [name], archive)
    assert archives[0].read_bytes() == archives[1].read_bytes()


@pytest.mark.parametrize(("words", "value"), [(["measure", "one"], "2.00"), (["one"], "1.00")])
def test_a_table_is_made_from_stored_results(tmp_path, monkeypatch, capsys, words, value):
    page, folder = tmp_path / "page.md", tmp_path / "runs"
    mark = reproduction.MARK.format("one")
    page.write_text(f"{mark}\n\n| graph | ms |\n| --- | ---: |\n| a | 0.50 |\n")

    def read(folder):
        return ["graph", "ms"], [["a", table_readers._read_printed(folder, "a")[0][0]]]

    tables = {"one": Table("page.md", {"a": "command"}, read)}
    monkeypatch.setattr(
        reproduction, "TABLES", tables | {"two": tables["one"]._replace(runs={"b": "-"})}
    )
    monkeypatch.setattr(reproduction, "ROOT", tmp_path)
    monkeypatch.setattr(reproduction, "FOLDER", folder)
    monkeypatch.setattr(reproduction, "_run_command", lambda *_: True)
    monkeypatch.setattr(results, "STORED", tmp_path / "runs.zip")
    make_run(folder, "a", "command", [["1.00"]])
    results.store(folder, ["a"], results.STORED)
    make_run(folder, "a", "command", [["2.00"]])
    reproduction.main(words)
    assert f"one: a, ms: 0.50 -> {value}" in capsys.readouterr().out
    assert f"| a | {value} |" in page.read_text()
    reproduction.main(["two"])
    assert "two: unchanged, because 1 of its 1 runs are not stored" in capsys.readouterr().out
