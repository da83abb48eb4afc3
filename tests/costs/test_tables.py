import dataclasses
import json

import jax
import numpy as np
import pytest

from placement.costs.tables import (
    DeviceProfile,
    SubmodelCosts,
    Transfers,
    coarse_costs,
    cost_model,
    from_json,
    limit_memory,
    make_concurrent,
    submodels_from_json,
    submodels_to_json,
    to_json,
)
from placement.errors import UserError
from placement.graphs import coarsen
from placement.types import CostModel, OpGraph
from tests import helpers

# Edge e of `helpers.chain` carries 10 * (e + 1) bytes, and operation i has 100 * (i + 1) FLOPs.
STREAM_BYTES_PER_S = 8e9


def _profile(
    kernels: list[tuple[str, float]], latency_s: float = 1.0, unsupported: str = "", name: str = "A"
) -> DeviceProfile:
    """Kernels such as ('op0 op1', 0.5): the operations run as one, and the seconds."""
    return DeviceProfile(
        device=name,
        latency_s=latency_s,
        kernels=tuple((tuple(names.split()), seconds) for names, seconds in kernels),
        unsupported=frozenset(unsupported.split()),
    )


def _model(graph: OpGraph, *profiles: DeviceProfile) -> CostModel:
    devices = len(profiles)
    off_diagonal = 1 - np.eye(devices)
    return cost_model(graph, profiles, Transfers(2e-5 * off_diagonal, 3e-9 * off_diagonal))


def _standalone_s(num_bytes: float) -> float:
    return 2 * num_bytes / STREAM_BYTES_PER_S


def test_kernels_keep_their_proportions_and_sum_to_the_measured_latency():
    profile = _profile([("op0", 1.0), ("op1", 2.0), ("op2", 1.0)], latency_s=8.0)
    costs = _model(helpers.chain(3), profile)
    assert costs.compute_s[:, 0].tolist() == [2.0, 4.0, 2.0]


def test_every_device_sums_to_its_own_latency():
    rng = np.random.default_rng(0)
    graph = helpers.random_dag(rng, 12)
    profiles = [
        _profile([(name, rng.random()) for name in graph.op_names], latency_s)
        for latency_s in (0.25, 3.0, 17.0)
    ]
    costs = _model(graph, *profiles)
    assert costs.compute_s.sum(axis=0) == pytest.approx([0.25, 3.0, 17.0])


def test_a_fused_kernel_is_booked_on_the_operation_with_most_flops():
    costs = _model(helpers.chain(4), _profile([("op2 op0 op1", 3.0), ("op3", 1.0)], 4.0))
    assert costs.compute_s[:, 0].tolist() == [0.0, 0.0, 3.0, 1.0]


def test_of_equal_flops_the_operation_with_the_largest_index_is_booked():
    rng = np.random.default_rng(3)
    graph = helpers.random_dag(rng, 8)
    first, last = np.flatnonzero(graph.flops == graph.flops[0])[[0, -1]]
    assert first < last
    for names in (f"op{first} op{last}", f"op{last} op{first}"):
        costs = _model(graph, _profile([(names, 2.0)], 2.0))
        assert costs.compute_s[[first, last], 0].tolist() == [0.0, 2.0]


def test_two_kernels_of_one_operation_add_up():
    costs = _model(helpers.chain(2), _profile([("op0", 1.0), ("op0", 2.0), ("op1", 1.0)], 4.0))
    assert costs.compute_s[:, 0].tolist() == [3.0, 1.0]


def test_cutting_an_edge_inside_a_kernel_costs_its_bytes_twice():
    costs = _model(helpers.chain(4), _profile([("op0 op1", 1.0), ("op2", 1.0), ("op3", 1.0)]))
    np.testing.assert_allclose(costs.fusion_loss_s, [_standalone_s(10), 0, 0], rtol=1e-6)


def test_a_fusion_on_any_device_makes_the_cut_cost():
    fused_early = _profile([("op0 op1", 1.0), ("op2", 1.0)])
    fused_late = _profile([("op0", 1.0), ("op1 op2", 1.0)])
    costs = _model(helpers.chain(3), fused_early, fused_late)
    np.testing.assert_allclose(
        costs.fusion_loss_s, [_standalone_s(10), _standalone_s(20)], rtol=1e-6
    )


def test_operations_without_a_kernel_cost_nothing_and_are_fused_with_nothing():
    costs = _model(helpers.chain(4), _profile([("op3", 1.0)]))
    assert costs.compute_s[:, 0].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert costs.fusion_loss_s.tolist() == [0.0, 0.0, 0.0]


def test_kernels_of_operations_that_the_graph_lacks_are_left_out():
    profile = _profile([("Result", 5.0), ("op0 Reorder", 1.0), ("op1", 3.0)], 4.0)
    costs = _model(helpers.chain(2), profile)
    assert costs.compute_s[:, 0].tolist() == [1.0, 3.0]
    assert costs.fusion_loss_s.tolist() == [0.0]


def test_unsupported_operations_are_infinite_on_their_device_alone():
    able = _profile([("op0", 1.0), ("op1", 1.0)], 2.0)
    unable = _profile([("op0", 1.0)], 5.0, unsupported="op1 nowhere")
    costs = _model(helpers.chain(2), able, unable)
    np.testing.assert_array_equal(costs.compute_s, [[1.0, 5.0], [1.0, np.inf]])


def test_a_device_that_reports_no_kernels_is_refused():
    with pytest.raises(UserError, match=r"reports no time.*--config\.devices"):
        _model(helpers.chain(2), _profile([], latency_s=1.0))


def test_crossings_memory_and_types():
    graph = helpers.chain(3)
    costs = _model(graph, _profile([("op0", 1.0)]), _profile([("op1", 1.0)]))
    np.testing.assert_allclose(costs.transfer_latency_s, [[0, 2e-5], [2e-5, 0]])
    np.testing.assert_allclose(costs.transfer_s_per_byte, [[0, 3e-9], [3e-9, 0]])
    assert costs.memory_bytes.tolist() == graph.weight_bytes.tolist() == [0, 1, 2]
    assert costs.capacity_bytes.tolist() == [np.inf, np.inf]
    assert {array.dtype for array in costs[:-3]} == {np.dtype(np.float32)}
    assert costs.tensor_bytes is None
    assert costs.accelerator.dtype == np.int32


def test_a_limit_of_memory_brings_the_memory_of_tensors_and_states():
    op_types = ("Parameter", "ReadValue", "MatMul", "Assign")
    graph = dataclasses.replace(helpers.chain(4), op_types=op_types)
    costs = _model(graph, _profile([("op2", 1.0)]), _profile([("op2", 1.0)]))
    assert limit_memory(costs, graph, ()) is costs
    assert limit_memory(costs, graph, (None, None)) is costs
    limited = limit_memory(costs, graph, (None, 100))
    assert limited.capacity_bytes.tolist() == [np.inf, 100]
    assert limited.memory_bytes.tolist() == [0, 21, 2, 3]  # the state has 20 bytes
    assert limited.tensor_bytes.produced.tolist() == [10, 20, 30]
    assert limited.tensor_bytes.copied.tolist() == [10, 20, 30]
    assert {array.dtype for array in limited[:-3]} == {np.dtype(np.float32)}


def test_coarse_costs_are_sums_over_members_and_the_cuts_of_the_edges_that_remain():
    graph = helpers.diamond()
    costs = helpers.random_costs(np.random.default_rng(0), graph, 2)
    costs.compute_s[2, 1] = np.inf
    assignment = np.array([0, 1, 1, 2], np.int32)
    coarse = coarse_costs(costs, assignment, np.array([0, 3], np.int32))
    compute_s = [costs.compute_s[0], [costs.compute_s[1:3, 0].sum(), np.inf], costs.compute_s[3]]
    np.testing.assert_array_equal(coarse.compute_s, compute_s)
    memory = costs.memory_bytes
    np.testing.assert_array_equal(
        coarse.memory_bytes, [memory[0], memory[1] + memory[2], memory[3]]
    )
    np.testing.assert_array_equal(coarse.fusion_loss_s, costs.fusion_loss_s[[0, 3]])
    assert {array.dtype for array in coarse[:-3]} == {np.dtype(np.float32)}


def test_costs_of_a_coarsening_have_its_sizes():
    graph = helpers.random_dag(np.random.default_rng(1), 20, edge_probability=0.1)
    coarse = coarsen.coarsen(graph)
    costs = helpers.random_costs(np.random.default_rng(2), graph, 3)
    result = coarse_costs(costs, coarse.assignment, coarse.edges)
    assert coarse.graph.num_ops < graph.num_ops
    assert result.compute_s.shape == (coarse.graph.num_ops, 3)
    assert result.memory_bytes.shape == (coarse.graph.num_ops,)
    assert result.fusion_loss_s.shape == (coarse.graph.num_edges,)


def _submodels(alone_s: list[list[float]], *groups: str) -> SubmodelCosts:
    apart = 1 - np.eye(2)
    transfers = Transfers(7e-6 * apart, 5e-10 * apart)
    names = tuple(tuple(group.split()) for group in groups)
    return SubmodelCosts(names, np.array(alone_s), transfers)


def test_concurrent_costs_by_hand():
    """op0, then op1 with op2, then op3, which takes less alone than within, then op4, in no set."""
    graph = helpers.chain(5)
    within = _profile([(f"op{i}", 1.0) for i in range(5)], 5.0)
    twice = _profile([(f"op{i}", 2.0) for i in range(5)], 10.0, unsupported="op0")
    costs = _model(graph, within, twice)._replace(fusion_loss_s=np.arange(1, 5, dtype=np.float32))
    alone = _submodels([[1.5, np.nan], [2.25, 4.75], [0.5, 1.0]], "op0", "op1 op2", "op3")
    found = make_concurrent(graph, costs, alone)
    # 0.25 on the one and 0.75 on the other; as before; no less than nothing; nothing.
    assert found.fusion_loss_s.tolist() == [0.5, 2.0, 0.0, 0.0]
    np.testing.assert_allclose(found.transfer_latency_s, alone.transfers.latency_s)
    np.testing.assert_allclose(found.transfer_s_per_byte, alone.transfers.s_per_byte)
    # In segments each device has its own: op1 with op2 take 0.25 and 0.75 longer.
    assert found.segment_costs.fusion_loss_s.tolist() == [[0.25, 0.75], [2, 2], [0, 0], [0, 0]]
    np.testing.assert_allclose(found.segment_costs.launch_s, [0.275, 0.75])
    dtypes = {np.asarray(a).dtype for a in jax.tree.leaves(found._replace(accelerator=None))}
    assert dtypes == {np.dtype(np.float32)}
    for name in ("compute_s", "transfer_fixed_s", "memory_bytes", "capacity_bytes", "accelerator"):
        np.testing.assert_array_equal(getattr(found, name), getattr(costs, name))


def test_what_one_device_cannot_run_costs_what_it_does_on_the_others():
    graph = helpers.chain(3)
    able = _profile([("op0", 1.0), ("op1", 1.0), ("op2", 1.0)], 3.0)
    unable = _profile([("op0", 1.0), ("op1", 1.0)], 2.0, unsupported="op2")
    alone = _submodels([[1.0, 1.0], [1.0, 1.0], [1.5, np.nan]], "op0", "op1", "op2")
    assert make_concurrent(graph, _model(graph, able, unable), alone).fusion_loss_s.tolist() == [
        0.0,
        0.5,
    ]


def test_profiles_and_crossings_survive_json():
    profiles = (_profile([("op0 op1", 0.5), ("op2", 1.0)], 2.0, "op3 op4"), _profile([], name="B"))
    transfers = Transfers(np.array([[0, 1e-6], [2e-6, 0]]), np.array([[0, 3e-10], [4e-10, 0]]))
    data = json.loads(json.dumps({"more": 1, **to_json(profiles, transfers)}))
    again, links = from_json(data)
    assert again == profiles
    for one, other in zip(links, transfers, strict=True):
        np.testing.assert_array_equal(one, other)


def test_no_handovers_survive_json_and_cost_nothing():
    none = SubmodelCosts((), np.empty((0, 2)), _submodels([]).transfers)
    again = submodels_from_json(json.loads(json.dumps(submodels_to_json(none))))
    assert again.alone_s.shape == (0, 2)
    graph = helpers.chain(2)
    alike = _profile([("op0", 1.0), ("op1", 1.0)])
    costs = _model(graph, alike, alike)._replace(fusion_loss_s=np.array([3.0], np.float32))
    assert make_concurrent(graph, costs, again).fusion_loss_s.tolist() == [3.0]


def test_a_launch_is_what_the_least_of_the_sets_lose():
    graph = helpers.chain(11)
    within = _profile([(f"op{i}", 1.0) for i in range(11)], 11.0)
    alone_s = [[1 + 0.5 * i, 0.5] for i in range(1, 12)]
    alone = _submodels(alone_s, *(f"op{i}" for i in range(11)))
    found = make_concurrent(graph, _model(graph, within, within), alone)
    assert found.segment_costs.launch_s.tolist() == [1.0, 0.0]  # nothing is lost on the other


def test_what_is_known_of_segments_is_that_of_what_is_merged():
    graph = helpers.chain(4)
    within = _profile([(f"op{i}", 1.0) for i in range(4)], 4.0)
    costs = _model(graph, within, within)
    alone = _submodels([[3.0, 2.0], [5.0, 2.5]], "op0 op1", "op2 op3")
    fine = make_concurrent(graph, costs, alone)
    found = coarse_costs(fine, np.array([0, 0, 1, 1]), np.array([1])).segment_costs
    np.testing.assert_array_equal(found.fusion_loss_s, [[3.0, 0.5]])


def test_handovers_survive_json():
    alone = _submodels([[1.5, np.nan], [2.25, 4.75]], "op0", "op1 op2")
    data = json.loads(json.dumps(submodels_to_json(alone), allow_nan=False))
    again = submodels_from_json(data)
    assert again.groups == alone.groups
    np.testing.assert_array_equal(again.alone_s, alone.alone_s)
    for one, other in zip(again.transfers, alone.transfers, strict=True):
        np.testing.assert_array_equal(one, other)
