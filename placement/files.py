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
import json
import math
import os
import reprlib
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

    def parse(content: bytes) -> Any:
        data = _parse(content, schema)
        return data if conversion is None else conversion(data)

    return convert(parse, read_bytes(path, remedy=remedy), path, remedy=remedy)


def read_jsonl(path: StrPath, schema: Schema, *, remedy: str) -> list[dict[str, Any]]:
    """Returns the records of a log; an unfinished last line is ignored, a missing log is empty.

    A finished line that does not fit the schema is a CorruptFileError.
    """
    records, problem = read_valid_lines(path, schema)
    if problem:
        raise CorruptFileError(path, problem, remedy)
    return records


def read_valid_lines(path: StrPath, schema: Schema) -> tuple[list[dict[str, Any]], str]:
    """Returns the records of a log that fit the schema, and the first problem ('' if none)."""
    records, problem = list[dict[str, Any]](), ""
    lines = read_bytes(path, remedy="").split(b"\n") if os.path.exists(path) else [b""]
    for number, line in enumerate(lines[:-1], start=1):
        try:
            records.append(_parse(line, schema))
        except ValueError as error:
            problem = problem or f"line {number}: {error}"
    return records, problem


def read_bytes(path: StrPath, *, remedy: str) -> bytes:
    """Returns the content of a file; raises the errors of `read_json`."""
    with open_to_read(path, remedy=remedy) as file:
        return file.read()


@contextlib.contextmanager
def open_to_read(path: StrPath, *, remedy: str) -> Iterator[IO[bytes]]:
    """Opens a file for a block that only reads it; raises the errors of `read_json`."""
    try:
        with open_regular(path, "rb", follow_links=True) as file:
            yield file
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        cause = f"{os.fspath(path)!r} cannot be read: {error.strerror}"
        raise UserError(f"{cause}; {remedy}") from error
    except (IsADirectoryError, ValueError) as error:  # ValueError: a name that no file can have
        cause = "it is a directory" if isinstance(error, OSError) else str(error)
        raise CorruptFileError(path, cause, remedy) from error


def write_bytes(path: StrPath, data: bytes) -> None:
    """Writes a file in an existing directory; an earlier one stays until the new one is complete.

    An OSError names the file.
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

    Removes an unfinished line at its end, left by a killed run. An OSError names the log.
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

    is_link = not follow_links and os.path.islink(path)
    if is_link or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)):
        raise UserError(
            f"{os.fspath(path)!r} is not a regular file, but a symbolic link, a named pipe or a "
            "device; remove it"
        )
    return open(path, mode)


def refuse_link(path: StrPath) -> None:
    """Raises a UserError for a symbolic link in place of a file or folder to write to."""
    if os.path.islink(path):
        raise UserError(
            f"{os.fspath(path)!r} is a symbolic link, through which nothing is written; remove it"
        )


def remove_files(folder: Path, patterns: Iterable[str]) -> None:
    """Removes files from a folder by patterns of `Path.glob`, and the folder if it is then empty.

    The folder may be missing, and nothing is removed through a symbolic link.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    for pattern in patterns:
        for path in folder.glob(pattern):
            path.unlink()
    with contextlib.suppress(OSError):  # it is not empty
        folder.rmdir()


def convert(conversion: Callable[[Any], T], data: Any, path: StrPath, *, remedy: str) -> T:
    """Converts a file's data; errors as on data of another shape are a CorruptFileError."""
    try:
        return conversion(data)
    except _SHAPE_ERRORS as error:
        text = f"there is no {error}" if isinstance(error, LookupError) else str(error)
        raise CorruptFileError(path, text or type(error).__name__, remedy) from error


def check(data: Any, schema: Schema, name: str = "") -> None:
    """Checks JSON-able data called `name`; a ValueError describes the first part that is wrong."""
    if isinstance(schema, tuple):  # an OptionalField, too
        errors = list[ValueError]()
        for alternative in schema:
            try:
                return check(data, alternative, name)
            except ValueError as error:
                errors.append(error)
        raise errors[0]
    if isinstance(schema, list) and isinstance(data, list):
        for i, item in enumerate(data):
            check(item, schema[0], f"{name}[{i}]")
    elif isinstance(schema, dict) and isinstance(data, dict) and str in schema:
        for key, value in data.items():
            check(value, schema[str], f"{name}[{key!r}]")
    elif isinstance(schema, dict) and isinstance(data, dict):
        for key, field in schema.items():
            if key in data:
                check(data[key], field, f"{name}.{key}" if name else key)
            elif not isinstance(field, OptionalField):
                raise ValueError(f"{name or 'it'} has no {key!r}")
    elif schema is not object and not (schema is None and data is None):
        types = (int, float) if schema is float else schema
        fits = isinstance(types, type | tuple) and isinstance(data, types)
        is_finite = not isinstance(data, float) or math.isfinite(data)  # unlike 1e999
        if not (fits and is_finite and isinstance(data, bool) == (schema is bool)):
            kind = schema if isinstance(schema, type) else type(schema)
            valid = _TYPE_NAMES.get(kind, "null")
            raise ValueError(f"{name or 'it'} is {reprlib.repr(data)}, not {valid}")


def _parse(content: bytes, schema: Schema) -> Any:
    """Returns JSON data; a ValueError says why they are not JSON or do not fit the schema."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a number")

    try:
        data = json.loads(content.decode(), parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    check(data, schema)
    return data
