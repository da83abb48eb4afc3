"""The data that the page's script reads."""

import json

import numpy as np
import pytest

from placement.reporting.page import html
from tests.reporting import drawn


def find_edges(columns):
    edges = columns["edges"]
    parts = (edges[name] for name in ("senders", "receivers", "crossing"))
    return {(sender, receiver): crosses for sender, receiver, crosses in zip(*parts, strict=True)}


def test_operations_have_costs_and_times():
    columns = html.columns(drawn.diamond())
    assert columns["costs"] == columns["clock"] == "ms"
    assert columns["ops"]["times"][1] == ["2.000", "2.000", "-", "8.000"]
    assert columns["ops"]["kilobytes"] == ["0.0"] * 4
    assert columns["coarse"] is None
    assert not columns["blocks"]
    nodes = columns["nodes"]
    assert nodes["device"] == columns["deviceOf"] == [0, 1, 0, 0]
    assert nodes["predicted"][0] == ["0.000", "1.500", "1.000", "4.000"]
    assert nodes["measured"][1] == ["1.100", "3.850", "4.400", "8.800"]
    assert find_edges(columns) == {(0, 1): 1, (0, 2): 0, (1, 3): 1, (2, 3): 0}


@pytest.mark.parametrize(("num_ops", "has_blocks"), [(300, False), (2_000, True)])
def test_nodes_hold_every_operation(num_ops, has_blocks):
    details = drawn.large(num_ops)
    columns = html.columns(details)
    json.dumps(columns, allow_nan=False)
    nodes, paths = columns["nodes"], columns["edges"]["paths"]
    assert columns["blocks"] == any(" ops" in kind for kind in nodes["type"]) == has_blocks
    device = np.array(nodes["device"])
    np.testing.assert_array_equal(device[columns["nodeOf"]], columns["deviceOf"])
    total_us = 1e6 * details.compute_s.sum(0)
    times_us = np.array(nodes["times"], float).sum(axis=1)
    np.testing.assert_allclose(times_us, total_us, rtol=1e-2)
    for ((sender, receiver), crosses), path in zip(find_edges(columns).items(), paths, strict=True):
        assert crosses == (device[sender] != device[receiver])
        assert path[:2] == [nodes["x"][sender], nodes["y"][sender]]
        assert path[-2:] == [nodes["x"][receiver], nodes["y"][receiver]]
        assert path[::2] == sorted(set(path[::2]))
