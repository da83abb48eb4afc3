import json
from pathlib import Path
from typing import Any

from experiments.reproduction import table_readers


def _write(folder: Path, run: str, file: str, data: dict[str, Any]) -> None:
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


def test_knees_stand_beside_what_is_measured_with_them(tmp_path: Path) -> None:
    points = [
        {"number": n, "latency_s": 1e-3 * n, "request_s": 2e-3, "memory_bytes": 5e6} for n in (1, 2)
    ]
    measured = [
        {"name": "single:CPU", "latency": {"median": 0.004}, "stream_failed": "memory: none"},
        {"name": "point 2", "latency": {"median": 0.0025}, "stream": {"median": 0.0019}},
    ]
    record = {"graph": "small", "points": points, "measured": measured}
    _write(tmp_path, "one", "front.json", record)
    _, rows_read = table_readers.read_fronts(tmp_path, ("one",))
    assert rows_read == [
        ["small", "single:CPU", "-", "-", "-", "4.00", "-"],
        ["small", "point 2", "2.00", "2.00", "5", "2.50", "1.90"],
    ]
