"""Inception-V3 for images.

Modules are tables: a branch is a tuple of steps, a step is (suffix, channels, kernel, stride).
Convolutions of stride 1 inside modules keep the image size, those of stride 2 are unpadded.
"""

from collections.abc import Sequence

import openvino as ov
from openvino import opset13 as ops

from placement.zoo import layers

_Step = tuple[str, int, tuple[int, int], int]

# Red, green and blue: torchvision's change from ImageNet's statistics to (x - 0.5) / 0.5.
_INPUT_SCALE = (0.229 / 0.5, 0.224 / 0.5, 0.225 / 0.5)
_INPUT_SHIFT = ((0.485 - 0.5) / 0.5, (0.456 - 0.5) / 0.5, (0.406 - 0.5) / 0.5)
_INPUT_GAIN = 0.5 / 0.226  # undoes the scale above on average
# Makes up for the mean over 8x8 positions, which divides the spread of a noise image by 8.
_CLASSIFIER_GAIN = 10.0


def inception_v3() -> ov.Model:
    """Inception-V3: images [1, 3, 299, 299] -> logits [1, 1000], both float32.

    Szegedy et al. 2015, "Rethinking the Inception Architecture for Computer Vision", section 6,
    in torchvision's layout, with its input transform, without the auxiliary classifier, batch
    normalisation folded. Nested concatenations are flattened.
    728 operations and 764 edges; 325 operations without constants and their Converts.
    """
    images = layers.parameter("images", (1, 3, 299, 299), ov.Type.f32)
    x = _stem(_transform_input(images))
    for name, pool_width in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        x = _module_a(x, name, pool_width)
    x = _module_b(x, "Mixed_6a")
    for name, width in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        x = _module_c(x, name, width)
    x = _module_d(x, "Mixed_7a")
    for name in ("Mixed_7b", "Mixed_7c"):
        x = _module_e(x, name)
    scores = layers.classifier(x, classes=1000, gain=_CLASSIFIER_GAIN)
    return ov.Model([layers.result(scores, "logits")], [images], "inception_v3")


def _transform_input(images: ov.Node) -> ov.Node:
    """Scales and shifts each colour on its own, as torchvision does: shape unchanged."""
    colours = []
    for colour, (scale, shift) in enumerate(zip(_INPUT_SCALE, _INPUT_SHIFT, strict=True)):
        name = f"transform_input/{colour}"
        index, axis = layers.integers(f"{name}/index", colour), layers.integers(f"{name}/axis", 1)
        plane = ops.gather(images, index, axis, name=f"{name}/gather")
        plane = layers.unsqueeze(plane, f"{name}/unsqueeze", 1)
        plane = ops.multiply(plane, layers.scalar(f"{name}/scale", scale), name=f"{name}/multiply")
        plane = ops.add(plane, layers.scalar(f"{name}/shift", shift), name=f"{name}/add")
        colours.append(plane)
    return ops.concat(colours, 1, name="transform_input/concat")


def _stem(x: layers.Value) -> ov.Output:
    """The convolutions before the first module: [1, 3, 299, 299] -> [1, 192, 35, 35]."""
    x = layers.conv_relu(x, "Conv2d_1a_3x3", 32, (3, 3), stride=2, gain=_INPUT_GAIN)
    x = layers.conv_relu(x, "Conv2d_2a_3x3", 32, (3, 3))
    x = layers.conv_relu(x, "Conv2d_2b_3x3", 64, (3, 3), pad=(1, 1))
    x = layers.max_pool(x, "maxpool1", stride=2)
    x = layers.conv_relu(x, "Conv2d_3b_1x1", 80, (1, 1))
    x = layers.conv_relu(x, "Conv2d_4a_3x3", 192, (3, 3))
    return layers.max_pool(x, "maxpool2", stride=2)


def _branch(x: layers.Value, name: str, steps: Sequence[_Step]) -> ov.Node:
    """Convolutions one after another; a step's layer is called `name` + its suffix."""
    for suffix, channels, (height, width), stride in steps:
        pad = (height // 2, width // 2) if stride == 1 else (0, 0)
        x = layers.conv_relu(x, name + suffix, channels, (height, width), stride=stride, pad=pad)
    return x


def _pool_branch(x: layers.Value, name: str, channels: int) -> ov.Node:
    """A 3x3 mean and a 1x1 convolution."""
    pooled = layers.avg_pool(x, f"{name}/avg_pool")
    return _branch(pooled, f"{name}/branch_pool", [("", channels, (1, 1), 1)])


def _module_a(x: layers.Value, name: str, pool_width: int) -> ov.Node:
    """Figure 5, one branch still a 5x5: [1, C, 35, 35] -> [1, 224 + pool_width, 35, 35]."""
    one = _branch(x, f"{name}/branch1x1", [("", 64, (1, 1), 1)])
    five = _branch(x, f"{name}/branch5x5", [("_1", 48, (1, 1), 1), ("_2", 64, (5, 5), 1)])
    double = _branch(
        x,
        f"{name}/branch3x3dbl",
        [("_1", 64, (1, 1), 1), ("_2", 96, (3, 3), 1), ("_3", 96, (3, 3), 1)],
    )
    pool = _pool_branch(x, name, pool_width)
    return ops.concat([one, five, double, pool], 1, name=f"{name}/concat")


def _module_b(x: layers.Value, name: str) -> ov.Node:
    """Figure 10, halving the image: [1, 288, 35, 35] -> [1, 768, 17, 17]."""
    three = _branch(x, f"{name}/branch3x3", [("", 384, (3, 3), 2)])
    double = _branch(
        x,
        f"{name}/branch3x3dbl",
        [("_1", 64, (1, 1), 1), ("_2", 96, (3, 3), 1), ("_3", 96, (3, 3), 2)],
    )
    pool = layers.max_pool(x, f"{name}/max_pool", stride=2)
    return ops.concat([three, double, pool], 1, name=f"{name}/concat")


def _module_c(x: layers.Value, name: str, width: int) -> ov.Node:
    """Figure 6 with n = 7: [1, 768, 17, 17] -> the same shape."""
    row, column = (1, 7), (7, 1)
    one = _branch(x, f"{name}/branch1x1", [("", 192, (1, 1), 1)])
    seven = _branch(
        x,
        f"{name}/branch7x7",
        [("_1", width, (1, 1), 1), ("_2", width, row, 1), ("_3", 192, column, 1)],
    )
    double = _branch(
        x,
        f"{name}/branch7x7dbl",
        [
            ("_1", width, (1, 1), 1),
            ("_2", width, column, 1),
            ("_3", width, row, 1),
            ("_4", width, column, 1),
            ("_5", 192, row, 1),
        ],
    )
    pool = _pool_branch(x, name, 192)
    return ops.concat([one, seven, double, pool], 1, name=f"{name}/concat")


def _module_d(x: layers.Value, name: str) -> ov.Node:
    """Halving the image again: [1, 768, 17, 17] -> [1, 1280, 8, 8]."""
    three = _branch(x, f"{name}/branch3x3", [("_1", 192, (1, 1), 1), ("_2", 320, (3, 3), 2)])
    seven = _branch(
        x,
        f"{name}/branch7x7x3",
        [
            ("_1", 192, (1, 1), 1),
            ("_2", 192, (1, 7), 1),
            ("_3", 192, (7, 1), 1),
            ("_4", 192, (3, 3), 2),
        ],
    )
    pool = layers.max_pool(x, f"{name}/max_pool", stride=2)
    return ops.concat([three, seven, pool], 1, name=f"{name}/concat")


def _module_e(x: layers.Value, name: str) -> ov.Node:
    """Figure 7, its two inner concatenations flattened: [1, C, 8, 8] -> [1, 2048, 8, 8]."""
    one = _branch(x, f"{name}/branch1x1", [("", 320, (1, 1), 1)])
    three = _branch(x, f"{name}/branch3x3", [("_1", 384, (1, 1), 1)])
    double = _branch(x, f"{name}/branch3x3dbl", [("_1", 448, (1, 1), 1), ("_2", 384, (3, 3), 1)])
    parts = [
        one,
        _branch(three, f"{name}/branch3x3", [("_2a", 384, (1, 3), 1)]),
        _branch(three, f"{name}/branch3x3", [("_2b", 384, (3, 1), 1)]),
        _branch(double, f"{name}/branch3x3dbl", [("_3a", 384, (1, 3), 1)]),
        _branch(double, f"{name}/branch3x3dbl", [("_3b", 384, (3, 1), 1)]),
        _pool_branch(x, name, 192),
    ]
    return ops.concat(parts, 1, name=f"{name}/concat")
