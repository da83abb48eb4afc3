"""Writing of models as OpenVINO IR files into temporary folders.

After a failed write OpenVINO deletes its output files, whatever they are. If the weights went to
`os.devnull`, a process of the root user would delete that device. So both files of a model are
always regular files in a folder of this program.
"""

import contextlib
import errno
import re
import shutil
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path

import openvino as ov

from placement.runtime.errors import summarise_error

XML, WEIGHTS = "model.xml", "model.bin"
_FORBIDDEN = "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"  # in XML, but not in names


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


def annotate(model: ov.Model, affinity: Mapping[str, str]) -> bytes:
    """Returns the IR of a model without its weights, with each operation's device for Netron.

    Netron shows the attributes of a layer's `<data>` element, but no runtime information. What XML
    forbids is escaped as in Python, such as '\\x01', so that viewers can read the file.
    """
    text = to_bytes(model)[0].decode()

    def escape(name: str) -> str:
        return re.sub(_FORBIDDEN, lambda match: match[0].encode("unicode_escape").decode(), name)

    # OpenVINO writes a control character as a reference such as '&#1;'.
    text = re.sub(r"&#0*([0-8]|1[124-9]|2\d|3[01]);", lambda m: escape(chr(int(m[1]))), text)
    root = ET.fromstring(escape(text))
    devices = {escape(name): device for name, device in affinity.items()}
    for layer in root.iterfind("layers/layer"):
        if (device := devices.get(layer.get("name", ""))) is not None:
            data = layer.find("data")
            if data is None:  # it must be the first element
                layer.insert(0, data := ET.Element("data"))
            data.set("device", device)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)
