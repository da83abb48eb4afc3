"""The identity of a graph, and a short label that distinguishes it from others.

All paths of one file are the same graph; two files are two graphs, also with the same name.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from placement import zoo
from placement.zoo import synthetic

_ARGUMENTS = re.compile(r":(?:\w+=[^:/,]*(?:,|$))+$")  # the arguments of a graph


def split(graph: str) -> tuple[str, str]:
    """Splits a graph into its name or path and its arguments with their colon, '' without any."""
    match = _ARGUMENTS.search(graph)
    return (graph, "") if match is None else (graph[: match.start()], match.group())


def identity(graph: str) -> str:
    """Returns the same text for every spelling of a graph; a file has its resolved path."""
    path, options = _split_path(graph)
    return graph if path is None else os.path.realpath(path) + options


def content(graph: str) -> str | None:
    """Returns the SHA-256 of a graph's file, or of all files of its folder; None without one.

    That of an .xml includes its weights.
    """
    root = file(graph)
    if root is None or not root.exists():
        return None
    paths = [root, root.with_suffix(".bin")] if root.suffix == ".xml" else [root]
    if root.is_dir():
        paths = sorted(root.rglob("*"))
    digest = hashlib.sha256()
    for path in paths:
        if path.is_file():
            with open(path, "rb") as opened:
                digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def file(graph: str) -> Path | None:
    """Returns the path of a graph; None for the name of a network."""
    return _split_path(graph)[0]


def shortest(graph: str) -> str:
    """Returns the label of a graph that stands alone; a file has its name without the suffix."""
    path = file(graph)
    if path is None:
        return graph
    path = Path(os.path.abspath(path))  # not the target of a link, which may have any name
    return path.name if path.is_dir() else path.stem


def distinct(graphs: Sequence[str]) -> list[str]:
    """Returns labels of graphs with different identities: the shortest, or else the identity."""
    labels = [shortest(graph) for graph in graphs]
    return [
        label if labels.count(label) == 1 else identity(graph)
        for label, graph in zip(labels, graphs, strict=True)
    ]


def _split_path(graph: str) -> tuple[Path | None, str]:
    """Splits a graph into its path, None for a network, and its arguments with their colon."""
    path, suffix, options = graph.partition(".json")
    if suffix and options[:1] in ("", ":"):
        return Path(path + suffix), options
    name = graph.split(":")[0]
    if name == synthetic.NAME or name in zoo.names():
        return None, ""
    path, options = split(graph)
    is_path = os.sep in path or os.path.splitext(path)[1] or os.path.isdir(path)
    return (Path(path), options) if is_path else (None, "")
