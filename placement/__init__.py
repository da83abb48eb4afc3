"""Device placement of neural networks on OpenVINO devices, as pure functions in JAX."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placement.methods import register, solve
    from placement.pipeline.python_api import compare, place
    from placement.problem import Problem
    from placement.runtime.deployment.artifact import load
    from placement.runtime.models.from_python import graph_from
    from placement.types import CostModel, OpGraph, Solution, Status

__version__ = "0.2.0"
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
# The modules that define these names, imported when one is used: `import placement` loads neither
# JAX nor OpenVINO, and `placement.load` needs no JAX.
_MODULES = {
    **dict.fromkeys(("CostModel", "OpGraph", "Solution", "Status"), "types"),
    "Problem": "problem",
    **dict.fromkeys(("register", "solve"), "methods"),
    **dict.fromkeys(("compare", "place"), "pipeline.python_api"),
    "graph_from": "runtime.models.from_python",
    "load": "runtime.deployment.artifact",
}


def __getattr__(name: str) -> Any:
    """Imports a public name, such as `placement.place` or `placement.Problem`."""
    if name not in _MODULES:
        raise AttributeError(f"module 'placement' has no attribute {name!r}")
    if name != "load":
        from placement.pipeline.console import compilation_cache

        compilation_cache.keep_compiled()  # before the module imports JAX
    return getattr(importlib.import_module(f"placement.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Returns the public names, for completion."""
    return __all__


def list_methods() -> dict[str, str]:
    """Returns the methods of `solve`, `place` and `compare`, each with one line about it."""
    from placement import methods

    return {name: method.summary for name, method in methods.METHODS.items()}
