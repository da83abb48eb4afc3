"""A model file that shows where each operation runs, for people who open it in Netron.

Netron shows the attributes of a layer's `<data>` element and no runtime information, so the device
becomes one of them. OpenVINO reads such a file as it reads any other: it asks for the attributes
that it knows.
"""

import os
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import openvino as ov

from placement.runtime.hetero import Affinity

ATTRIBUTE = "device"


def annotate(text: bytes, affinity: Affinity, *, otherwise: str | None = None) -> bytes:
    """The XML of an OpenVINO IR with devices at its layers.

    Args:
      text: of the .xml file.
      affinity: layer name -> device name.
      otherwise: the device of layers that `affinity` does not name; None leaves them without.
    """
    root = ElementTree.fromstring(text)
    for layer in root.findall("layers/layer"):
        device = affinity.get(layer.get("name", ""), otherwise)
        if device is None:
            continue
        data = layer.find("data")
        if data is None:  # its place is before all else
            data = ElementTree.Element("data")
            layer.insert(0, data)
        data.set(ATTRIBUTE, device)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def placed_xml(model: ov.Model, affinity: Affinity) -> bytes:
    """The IR of a model without its weights, every operation with its device.

    Raises:
      OSError, RuntimeError: the temporary file cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "placed.xml"
        ov.serialize(model, path, os.devnull)
        return annotate(path.read_bytes(), affinity)
