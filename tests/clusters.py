"""A Ray cluster on this machine whose nodes count as hosts, a core each."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SMALL = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_log_monitor": False}


@contextlib.contextmanager
def running(*names: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The cluster and its nodes by name, the head first, which is the driver's own.

    `RAY_ADDRESS` leads there meanwhile, and nothing of it is left afterwards.
    """
    import ray
    from ray.cluster_utils import Cluster

    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patched,
    ):
        # Whatever the folder of a cluster, Ray writes its address into the default one.
        patched.setenv("RAY_TMPDIR", folder)
        (own := Path(folder) / "ray").mkdir()
        how = _SMALL | {"temp_dir": str(own)}
        first = how | {"node_name": names[0], "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=first)
        try:
            nodes = {names[0]: made.head_node}
            nodes |= {name: made.add_node(**how, node_name=name) for name in names[1:]}
            patched.setenv("RAY_ADDRESS", made.address)
            yield made, nodes
        finally:
            ray.shutdown()
            made.shutdown()
