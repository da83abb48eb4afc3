import json
from pathlib import Path
from typing import Any

from experiments.benchmarks import memory
from experiments.benchmarks.cells import Cell
from experiments.reproduction import table_readers
from experiments.reproduction.questions import BUDGETS, RolesResult


def _write(folder: Path, run: str, file: str, data: Any) -> None:
    (folder / run).mkdir()
    (folder / run / file).write_text(json.dumps(data))


def test_verdicts_stand_by_objective(tmp_path: Path) -> None:
    rows = [
        {"objective": "serial", "ratio": 1.234},
        {"objective": "makespan", "ratio": 0.5},
        {"objective": "max_load", "ratio": None},
    ]
    _write(tmp_path, "one", "advice.json", {"graph": "nmt:layers=2", "rows": rows})
    columns = ("makespan", "serial", "max_load", "subgraph")
    header, rows_read = table_readers.read_verdicts(tmp_path, {"one": "host"}, columns)
    assert header == ["graph", "devices", *columns]
    assert rows_read == [["nmt", "`host`", "0.50", "1.23, stop", "-", "-"]]


def test_cells_of_benchmarks_are_read_from_json(tmp_path: Path) -> None:
    values = {"single_s": 2.0, "heft_s": 1.5, "untrained_s": 1.2, "zero_shot_s": 1.1}
    values |= {"search_s": 1.0, "zero_shot_search_s": 0.1}
    devices = "roofline:cpu,gpu,gpu"
    cells = [
        Cell("rnnlm", "rnnlm", devices, 9, values),
        Cell("nmt", "nmt:layers=2", devices, 9, values | {"zero_shot_s": 1.6}),
    ]
    _write(tmp_path, "unseen", table_readers.PRINTED, cells)
    _, rows = table_readers.read_unseen_by_devices(tmp_path)
    assert rows == [["cpu, gpu, gpu", "50%", "1.350 (1.600)", "1.200 (1.200)"]]
    _, rows = table_readers.read_unseen_by_family(tmp_path)
    assert rows == [
        ["`rnnlm`", "2.000", "1.500", "1.200", "1.100"],
        ["`nmt`", "2.000", "1.500", "1.200", "1.600"],
    ]


def test_overheads_of_halves_are_read_from_json_as_megabytes(tmp_path: Path) -> None:
    result = memory.Result("bert:layers=4", 105e6, (126.5e6, 126.4e6), 51.8e6, 10.7e6, 13.96e6)
    _write(tmp_path, "memory", table_readers.PRINTED, [result])
    header, rows = table_readers.read_memory(tmp_path)
    assert rows == [["bert:layers=4", "105.0", "126.5", "126.4", "51.8", "10.7", "14.0"]]
    assert len(header) == len(rows[0])


def test_results_on_roles_have_a_row_for_each_kind_and_a_column_for_each_budget(
    tmp_path: Path,
) -> None:
    results = [
        RolesResult(graph, roles, 1_000, budget, [value, value])
        for roles, value in (("by name", 1.0), ("no roles", 2.0))
        for graph in ("rnnlm", "nmt")
        for budget in BUDGETS
    ]
    _write(tmp_path, "roles_search", table_readers.PRINTED, results)
    header, rows = table_readers.read_roles(tmp_path)
    assert header == [
        *("roles", "rnnlm, decisions", "2,000 evaluations", "8,000 evaluations"),
        *("nmt, decisions", "2,000 evaluations", "8,000 evaluations"),
    ]
    assert [row[0] for row in rows] == ["by name", "no roles"]
    assert rows[1][1] == "1,000"
    assert [row[2].split()[0] for row in rows] == ["1.000", "2.000"]
