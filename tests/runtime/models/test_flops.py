"""Tests of `placement.runtime.models.flops`, by hand: a multiply-add is 2 FLOPs."""

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.runtime.models import flops


def _x(*shape, dtype=ov.Type.f32):
    return ops.parameter(ov.PartialShape(list(shape)), dtype)


def _count(op):
    node = op.get_node() if isinstance(op, ov.Output) else op
    return flops.flops(node)


_PAD = ([0, 0], [0, 0])
_UNIT = ([1, 1], *_PAD, [1, 1])
_IMAGE = (1, 2, 6, 6)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        # 4 x 4 outputs a channel; 2 input channels, 3 x 3 kernel, 5 output channels.
        (ops.convolution(_x(*_IMAGE), _x(5, 2, 3, 3), *_UNIT), 2 * 5 * 16 * 2 * 9),
        # Two groups of 1 -> 3 channels.
        (ops.group_convolution(_x(*_IMAGE), _x(2, 3, 1, 3, 3), *_UNIT), 2 * 6 * 16 * 9),
        # Every input element is scattered to 5 channels x 3 x 3.
        (
            ops.convolution_backprop_data(_x(*_IMAGE), _x(2, 5, 3, 3), [2, 2]),
            2 * 2 * 36 * 5 * 9,
        ),
        (
            ops.group_convolution_backprop_data(_x(*_IMAGE), _x(2, 1, 3, 3, 3), [2, 2]),
            2 * 2 * 36 * 3 * 9,
        ),
        (
            ops.deformable_convolution(_x(*_IMAGE), _x(1, 18, 4, 4), _x(5, 2, 3, 3), *_UNIT),
            2 * 5 * 16 * 2 * 9,
        ),
    ],
)
def test_convolutions(op, expected):
    assert _count(op) == expected


@pytest.mark.parametrize(
    ("left", "right", "transposed", "expected"),
    [
        ((3, 4), (4, 5), (False, False), 2 * 3 * 5 * 4),
        ((4, 3), (5, 4), (True, True), 2 * 3 * 5 * 4),
        ((7, 3, 4), (7, 4, 5), (False, False), 2 * 7 * 3 * 5 * 4),
        ((2, 1, 3, 4), (6, 4, 5), (False, False), 2 * 2 * 6 * 3 * 5 * 4),
        ((4,), (4, 5), (False, False), 2 * 5 * 4),
        ((4,), (4,), (True, False), 2 * 4),
    ],
)
def test_matmul(left, right, transposed, expected):
    assert _count(ops.matmul(_x(*left), _x(*right), *transposed)) == expected


def test_einsum():
    assert _count(ops.einsum([_x(2, 3, 4), _x(2, 4, 5)], "bij,bjk->bik")) == 2 * 2 * 3 * 4 * 5
    assert _count(ops.einsum([_x(3, 4)], "ij->ji")) is None


@pytest.mark.parametrize("pool", ["max", "average"])
def test_pools(pool):
    if pool == "max":
        op = ops.max_pool(_x(*_IMAGE), [2, 2], [1, 1], *_PAD, [2, 2])
    else:
        op = ops.avg_pool(_x(*_IMAGE), [2, 2], *_PAD, [2, 2], True)
    assert _count(op) == 2 * 9 * 4


def test_adaptive_pool_reads_every_element_once():
    assert _count(ops.adaptive_avg_pool(_x(*_IMAGE), ops.constant([2, 2]))) == 72


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ops.relu(_x(3, 4)), 12),
        (ops.add(_x(3, 4), _x(4)), 12),
        (ops.multiply(_x(3, 1), _x(1, 4)), 12),
        (ops.clamp(_x(3, 4), 0, 6), 2 * 12),
        (ops.squared_difference(_x(3, 4), _x(3, 4)), 2 * 12),
        (ops.sigmoid(_x(3, 4)), 4 * 12),
        (ops.gelu(_x(3, 4), "erf"), 5 * 12),
        (ops.swish(_x(3, 4)), 5 * 12),
        (ops.select(_x(3, 4, dtype=ov.Type.boolean), _x(3, 4), _x(3, 4)), 12),
        (ops.fake_quantize(_x(3, 4), *map(np.float32, (0, 1, 0, 1)), 256), 7 * 12),
    ],
)
def test_element_wise(op, expected):
    assert _count(op) == expected


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ops.mvn(_x(3, 4), [1], True, 1e-5, "INSIDE_SQRT"), 5 * 12),
        (ops.mvn(_x(3, 4), [1], False, 1e-5, "INSIDE_SQRT"), 2 * 12),
        (ops.batch_norm_inference(_x(2, 3, 4), _x(3), _x(3), _x(3), _x(3), 1e-5), 2 * 24),
        (ops.normalize_l2(_x(3, 4), [1], 1e-5, "add"), 3 * 12),
        (ops.group_normalization(_x(2, 4, 5), _x(4), _x(4), 2, 1e-5), 7 * 40),
        # A window of 5 channels, and of 3 x 3 positions.
        (ops.lrn(_x(1, 8, 2, 2), ops.constant([1]), 1, 1, 1, 5), 32 * (5 + 5)),
        (ops.lrn(_x(1, 8, 2, 2), ops.constant([2, 3]), 1, 1, 1, 3), 32 * (5 + 9)),
        (ops.softmax(_x(3, 4), 1), 5 * 12),
        (ops.log_softmax(_x(3, 4), 1), 5 * 12),
        (ops.reduce_mean(_x(3, 4), ops.constant([1]), False), 12),
        (ops.reduce_l2(_x(3, 4), ops.constant([1]), False), 2 * 12),
    ],
)
def test_normalisations_and_reductions(op, expected):
    assert _count(op) == expected


def test_movement_is_free_and_known():
    x, index = _x(3, 4), ops.constant([1])
    moved = [
        ops.reshape(x, ops.constant([12]), False),
        ops.transpose(x, ops.constant([1, 0])),
        ops.concat([x, x], 0),
        ops.split(x, ops.constant(1), 2),
        ops.gather(x, index, ops.constant(0)),
        ops.convert(x, "f16"),
        ops.result(x),
        x,
        index,
    ]
    assert [_count(op) for op in moved] == [0.0] * len(moved)


def test_cells():
    x, state = _x(2, 5), _x(2, 3)  # batch 2, 5 features, 3 hidden units
    hidden = 2 * 3
    lstm = ops.lstm_cell(x, state, state, _x(12, 5), _x(12, 3), _x(12), 3)
    gru = ops.gru_cell(x, state, _x(9, 5), _x(9, 3), _x(9), 3)
    rnn = ops.rnn_cell(x, state, _x(3, 5), _x(3, 3), _x(3), 3, ["tanh"], [], [])
    assert _count(lstm) == hidden * (2 * 4 * (5 + 3) + 26)
    assert _count(gru) == hidden * (2 * 3 * (5 + 3) + 20)
    assert _count(rnn) == hidden * (2 * (5 + 3) + 3)


@pytest.mark.parametrize(("direction", "ways"), [("forward", 1), ("bidirectional", 2)])
def test_sequences(direction, ways):
    x, state, lengths = _x(2, 7, 5), _x(2, ways, 3), _x(2, dtype=ov.Type.i32)
    lstm = ops.lstm_sequence(
        x, state, state, lengths, _x(ways, 12, 5), _x(ways, 12, 3), _x(ways, 12), 3, direction
    )
    gru = ops.gru_sequence(
        x, state, lengths, _x(ways, 9, 5), _x(ways, 9, 3), _x(ways, 9), 3, direction
    )
    assert _count(lstm) == 2 * 7 * 3 * ways * (2 * 4 * (5 + 3) + 26)
    assert _count(gru) == 2 * 7 * 3 * ways * (2 * 3 * (5 + 3) + 20)


def test_attention_is_its_two_products_and_softmax():
    op = ops.scaled_dot_product_attention(_x(2, 8, 5, 4), _x(2, 8, 6, 4), _x(2, 8, 6, 3))
    assert _count(op) == 2 * 8 * 5 * 6 * (2 * 4 + 6 + 2 * 3)


def test_embedding_bag():
    op = ops.embedding_bag_packed_sum(_x(50, 4), _x(3, 7, dtype=ov.Type.i64))
    assert _count(op) == 3 * 7 * 4


@pytest.mark.parametrize(("mode", "each"), [("nearest", 0), ("linear_onnx", 8), ("cubic", 32)])
def test_interpolate(mode, each):
    sizes, axes = ops.constant([4, 4]), ops.constant([2, 3])
    op = ops.interpolate(_x(1, 1, 2, 2), sizes, mode, "sizes", axes=axes)
    assert _count(op) == 16 * each


def _repeated(steps):
    """Adds each of `steps` slices [2, 1, 4] to a state [2, 1, 4]."""
    x, start = _x(2, steps, 4), _x(2, 1, 4)
    step, state = _x(2, 1, 4), _x(2, 1, 4)
    following = ops.result(ops.add(step, state))
    op = ops.tensor_iterator()
    op.set_body(ov.Model([following], [step, state], "body"))
    op.set_sliced_input(step, x.output(0), 0, 1, 1, -1, 1)
    op.set_merged_input(state, start.output(0), following.output(0))
    return ov.Model([ops.result(op.get_iter_value(following.output(0), -1))], [x, start], "model")


def test_a_loop_is_its_body_times_the_trips(tmp_path):
    path = tmp_path / "model.xml"
    ov.save_model(_repeated(6), path)
    for model in (_repeated(6), ov.Core().read_model(path)):
        (loop,) = (op for op in model.get_ops() if op.get_type_name() == "TensorIterator")
        assert flops.flops(loop) == 6 * 8


def test_a_branch_is_the_costlier_one():
    condition, x = _x(dtype=ov.Type.boolean), _x(2, 4)
    inside, other = _x(2, 4), _x(2, 4)
    then, otherwise = ops.result(ops.relu(inside)), ops.result(ops.sigmoid(other))
    op = ops.if_op(condition)
    op.set_then_body(ov.Model([then], [inside], "then"))
    op.set_else_body(ov.Model([otherwise], [other], "else"))
    op.set_input(x.output(0), inside, other)
    op.set_output(then, otherwise)
    assert flops.flops(op) == 4 * 8


def test_unknown_types_are_estimated_by_bytes():
    # Reads 10 float32 and an int64, writes 3 float32 and 3 int32: 40 + 8 + 12 + 12 bytes.
    op = ops.topk(_x(10), ops.constant(3), 0, "max", "value", index_element_type="i32")
    assert flops.flops(op) is None
    assert flops.estimate(op) == 72 / 4


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        (ov.Type.f32, (3, 4), 48),
        (ov.Type.f16, (3, 4), 24),
        (ov.Type.boolean, (3, 4), 12),
        (ov.Type.u4, (3, 4), 6),
        (ov.Type.i4, (3,), 2),
        (ov.Type.u1, (17,), 3),
        (ov.Type.string, (2,), 64),
        (ov.Type.i64, (), 8),
    ],
)
def test_bytes(dtype, shape, expected):
    assert flops.num_bytes(_x(*shape, dtype=dtype).output(0)) == expected


def test_unknown_sizes_count_as_their_upper_bound_or_one():
    assert flops.dims(_x(-1, "2..8", 3).output(0)) == (1, 8, 3)
    scalar = ops.parameter(ov.PartialShape.dynamic(), ov.Type.f32)
    assert flops.dims(scalar.output(0)) == ()


def test_without_a_rank_nothing_is_counted_but_what_moves_data_computes_nothing():
    unknown = ops.parameter(ov.PartialShape.dynamic(), ov.Type.f32)
    assert flops.flops(ops.matmul(unknown, _x(3, 4), False, False)) is None
    assert flops.flops(ops.matmul(_x(2, 3), _x(3, 4), False, False)) == 48
    assert flops.flops(ops.transpose(unknown, np.array([1, 0]))) == 0
