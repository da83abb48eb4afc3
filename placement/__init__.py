"""Device placement of neural networks on OpenVINO devices, as pure functions in JAX."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placement.runtime.deploy import Network

__version__ = "0.1.0"


def load(
    path: Any,  # str or os.PathLike
    devices: dict[str, str] | None = None,
    *,
    concurrent: bool | None = None,
) -> "Network":
    """Compiles what `--task=deploy` wrote; see `placement.runtime.deploy.load`.

    It needs OpenVINO and NumPy, which are imported here and not before, and no JAX.
    """
    from placement.runtime import deploy

    return deploy.load(path, devices, concurrent=concurrent)
