"""A model file that shows where each operation runs, for people who open it in Netron.

Netron shows the attributes of a layer's `<data>` element and no runtime information, so the device
becomes one of them. OpenVINO reads such a file as it reads any other: it asks for the attributes
that it knows.

The file is text as OpenVINO writes it, a layer's beginning to a line, and no more is asked of it:
OpenVINO writes, and reads, names with control characters, which no XML may hold.
"""

import re
import tempfile
from pathlib import Path
from xml.sax import saxutils

import openvino as ov

from placement.runtime.execution.hetero import Affinity
from placement.runtime.models import serialization

ATTRIBUTE = "device"

# The beginning of a layer of the model itself, not of a body in it, and of its attributes.
_LAYER = re.compile(
    r'^\t\t<layer id="\d+" name="([^"]*)" (?:[^">]|"[^"]*")*>(?:\s*(<data)\b)?', re.MULTILINE
)
_REFERENCE = re.compile(r"&#(\d+);")
_QUOTED = {"&quot;": '"', "&apos;": "'"}


def annotate(text: bytes, affinity: Affinity, *, otherwise: str | None = None) -> bytes:
    """The XML of an OpenVINO IR with devices at its layers.

    Args:
      text: of the .xml file.
      affinity: layer name -> device name.
      otherwise: the device of layers that `affinity` does not name; None leaves them without.
    """

    def shown(layer: re.Match[str]) -> str:
        device = affinity.get(_name(layer[1]), otherwise)
        if device is None:
            return layer[0]
        attribute = f"{ATTRIBUTE}={saxutils.quoteattr(device)}"
        # The place of attributes is before all else.
        return f"{layer[0]} {attribute}" if layer[2] else f"{layer[0]}<data {attribute} />"

    return _LAYER.sub(shown, text.decode()).encode()


def placed_xml(model: ov.Model, affinity: Affinity) -> bytes:
    """Returns the IR of a model without its weights, every operation with its device.

    Characters that XML cannot hold are escaped as in Python: OpenVINO reads them, viewers do not.

    Raises:
      OSError: the temporary folder cannot hold the model; the error names the folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        serialization.write(model, Path(folder))
        text = (Path(folder) / serialization.XML).read_bytes()
    return _as_xml(annotate(text, affinity))


def _name(attribute: str) -> str:
    """Returns what an attribute holds that OpenVINO wrote."""
    given = _REFERENCE.sub(lambda reference: chr(int(reference[1])), attribute)
    return saxutils.unescape(given, _QUOTED)


def _as_xml(text: bytes) -> bytes:
    """The text without characters that are none in XML 1.0, and references to such."""

    def written(reference: re.Match[str]) -> str:
        character = chr(int(reference[1]))
        return reference[0] if character in "\t\n\r" or character >= " " else _escaped(character)

    found = _REFERENCE.sub(written, text.decode())
    return re.sub("[\ufffe\uffff]", lambda match: _escaped(match[0]), found).encode()


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
