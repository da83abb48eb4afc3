"""A model file that shows each operation's device in the viewer Netron.

Netron shows the attributes of a layer's `<data>` element, but no runtime information. So the device
becomes such an attribute.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

import openvino as ov

from placement.runtime.models import serialization

ATTRIBUTE = "device"
_FORBIDDEN = "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"  # in XML, but not in names


def annotate(model: ov.Model, affinity: Mapping[str, str]) -> bytes:
    """Returns the IR of a model without its weights, with the device of each operation.

    Characters that XML forbids are escaped as in Python, such as '\\x01', so that viewers can read
    the file.

    Raises:
      OSError: the temporary folder cannot hold the model; the error names the folder.
    """
    text = serialization.to_bytes(model)[0].decode()

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
            data.set(ATTRIBUTE, device)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)
