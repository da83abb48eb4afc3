"""Models from where people make them: PyTorch and JAX, without a file written by hand."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import openvino as ov

from placement.errors import UserError
from placement.runtime.models import extract, from_jax, from_torch, frontend
from placement.types import OpGraph


class Converted(NamedTuple):
    """A model made in Python, ready to be placed."""

    model: ov.Model  # `frontend.prepare`d
    graph: OpGraph  # of all its operations, constants included

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an OpenVINO IR for `--config.graph`, its weights beside it as .bin.

        Args:
          path: ends in .xml; its folder exists.

        Raises:
          UserError: the path ends otherwise, or there is no such folder.
        """
        file = Path(path)
        if file.suffix != ".xml" or not file.parent.is_dir():
            raise UserError(
                f"cannot save a model to {str(path)!r}; give the path of an .xml file, in a folder "
                "that exists"
            )
        # Its default is to round weights to f16.
        ov.save_model(self.model, file, compress_to_fp16=False)


def graph_from(
    model: Any, example_inputs: Any | None = None, *, input_shapes: str = ""
) -> Converted:
    """Converts a model to one that can be placed, with the static shapes of its example inputs.

    The inputs are called as the arguments are; an entry of a tuple or dict as 'pair.0' or 'batch.v'
    (of an exported program, as it names them). The weights are copied.

    Args:
      model: an `openvino.Model`; a `torch.nn.Module`; a `torch.export.ExportedProgram`; or a JAX
        function of arrays, also a bound Flax module or a Flax `apply` with its parameters bound.
      example_inputs: a tuple of arguments, a dict of them by name, or the only one itself. An
        exported program may go without: it has its own.
      input_shapes: such as 'images:8,3,224,224': other shapes than the examples', of a program with
        dynamic ones.

    Raises:
      UserError: nothing of these kinds, or it cannot be converted, in one line.
    """
    if isinstance(model, ov.Model):
        converted = model
    elif from_torch.accepts(model):
        converted = from_torch.convert(model, example_inputs)
    elif callable(model):
        converted = from_jax.convert(model, example_inputs)
    else:
        raise UserError(
            f"an object of type {type(model).__name__} is no model; give an openvino.Model, a "
            "torch.nn.Module or a torch.export program (pip install -e '.[torch]'), or a JAX "
            "function; a model file is given to placement.place by its path"
        )
    prepared = frontend.prepare(converted, input_shapes)
    name = getattr(model, "__name__", type(model).__name__)
    return Converted(prepared, extract.op_graph(prepared, name=name).graph)
