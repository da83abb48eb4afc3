"""Models made in Python with PyTorch, JAX or OpenVINO."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import openvino as ov

from placement.errors import UserError
from placement.runtime.models import extract, from_jax, from_torch, frontend
from placement.types import OpGraph


class Converted(NamedTuple):
    """A model made in Python, ready to be placed."""

    model: ov.Model  # prepared by `frontend.prepare`
    graph: OpGraph  # of all its operations, constants included

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an OpenVINO IR file for the setting `graph`, and its weights as .bin.

        Args:
          path: a path that ends in .xml; its folder exists.

        Raises:
          UserError: the path has another ending, or its folder does not exist.
        """
        file = Path(path)
        if file.suffix != ".xml" or not file.parent.is_dir():
            raise UserError(
                f"cannot save a model to {str(path)!r}; pass the path of an .xml file, in a folder "
                "that exists"
            )
        # By default OpenVINO would round the weights to f16.
        ov.save_model(self.model, file, compress_to_fp16=False)


def save(model: Any, example_inputs: Any | None, file: Path) -> None:
    """Saves what `graph_from` makes of a model, or an `openvino.Model` with its dynamic inputs."""
    if isinstance(model, ov.Model):
        ov.save_model(frontend.name_operations(model), file, compress_to_fp16=False)
        return
    converted = model if isinstance(model, Converted) else graph_from(model, example_inputs)
    converted.save(file)


def graph_from(
    model: Any, example_inputs: Any | None = None, *, input_shapes: str = ""
) -> Converted:
    """Converts a model to one that can be placed, with the static shapes of its example inputs.

    The model's inputs have the names of the arguments; an entry of a tuple or dict is called
    'pair.0' or 'batch.v'. The inputs of an exported program keep its names. Weights are copied.

    Args:
      model: an `openvino.Model`; a `torch.nn.Module`; a `torch.export.ExportedProgram`; or a JAX
        function of arrays, also a bound Flax module or a Flax `apply` with its parameters bound.
      example_inputs: a tuple of arguments, a dict of arguments by name, or the only argument
        itself; None for an exported program, which contains its own.
      input_shapes: other shapes than the examples', such as 'images:8,3,224,224', for a program
        with dynamic shapes.

    Raises:
      UserError: the model is none of these kinds, or cannot be converted.
    """
    if isinstance(model, ov.Model):
        converted = model
    elif from_torch.accepts(model):
        converted = from_torch.convert(model, example_inputs)
    elif callable(model):
        converted = from_jax.convert(model, example_inputs)
    else:
        raise UserError(
            f"an object of type {type(model).__name__} is not a model; pass an openvino.Model, a "
            "torch.nn.Module or a torch.export program (pip install -e '.[torch]'), or a JAX "
            "function, or pass the path of a model file to placement.place"
        )
    prepared = frontend.prepare(converted, input_shapes)
    name = getattr(model, "__name__", type(model).__name__)
    return Converted(prepared, extract.op_graph(prepared, name=name).graph)
