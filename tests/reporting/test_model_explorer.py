"""The file for Model Explorer."""

import json

from placement.reporting import model_explorer
from tests.reporting import drawn


def test_a_node_has_its_device_and_an_edge_for_each_input():
    details = drawn.diamond()
    collection = json.loads(json.dumps(model_explorer.make_collection(details)))
    (graph,) = collection["graphs"]
    assert collection["label"] == details.graph.name
    nodes = graph["nodes"]
    assert [node["id"] for node in nodes] == [str(op) for op in range(details.graph.num_ops)]
    for op, node in enumerate(nodes):
        attributes = {entry["key"]: entry["value"] for entry in node["attrs"]}
        assert attributes["device"] == details.devices[details.op_placement[op]]
        assert attributes["name"] == details.graph.op_names[op]
    edges = [
        (int(edge["sourceNodeId"]), int(node["id"]))
        for node in nodes
        for edge in node["incomingEdges"]
    ]
    expected = zip(details.graph.senders.tolist(), details.graph.receivers.tolist(), strict=True)
    assert sorted(edges) == sorted(expected)
    numbers = [edge["targetNodeInputId"] for edge in nodes[-1]["incomingEdges"]]
    assert numbers == [str(i) for i in range(len(numbers))]
