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

_UNOPTIMISED = {"xla_backend_optimization_level": 0}
_programs: dict[tuple[Any, ...], Callable[..., Any]] = {}  # loaded or compiled in this process


class StoredJit:
    """A function of pytrees of arrays, compiled once for each set of shapes.

    Without a folder for JAX's compilation cache this is `jax.jit`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnames: tuple[str, ...] = (),
        compiler_options: dict[str, Any] | None = None,
        begins_unoptimised: bool = False,
    ):
        """Takes options of `jax.jit`; static arguments are strings or numbers, by keyword.

        If it `begins_unoptimised`, a program without LLVM's optimisations, which take two thirds of
        the time to compile, serves the calls before `optimise`. So both must compute the same
        numbers.
        """
        self.function, self._begins_unoptimised = function, begins_unoptimised
        self._unoptimised: list[tuple[tuple[Any, ...], jax.stages.Lowered]] = []
        self._compile: Any = functools.partial(jax.jit, compiler_options=compiler_options)
        self._jit = self._compile(function, static_argnames=static_argnames)

    def __call__(self, *args: Any, **static: Any) -> Any:
        """Calls the function."""
        leaves, structure = jax.tree.flatten(args)
        config: Any = jax.config
        folder = config.jax_enable_compilation_cache and config.jax_compilation_cache_dir
        is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        if is_traced or not (folder or self._begins_unoptimised):
            return self._jit(*args, **static)
        shapes = [(leaf.shape, leaf.dtype) for leaf in leaves]
        key = self.function, structure, *shapes, *static.items()
        if key not in _programs:
            is_stored = False
            if folder:
                digest = hashlib.sha256(f"{structure} {shapes} {static}".encode()).hexdigest()
                name = f"{self.function.__module__}.{self.function.__name__}"
                path = Path(folder, f"{name}-{digest}")
                header, content = _environment(), path.read_bytes() if path.exists() else b""
                is_stored = content.startswith(header)
                if is_stored:
                    exported = pickle.loads(content[len(header) :])
                else:
                    function = jax.jit(functools.partial(self.function, **static))
                    exported = dataclasses.replace(export.export(function)(*args), _get_vjp=None)
                    with contextlib.suppress(OSError):  # such as that of a full disk
                        Path(folder).mkdir(parents=True, exist_ok=True)
                        files.write_bytes(path, header + pickle.dumps(exported))
                lowered = self._compile(exported.call).lower(*args)
            else:
                lowered = self._jit.lower(*args, **static)
            if self._begins_unoptimised and not is_stored:
                _programs[key] = lowered.compile(_UNOPTIMISED)
                self._unoptimised.append((key, lowered))
            else:
                _programs[key] = lowered.compile()
        return _programs[key](*args)

    def optimise(self) -> None:
        """Compiles the optimised programs, which replace the others, also if called in a thread."""
        while self._unoptimised:
            key, lowered = self._unoptimised.pop()
            _programs[key] = lowered.compile()


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
