"""Which graphs are the same, and what to call those that are not.

A file is the same under whatever path it is reached, and two files are two graphs whatever they are
called. A graph's label is the last part of its path that tells it from the others it stands beside.
"""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from placement import zoo
from placement.zoo import synthetic

_WORKLOAD = ".json"
_GIVEN = re.compile(r":(?:\w+=[^:/,]*(?:,|$))+$")  # the arguments of a graph


def split(graph: str) -> tuple[str, str]:
    """A graph's name or path, and its arguments with their colon, '' where it has none."""
    given = _GIVEN.search(graph)
    return (graph, "") if given is None else (graph[: given.start()], given.group())


def identity(graph: str) -> str:
    """The same text for every spelling of a graph: that of a file has its resolved path."""
    path, given = _split(graph)
    return graph if path is None else os.path.realpath(path) + given


def content(graph: str) -> str | None:
    """SHA-256 of a file, or of all files of a folder; None where there is none.

    Of .xml it is that of the weights beside it too.
    """
    path = file(graph)
    if path is None or not path.exists():
        return None
    files = [path, path.with_suffix(".bin")] if path.suffix == ".xml" else [path]
    if path.is_dir():
        files = sorted(path.rglob("*"))
    digest = hashlib.sha256()
    for each in files:
        if each.is_file():
            with open(each, "rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def file(graph: str) -> Path | None:
    """The path that a graph names; None of a network's name."""
    return _split(graph)[0]


def shortest(graph: str) -> str:
    """Names a graph that stands alone: of a file its name without the suffix."""
    return _candidates(graph)[0]


def distinct(graphs: Sequence[str]) -> list[str]:
    """A label for each of some graphs of different identities, as short as tells them apart."""
    candidates = [_candidates(graph) for graph in graphs]
    lengths = [0] * len(candidates)
    while True:
        found = [c[n] for c, n in zip(candidates, lengths, strict=True)]
        count = Counter(found)
        longer = [
            n + (count[label] > 1 and n + 1 < len(c))
            for label, c, n in zip(found, candidates, lengths, strict=True)
        ]
        if longer == lengths:
            return found
        lengths = longer


def _split(graph: str) -> tuple[Path | None, str]:
    """The path that a graph names, and its arguments with their colon; no path of a network."""
    path, suffix, given = graph.partition(_WORKLOAD)
    if suffix and given[:1] in ("", ":"):
        return Path(path + suffix), given
    name = graph.split(":")[0]
    if name == synthetic.NAME or name in zoo.names():
        return None, ""
    path, given = split(graph)
    is_path = os.sep in path or os.path.splitext(path)[1] or os.path.isdir(path)
    return (Path(path), given) if is_path else (None, "")


def _candidates(graph: str) -> list[str]:
    """Lists names of a graph, from the shortest on; the last is its whole path."""
    path, given = _split(graph)
    if path is None:
        return [graph]
    path = Path(os.path.abspath(path))  # links are kept: what they lead to may have any name
    stem = path.name if path.is_dir() else path.stem
    found = [stem]
    for n in range(1, len(path.parts)):
        above = path.parts[-n:-1]
        found += [str(Path(*above, last)) + given for last in (stem, path.name)]
    return [*found, str(path) + given]
