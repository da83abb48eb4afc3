"""Hides PyTorch from the process that imports this module first, as if it were not installed.

tensorboardX imports PyTorch where it is installed, which takes seconds in every command.
"""

import sys
from importlib.abc import MetaPathFinder


class _NoTorch(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")


_FINDER = _NoTorch()
sys.meta_path.insert(0, _FINDER)


def undo() -> None:
    """Makes PyTorch available again."""
    sys.meta_path.remove(_FINDER)
