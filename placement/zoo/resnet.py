"""ResNets for images, and two of them for videos."""

import openvino as ov
from openvino import opset13 as ops

from placement import arguments
from placement.zoo import layers

# (width of the 3x3, stride of the first block) of each stage.
_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
_EXPANSION = 4  # a bottleneck's output channels over its width
_LEAST_DEPTH_OF_BOTTLENECKS = 50  # networks of smaller depth have basic blocks
# The depth -> the number of blocks in each stage.
_BLOCKS: dict[int, tuple[int, ...]] = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}

# A block adds variance to its input. Small gains in branches and projections keep it near one.
_BRANCH_GAIN = 0.4
_PROJECTION_GAIN = 0.7
_CLASSIFIER_GAIN = 8 / 7


def resnet(*, depth: int = 50, width: int = 100, size: int = 224, batch: int = 1) -> ov.Model:
    """ResNet: images [batch, 3, size, size] -> logits [batch, 1000], both float32.

    He et al. 2015, "Deep Residual Learning for Image Recognition", table 1, in torchvision's layout
    (stride in the 3x3 convolution, batch normalisation folded into weights and biases). 20
    operations, plus 22 for each bottleneck or 15 for each basic block, and 6 for each projection.

    Args:
      depth: layers with weights: 18 or 34 (basic blocks), 50, 101 or 152 (bottlenecks).
      width: channels of every layer but the last, in percent of the paper's.
      size: height and width of the images; up to 32 the last stage sees one pixel.
      batch: images.

    Raises:
      UserError: the paper has no such depth, or no channel is left.
    """
    images = layers.parameter("images", (batch, 3, size, size), ov.Type.f32)
    x = _features(images, "", depth, width)
    scores = layers.classifier(x, classes=1000, gain=_CLASSIFIER_GAIN)
    return ov.Model([layers.result(scores, "logits")], [images], f"resnet{depth}")


def resnet50() -> ov.Model:
    """ResNet-50: `resnet` with the paper's sizes.

    396 operations and 411 edges; 178 operations without constants and their Converts.
    """
    return resnet()


def two_stream(*, depth: int = 50, width: int = 100, size: int = 224, batch: int = 1) -> ov.Model:
    """Two ResNets: frame [B, 3, size, size], flow [B, 20, size, size] -> scores [B, 101], float32.

    Simonyan and Zisserman 2014, "Two-Stream Convolutional Networks for Action Recognition in
    Videos": one network sees a frame, the other the optical flow of ten, and their softmax scores
    are averaged (section 2); classes of UCF-101. Both are ResNet-50, as in Feichtenhofer et al.
    2016, "Spatiotemporal Residual Networks for Video Action Recognition", without its connections
    between the streams. Two heavy branches that meet at the end.

    Args:
      depth: layers of each network, as in `resnet`.
      width: percent of the paper's channels.
      size: height and width of the images.
      batch: B, videos.

    Raises:
      UserError: the paper has no such depth, or no channel is left.
    """
    frame = layers.parameter("frame", (batch, 3, size, size), ov.Type.f32)
    flow = layers.parameter("flow", (batch, 20, size, size), ov.Type.f32)
    streams = []
    for name, images in (("spatial", frame), ("temporal", flow)):
        x = _features(images, f"{name}/", depth, width)
        scores = layers.classifier(x, classes=101, gain=_CLASSIFIER_GAIN, prefix=f"{name}/")
        streams.append(ops.softmax(scores, 1, name=f"{name}/softmax"))
    total = ops.add(*streams, name="sum")
    mean = ops.multiply(total, layers.scalar("half", 0.5), name="mean")
    return ov.Model([layers.result(mean, "scores")], [frame, flow], "two_stream")


def _features(images: layers.Value, prefix: str, depth: int, percent: int) -> ov.Node:
    """Builds all but the classifier: [B, C, H, W] -> [B, 2048 or 512, H / 32, W / 32]."""
    arguments.check_choice("depth", str(depth), tuple(map(str, _BLOCKS)))
    stem = layers.scaled(64, percent)
    x: layers.Value = layers.conv_relu(images, f"{prefix}conv1", stem, (7, 7), stride=2, pad=(3, 3))
    x = layers.max_pool(x, f"{prefix}maxpool", stride=2, pad=1)
    stages = zip(_BLOCKS[depth], _STAGES, strict=True)
    for stage, (count, (channels, first_stride)) in enumerate(stages, 1):
        width = layers.scaled(channels, percent)
        for i in range(count):
            name, stride = f"{prefix}layer{stage}/{i}", 1 if i else first_stride
            if depth < _LEAST_DEPTH_OF_BOTTLENECKS:
                y = layers.conv_relu(x, f"{name}/conv1", width, (3, 3), stride=stride, pad=(1, 1))
                y = layers.conv(y, f"{name}/conv2", width, (3, 3), pad=(1, 1), gain=_BRANCH_GAIN)
            else:
                y = layers.conv_relu(x, f"{name}/conv1", width, (1, 1))
                y = layers.conv_relu(y, f"{name}/conv2", width, (3, 3), stride=stride, pad=(1, 1))
                y = layers.conv(y, f"{name}/conv3", _EXPANSION * width, (1, 1), gain=_BRANCH_GAIN)
            if stride > 1 or x.shape[1] != y.shape[1]:  # the shortcut needs the branch's shape
                x = layers.conv(
                    *(x, f"{name}/downsample", y.shape[1], (1, 1)),
                    stride=stride,
                    gain=_PROJECTION_GAIN,
                )
            x = ops.relu(ops.add(y, x, name=f"{name}/add"), name=f"{name}/relu")
    return x
