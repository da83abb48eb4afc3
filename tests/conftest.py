import os
from collections.abc import Iterator

import pytest

# Before JAX is loaded, here and in the processes that tests start. Tiny graphs gain nothing from
# these fusions, which take more than half of the time of compiling for the CPU.
_QUICK = "--xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_QUICK}".strip()

import jax  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def quick_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nor do they gain from XLA's other optimisations, which double the time of most tests.

    But where time is measured, they count: modules of tests that run alone have them.

    What a module compiled goes with it. Every compiled function is nine mappings of memory, of
    which Linux gives a process 65,530; with one less to give, XLA crashes.
    """
    alone = any(item.get_closest_marker("alone") for item in _items(request))
    jax.config.update("jax_disable_most_optimizations", not alone)
    yield
    jax.clear_caches()


def _items(request: pytest.FixtureRequest) -> list[pytest.Item]:
    return [item for item in request.session.items if item.path == request.path]
