"""Reading JSON: valid data are read, and any other content is refused with the file's name."""

import json
import os

import pytest

from placement import files
from placement.errors import UserError

SCHEMA = {
    "name": str,
    "rows": [{"seconds": files.NUMBER, "count": int, "sure": files.OptionalField(bool)}],
    "by_name": {str: [float]},
}
GOOD = {"name": "ü", "rows": [{"seconds": None, "count": 3}], "by_name": {"a": [1, 2.5]}, "more": 1}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.json"


def test_valid_data_are_converted(path):
    path.write_text(json.dumps(GOOD))
    assert files.read_json(path, SCHEMA, remedy="") == GOOD
    assert files.read_json(path, SCHEMA, lambda data: data["rows"][0]["count"], remedy="") == 3


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"name": 3}, "name is 3, not a string"),
        ({"rows": [{"count": 3}]}, "rows[0] has no 'seconds'"),
        ({"rows": [{"seconds": "1", "count": 3}]}, "rows[0].seconds is '1', not a number"),
        ({"rows": [{"seconds": 1, "count": True}]}, "rows[0].count is True, not a whole number"),
        ({"rows": [{"seconds": 1, "count": 1.0}]}, "rows[0].count is 1.0, not a whole number"),
        ({"by_name": {"a": [None]}}, "by_name['a'][0] is None, not a number"),
    ],
)
def test_first_mismatch_is_named(path, change, wrong):
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(files.CorruptFileError) as raised:
        files.read_json(path, SCHEMA, remedy="mend it")
    assert str(raised.value) == f"{str(path)!r} cannot be read: {wrong}; mend it"


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[" * 10**6, b"NaN", b"9" * 5000, b"[]", b"1e999"],
)
def test_invalid_json_is_one_line(path, content):
    path.write_bytes(content)
    with pytest.raises(files.CorruptFileError) as raised:
        files.read_json(path, {"a": float}, remedy="mend it")
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400
    assert str(path) in str(raised.value)


def test_failing_conversions_mean_corruption(path):
    path.write_text("{}")
    with pytest.raises(files.CorruptFileError, match="there is no 'a'; mend it"):
        files.read_json(path, {}, lambda data: data["a"], remedy="mend it")


def test_missing_files_and_directories(path):
    with pytest.raises(UserError, match="No such file or directory; give it") as raised:
        files.read_json(path, {}, remedy="give it")
    assert not isinstance(raised.value, files.CorruptFileError)
    path.mkdir()
    with pytest.raises(files.CorruptFileError, match="it is a directory; give it"):
        files.read_json(path, {}, remedy="give it")


def test_valid_lines_are_kept(path):
    path.write_bytes(b'{"a": 1}\n{"a": "x"}\nnonsense\n{"a": 2}\n{"a": 3')
    with pytest.raises(files.CorruptFileError, match="line 2: a is 'x', not a number"):
        files.read_jsonl(path, {"a": float}, remedy="")
    assert files.read_valid_lines(path, {"a": float})[0] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("mode", ["rb", "wb", "ab+"])
@pytest.mark.parametrize("kind", ["link", "pipe", "device"])
def test_only_regular_files_open(tmp_path, path, kind, mode):
    """The target of a link stays unchanged."""
    target = tmp_path / "target"
    target.write_text("kept")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target if kind == "link" else os.devnull)
    with pytest.raises(UserError, match=r"some\.json' is not a regular file") as raised:
        files.open_regular(path, mode, follow_links=kind == "device")
    assert "\n" not in str(raised.value)
    assert target.read_text() == "kept"


def test_users_links_are_read(tmp_path, path):
    (tmp_path / "target").write_text(json.dumps(GOOD))
    path.symlink_to("target")
    assert files.read_json(path, SCHEMA, remedy="") == GOOD


def test_only_matching_files_are_removed(tmp_path):
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    for name in ("point-1.json", "notes.txt"):
        (folder / name).touch()
    files.remove_files(link, ["*"])
    files.remove_files(folder, ["point-*.json"])
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    files.remove_files(folder, ["notes.txt"])
    assert not folder.exists()
    files.remove_files(folder, ["*"])
