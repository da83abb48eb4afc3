"""Reads files, and refuses by name what is not what it should be: the one reader of JSON.

A *schema* says what data must be:

    float, int, str, bool, None   of that type; a float may be an int, and neither may be a bool
    object                        anything
    [schema]                      a list, of that each
    {"key": schema, ...}          an object with these keys, and others that do not matter
    {str: schema}                 an object with any keys, of that each
    (schema, ...)                 one of these
    Maybe(schema)                 of a key: it may be missing

JSON has no NaN and no infinity: a file with one, as Python would read it, is not JSON.
"""

import contextlib
import ctypes
import errno
import json
import math
import os
import reprlib
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, TypeVar

from placement.errors import UserError

StrPath = str | os.PathLike[str]
Schema = Any
T = TypeVar("T")

NUMBER = (float, None)  # null: there is none
# Of Linux's renameat2, and the answers of a kernel or a file system without it.
_CURRENT_FOLDER, _EXCHANGE = -100, 2
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
# What reading data of another shape raises.
_UNLIKE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)
_WORDS = {
    float: "a number",
    int: "a whole number",
    str: "a string",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


class Maybe(NamedTuple):
    """The schema of a key that may be missing."""

    schema: Schema


class CorruptFileError(UserError):
    """A file's content is not what it should be.

    Attributes:
      wrong: what is wrong with it, without the file and how to mend it.
    """

    def __init__(self, path: StrPath, wrong: str, remedy: str):
        """`remedy` says how to mend it."""
        self.wrong = " ".join(wrong.split())
        super().__init__(f"{os.fspath(path)!r} cannot be read: {self.wrong}; {remedy}")


def read_json(
    path: StrPath, schema: Schema, make: Callable[[Any], T] | None = None, *, remedy: str
) -> Any:
    """Reads a JSON file.

    Args:
      path: of the file.
      schema: what it must hold.
      make: what to make of it, by default nothing; where it fails on data that fits the schema, the
        file is corrupt.
      remedy: how the user mends what is wrong with the file, for errors.

    Raises:
      UserError: there is no such file, or it may not be read.
      CorruptFileError: it holds something else.
      OSError: the machine cannot read it; the error names the file.
    """
    data = _parsed(read_bytes(path, remedy=remedy), path, remedy)
    if wrong := mismatch(data, schema):
        raise CorruptFileError(path, wrong, remedy)
    return data if make is None else made(make, data, path, remedy=remedy)


def read_jsonl(path: StrPath, schema: Schema, *, remedy: str) -> list[dict[str, Any]]:
    """Returns the records of a log, none of a missing one, ignoring an unfinished last line.

    Args:
      path: of the log.
      schema: of a record.
      remedy: as for `read_json`.

    Raises:
      CorruptFileError: a finished line is no such record.
    """
    records = []
    for number, record, wrong in _lines(path, schema):
        if wrong:
            raise CorruptFileError(path, f"line {number}: {wrong}", remedy)
        records.append(record)
    return records


def sound_lines(path: StrPath, schema: Schema) -> bytes:
    """Returns the finished lines of a log that hold such records."""
    sound = [record for _, record, wrong in _lines(path, schema) if not wrong]
    return b"".join(json.dumps(record).encode() + b"\n" for record in sound)


def open_regular(path: StrPath, mode: str, *, follow_links: bool = False) -> IO[bytes]:
    """Opens a regular file in binary mode, and refuses anything else.

    A named pipe would block, a device would be written to, and a symbolic link in a run directory
    leads to a file that the program did not make.

    Args:
      path: of the file; a mode that writes creates it.
      mode: 'rb', 'wb' or 'ab+'.
      follow_links: whether a symbolic link to a regular file counts as one: the user's own files.

    Raises:
      UserError: there is something else, such as a link, a named pipe or a device.
      OSError: as `open`.
    """

    def opener(name: str, flags: int) -> int:
        # Without O_NONBLOCK, opening a pipe that nobody writes to never returns.
        no_follow = 0 if follow_links else os.O_NOFOLLOW
        descriptor = os.open(name, flags | os.O_NONBLOCK | no_follow, 0o666)
        kind = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # `open` itself refuses a directory
            os.close(descriptor)
            raise OSError(errno.ENXIO, "no regular file")
        return descriptor

    try:
        return open(path, mode, opener=opener)
    except OSError as error:
        # ELOOP: a link. ENXIO: the above, and a pipe without a reader or a socket.
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        links = "" if follow_links else "a symbolic link, "
        raise UserError(
            f"{os.fspath(path)!r} is no regular file, but {links}a named pipe or a device; "
            "remove it"
        ) from error


def write_bytes(path: StrPath, data: bytes) -> None:
    """Writes a file that nobody else reads yet.

    Raises:
      UserError: there is something other than a regular file; see `open_regular`.
      OSError: it cannot be written.
    """
    with open_regular(path, "wb") as file:
        file.write(data)


def refuse_link(path: StrPath) -> None:
    """Refuses a symbolic link in the place of a file or folder that the program writes to.

    Raises:
      UserError: there is one.
    """
    if os.path.islink(path):
        raise UserError(
            f"{os.fspath(path)!r} is a symbolic link, through which nothing is written; remove it"
        )


def remove_files(folder: Path, patterns: Iterable[str]) -> None:
    """Removes the program's own files from a folder, and the folder if nothing else is in it.

    Args:
      folder: it may be missing; nothing is removed through a symbolic link.
      patterns: of the files' names, as for `Path.glob`.

    Raises:
      OSError: a file cannot be removed; the error names it.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    for pattern in patterns:
        for path in folder.glob(pattern):
            path.unlink()
    with contextlib.suppress(OSError):  # it is not empty
        folder.rmdir()


def exchange(first: Path, second: Path) -> bool:
    """Exchanges two paths in one step: a reader finds either the one or the other at each path.

    Returns:
      Whether they are exchanged: False where the kernel or the file system has no such operation.

    Raises:
      OSError: they cannot be exchanged for another reason.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    names = os.fsencode(first), os.fsencode(second)
    if library.renameat2(_CURRENT_FOLDER, names[0], _CURRENT_FOLDER, names[1], _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(second))


def drop_unfinished_line(log: IO[bytes]) -> None:
    """Truncates a log, opened to append and read, after its last newline."""
    if log.seek(0, os.SEEK_END) == 0:
        return
    log.seek(-1, os.SEEK_END)
    if log.read(1) != b"\n":
        log.seek(0)
        log.truncate(log.read().rfind(b"\n") + 1)


def read_bytes(path: StrPath, *, remedy: str) -> bytes:
    """Returns the content of a file; raises as `read_json` does."""
    try:
        with open_regular(path, "rb", follow_links=True) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        cause = f"{os.fspath(path)!r} cannot be read: {error.strerror}"
        raise UserError(f"{cause}; {remedy}") from error
    except (IsADirectoryError, ValueError) as error:  # of a name that no file has
        cause = "it is a directory" if isinstance(error, OSError) else str(error)
        raise CorruptFileError(path, cause, remedy) from error


def made(make: Callable[[Any], T], data: Any, path: StrPath, *, remedy: str) -> T:
    """Makes something of a file's data.

    Raises:
      CorruptFileError: nothing can be.
    """
    try:
        return make(data)
    except _UNLIKE as error:
        raise CorruptFileError(path, _in_words(error), remedy) from error


def check(data: Any, schema: Schema, where: str) -> None:
    """Refuses data that does not fit a schema.

    Raises:
      ValueError: it does not.
    """
    if wrong := mismatch(data, schema, where):
        raise ValueError(wrong)


def mismatch(data: Any, schema: Schema, where: str = "") -> str:
    """Returns in what the first part of the data that does not fit fails; '' of what fits."""
    if isinstance(schema, tuple) and not isinstance(schema, Maybe):
        mismatches = [mismatch(data, one, where) for one in schema]
        return "" if "" in mismatches else mismatches[0]
    if isinstance(schema, list) and isinstance(data, list):
        (each,) = schema
        parts = (mismatch(item, each, f"{where}[{i}]") for i, item in enumerate(data))
        return next(filter(None, parts), "")
    if isinstance(schema, dict) and isinstance(data, dict):
        return next(filter(None, _fields(data, schema, where)), "")
    if schema is object or (schema is None and data is None) or _is(data, schema):
        return ""
    kind = schema if isinstance(schema, type) else type(schema)
    return f"{where or 'it'} is {reprlib.repr(data)}, not {_WORDS.get(kind, 'null')}"


def _fields(data: dict[str, Any], schema: dict[Any, Schema], where: str) -> Iterator[str]:
    if str in schema:
        yield from (mismatch(value, schema[str], f"{where}[{k!r}]") for k, value in data.items())
        return
    for key, of_key in schema.items():
        optional = isinstance(of_key, Maybe)
        if key in data:
            inner = of_key.schema if optional else of_key
            yield mismatch(data[key], inner, f"{where}.{key}" if where else key)
        elif not optional:
            yield f"{where or 'it'} has no {key!r}"


def _is(data: Any, schema: Schema) -> bool:
    if schema not in (float, int, str, bool):
        return False
    if isinstance(data, bool):
        return schema is bool
    if isinstance(data, float) and not math.isfinite(data):  # such as 1e999
        return False
    return isinstance(data, (int, float) if schema is float else schema)


def _lines(path: StrPath, schema: Schema) -> Iterator[tuple[int, Any, str]]:
    """Yields the number of each finished line, what it holds, and what is wrong with that."""
    if not Path(path).exists():
        return
    lines = read_bytes(path, remedy="").split(b"\n")[:-1]  # what follows has no end, or is nothing
    for number, line in enumerate(lines, start=1):
        try:
            data = _parsed(line, path, "")
        except CorruptFileError as error:
            yield number, None, error.wrong
        else:
            yield number, data, mismatch(data, schema)


def _parsed(data: bytes, path: StrPath, remedy: str) -> Any:
    try:
        return json.loads(data.decode(), parse_constant=_refuse)
    except RecursionError as error:
        raise CorruptFileError(path, "its brackets are nested too deeply", remedy) from error
    except ValueError as error:
        raise CorruptFileError(path, f"no JSON: {error}", remedy) from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _in_words(error: Exception) -> str:
    text = f"there is no {error}" if isinstance(error, LookupError) else str(error)
    return text or type(error).__name__
