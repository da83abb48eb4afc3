"""A reader who follows a page: its commands and its code, in one directory, in order.

Each runs in a process that a server forks, which has loaded JAX and OpenVINO and started no thread;
`tests.experiments.command` shares that server. The processor is one without bf16, whatever it
really is, because a page's commands must run everywhere.
"""

import importlib
import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from placement import arguments
from placement.pipeline import method_runs
from placement.pipeline.settings import Settings
from placement.runtime import devices
from tests.docs import pages
from tests.docs.pages import Block
from tests.experiments import command

_ENTRY = ["python", "-m", "experiments.main"]
_LIMIT_S = 600.0  # of one command; they take seconds


class Reader:
    """Follows pages in a directory; a command that several of them have runs once."""

    def __init__(
        self,
        directory: Path,
        run: dict[str, tuple[str, ...]],
        smaller_code: dict[str, str],
    ):
        """Reads nothing yet.

        Args:
          directory: to work in.
          run: flags appended to commands by their work directory; of commands with other
            directories only the flags and methods are checked.
          smaller_code: replacements in code and in the output that a page promises exactly.
        """
        self._directory = directory
        self._run = run
        self._smaller_code = smaller_code
        self._printed: dict[str, str] = {}

    def follow(self, page: str) -> None:
        """Runs every block of a page and compares what it prints with what the page says."""
        printed = ""
        for block in map(self._smaller_block, pages.blocks(page)):
            if block.language in ("sh", pages.INDENTED):
                printed = "".join(self._command(words, block) for words in pages.commands(block))
            elif block.name == "exact":
                assert block.text == printed, f"{block} is not what is printed:\n{printed}"
            elif block.name == "output":
                _compare(block, printed)
            elif block.language == "python":
                printed = self._code(block)

    def _smaller_block(self, block: Block) -> Block:
        if block.language not in ("python", "text"):
            return block
        for text, replacement in self._smaller_code.items():
            block = block._replace(text=block.text.replace(text, replacement))
        return block

    def _command(self, words: list[str], block: Block) -> str:
        """What a command prints."""
        written = " ".join(words)
        if written not in self._printed:
            code, out, err = self._outcome(words)
            assert code == 0, f"{block}: {written}\n{err}"
            self._printed[written] = out
        return self._printed[written]

    def _outcome(self, words: list[str]) -> tuple[int, str, str]:
        if words[0] == "make":
            done = subprocess.run(
                ["make", "--dry-run", *words[1:]], cwd=pages.ROOT, capture_output=True, text=True
            )
            return done.returncode, done.stdout, done.stderr
        assert words[:3] == _ENTRY, f"{words} is not a command that a page may have"
        flags = words[3:]
        workdirs = [f.partition("=")[2] for f in flags if f.startswith("--workdir=")]
        is_run = all(workdir in self._run for workdir in workdirs)
        if is_run and any(flag.startswith("--config") for flag in flags):
            flags += self._run[workdirs[0]]
        return self._fork(_run_command if is_run else _check_command, flags)

    def _code(self, block: Block) -> str:
        """What code prints; code with a name is saved under it, for later code to import."""
        if block.name:
            (self._directory / block.name).write_text(block.text)
        code, out, err = self._fork(_run_code, "\n" * (block.line - 1) + block.text, block.page)
        assert code == 0, f"{block}\n{err}"
        return out

    def _fork(self, target: Callable[..., None], *args: str | list[str]) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a call in the directory."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(command.LOADED)
        streams = [self._directory / name for name in (".stdout", ".stderr")]
        call = (self._directory, *streams, target, *args)
        process = context.Process(target=_redirected, args=call)
        process.start()
        process.join(_LIMIT_S)
        if process.exitcode is None:
            process.kill()
            raise AssertionError(f"{args} does not end within {_LIMIT_S:g} s")
        return process.exitcode, *(stream.read_text() for stream in streams)


def _redirected(
    directory: Path, out: Path, err: Path, target: Callable[..., None], *args: str | list[str]
) -> None:
    for stream, path in ((sys.stdout, out), (sys.stderr, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream.fileno())
    os.chdir(directory)
    os.environ["COLUMNS"] = "120"
    command.prepare(plots=False)
    devices._host_precisions = lambda core: ("f32",)  # a processor without bf16
    target(*args)


def _run_command(flags: list[str]) -> None:
    sys.argv = ["experiments.main", *flags]
    from experiments import main

    main.cli()


def _check_command(flags: list[str]) -> None:
    """Parses the flags, and checks the settings and the methods."""
    tasks = [flag.partition("=")[2] for flag in flags if flag.startswith("--task=")]
    task = [*tasks, "place"][0]

    def check_settings(settings: Settings, *_: object) -> None:
        is_single = task in ("place", "pretrain")
        methods = settings.method if is_single else settings.methods
        for method in [] if methods == "all" else arguments.split_list(methods):
            method_runs.check(method, settings.objective)

    importlib.import_module(f"placement.pipeline.{task}").run = check_settings
    _run_command(flags)


def _run_code(text: str, page: str) -> None:
    """Lines are numbered as on the page, so that a traceback leads there."""
    sys.path.insert(0, "")
    exec(compile(text, page, "exec"), {"__name__": "__main__"})


def _compare(block: Block, printed: str) -> None:
    """Every line of the page was printed, in order, whatever its numbers; '...' is any lines."""
    lines = iter(map(_shape, printed.splitlines()))
    for line in block.text.splitlines():
        if line.strip() != "...":
            assert _shape(line) in lines, f"{block}: {line!r} is not what is printed:\n{printed}"


def _shape(line: str) -> str:
    """A line without numbers, units of time and widths of columns."""
    without = re.sub(r"-?\d[\d.]*(e-?\d+)?", "#", line)
    return " ".join(re.sub(r"\b(ms|us|s)\b", "s", without).split())
