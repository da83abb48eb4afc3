"""ResNet-50 for images, and two of them for videos."""

import openvino as ov
from openvino import opset13 as ops

from placement.zoo import layers

# (blocks, width of the 3x3, stride of the first block); a block's output is 4 widths wide.
_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
_EXPANSION = 4

# A block adds variance to its input; small branches and damped projections keep it near one.
_BRANCH_GAIN = 0.4
_PROJECTION_GAIN = 0.7
# Makes up for the mean over 7x7 positions, which divides the spread of a noise image by 7.
_CLASSIFIER_GAIN = 8.0


def resnet50() -> ov.Model:
    """ResNet-50: images [1, 3, 224, 224] -> logits [1, 1000], both float32.

    He et al. 2015, "Deep Residual Learning for Image Recognition", table 1, in torchvision's
    layout (stride in the 3x3 convolution, batch normalisation folded into weights and biases).
    396 operations and 411 edges; 178 operations without constants and their Converts.
    """
    images = layers.parameter("images", (1, 3, 224, 224), ov.Type.f32)
    scores = layers.classifier(_features(images, ""), classes=1000, gain=_CLASSIFIER_GAIN)
    return ov.Model([layers.result(scores, "logits")], [images], "resnet50")


def two_stream() -> ov.Model:
    """Two ResNet-50: frame [1, 3, 224, 224], flow [1, 20, 224, 224] -> scores [1, 101], float32.

    Simonyan and Zisserman 2014, "Two-Stream Convolutional Networks for Action Recognition in
    Videos": one network sees a frame, the other the optical flow of ten, and their softmax scores
    are averaged (section 2); classes of UCF-101. Both are ResNet-50, as in Feichtenhofer et al.
    2016, "Spatiotemporal Residual Networks for Video Action Recognition", without its connections
    between the streams. Two heavy branches that meet at the end.
    """
    frame = layers.parameter("frame", (1, 3, 224, 224), ov.Type.f32)
    flow = layers.parameter("flow", (1, 20, 224, 224), ov.Type.f32)
    streams = []
    for name, images in (("spatial", frame), ("temporal", flow)):
        x = _features(images, f"{name}/")
        scores = layers.classifier(x, classes=101, gain=_CLASSIFIER_GAIN, prefix=f"{name}/")
        streams.append(ops.softmax(scores, 1, name=f"{name}/softmax"))
    total = ops.add(*streams, name="sum")
    mean = ops.multiply(total, layers.scalar("half", 0.5), name="mean")
    return ov.Model([layers.result(mean, "scores")], [frame, flow], "two_stream")


def _features(images: layers.Value, prefix: str) -> ov.Node:
    """All but the classifier: [1, C, 224, 224] -> [1, 2048, 7, 7]."""
    x: layers.Value = layers.conv_relu(images, f"{prefix}conv1", 64, (7, 7), stride=2, pad=(3, 3))
    x = layers.max_pool(x, f"{prefix}maxpool", stride=2, pad=1)
    for stage, (blocks, width, first_stride) in enumerate(_STAGES, start=1):
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            name = f"{prefix}layer{stage}/{block}"
            x = _bottleneck(x, name, width, stride, project=block == 0)
    return x


def _bottleneck(x: layers.Value, name: str, width: int, stride: int, *, project: bool) -> ov.Node:
    """1x1, 3x3 and 1x1 convolutions beside a shortcut: [1, C, H, W] -> [1, 4 width, H', W']."""
    out = _EXPANSION * width
    y = layers.conv_relu(x, f"{name}/conv1", width, (1, 1))
    y = layers.conv_relu(y, f"{name}/conv2", width, (3, 3), stride=stride, pad=(1, 1))
    y = layers.conv(y, f"{name}/conv3", out, (1, 1), gain=_BRANCH_GAIN)
    if project:
        x = layers.conv(x, f"{name}/downsample", out, (1, 1), stride=stride, gain=_PROJECTION_GAIN)
    return ops.relu(ops.add(y, x, name=f"{name}/add"), name=f"{name}/relu")
