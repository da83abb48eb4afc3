"""Device placement of neural networks on OpenVINO devices, as pure functions in JAX."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placement.pipeline.python_api import Placed
    from placement.runtime.deployment.artifact import Network
    from placement.runtime.models.from_python import Converted
    from placement.types import Problem, Solution

__version__ = "0.1.0"


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
    model: Any,  # str or os.PathLike
    *,
    devices: str = "auto",
    method: str = "search",
    workdir: Any = None,  # str or os.PathLike
    **keys: bool | int | float | str,
) -> "Placed":
    """Places a model on this machine's devices: profile, search, verify, as `--task=place` does.

    Args:
      model: a path, or a network of the zoo.
      devices: such as 'auto', 'host' or 'CPU,GPU.0'.
      method: such as 'lns' or 'hsdag:variant=paper'.
      workdir: the run directory; None makes one among the temporary files.
      keys: others of `configs.common`, such as `time_limit_s`; the defaults are those of
        `configs.quickstart`.

    Raises:
      UserError: what was given cannot be placed: one line.
    """
    from placement.pipeline import python_api

    return python_api.run(model, devices=devices, method=method, workdir=workdir, **keys)
