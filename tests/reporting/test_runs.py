import json
import math
import os
import resource

import jax.numpy as jnp
import numpy as np
import pytest

from placement import files
from placement.errors import UserError
from placement.reporting import runs
from placement.types import Solution, Status


def test_write_json_converts_arrays(tmp_path):
    solution = Solution(np.array([0, 1], np.int32), 0.5, math.nan, Status.FINISHED, 0.1, 3)
    data = {
        "scalar": np.float32(0.5),
        "count": np.int64(7),
        "flag": np.bool_(True),
        "array": np.array([[1.0, np.inf], [-np.inf, np.nan]]),
        "jax": jnp.arange(3),
        "solution": solution,
        "path": tmp_path,
        1: None,
    }
    runs.write_json(tmp_path / "x.json", data)
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "scalar": 0.5,
        "count": 7,
        "flag": True,
        "array": [[1.0, None], [None, None]],
        "jax": [0, 1, 2],
        "solution": [[0, 1], 0.5, None, "finished", 0.1, 3, None, "all", "", None, 0.0, None],
        "path": str(tmp_path),
        "1": None,
    }
    assert text.endswith("}\n")


def test_unsupported_value_keeps_the_file(tmp_path):
    path = tmp_path / "x.json"
    runs.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        runs.write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["x.json"]


def test_unfinished_line_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    added = {"step": 2, "best_s": np.float32(np.inf), "text": "ü\n"}
    for rest in (b'{"step": 1, "be', b'{"step": 1}', b"\xc3"):
        path.write_bytes(b'{"step": 0}\n' + rest)
        assert files.read_jsonl(path, {}, remedy="") == [{"step": 0}]
        runs.append_jsonl(path, added)
        records = [{"step": 0}, {**added, "best_s": None}]
        assert files.read_jsonl(path, {}, remedy="") == records


def test_full_disk_names_the_file(tmp_path):
    path = tmp_path / "log"
    path.write_text("{}\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            files.write_bytes(path, b"x" * 99)
        with pytest.raises(OSError, match="File too large"):
            runs.append_jsonl(path, {"x": "x" * 99})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.filename == str(path)
    assert os.listdir(tmp_path) == ["log"]
    assert files.read_jsonl(path, {}, remedy="") == [{}]


def test_workdirs_must_be_folders(tmp_path):
    (tmp_path / "file").touch()
    for name in ("file", "file/below", "/dev/null"):
        with pytest.raises(UserError, match="cannot be written to") as raised:
            runs.prepare_workdir(tmp_path / name)
        assert str(tmp_path / name) in str(raised.value)
