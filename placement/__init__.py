"""Device placement of neural networks on OpenVINO devices, as pure functions in JAX."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from placement.pipeline.python_api import Comparison, InputShapes, Placed
    from placement.policies.base import Recipe
    from placement.runtime.deployment.network import Network
    from placement.runtime.models.from_python import Converted
    from placement.types import CostModel, OpGraph, Problem, Solution, Status

__version__ = "0.1.0"
__all__ = [
    "CostModel",
    "OpGraph",
    "Problem",
    "Solution",
    "Status",
    "compare",
    "graph_from",
    "list_methods",
    "load",
    "place",
    "register",
    "solve",
]
# Imported when they are used: `import placement` loads neither JAX nor OpenVINO.
_TYPES = ("CostModel", "OpGraph", "Problem", "Solution", "Status")


def __getattr__(name: str) -> Any:
    """Imports a type of `placement.types`, such as `placement.Problem`."""
    if name in _TYPES:
        from placement import types

        return getattr(types, name)
    raise AttributeError(f"module 'placement' has no attribute {name!r}")


def list_methods() -> dict[str, str]:
    """Returns the methods of `solve`, `place` and `compare`, each with one line about it."""
    from placement import methods

    return {name: method.summary for name, method in methods.METHODS.items()}


def register(name: str, recipe: "Recipe") -> None:
    """Adds a policy of yours to the methods of `solve`, `place` and `compare`.

    See `placement.methods.register`.
    """
    from placement import methods

    methods.register(name, recipe)


def load(
    path: Any,  # str or os.PathLike
    *,
    concurrent: bool | None = None,
) -> "Network":
    """Compiles a deployed folder; see `placement.runtime.deployment.artifact.load`.

    Needs OpenVINO and NumPy, which are imported here and not before, and no JAX.
    """
    from placement.runtime.deployment import artifact

    return artifact.load(path, concurrent=concurrent)


def graph_from(model: Any, example_inputs: Any = None, *, input_shapes: str = "") -> "Converted":
    """Converts a PyTorch module or program, or a JAX function, to a model that can be placed.

    See `placement.runtime.models.from_python.graph_from`.
    """
    from placement.runtime.models import from_python

    return from_python.graph_from(model, example_inputs, input_shapes=input_shapes)


def solve(problem: "Problem", method: str, **limits: Any) -> "Solution":
    """Searches for the best placement of a problem with any method, learned or classical.

    Args:
      problem: a graph, its costs and the objective.
      method: such as 'lns' or 'hsdag:variant=paper'.
      limits: `budget`, `time_limit_s`, `seed`, `observe` and `stop` of `placement.methods.solve`.
    """
    from placement import methods

    return methods.solve(problem, method, **limits)


def place(
    model: Any,
    *,
    example_inputs: Any = None,
    input_shapes: "InputShapes" = "",
    workdir: Any = None,  # str or os.PathLike
    **settings: Any,
) -> "Placed":
    """Places a model on this machine's devices: profiles, searches and measures.

    Args:
      model: the path of a model file; a network of the zoo; an `openvino.Model`; what `graph_from`
        returns; or what it takes, such as a `torch.nn.Module`.
      example_inputs: the inputs of a module or function, as for `graph_from`.
      input_shapes: the shapes of dynamic inputs, such as {'images': (1, 3, 224, 224)}.
      workdir: the run directory; None makes a temporary one.
      settings: fields of `placement.pipeline.settings.Settings`, such as devices=['CPU', 'GPU.0'],
        method='hsdag:variant=paper' or time_limit_s=60.

    Raises:
      UserError: the model, a device or a setting is invalid: one line.
    """
    return _import_pipeline().place(
        model,
        example_inputs=example_inputs,
        input_shapes=input_shapes,
        workdir=workdir,
        **settings,
    )


def compare(
    graphs: Any,
    methods: "str | Sequence[str]",
    *,
    workdir: Any = None,  # str or os.PathLike
    **settings: Any,
) -> "Comparison":
    """Runs methods on graphs with the same limits and several seeds, in one table.

    Args:
      graphs: one graph or a list; each is the path of a model file, a network of the zoo, an
        `openvino.Model` or the result of `graph_from`.
      methods: such as ['hsdag', 'lns'], names of `list_methods`, registered ones included. The
        single devices are always in the table.
      workdir: the run directory; None makes a temporary one. With the same directory, an
        interrupted comparison continues and a finished one is not repeated.
      settings: fields of `placement.pipeline.settings.Settings`, such as seeds=5, budget=1000,
        devices='roofline:cpu,gpu', or evaluate='simulate', which measures nothing.

    Returns:
      The rows, one for each graph, method and seed, with `plot()`.

    Raises:
      UserError: a graph, a method, a device or a setting is invalid: one line.
    """
    return _import_pipeline().compare(graphs, methods=methods, workdir=workdir, **settings)


def _import_pipeline() -> Any:
    """Imports the pipeline; its compiled functions are kept for later processes."""
    from placement.pipeline.console.compilation_cache import keep_compiled

    keep_compiled()  # before the pipeline imports JAX
    from placement.pipeline import python_api

    return python_api
