"""The identity of a graph, and a short label that distinguishes it from others.

All paths of one file are the same graph; two files are two graphs, also with the same name.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from placement import arguments, zoo
from placement.reporting import runs
from placement.zoo import synthetic


def file(graph: str) -> Path | None:
    """Returns the path of a graph; None for the name of a network."""
    name, _ = arguments.split_name(graph)
    is_network = name.split(":")[0] in (synthetic.NAME, *zoo.names())
    is_path = os.sep in name or os.path.splitext(name)[1] or os.path.isdir(name)
    return Path(name) if is_path and not is_network else None


def identity(graph: str) -> str:
    """Returns the same text for every spelling of a graph; a file has its resolved path."""
    path = file(graph)
    return graph if path is None else os.path.realpath(path) + arguments.split_name(graph)[1]


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


def shortest(graph: str) -> str:
    """Returns the label of a graph that stands alone; a file has its name without the suffix."""
    path = file(graph)
    if path is None:
        return graph
    path = Path(os.path.abspath(path))  # not the target of a link, which may have any name
    return path.name if path.is_dir() else path.stem


def run_directory(graph: str) -> Path:
    """Returns the run directory of a graph where the user names none."""
    return Path("runs") / runs.file_name(shortest(graph))


def distinct(graphs: Sequence[str]) -> list[str]:
    """Returns labels of graphs with different identities: the shortest, or else the identity."""
    labels = [shortest(graph) for graph in graphs]
    return [
        label if labels.count(label) == 1 else identity(graph)
        for label, graph in zip(labels, graphs, strict=True)
    ]
