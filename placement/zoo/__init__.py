"""Benchmark networks built with the opset API, without any download.

The architectures and operation counts are those of published exports; the weights are seeded
noise, because placement depends on shapes and not on what a network has learnt.
"""

from collections.abc import Callable

import openvino as ov

from placement.zoo.bert import bert_base
from placement.zoo.inception_v3 import inception_v3
from placement.zoo.resnet import resnet50

_BUILDERS: dict[str, Callable[[], ov.Model]] = {
    "bert_base": bert_base,
    "inception_v3": inception_v3,
    "resnet50": resnet50,
}


def names() -> tuple[str, ...]:
    """The names `build` knows."""
    return tuple(_BUILDERS)


def build(name: str) -> ov.Model:
    """Builds the network called `name`; every build of a name gives identical weights.

    Raises:
      ValueError: no network has that name.
    """
    if name not in _BUILDERS:
        raise ValueError(f"unknown network {name!r}; valid names: {', '.join(names())}")
    return _BUILDERS[name]()
