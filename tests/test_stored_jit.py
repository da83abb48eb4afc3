"""Functions that later processes call without tracing them again."""

import jax
import numpy as np
import pytest

from placement import stored_jit

ARGUMENTS = {"a": np.float32(3)}, np.arange(4, dtype=np.int32)


@pytest.fixture
def folder(tmp_path):
    """A folder for JAX's compilation cache that does not exist yet."""
    earlier = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    jax.config.update("jax_compilation_cache_dir", earlier)
    stored_jit.forget()


def test_stored_function_is_not_traced(folder):
    traced = []

    def scale(tree, values, *, power):
        traced.append(power)
        return {"b": values * tree["a"] ** power}

    function = stored_jit.StoredJit(scale, static_argnames=("power",))
    for power in (1, 2, 1, 2):
        result = function(*ARGUMENTS, power=power)
        np.testing.assert_array_equal(result["b"], np.arange(4) * 3.0**power)
        stored_jit.forget()
    assert traced == [1, 2]
    # Another function traces it as if it were not stored.
    jax.jit(lambda a: function({"a": a}, ARGUMENTS[1], power=3))(ARGUMENTS[0]["a"])
    assert traced == [1, 2, 3]
    # A file of other sources is replaced.
    for path in folder.glob("*scale*"):
        path.write_bytes(b"-" + path.read_bytes())
    stored_jit.forget()
    for _ in range(2):
        function(*ARGUMENTS, power=1)
        stored_jit.forget()
    assert traced == [1, 2, 3, 1]


def test_optimised_program_takes_over(folder):
    function = stored_jit.StoredJit(
        lambda tree, values: values * tree["a"], begins_unoptimised=True
    )
    first = function(*ARGUMENTS)
    (begun,) = stored_jit._programs.values()
    function.optimise()
    assert [*stored_jit._programs.values()] != [begun]
    for result in (first, function(*ARGUMENTS)):
        np.testing.assert_array_equal(result, [0, 3, 6, 9])
