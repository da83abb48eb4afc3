import dataclasses
import json

import numpy as np
import pytest

from placement.reporting.details import Timeline
from placement.reporting.page import data
from placement.types import Span
from tests.reporting import drawn


def _edges(columns):
    edges = columns["edges"]
    parts = (edges[name] for name in ("senders", "receivers", "crossing"))
    return {(sender, receiver): crosses for sender, receiver, crosses in zip(*parts, strict=True)}


def test_operations_have_costs_and_times():
    columns = data.columns(drawn.diamond())
    assert columns["costs"] == columns["clock"] == "ms"
    assert columns["ops"]["times"][1] == ["2.000", "2.000", "-", "8.000"]
    assert columns["ops"]["kilobytes"] == ["0.0"] * 4
    assert columns["ops"]["type"] == ("MatMul",) * 4
    assert columns["coarse"] is None
    assert not columns["blocks"]
    nodes = columns["nodes"]
    assert nodes["device"] == columns["deviceOf"] == [0, 1, 0, 0]
    assert nodes["predicted"][0] == ["0.000", "1.500", "1.000", "4.000"]
    assert nodes["measured"][1] == ["1.100", "3.850", "4.400", "8.800"]
    assert _edges(columns) == {(0, 1): 1, (0, 2): 0, (1, 3): 1, (2, 3): 0}


def test_operations_share_times_of_span():
    details = drawn.diamond(measured=False)
    spans = (Span(0, (0, 2), 0.0, 3e-3), Span(0, (2,), 5e-3, 6e-3))
    columns = dataclasses.replace(details, predicted=Timeline(spans, "simulated"))
    times = data.columns(columns)["nodes"]["predicted"]
    assert times == [["0.000", "-", "0.000", "-"], ["3.000", "-", "6.000", "-"]]
    assert data.columns(details)["nodes"]["measured"] is None


@pytest.mark.parametrize(("num_ops", "blocks"), [(300, False), (2_000, True)])
def test_nodes_hold_every_operation_once(num_ops, blocks):
    details = drawn.large(num_ops)
    columns = data.columns(details)
    assert columns["blocks"] == blocks
    nodes = columns["nodes"]
    assert len(columns["nodeOf"]) == details.coarse.num_ops
    for node, device in zip(columns["nodeOf"], columns["deviceOf"], strict=True):
        assert nodes["device"][node] == device
    total_us = 1e6 * details.compute_s.sum(0)
    times_us = np.array(nodes["times"], float).sum(axis=1)
    np.testing.assert_allclose(times_us, total_us, rtol=1e-2)
    assert any(" ops" in kind for kind in nodes["type"]) == blocks
    json.dumps(columns, allow_nan=False)


def test_edges_between_blocks_lead_forward():
    columns = data.columns(drawn.large(2_000))
    device, x, y = (columns["nodes"][name] for name in ("device", "x", "y"))
    edges = _edges(columns)
    assert len(edges) == len(columns["edges"]["paths"])
    for ((sender, receiver), crosses), path in zip(
        edges.items(), columns["edges"]["paths"], strict=True
    ):
        assert crosses == (device[sender] != device[receiver])
        assert path[:2] == [x[sender], y[sender]]
        assert path[-2:] == [x[receiver], y[receiver]]
        assert path[::2] == sorted(set(path[::2]))
