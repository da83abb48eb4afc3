"""FLOPs worked out by hand: a multiply-add is 2."""

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from placement.runtime.models import extract


def _x(*shape, dtype=ov.Type.f32):
    return ops.parameter(ov.PartialShape(list(shape)), dtype)


_PAD = ([0, 0], [0, 0])
_UNIT = ([1, 1], *_PAD, [1, 1])
_IMAGE = (1, 2, 6, 6)
_STATE = (2, 3)  # batch 2, 3 hidden units


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        # 4 x 4 outputs a channel; 2 input channels, 3 x 3 kernel, 5 output channels.
        (ops.convolution(_x(*_IMAGE), _x(5, 2, 3, 3), *_UNIT), 2 * 5 * 16 * 2 * 9),
        # Two groups of 1 -> 3 channels.
        (ops.group_convolution(_x(*_IMAGE), _x(2, 3, 1, 3, 3), *_UNIT), 2 * 6 * 16 * 9),
        # Every input element is scattered to 5 channels x 3 x 3.
        (ops.convolution_backprop_data(_x(*_IMAGE), _x(2, 5, 3, 3), [2, 2]), 2 * 72 * 5 * 9),
        (ops.einsum([_x(2, 3, 4), _x(2, 4, 5)], "bij,bjk->bik"), 2 * 2 * 3 * 4 * 5),
        (ops.einsum([_x(3, 4)], "ij->ji"), None),
        (ops.max_pool(_x(*_IMAGE), [2, 2], [1, 1], *_PAD, [2, 2]), 2 * 9 * 4),
        (ops.adaptive_avg_pool(_x(*_IMAGE), ops.constant([2, 2])), 72),
        (
            ops.scaled_dot_product_attention(_x(2, 8, 5, 4), _x(2, 8, 6, 4), _x(2, 8, 6, 3)),
            2 * 8 * 5 * 6 * (2 * 4 + 6 + 2 * 3),
        ),
        (
            ops.interpolate(
                _x(1, 1, 2, 2), ops.constant([4, 4]), "cubic", "sizes", axes=ops.constant([2, 3])
            ),
            16 * 32,
        ),
        # Cells with 5 features.
        (
            ops.lstm_cell(_x(2, 5), _x(*_STATE), _x(*_STATE), _x(12, 5), _x(12, 3), _x(12), 3),
            6 * (2 * 4 * 8 + 26),
        ),
        (ops.gru_cell(_x(2, 5), _x(*_STATE), _x(9, 5), _x(9, 3), _x(9), 3), 6 * (2 * 3 * 8 + 20)),
        # Products; the first matrix of the second is transposed.
        (ops.matmul(_x(3, 4), _x(4, 5), False, False), 2 * 3 * 5 * 4),
        (ops.matmul(_x(4, 3), _x(5, 4), True, True), 2 * 3 * 5 * 4),
        (ops.matmul(_x(2, 1, 3, 4), _x(6, 4, 5), False, False), 2 * 2 * 6 * 3 * 5 * 4),
        (ops.matmul(_x(4), _x(4), True, False), 2 * 4),
        # 12 elements.
        (ops.multiply(_x(3, 1), _x(1, 4)), 12),
        (ops.sigmoid(_x(3, 4)), 12 * 4),
        (ops.mvn(_x(3, 4), [1], True, 1e-5, "INSIDE_SQRT"), 12 * 5),
        (ops.mvn(_x(3, 4), [1], False, 1e-5, "INSIDE_SQRT"), 12 * 2),
        (ops.reduce_l2(_x(3, 4), ops.constant([1]), False), 12 * 2),
        (ops.reshape(_x(3, 4), ops.constant([12]), False), 0),
    ],
)
def test_operations(op, expected):
    assert extract.flops(op.get_node() if isinstance(op, ov.Output) else op) == expected


def test_sequences():
    x, state, lengths = _x(2, 7, 5), _x(2, 2, 3), _x(2, dtype=ov.Type.i32)
    weights = _x(2, 9, 5), _x(2, 9, 3), _x(2, 9)
    gru = ops.gru_sequence(x, state, lengths, *weights, 3, "bidirectional")
    assert extract.flops(gru) == 2 * 7 * 3 * 2 * (2 * 3 * (5 + 3) + 20)


def test_loop_is_its_trips():
    x, start = _x(2, 6, 4), _x(2, 1, 4)
    step, state = _x(2, 1, 4), _x(2, 1, 4)
    following = ops.result(ops.add(step, state))
    op = ops.tensor_iterator()
    op.set_body(ov.Model([following], [step, state], "body"))
    op.set_sliced_input(step, x.output(0), 0, 1, 1, -1, 1)
    op.set_merged_input(state, start.output(0), following.output(0))
    model = ov.Model([ops.result(op.get_iter_value(following.output(0), -1))], [x, start], "model")
    (loop,) = (op for op in model.get_ops() if op.get_type_name() == "TensorIterator")
    assert extract.flops(loop) == 6 * 8


def test_branch_is_the_costlier_one():
    condition, x = _x(dtype=ov.Type.boolean), _x(2, 4)
    inside, other = _x(2, 4), _x(2, 4)
    then, otherwise = ops.result(ops.relu(inside)), ops.result(ops.sigmoid(other))
    op = ops.if_op(condition)
    op.set_then_body(ov.Model([then], [inside], "then"))
    op.set_else_body(ov.Model([otherwise], [other], "else"))
    op.set_input(x.output(0), inside, other)
    op.set_output(then, otherwise)
    assert extract.flops(op) == 4 * 8


def test_unknown_types_are_estimated():
    # Reads 10 float32 and an int64, writes 3 float32 and 3 int32: 40 + 8 + 12 + 12 bytes.
    op = ops.topk(_x(10), ops.constant(3), 0, "max", "value", index_element_type="i32")
    assert extract.flops(op) is None
    assert extract.estimate(op) == 72 / 4


def test_bytes():
    assert extract.num_bytes(_x(3, 4, dtype=ov.Type.f16).output(0)) == 24
    assert extract.num_bytes(_x(17, dtype=ov.Type.u1).output(0)) == 3
    assert extract.num_bytes(_x(2, dtype=ov.Type.string).output(0)) == 64
    assert extract.num_bytes(_x(dtype=ov.Type.i64).output(0)) == 8


def test_unknown_sizes():
    assert extract.dims(_x(-1, "2..8", 3).output(0)) == (1, 8, 3)
    unknown = ops.parameter(ov.PartialShape.dynamic(), ov.Type.f32)
    assert extract.dims(unknown.output(0)) == ()
    assert extract.flops(ops.matmul(unknown, _x(3, 4), False, False)) is None
    assert extract.flops(ops.transpose(unknown, np.array([1, 0]))) == 0
