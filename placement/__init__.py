"""Device placement of neural networks on OpenVINO devices, as pure functions in JAX."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from placement.pipeline.python_api import Placed
    from placement.policies.base import Recipe
    from placement.runtime.deployment.artifact import Network
    from placement.runtime.models.from_python import Converted
    from placement.types import Problem, Solution

__version__ = "0.1.0"
# Imported when they are used: `import placement` loads neither JAX nor OpenVINO.
_TYPES = ("CostModel", "OpGraph", "Problem", "Solution")


def __getattr__(name: str) -> Any:
    """Imports a type of `placement.types`, such as `placement.Problem`."""
    if name in _TYPES:
        from placement import types

        return getattr(types, name)
    raise AttributeError(f"module 'placement' has no attribute {name!r}")


def list_methods() -> dict[str, str]:
    """Returns the methods of `solve` and `place`, and a line about each."""
    from placement import methods

    return {name: method.summary for name, method in methods.METHODS.items()}


def register(name: str, recipe: "Recipe") -> None:
    """Adds a policy of yours to the methods of `solve`, `place` and the comparisons.

    See `placement.methods.register`.
    """
    from placement import methods

    methods.register(name, recipe)


def load(
    path: Any,  # str or os.PathLike
    devices: dict[str, str] | None = None,
    *,
    concurrent: bool | None = None,
) -> "Network":
    """Compiles what `--task=deploy` wrote; see `placement.runtime.deployment.artifact.load`.

    It needs OpenVINO and NumPy, which are imported here and not before, and no JAX.
    """
    from placement.runtime.deployment import artifact

    return artifact.load(path, devices, concurrent=concurrent)


def graph_from(model: Any, example_inputs: Any = None, *, input_shapes: str = "") -> "Converted":
    """Converts a PyTorch module or program, or a JAX function, to a model that can be placed.

    See `placement.runtime.models.from_python.graph_from`.
    """
    from placement.runtime.models import from_python

    return from_python.graph_from(model, example_inputs, input_shapes=input_shapes)


def solve(problem: "Problem", method: str, **limits: Any) -> "Solution":
    """Searches for the best placement of a problem with any method, learned or classical.

    Args:
      problem: a graph, what it costs and what is to be minimised.
      method: such as 'lns' or 'hsdag:variant=paper'.
      limits: `budget`, `time_limit_s`, `seed`, `observe` and `stop` of `placement.methods.solve`.
    """
    from placement import methods

    return methods.solve(problem, method, **limits)


def place(
    model: Any,
    *,
    example_inputs: Any = None,
    devices: "str | Sequence[str]" = "auto",
    input_shapes: "str | Mapping[str, Sequence[int]]" = "",
    method: str = "search",
    workdir: Any = None,  # str or os.PathLike
    **keys: bool | int | float | str,
) -> "Placed":
    """Places a model on this machine's devices: profiles, searches and measures.

    Args:
      model: the path of a model file; a network of the zoo; an `openvino.Model`; what `graph_from`
        returns; or what it takes, such as a `torch.nn.Module`.
      example_inputs: of a module or function, as for `graph_from`.
      devices: such as 'auto', 'host', 'CPU,GPU.0' or ['CPU', 'GPU.0'].
      input_shapes: of dynamic inputs, such as {'images': (1, 3, 224, 224)}.
      method: such as 'lns' or 'hsdag:variant=paper'.
      workdir: the run directory; None makes one among the temporary files.
      keys: other fields of `placement.pipeline.settings.Settings`, such as `time_limit_s`. Devices
        run at the same time by default: backend='concurrent', objective='makespan'.

    Raises:
      UserError: the model, a device or a key is invalid: one line.
    """
    from placement.pipeline import python_api

    return python_api.run(
        model,
        example_inputs=example_inputs,
        devices=devices,
        input_shapes=input_shapes,
        method=method,
        workdir=workdir,
        **keys,
    )
