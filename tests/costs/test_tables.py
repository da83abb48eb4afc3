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


def test_kernels_sum_to_latency():
    """A kernel's time belongs to its operation with most FLOPs."""
    costs = _model(helpers.chain(4), _profile([("op2 op0 op1", 3.0), ("op3", 1.0)], 8.0))
    assert costs.compute_s[:, 0].tolist() == [0.0, 0.0, 6.0, 2.0]


def test_fusion_loss():
    costs = _model(helpers.chain(4), _profile([("op0 op1", 1.0), ("op2", 1.0), ("op3", 1.0)]))
    np.testing.assert_allclose(costs.fusion_loss_s, [_standalone_s(10), 0, 0], rtol=1e-6)


def test_unsupported_operations_are_infinite():
    able = _profile([("op0", 1.0), ("op1", 1.0)], 2.0)
    unable = _profile([("op0", 1.0)], 5.0, unsupported="op1 nowhere")
    costs = _model(helpers.chain(2), able, unable)
    np.testing.assert_array_equal(costs.compute_s, [[1.0, 5.0], [1.0, np.inf]])


def test_no_kernels_is_refused():
    with pytest.raises(UserError, match=r"reports no time.*leave it out of devices"):
        _model(helpers.chain(2), _profile([], latency_s=1.0))


def test_links_memory_and_types():
    graph = helpers.chain(3)
    costs = _model(graph, _profile([("op0", 1.0)]), _profile([("op1", 1.0)]))
    np.testing.assert_allclose(costs.transfer_latency_s, [[0, 2e-5], [2e-5, 0]])
    np.testing.assert_allclose(costs.transfer_s_per_byte, [[0, 3e-9], [3e-9, 0]])
    assert costs.memory_bytes.tolist() == graph.weight_bytes.tolist() == [0, 1, 2]
    assert costs.capacity_bytes.tolist() == [np.inf, np.inf]
    assert costs.tensor_bytes is None


def test_memory_limits_count_tensors():
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
    coarse = coarse_costs(found, np.array([0, 0, 1, 1, 1]), np.array([1])).segment_costs
    np.testing.assert_array_equal(coarse.fusion_loss_s, [[2.0, 2.0]])
    dtypes = {np.asarray(a).dtype for a in jax.tree.leaves(found._replace(accelerator=None))}
    assert dtypes == {np.dtype(np.float32)}
    for name in ("compute_s", "transfer_fixed_s", "memory_bytes", "capacity_bytes", "accelerator"):
        np.testing.assert_array_equal(getattr(found, name), getattr(costs, name))


def test_profiles_survive_json():
    profiles = (_profile([("op0 op1", 0.5), ("op2", 1.0)], 2.0, "op3 op4"), _profile([], name="B"))
    transfers = Transfers(np.array([[0, 1e-6], [2e-6, 0]]), np.array([[0, 3e-10], [4e-10, 0]]))
    data = json.loads(json.dumps({"more": 1, **to_json(profiles, transfers)}))
    again, links = from_json(data)
    assert again == profiles
    np.testing.assert_array_equal(links, transfers)
    alone = _submodels([[1.5, np.nan], [2.25, 4.75]], "op0", "op1 op2")
    data = json.loads(json.dumps(submodels_to_json(alone), allow_nan=False))
    groups, alone_s, transfers = submodels_from_json(data)
    assert groups == alone.groups
    np.testing.assert_array_equal(alone_s, alone.alone_s)
    np.testing.assert_array_equal(transfers, alone.transfers)
