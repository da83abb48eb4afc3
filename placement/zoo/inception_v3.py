"""Inception-V3 for images.

Shapes in comments are those of the paper's sizes. Modules of a stage are lettered from the second:
'Mixed_5b' is the first of stage 5.
"""

from string import ascii_lowercase

import openvino as ov
from openvino import opset13 as ops

from placement import arguments
from placement.zoo import layers

_Step = tuple[str, int, tuple[int, int]]  # suffix of the name, channels, kernel

# Red, green and blue: torchvision's change from ImageNet's statistics to (x - 0.5) / 0.5.
_INPUT_SCALE = (0.229 / 0.5, 0.224 / 0.5, 0.225 / 0.5)
_INPUT_SHIFT = ((0.485 - 0.5) / 0.5, (0.456 - 0.5) / 0.5, (0.406 - 0.5) / 0.5)
_INPUT_GAIN = 0.5 / 0.226  # undoes the scale above on average
_CLASSIFIER_GAIN = 10 / 8

_MIN_SIZE = 75  # the last modules see one pixel


def inception_v3(
    *,
    size: int = 299,
    batch: int = 1,
    width: int = 100,
    early: int = 3,
    middle: int = 4,
    late: int = 2,
) -> ov.Model:
    """Inception-V3: images [batch, 3, size, size] -> logits [batch, 1000], both float32.

    Szegedy et al. 2015, "Rethinking the Inception Architecture for Computer Vision", section 6,
    in torchvision's layout, with its input transform, without the auxiliary classifier, batch
    normalisation folded. Nested concatenations are flattened.
    728 operations and 764 edges; 325 operations without constants and their Converts. Each early
    module has 51 operations, each middle one 72, each late one 65.

    Args:
      size: height and width of the images.
      batch: images.
      width: channels of every layer but the last, in percent of the paper's.
      early: modules of the paper's figure 5, before the first module that halves the image.
      middle: modules of figure 6, between the two modules that halve the image. The 7x1
        convolutions of the first are 128 wide, of the last 192, and 160 in between.
      late: modules of figure 7, at the end.

    Raises:
      UserError: the images are too small, or no channel is left.
    """
    arguments.check_range("size", size, _MIN_SIZE)
    images = layers.parameter("images", (batch, 3, size, size), ov.Type.f32)
    # Scale and shift each colour, as torchvision does.
    colours = []
    for colour, (scale, shift) in enumerate(zip(_INPUT_SCALE, _INPUT_SHIFT, strict=True)):
        name = f"transform_input/{colour}"
        index, axis = layers.integers(f"{name}/index", colour), layers.integers(f"{name}/axis", 1)
        plane = ops.gather(images, index, axis, name=f"{name}/gather")
        plane = layers.unsqueeze(plane, f"{name}/unsqueeze", 1)
        plane = ops.multiply(plane, layers.scalar(f"{name}/scale", scale), name=f"{name}/multiply")
        plane = ops.add(plane, layers.scalar(f"{name}/shift", shift), name=f"{name}/add")
        colours.append(plane)
    x = ops.concat(colours, 1, name="transform_input/concat")

    def convolve(x: layers.Value, name: str, *steps: _Step, stride: int = 1) -> ov.Node:
        """Builds convolutions one after another, which keep the image size.

        With stride 2 the last one is unpadded and halves it.
        """
        for i, (suffix, channels, kernel) in enumerate(steps):
            is_strided = stride > 1 and i == len(steps) - 1
            pad = (0, 0) if is_strided else (kernel[0] // 2, kernel[1] // 2)
            scaled = layers.scaled(channels, width)
            x = layers.conv_relu(
                x, name + suffix, scaled, kernel, stride=stride if is_strided else 1, pad=pad
            )
        return x

    def pool(x: layers.Value, name: str, channels: int) -> ov.Node:
        pooled = layers.avg_pool(x, f"{name}/avg_pool")
        return convolve(pooled, f"{name}/branch_pool", ("", channels, (1, 1)))

    # Before the first module: [B, 3, 299, 299] -> [B, 192, 35, 35].
    w32, w64, w80, w192 = (layers.scaled(channels, width) for channels in (32, 64, 80, 192))
    x = layers.conv_relu(x, "Conv2d_1a_3x3", w32, (3, 3), stride=2, gain=_INPUT_GAIN)
    x = layers.conv_relu(x, "Conv2d_2a_3x3", w32, (3, 3))
    x = layers.conv_relu(x, "Conv2d_2b_3x3", w64, (3, 3), pad=(1, 1))
    x = layers.max_pool(x, "maxpool1", stride=2)
    x = layers.conv_relu(x, "Conv2d_3b_1x1", w80, (1, 1))
    x = layers.conv_relu(x, "Conv2d_4a_3x3", w192, (3, 3))
    x = layers.max_pool(x, "maxpool2", stride=2)
    double = ("_1", 64, (1, 1)), ("_2", 96, (3, 3)), ("_3", 96, (3, 3))
    for i in range(early):  # figure 5, one branch still a 5x5: -> [B, 256 or 288, 35, 35]
        name = _name(5, i + 1)
        branches = [
            convolve(x, f"{name}/branch1x1", ("", 64, (1, 1))),
            convolve(x, f"{name}/branch5x5", ("_1", 48, (1, 1)), ("_2", 64, (5, 5))),
            convolve(x, f"{name}/branch3x3dbl", *double),
            pool(x, name, 64 if i else 32),
        ]
        x = ops.concat(branches, 1, name=f"{name}/concat")
    # Figure 10, halving the image: -> [B, 768, 17, 17].
    branches = [
        convolve(x, "Mixed_6a/branch3x3", ("", 384, (3, 3)), stride=2),
        convolve(x, "Mixed_6a/branch3x3dbl", *double, stride=2),
        layers.max_pool(x, "Mixed_6a/max_pool", stride=2),
    ]
    x = ops.concat(branches, 1, name="Mixed_6a/concat")
    row, column = (1, 7), (7, 1)
    for i in range(middle):  # figure 6 with n = 7: -> the same shape
        name, inner = _name(6, i + 1), 192 if i == middle - 1 else 160 if i else 128
        seven = ("_1", inner, (1, 1)), ("_2", inner, row), ("_3", 192, column)
        first = ("_1", inner, (1, 1)), ("_2", inner, column), ("_3", inner, row)
        branches = [
            convolve(x, f"{name}/branch1x1", ("", 192, (1, 1))),
            convolve(x, f"{name}/branch7x7", *seven),
            convolve(x, f"{name}/branch7x7dbl", *first, ("_4", inner, column), ("_5", 192, row)),
            pool(x, name, 192),
        ]
        x = ops.concat(branches, 1, name=f"{name}/concat")
    # The second halving of the image: -> [B, 1280, 8, 8].
    triple = ("_1", 192, (1, 1)), ("_2", 192, row), ("_3", 192, column), ("_4", 192, (3, 3))
    branches = [
        convolve(x, "Mixed_7a/branch3x3", ("_1", 192, (1, 1)), ("_2", 320, (3, 3)), stride=2),
        convolve(x, "Mixed_7a/branch7x7x3", *triple, stride=2),
        layers.max_pool(x, "Mixed_7a/max_pool", stride=2),
    ]
    x = ops.concat(branches, 1, name="Mixed_7a/concat")
    for i in range(late):  # figure 7, its inner concatenations flattened: -> [B, 2048, 8, 8]
        name = _name(7, i + 1)
        wide, high = (1, 3), (3, 1)
        three = convolve(x, f"{name}/branch3x3", ("_1", 384, (1, 1)))
        five = convolve(x, f"{name}/branch3x3dbl", ("_1", 448, (1, 1)), ("_2", 384, (3, 3)))
        branches = [
            convolve(x, f"{name}/branch1x1", ("", 320, (1, 1))),
            convolve(three, f"{name}/branch3x3", ("_2a", 384, wide)),
            convolve(three, f"{name}/branch3x3", ("_2b", 384, high)),
            convolve(five, f"{name}/branch3x3dbl", ("_3a", 384, wide)),
            convolve(five, f"{name}/branch3x3dbl", ("_3b", 384, high)),
            pool(x, name, 192),
        ]
        x = ops.concat(branches, 1, name=f"{name}/concat")
    scores = layers.classifier(x, classes=1000, gain=_CLASSIFIER_GAIN)
    return ov.Model([layers.result(scores, "logits")], [images], "inception_v3")


def _name(stage: int, module: int) -> str:
    """Returns 'Mixed_5b' for module 1 of stage 5; after 26 of them letters have numbers."""
    lap, letter = divmod(module, len(ascii_lowercase))
    return f"Mixed_{stage}{ascii_lowercase[letter]}{lap or ''}"
