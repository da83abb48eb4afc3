import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def quick_compilation(request: pytest.FixtureRequest) -> None:
    """Tiny graphs gain nothing from XLA's optimisations, which double the time of most tests.

    But where time is measured, they count: modules of tests that run alone have them.
    """
    alone = any(item.get_closest_marker("alone") for item in _items(request))
    jax.config.update("jax_disable_most_optimizations", not alone)


def _items(request: pytest.FixtureRequest) -> list[pytest.Item]:
    return [item for item in request.session.items if item.path == request.path]
