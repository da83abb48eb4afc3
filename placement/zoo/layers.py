"""Layers of the zoo: opset calls with seeded weights, stored as in an fp16-compressed IR.

Every floating-point weight is a Constant of float16 and a Convert to float32 that carries
OpenVINO's decompression mark: two operations, as in a model that was saved with
`compress_to_fp16=True` and read back. Integer constants (axes, shapes, permutations) have no
Convert. Every operation, constants included, has a readable friendly name that is unique in its
model: layer `a/b` owns `a/b/weight`, `a/b/weight/convert`, `a/b/conv`, `a/b/bias`, ...

A weight depends only on SEED, its own name and its shape, so that changing one layer does not
change the weights of the others.
"""

import contextlib
import functools
import math
import zlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TypeAlias

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from placement import arguments
from placement.errors import UserError

SEED = 2024

# The input of a layer: an operation, or one output of an operation that has several.
Value: TypeAlias = ov.Node | ov.Output

# Deep random ReLU networks forget their input: what all inputs have in common (positive means)
# grows until the logits are nearly constant, and global pooling, which averages a noise image away
# but not a common mean, finishes the job. Hence the "looks linear" start of Balduzzi et al. 2017
# ("The Shattered Gradients Problem"): channels 2i and 2i+1 are mirror images, made by opposite
# filters with equal biases and read with opposite weights. The convolutional part is then an odd
# function of the image, so no constant can build up, and relu(z) - relu(-z) = z neither fades nor
# amplifies rounding (bf16, f16) from layer to layer. Every layer and every part of a concatenation
# is an even number of channels wide, so pairs stay together.
_OPPOSITE = np.array([1.0, -1.0], dtype=np.float32)
_BIAS_STD = 0.1
_DENSE_BIAS_STD = 0.02

_DRAW_WEIGHTS = ContextVar("draw_weights", default=True)  # False: large weights are zeros

# The smallest IR holding a marked Convert. Python can pass the mark on but not create it.
_MARKED_IR = b"""<net name="marked" version="11"><layers>
<layer id="0" name="x" type="Parameter" version="opset1"><data shape="1" element_type="f16"/>
<output><port id="0" precision="FP16"><dim>1</dim></port></output></layer>
<layer id="1" name="y" type="Convert" version="opset1"><data destination_type="f32"/>
<rt_info><attribute name="decompression" version="0"/></rt_info>
<input><port id="0"><dim>1</dim></port></input>
<output><port id="1" precision="FP32"><dim>1</dim></port></output></layer>
<layer id="2" name="z" type="Result" version="opset1"><input><port id="0"><dim>1</dim></port>
</input></layer></layers><edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/>
<edge from-layer="1" from-port="1" to-layer="2" to-port="0"/></edges></net>"""
_MARK_KEY = "decompression_0"


@functools.cache
def _decompression_mark() -> object:
    """Returns the runtime attribute that tells plug-ins a Convert only unpacks a stored weight."""
    model = ov.Core().read_model(_MARKED_IR, b"")
    (convert,) = (op for op in model.get_ops() if op.get_type_name() == "Convert")
    return convert.get_rt_info()[_MARK_KEY]


@contextlib.contextmanager
def zero_weights() -> Iterator[None]:
    """Makes the weights built in the block zeros: no time, and no memory until they are read."""
    token = _DRAW_WEIGHTS.set(False)
    try:
        yield
    finally:
        _DRAW_WEIGHTS.reset(token)


def _uniform(name: str, shape: Sequence[int], std: float | np.ndarray) -> np.ndarray:
    """Draws zero-mean uniform float32 numbers of the shape and standard deviation(s)."""
    # Scaled 16-bit integers: normal floats would take BERT's 110 M weights two seconds.
    generator = np.random.Generator(np.random.SFC64([SEED, zlib.crc32(name.encode())]))
    draws = generator.integers(-(2**15), 2**15, size=tuple(shape), dtype=np.int16)
    return draws * np.asarray(std * math.sqrt(3.0) / 2**15, dtype=np.float32)


def compressed(name: str, values: np.ndarray) -> ov.Node:
    """Returns a float32 value stored as float16: Constant `name`, then Convert `name/convert`."""
    # Shared memory: the Constant keeps the array alive instead of copying it.
    constant = ov.op.Constant(values.astype(np.float16, copy=False), shared_memory=True)
    constant.set_friendly_name(name)
    convert = ops.convert(constant, "f32", name=f"{name}/convert")
    convert.set_rt_info(_decompression_mark(), _MARK_KEY)
    return convert


def noise(
    name: str,
    shape: Sequence[int],
    *,
    std: float | np.ndarray,
    mean: float | np.ndarray = 0.0,
) -> ov.Node:
    """Returns a compressed float constant, uniform with the given mean and standard deviation.

    Arrays of means and deviations are broadcast to `shape`.
    """
    if not _DRAW_WEIGHTS.get():
        return compressed(name, np.zeros(shape, dtype=np.float16))
    return compressed(name, _uniform(name, shape, std) + np.asarray(mean, dtype=np.float32))


def scalar(name: str, value: float) -> ov.Node:
    """Returns a compressed float constant without axes."""
    return compressed(name, np.asarray(value, dtype=np.float32))


def integers(name: str, values: int | Sequence[int]) -> ov.Node:
    """Returns an int64 Constant, as axes, shapes and permutations are stored."""
    return ops.constant(np.asarray(values, dtype=np.int64), name=name)


def filters(name: str, shape: Sequence[int], *, std: float, mirrored: bool) -> ov.Node:
    """Returns a compressed weight [out, in, ...] with opposite numbers for inputs 2i and 2i+1.

    If it is `mirrored`, outputs 2i and 2i+1 have opposite filters too. An odd number of inputs (the
    colours of an image) is not paired. There the taps of each filter sum to zero, which cancels a
    constant colour.
    """
    if not _DRAW_WEIGHTS.get():
        return compressed(name, np.zeros(shape, dtype=np.float16))
    outputs, inputs, *kernel = shape
    signs_out = _OPPOSITE if mirrored else _OPPOSITE[:1]
    signs_in = _OPPOSITE if inputs % 2 == 0 else _OPPOSITE[:1]
    groups = (outputs // len(signs_out), 1, inputs // len(signs_in), 1, math.prod(kernel))
    values = _uniform(name, groups, std)
    if len(signs_in) == 1 and groups[-1] > 1:
        values -= values.mean(axis=-1, keepdims=True)
    signs = np.multiply.outer(signs_out, signs_in)[:, np.newaxis, :, np.newaxis]
    return compressed(name, (values * signs).reshape(shape))


def scaled(channels: int, percent: int) -> int:
    """Returns a percentage of channels, rounded to an even number: mirror images stay in pairs."""
    arguments.check_range("width", percent, -(-100 // channels))  # less leaves no channel
    return 2 * ((channels * percent + 100) // 200)


def parameter(name: str, shape: Sequence[int], dtype: ov.Type) -> ov.Node:
    """Returns an input; `name` is its friendly name and the name of its tensor."""
    node = ops.parameter(list(shape), dtype, name=name)
    node.output(0).set_names({name})
    return node


def result(x: Value, name: str) -> ov.Node:
    """Returns an output; `name` is its friendly name and the name of its tensor."""
    x.output(0).set_names({name})
    return ops.result(x, name=name)


def unsqueeze(x: Value, name: str, axis: int) -> ov.Node:
    """Inserts an axis of length one."""
    y = ops.unsqueeze(x, integers(f"{name}/axis", axis))
    y.set_friendly_name(name)  # the opset function ignores its name argument (2026.4)
    return y


def squeeze(x: Value, name: str, axis: int) -> ov.Node:
    """Removes an axis of length one."""
    return ops.squeeze(x, integers(f"{name}/axis", axis), name=name)


def conv(
    x: Value,
    name: str,
    channels: int,
    kernel: tuple[int, int],
    *,
    stride: int = 1,
    pad: tuple[int, int] = (0, 0),
    gain: float = 1.0,
    relu: bool = False,
) -> ov.Node:
    """Builds convolution, bias and perhaps a ReLU: [B, C, H, W] -> [B, channels, H', W'].

    The weights have He's scaling times `gain`. The bias stands for a folded batch normalisation.
    """
    shape = (channels, x.shape[1], *kernel)
    std = gain * math.sqrt(2.0 / math.prod(shape[1:]))
    weight = filters(f"{name}/weight", shape, std=std, mirrored=True)
    convolved = ops.convolution(
        x, weight, [stride, stride], list(pad), list(pad), [1, 1], name=f"{name}/conv"
    )
    biases = np.repeat(_uniform(f"{name}/bias", (1, channels // 2, 1, 1), _BIAS_STD), 2, axis=1)
    offset = compressed(f"{name}/bias", biases)
    y = ops.add(convolved, offset, name=f"{name}/bias_add")
    return ops.relu(y, name=f"{name}/relu") if relu else y


conv_relu = functools.partial(conv, relu=True)


def max_pool(x: Value, name: str, *, stride: int, pad: int = 0) -> ov.Output:
    """Builds a 3x3 maximum: [B, C, H, W] -> [B, C, H', W']."""
    pool = ops.max_pool(x, [stride] * 2, [1, 1], [pad] * 2, [pad] * 2, [3, 3], name=name)
    return pool.output(0)


def avg_pool(x: Value, name: str) -> ov.Node:
    """Builds a 3x3 mean of stride 1, padding counted as zeros: [B, C, H, W] -> same shape."""
    return ops.avg_pool(x, [1, 1], [1, 1], [1, 1], [3, 3], False, name=name)


def dense(x: Value, name: str, features: int, *, gain: float = 1.0) -> ov.Node:
    """Builds MatMul and bias, LeCun's scaling times `gain`: [..., C] -> [..., features]."""
    shape = (features, last_size(x))
    weight = filters(f"{name}/weight", shape, std=gain / math.sqrt(shape[1]), mirrored=False)
    product = ops.matmul(x, weight, False, True, name=f"{name}/matmul")
    bias_shape = [1] * (len(_partial_shape(x)) - 1) + [features]
    offset = noise(f"{name}/bias", bias_shape, std=_DENSE_BIAS_STD)
    return ops.add(product, offset, name=f"{name}/bias_add")


def embedding(ids: ov.Node, name: str, shape: tuple[int, int], *, std: float) -> ov.Node:
    """Looks up rows of a table of `shape` [rows, C]: int64 [...] -> float32 [..., C]."""
    table = noise(f"{name}/weight", shape, std=std)
    index = ops.convert(ids, "i32", name=f"{name}/ids")
    return ops.gather(table, index, integers(f"{name}/axis", 0), name=f"{name}/gather")


def layer_norm(x: ov.Node, name: str, *, epsilon: float) -> ov.Node:
    """Normalises [B, S, C] over the last axis, by MVN, scale and shift; the shape is unchanged."""
    axes = integers(f"{name}/axes", [-1])
    x = ops.mvn(x, axes, True, epsilon, "inside_sqrt", name=f"{name}/mvn")
    shape = (1, 1, last_size(x))
    scale = noise(f"{name}/scale", shape, std=0.1, mean=1.0)
    x = ops.multiply(x, scale, name=f"{name}/multiply")
    shift = noise(f"{name}/shift", shape, std=0.02)
    return ops.add(x, shift, name=f"{name}/add")


def last_size(x: Value) -> int:
    """Returns the length of the last axis; other axes may be dynamic."""
    return int(_partial_shape(x)[-1].get_length())


def _partial_shape(x: Value) -> ov.PartialShape:
    output = x.output(0) if isinstance(x, ov.Node) else x
    return output.get_partial_shape()


def classifier(x: Value, *, classes: int, gain: float, prefix: str = "") -> ov.Node:
    """Builds global mean, flatten, dense layer `fc`: [B, C, H, W] -> [B, classes].

    The weights have LeCun's scaling times `gain` times sqrt(P): the mean over P positions divides
    the standard deviation of a noise image by sqrt(P).
    """
    batch, channels, *image = x.shape
    axes = integers(f"{prefix}pool/axes", [2, 3])
    pooled = ops.reduce_mean(x, axes, True, name=f"{prefix}pool")
    shape = integers(f"{prefix}flatten/shape", [batch, channels])
    flat = ops.reshape(pooled, shape, False, name=f"{prefix}flatten")
    return dense(flat, f"{prefix}fc", classes, gain=gain * math.sqrt(math.prod(image)))


def check_heads(network: str, hidden: int, heads: int) -> None:
    """Raises a UserError unless the number of heads divides the width of a token's embedding."""
    if hidden % heads:
        raise UserError(
            f"{network} cannot share hidden={hidden} among heads={heads}; "
            f"pass a hidden size that is a multiple of heads, such as {-(-hidden // heads) * heads}"
        )


def split_heads(x: ov.Node, batch: int, tokens: int, heads: int, name: str) -> ov.Node:
    """Splits the dense layer `name` of x: [B, n, hidden] -> [B, heads, n, hidden / heads]."""
    hidden = last_size(x)
    x = dense(x, name, hidden)
    shape = integers(f"{name}/split/shape", [batch, tokens, heads, hidden // heads])
    x = ops.reshape(x, shape, False, name=f"{name}/split")
    order = integers(f"{name}/transpose/order", [0, 2, 1, 3])
    return ops.transpose(x, order, name=f"{name}/transpose")


def merge_heads(x: ov.Node, shape: Sequence[int], name: str) -> ov.Node:
    """Merges heads: [B, heads, n, hidden / heads] -> `shape`, which is [B, n, hidden]."""
    order = integers(f"{name}/transpose/order", [0, 2, 1, 3])
    x = ops.transpose(x, order, name=f"{name}/transpose")
    merged = integers(f"{name}/merge/shape", shape)
    return ops.reshape(x, merged, False, name=f"{name}/merge")
