import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Set before JAX is loaded, here and in the processes that tests start. Tiny graphs gain nothing
# from these fusions, which take more than half of the compilation time on the CPU. Splitting a
# module to compile its parts in parallel costs time where all cores are busy with other tests.
_QUICK = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_QUICK}".strip()

import jax  # noqa: E402

from tests.experiments import command  # noqa: E402

# Every compiled function takes nine memory mappings. Linux gives a process 65,530, and XLA crashes
# when none is left.
_MAX_MAPPINGS = 35_000

for _name, _value in command.COMPILATION_CACHE.items():
    jax.config.update(_name, _value)


def pytest_collection_finish() -> None:
    command.collect_less()


@pytest.fixture(autouse=True, scope="module")
def compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Turns off XLA's optimisations, which double the time of most tests.

    Modules marked `alone` keep them, because those measure time. Compiled functions are kept
    between modules until they take too many memory mappings.
    """
    alone = any(item.get_closest_marker("alone") for item in _items(request))
    jax.config.update("jax_disable_most_optimizations", not alone)
    yield
    if _num_mappings() > _MAX_MAPPINGS:
        jax.clear_caches()


def _num_mappings() -> int:
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else _MAX_MAPPINGS + 1


def _items(request: pytest.FixtureRequest) -> list[pytest.Item]:
    return [item for item in request.session.items if item.path == request.path]
