import numpy as np
import pytest

from placement.errors import UserError
from placement.graphs import dag
from placement.pipeline import loading
from placement.pipeline.settings import Settings
from placement.zoo import synthetic, task_graphs

_TEXT = "synthetic:family=task_graph,ops=15"


@pytest.mark.parametrize("seed", range(5))
def test_every_operation_lies_between_the_entry_and_the_exit(seed):
    graph = task_graphs.build(f"{_TEXT},seed={seed},density=20").graph
    leads_to = dag.reachability(graph)
    inner = np.arange(1, graph.num_ops - 1)
    assert leads_to[0, inner].all()
    assert leads_to[inner, -1].all()


@pytest.mark.parametrize("network", range(5))
def test_every_operation_has_a_device_and_links_are_symmetric(network):
    workload = task_graphs.build(f"{_TEXT},devices=4,network={network}")
    costs = workload.costs
    is_supported = np.isfinite(costs.compute_s)
    assert is_supported.any(axis=1).all()
    assert not is_supported.all()
    assert (costs.compute_s[is_supported] > 80 / 7).all()
    assert (costs.compute_s[is_supported] < 120 / 3).all()
    for links in (costs.transfer_latency_s, costs.transfer_s_per_byte):
        np.testing.assert_array_equal(links, links.T)
        assert (np.diag(links) == 0).all()


def test_the_graph_follows_from_the_seed_and_the_devices_from_the_network():
    first, same_graph, same_network = (
        task_graphs.build(f"{_TEXT},{seeds}")
        for seeds in ("seed=1,network=1", "seed=1,network=2", "seed=2,network=1")
    )
    np.testing.assert_array_equal(first.graph.edge_bytes, same_graph.graph.edge_bytes)
    assert (first.costs.transfer_latency_s != same_graph.costs.transfer_latency_s).any()
    np.testing.assert_array_equal(
        first.costs.transfer_latency_s, same_network.costs.transfer_latency_s
    )
    assert first.graph.edge_bytes.tolist() != same_network.graph.edge_bytes.tolist()


def test_a_run_has_the_devices_of_the_network():
    network = loading.load_network(Settings(graph=f"{_TEXT},devices=3", objective="max_load"))
    assert network.workload is not None
    assert network.workload.devices == ("device0", "device1", "device2")
    assert network.optimum is None
    assert synthetic.build(f"{_TEXT},devices=3").num_ops == network.graph.num_ops


def test_bad_arguments_are_answered_in_one_line():
    with pytest.raises(UserError, match=r"devices as '1'.* at least 2") as error:
        task_graphs.build(f"{_TEXT},devices=1")
    assert "\n" not in str(error.value)
