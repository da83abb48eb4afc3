"""Device placement of neural networks on OpenVINO devices, as pure functions in JAX."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placement.runtime.deployment.artifact import Network
    from placement.runtime.models.from_python import Converted

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
