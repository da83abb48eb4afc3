"""Writing of models as OpenVINO IR files into temporary folders.

After a failed write OpenVINO deletes its output files, whatever they are. If the weights went to
`os.devnull`, a process of the root user would delete that device. So both files of a model are
always regular files in a folder of this program.
"""

import contextlib
import errno
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import openvino as ov

from placement.runtime.errors import summarise_error

XML, WEIGHTS = "model.xml", "model.bin"


def write_model(model: ov.Model, folder: Path) -> None:
    """Writes `model.xml` and `model.bin` into a temporary folder, with `report_free_space`."""
    with report_free_space(folder):
        ov.serialize(model, folder / XML, folder / WEIGHTS)


def to_bytes(model: ov.Model) -> tuple[bytes, bytes]:
    """Returns the contents of a model's two files; raises the errors of `write_model`."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(model, Path(folder))
        xml, weights = ((Path(folder) / name).read_bytes() for name in (XML, WEIGHTS))
    return xml, weights


@contextlib.contextmanager
def report_free_space(folder: Path) -> Iterator[None]:
    """Turns the error of a failed write into an OSError with the folder and its free space.

    OpenVINO raises a RuntimeError that names no cause, such as 'iostream error'.
    """
    try:
        yield
    except (RuntimeError, OSError) as error:
        free = shutil.disk_usage(folder).free >> 20
        cause = f"cannot write the model, {free} MiB are free: {summarise_error(error)}"
        raise OSError(errno.EIO, cause, str(folder)) from error
