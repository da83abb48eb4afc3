"""Files that show a placement in the viewer Model Explorer.

The format is a JSON object with a label and graphs
(https://github.com/google-ai-edge/model-explorer). A node has an id, a label, a namespace whose
parts are nested boxes, incoming edges and attributes. The viewer can search nodes by an attribute,
such as the device.
"""

from typing import Any

from placement.reporting import units
from placement.reporting.details import Details

FILE = "model_explorer.json"


def make_collection(details: Details) -> dict[str, Any]:
    """Returns the content of the file: a node for each operation, with its device and costs."""
    graph, devices = details.graph, details.op_placement.tolist()
    incoming: list[list[dict[str, str]]] = [[] for _ in graph.op_names]
    edges = zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True)
    for sender, receiver in edges:
        number = str(len(incoming[receiver]))
        incoming[receiver].append(
            {"sourceNodeId": str(sender), "sourceNodeOutputId": "0", "targetNodeInputId": number}
        )
    nodes = []
    for op, (name, op_type) in enumerate(zip(graph.op_names, graph.op_types, strict=True)):
        attributes = {
            "name": name,
            "device": details.devices[devices[op]],
            "predicted time": units.duration(float(details.compute_s[op, devices[op]])),
            "output shape": str(list(graph.output_shapes[op])),
        }
        nodes.append(
            {
                "id": str(op),
                "label": op_type,
                "namespace": name.rpartition("/")[0],
                "incomingEdges": incoming[op],
                "attrs": [{"key": key, "value": value} for key, value in attributes.items()],
            }
        )
    return {"label": graph.name, "graphs": [{"id": details.method, "nodes": nodes}]}
