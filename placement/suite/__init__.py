"""Frozen placement problems, with the best known value of each and a proven bound.

A problem is a file in `version_V/` with a graph, its costs and the objective. It never changes: a
checksum is compared when it is loaded, and `VERSION` rises if files are replaced. Operations and
edges are in random order, which those of version 1 are not. The splits `training`, `validation` and
`test` have different families of graphs, and no set of devices of `training` is in another split.
No decision about this package was made on the families of `test`; version 1 cannot say so.

`placement.suite.archive` has the best known placements.
"""

from typing import NamedTuple

from placement import arguments, files
from placement.problem import Problem
from placement.suite import archive, problem_file
from placement.suite.archive import Best

VERSION = 2
SPLITS = ("training", "validation", "test")


class Entry(NamedTuple):
    """A problem in the index."""

    name: str
    split: str
    family: str
    graph: str  # the text that the graph was built from, see `placement.zoo`; or a workload's name
    devices: str  # the text that the devices and costs were described by
    objective: str
    num_ops: int
    num_devices: int
    sha256: str  # of the file
    input_shapes: str = ""  # of the network's dynamic inputs


_SCHEMA = [Entry.__annotations__ | {"input_shapes": files.OptionalField(str)}]


def list_entries(split: str = "", version: int = VERSION) -> list[Entry]:
    """Lists the problems of a split, of all splits by default.

    Raises:
      UserError: the split does not exist.
    """
    if split:
        arguments.check_choice("split", split, SPLITS)
    path = problem_file.find_folder(version) / problem_file.INDEX
    records = files.read_json(path, _SCHEMA, remedy=problem_file.REMEDY)
    entries = [Entry(**record) for record in records]
    return [entry for entry in entries if split in ("", entry.split)]


def load(name: str, version: int = VERSION) -> Problem:
    """Loads a problem.

    Raises:
      UserError: the problem does not exist, or its file has changed.
    """
    entries = {entry.name: entry for entry in list_entries(version=version)}
    arguments.check_choice("problem", name, tuple(entries))
    return problem_file.load(problem_file.locate(name, version), entries[name].sha256)


def best_known(name: str, version: int = VERSION) -> Best:
    """Returns the best known solution of a problem.

    Raises:
      UserError: the problem does not exist.
    """
    known = archive.read(version)
    arguments.check_choice("problem", name, tuple(known))
    return known[name]
