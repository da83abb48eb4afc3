"""A problem together with everything that follows from it, each computed once."""

import functools

import numpy as np

from placement.graphs import dag
from placement.types import Problem


class Instance(Problem):
    """A `Problem` with cached derivations; policies, solvers, searches and reports take one.

    A derivation is computed when it is first read and kept as long as the instance. Its arrays are
    read-only, because all readers share them. `_replace` makes an instance that has none yet.
    """

    @classmethod
    def from_problem(cls, problem: Problem) -> "Instance":
        """Returns the problem itself where it is an instance already, else a new instance."""
        return problem if isinstance(problem, cls) else cls(*problem)

    @functools.cached_property
    def topological_order(self) -> np.ndarray:
        """int32 [N]: the operations in topological order, see `dag.topological_order`."""
        return _read_only(dag.topological_order(self.graph))


def _read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array
