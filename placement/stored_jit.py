"""`jax.jit` for functions that later processes call without tracing them again.

JAX's compilation cache finds a program by its text, so that every process traces and lowers the
function first. For a search this takes a second or two, ten times as long as loading the program.
So the text is stored too, in the same folder. The shapes of the arguments name the file. It begins
with a hash of everything else that decides what the text is, such as the sources of this package.
"""

import contextlib
import dataclasses
import functools
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax import export

from placement import files

_programs: dict[tuple[Any, ...], Callable[..., Any]] = {}  # loaded or traced in this process


class StoredJit:
    """A function of pytrees of arrays, compiled once for each set of shapes.

    Without a folder for JAX's compilation cache this is `jax.jit`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnames: tuple[str, ...] = (),
        compiler_options: dict[str, Any] | None = None,
    ):
        """Takes options of `jax.jit`; static arguments are strings or numbers, by keyword."""
        self.function = function  # to be called where it is traced
        self._compile: Any = functools.partial(jax.jit, compiler_options=compiler_options)
        self._jit = self._compile(function, static_argnames=static_argnames)

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Calls the function."""
        leaves, structure = jax.tree.flatten(args)
        config: Any = jax.config
        folder = config.jax_compilation_cache_dir
        is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        if not folder or not config.jax_enable_compilation_cache or is_traced:
            return self._jit(*args, **static)
        shapes = [(leaf.shape, leaf.dtype) for leaf in leaves]
        key = self.function, structure, *shapes, *static.items()
        if key not in _programs:
            digest = hashlib.sha256(f"{structure} {shapes} {static}".encode()).hexdigest()
            name = f"{self.function.__module__}.{self.function.__name__}"
            path = Path(folder, f"{name}-{digest}")
            header, content = _environment(), path.read_bytes() if path.exists() else b""
            if content.startswith(header):
                exported = pickle.loads(content[len(header) :])
            else:
                function = jax.jit(functools.partial(self.function, **static))
                exported = dataclasses.replace(export.export(function)(*args), _get_vjp=None)
                with contextlib.suppress(OSError):  # such as that of a full disk
                    Path(folder).mkdir(parents=True, exist_ok=True)
                    files.write_bytes(path, header + pickle.dumps(exported))
            _programs[key] = self._compile(exported.call).lower(*args).compile()
        return _programs[key](*args)


def forget() -> None:
    """Drops the programs of this process."""
    _programs.clear()


@functools.cache
def _environment() -> bytes:
    """Returns a hash of what a program's text depends on, other than shapes."""
    digest = hashlib.sha256(f"{jax.__version__} {jax.default_backend()}".encode())
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.digest()
