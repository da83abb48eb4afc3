"""The benchmark of described servers: costs by hand, and one small row."""

import numpy as np
import pytest

from experiments.benchmarks import servers
from placement.pipeline import loading


def test_groups_share_cores_and_scale_by_amdahls_law():
    graph = loading.build_graph_network("synthetic:family=layered,ops=20").graph
    names, costs = servers.describe_server(graph, 32, 0.1)
    assert len(names) == 1 + 2 + 4 + 8 + 16
    assert names[:3] == ("cores_0_31", "cores_0_15", "cores_16_31")
    assert names[-1] == "cores_30_31"
    cores = costs.resources.sum(axis=1)
    np.testing.assert_array_equal(cores, [16, 8, 8, *[4] * 4, *[2] * 8, *[1] * 16])
    halves = costs.resources[1:3]
    assert not (halves[0] & halves[1]).any()
    # Where arithmetic limits an operation, 32 cores take 0.1 + 0.9 / 32 of the time of one, and a
    # half 0.1 + 0.9 / 16. Launches take five and four steps to synchronise.
    launched = costs.compute_s[:, 0] > 0
    all_s, half_s = costs.compute_s[launched, 0] - 3.5e-6, costs.compute_s[launched, 1] - 3e-6
    speedup = (0.1 + 0.9 / 16) / (0.1 + 0.9 / 32)
    ratios = half_s / all_s
    assert ratios.max() <= 2.001  # where memory limits it
    assert np.isclose(ratios, speedup, rtol=1e-2).any()
    assert ((ratios > speedup - 0.01) & (ratios < 2.01)).all()


def test_the_table_has_a_row_for_each_server_and_share(monkeypatch, capsys):
    monkeypatch.setattr(servers, "GRAPHS", ("synthetic:family=fork_join,ops=20",))
    monkeypatch.setattr(servers, "NUM_CORES", (16,))
    monkeypatch.setattr(servers, "SERIAL_SHARES", (0.0, 0.5))
    monkeypatch.setattr(servers, "_BUDGET", 2_000)
    none, half = results = servers.measure()
    named = [result._replace(graph="net") for result in results]
    monkeypatch.setattr(servers, "measure", lambda: named)
    servers.run()
    printed = [line.split() for line in capsys.readouterr().out.splitlines() if "net " in line]
    assert [line[:3] for line in printed] == [["net", "16", "0"], ["net", "16", "0.5"]]
    assert none.bound_s <= none.placement_s <= none.all_cores_s
    # A serial share makes parallel branches worth more.
    assert half.placement_s / half.all_cores_s < none.placement_s / none.all_cores_s
    assert servers.make_rows([half])[0][2] == "0.5"


@pytest.mark.parametrize("num_cores", [16, 64])
def test_the_smallest_groups_are_one_sixteenth(num_cores):
    graph = loading.build_graph_network("synthetic:family=layered,ops=20").graph
    names, costs = servers.describe_server(graph, num_cores, 0.08)
    assert len(names) == 31
    assert costs.resources.shape == (31, 16)
