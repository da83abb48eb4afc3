"""A Ray cluster on this machine: a head that does nothing, and nodes that count as hosts."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

_STORE_BYTES = 80 << 20  # about the least that Ray takes


@contextlib.contextmanager
def running(*names: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The cluster and its nodes by name, in `RAY_ADDRESS`; nothing of it is left afterwards."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = {name: add(made, name) for name in names}
        os.environ["RAY_ADDRESS"] = made.address
        yield made, nodes
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()
        made.shutdown()


def add(to: Any, name: str) -> Any:
    return to.add_node(num_cpus=1, object_store_memory=_STORE_BYTES, node_name=name)
