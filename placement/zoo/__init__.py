"""Benchmark networks built with the opset API, without any download.

The architectures and operation counts are those of published exports. The weights are seeded noise,
because a placement depends on shapes and not on what a network has learnt. Most networks take
sizes: 'nmt:layers=4,steps=30'. `placement.zoo.families` draws networks of random sizes.
"""

import contextlib
import importlib
import inspect
from collections.abc import Callable

import openvino as ov

from placement import arguments
from placement.errors import UserError

# The module of each network's builder, a function of the network's name, imported when it is used.
# The builder's keywords are the arguments of the network: whole numbers from 1.
_MODULES = {
    "bert": "bert",
    "bert_base": "bert",
    "decoder": "decoder",
    "inception_v3": "inception_v3",
    "nmt": "recurrent",
    "resnet": "resnet",
    "resnet50": "resnet",
    "rnnlm": "recurrent",
    "two_stream": "resnet",
}


def names() -> tuple[str, ...]:
    """Returns the names that `build` takes."""
    return tuple(_MODULES)


def summaries() -> dict[str, str]:
    """Describes each network in one line."""
    return {name: (_builder(name).__doc__ or "").partition("\n")[0] for name in _MODULES}


def build(text: str, *, weights: bool = True) -> ov.Model:
    """Builds a network; equal texts give identical weights.

    Args:
      text: a name, or a name and sizes, such as 'nmt:layers=4,steps=30'.
      weights: False makes all weights zeros, which take no memory until they are read; enough if
        only the graph is needed.

    Raises:
      UserError: the name or an argument is unknown, the sizes do not fit together, or the network
        does not fit in memory.
    """
    name, sizes = arguments.split_arguments(text)
    arguments.check_choice("network", name, names())
    from placement.zoo import layers

    builder = _builder(name)
    parameters = inspect.signature(builder).parameters.values()
    defaults = {parameter.name: parameter.default for parameter in parameters}
    values = arguments.convert_arguments(text, sizes, defaults)
    try:
        with contextlib.nullcontext() if weights else layers.zero_weights():
            return builder(**values)
    except (UserError, MemoryError) as error:
        reason = error if isinstance(error, UserError) else "it does not fit in memory"
        raise UserError(f"graph {text!r}: {reason}") from error


def _builder(name: str) -> Callable[..., ov.Model]:
    module = importlib.import_module(f"placement.zoo.{_MODULES[name]}")
    builder: Callable[..., ov.Model] = getattr(module, name)
    return builder
