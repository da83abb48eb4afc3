"""The `compare` task: many methods on one graph, one table."""

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments import build, place


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Runs the methods of the comma list `config.method`; the single devices are always among them.

    Rows also carry the graph and the seed.

    Raises:
      ValueError: anything about the configuration that cannot be run, in one line.
    """
    chosen = tuple(dict.fromkeys(("single", *build.names(config.method))))
    return place.run_methods(config, workdir, chosen, label_rows=True)
