"""Reading of files with validation, and writing of files completely or not at all.

A *schema* describes valid JSON data:

    float, int, str, bool, None   a value of that type; a float may be an int, neither may be a bool
    object                        anything
    [schema]                      a list whose items fit the schema
    {"key": schema, ...}          an object with these keys; further keys are ignored
    {str: schema}                 an object with any keys, whose values fit the schema
    (schema, ...)                 one of these
    OptionalField(schema)         for the value of a key: the key may be missing

JSON has no NaN and no infinity: a file that contains one, as Python would read it, is refused.
"""

import contextlib
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
# The exceptions of code that reads data of another shape.
_SHAPE_ERRORS = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)
_TYPE_NAMES = {
    float: "a number",
    int: "a whole number",
    str: "a string",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


class OptionalField(NamedTuple):
    """The schema of a key that may be missing."""

    schema: Schema


class CorruptFileError(UserError):
    """A file's content is invalid.

    Attributes:
      problem: the problem, without the file's name and the remedy.
    """

    def __init__(self, path: StrPath, problem: str, remedy: str):
        """Composes the message of the path, the problem and the remedy."""
        self.problem = " ".join(problem.split())
        super().__init__(f"{os.fspath(path)!r} cannot be read: {self.problem}; {remedy}")


def read_json(
    path: StrPath, schema: Schema, conversion: Callable[[Any], T] | None = None, *, remedy: str
) -> Any:
    """Reads a JSON file.

    Args:
      path: the file.
      schema: of its content.
      conversion: applied to the data; if it fails although the data fit the schema, the file is
        corrupt. None returns the data as they are.
      remedy: what the user should do about a missing or corrupt file, for errors.

    Raises:
      UserError: the file does not exist, or may not be read.
      CorruptFileError: its content is invalid.
      OSError: the machine cannot read it; the error names the file.
    """
    data = _parse(read_bytes(path, remedy=remedy), path, remedy)
    if problem := _find_mismatch(data, schema):
        raise CorruptFileError(path, problem, remedy)
    return data if conversion is None else convert(conversion, data, path, remedy=remedy)


def read_jsonl(path: StrPath, schema: Schema, *, remedy: str) -> list[dict[str, Any]]:
    """Returns the records of a log; an unfinished last line is ignored, a missing log is empty.

    Args:
      path: the log.
      schema: of a record.
      remedy: as for `read_json`.

    Raises:
      CorruptFileError: a finished line is not such a record.
    """
    records = []
    for number, record, problem in _read_lines(path, schema):
        if problem:
            raise CorruptFileError(path, f"line {number}: {problem}", remedy)
        records.append(record)
    return records


def read_valid_lines(path: StrPath, schema: Schema) -> bytes:
    """Returns the finished lines of a log that fit the schema."""
    records = [record for _, record, problem in _read_lines(path, schema) if not problem]
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def read_bytes(path: StrPath, *, remedy: str) -> bytes:
    """Returns the content of a file; raises the errors of `read_json`."""
    try:
        with open_regular(path, "rb", follow_links=True) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        cause = f"{os.fspath(path)!r} cannot be read: {error.strerror}"
        raise UserError(f"{cause}; {remedy}") from error
    except (IsADirectoryError, ValueError) as error:  # ValueError: a name that no file can have
        cause = "it is a directory" if isinstance(error, OSError) else str(error)
        raise CorruptFileError(path, cause, remedy) from error


def write_bytes(path: StrPath, data: bytes) -> None:
    """Writes a file in an existing directory; an earlier one stays until the new one is complete.

    Raises:
      OSError: the file cannot be written; the error names it.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with naming(target):
            with open_regular(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def append_line(path: StrPath, line: bytes) -> None:
    """Appends a line to a log, which may be missing, in one write.

    Removes an unfinished line at its end, left by a killed run.

    Raises:
      OSError: the log cannot be written; the error names it.
    """
    with naming(path), open_regular(path, "ab+") as log:
        if log.seek(0, os.SEEK_END):
            log.seek(-1, os.SEEK_END)
            if log.read(1) != b"\n":
                log.seek(0)
                log.truncate(log.read().rfind(b"\n") + 1)
        log.write(line + b"\n")


@contextlib.contextmanager
def naming(path: StrPath) -> Iterator[None]:
    """Adds the file's name to an `OSError`; that of a full disk does not have one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def open_regular(path: StrPath, mode: str, *, follow_links: bool = False) -> IO[bytes]:
    """Opens a regular file in binary mode, and refuses anything else with a UserError.

    A named pipe would block, a device would be written to, and a symbolic link in a run directory
    may lead to a file that the program did not create. Links in the user's paths are followed.
    """

    def opener(name: str, flags: int) -> int:
        if not follow_links and os.path.islink(name):
            raise OSError(errno.ELOOP, "a symbolic link")
        # Without O_NONBLOCK, opening a pipe that nobody writes to never returns. O_NOFOLLOW closes
        # the gap between the test above and this line. Windows has neither flag.
        no_follow = 0 if follow_links else getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(name, flags | getattr(os, "O_NONBLOCK", 0) | no_follow, 0o666)
        kind = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # `open` itself refuses a directory
            os.close(descriptor)
            raise OSError(errno.ENXIO, "not a regular file")
        return descriptor

    try:
        return open(path, mode, opener=opener)
    except OSError as error:
        # ELOOP: a link. ENXIO: raised above, or by a pipe without a reader or a socket.
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        links = "" if follow_links else "a symbolic link, "
        raise UserError(
            f"{os.fspath(path)!r} is not a regular file, but {links}a named pipe or a device; "
            "remove it"
        ) from error


def refuse_link(path: StrPath) -> None:
    """Refuses a symbolic link in place of a file or folder that the program writes to.

    Raises:
      UserError: there is one.
    """
    if os.path.islink(path):
        raise UserError(
            f"{os.fspath(path)!r} is a symbolic link, through which nothing is written; remove it"
        )


def remove_files(folder: Path, patterns: Iterable[str]) -> None:
    """Removes the program's own files from a folder, and the folder itself if it is then empty.

    Args:
      folder: may be missing; nothing is removed through a symbolic link.
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


def convert(conversion: Callable[[Any], T], data: Any, path: StrPath, *, remedy: str) -> T:
    """Converts a file's data with a function; its errors mean that the file is corrupt.

    Raises:
      CorruptFileError: the function failed as it does on data of another shape.
    """
    try:
        return conversion(data)
    except _SHAPE_ERRORS as error:
        text = f"there is no {error}" if isinstance(error, LookupError) else str(error)
        raise CorruptFileError(path, text or type(error).__name__, remedy) from error


def check(data: Any, schema: Schema, name: str) -> None:
    """Checks JSON-able data against a schema; the error calls them `name`.

    Raises:
      ValueError: the data do not fit.
    """
    if problem := _find_mismatch(data, schema, name):
        raise ValueError(problem)


def _find_mismatch(data: Any, schema: Schema, name: str = "") -> str:
    """Describes the first part of the data that does not fit; '' if all of it fits."""
    if isinstance(schema, tuple) and not isinstance(schema, OptionalField):
        mismatches = [_find_mismatch(data, alternative, name) for alternative in schema]
        return "" if "" in mismatches else mismatches[0]
    if isinstance(schema, list) and isinstance(data, list):
        parts = ((item, schema[0], f"{name}[{i}]") for i, item in enumerate(data))
        return next(filter(None, (_find_mismatch(*part) for part in parts)), "")
    if isinstance(schema, dict) and isinstance(data, dict):
        has_any_keys = str in schema
        if has_any_keys:
            schema = dict.fromkeys(data, schema[str])
        for key, field in schema.items():
            is_optional = isinstance(field, OptionalField)
            if key in data:
                field_name = f"{name}.{key}" if name else key
                if has_any_keys:
                    field_name = f"{name}[{key!r}]"
                field_schema = field.schema if is_optional else field
                if problem := _find_mismatch(data[key], field_schema, field_name):
                    return problem
            elif not is_optional:
                return f"{name or 'it'} has no {key!r}"
        return ""
    if schema is object or (schema is None and data is None):
        return ""
    if schema in (float, int, str, bool):
        if isinstance(data, bool):
            fits = schema is bool
        elif isinstance(data, float) and not math.isfinite(data):  # such as 1e999
            fits = False
        else:
            fits = isinstance(data, (int, float) if schema is float else schema)
        if fits:
            return ""
    kind = schema if isinstance(schema, type) else type(schema)
    return f"{name or 'it'} is {reprlib.repr(data)}, not {_TYPE_NAMES.get(kind, 'null')}"


def _read_lines(path: StrPath, schema: Schema) -> Iterator[tuple[int, Any, str]]:
    """Yields the number of each finished line, its data, and its problem ('' if none)."""
    if not Path(path).exists():
        return
    lines = read_bytes(path, remedy="").split(b"\n")[:-1]  # the last part is unfinished or empty
    for number, line in enumerate(lines, start=1):
        try:
            data = _parse(line, path, "")
        except CorruptFileError as error:
            yield number, None, error.problem
        else:
            yield number, data, _find_mismatch(data, schema)


def _parse(data: bytes, path: StrPath, remedy: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a number")

    try:
        return json.loads(data.decode(), parse_constant=refuse)
    except RecursionError as error:
        raise CorruptFileError(path, "its brackets are nested too deeply", remedy) from error
    except ValueError as error:
        raise CorruptFileError(path, f"not JSON: {error}", remedy) from error
