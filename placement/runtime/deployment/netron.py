"""Model files that show each operation's device in the viewer Netron.

Netron shows the attributes of a layer's `<data>` element, but no runtime information. So the device
becomes such an attribute. OpenVINO reads the file as before, because it looks up only the
attributes that it knows.

The text is edited with regular expressions, not with an XML parser: OpenVINO writes and reads names
with control characters, which XML forbids. The expressions rely on OpenVINO's layout, which begins
each layer on a line of its own.
"""

import re
import tempfile
from pathlib import Path
from xml.sax import saxutils

import openvino as ov

from placement.runtime.execution.hetero import Affinity
from placement.runtime.models import serialization

ATTRIBUTE = "device"

# The beginning of a layer of the model itself (two tabs, not a body's layer), and of its
# attributes.
_LAYER = re.compile(
    r'^\t\t<layer id="\d+" name="([^"]*)" (?:[^">]|"[^"]*")*>(?:\s*(<data)\b)?', re.MULTILINE
)
_CHARACTER_REFERENCE = re.compile(r"&#(\d+);")
_QUOTES = {"&quot;": '"', "&apos;": "'"}


def annotate(text: bytes, affinity: Affinity) -> bytes:
    """Returns the XML of an OpenVINO IR with the device of each layer as an attribute.

    Args:
      text: the content of the .xml file.
      affinity: layer name -> device name; other layers stay as they are.
    """

    def annotate_layer(layer: re.Match[str]) -> str:
        name = _CHARACTER_REFERENCE.sub(lambda reference: chr(int(reference[1])), layer[1])
        device = affinity.get(saxutils.unescape(name, _QUOTES))
        if device is None:
            return layer[0]
        attribute = f"{ATTRIBUTE}={saxutils.quoteattr(device)}"
        # A layer without attributes gets a <data> element; it must be the first element.
        return f"{layer[0]} {attribute}" if layer[2] else f"{layer[0]}<data {attribute} />"

    return _LAYER.sub(annotate_layer, text.decode()).encode()


def annotated_xml(model: ov.Model, affinity: Affinity) -> bytes:
    """Returns the IR of a model without its weights, with the device of each operation.

    Characters that XML forbids are escaped as in Python, such as '\\x01', so that viewers can read
    the file.

    Raises:
      OSError: the temporary folder cannot hold the model; the error names the folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        serialization.write_model(model, Path(folder))
        text = (Path(folder) / serialization.XML).read_bytes()

    def escape(character: str) -> str:
        return character.encode("unicode_escape").decode()

    def escape_reference(reference: re.Match[str]) -> str:
        character = chr(int(reference[1]))
        return reference[0] if character in "\t\n\r" or character >= " " else escape(character)

    xml = _CHARACTER_REFERENCE.sub(escape_reference, annotate(text, affinity).decode())
    return re.sub("[\ufffe\uffff]", lambda match: escape(match[0]), xml).encode()
