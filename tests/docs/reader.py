"""A reader who follows a page: its commands and its code, in one directory, in order.

Each runs in a process that a server forks, which has loaded JAX and OpenVINO and started no thread;
`tests.experiments.command` shares that server. The processor is one without bf16, whatever it
really is, because a page's commands must run everywhere. Of commands that would take long only the
flags, settings and methods are checked.
"""

import multiprocessing
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from placement import arguments, cli
from placement import methods as registry
from placement.pipeline.settings import Settings
from placement.runtime import devices
from tests.docs import pages, test_references
from tests.docs.pages import Block
from tests.experiments import command

_ENTRY = ["python", "-m", "experiments.main"]
_OPTIONS = {"--config.": "--", "time_limit_s": "time-limit", "measure_s": "measure-time"}
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
          run: flags appended to commands by their work directory; commands with other directories
            are only checked.
          smaller_code: replacements in code and in the output that a page promises exactly.
        """
        self._directory = directory
        self._run = run
        self._smaller_code = smaller_code
        self._printed: dict[str, str] = {}

    def follow(self, page: str) -> None:
        """Runs every block of a page and compares what it prints with what the page says."""
        printed = ""
        for block in pages.blocks(page):
            if block.language in ("python", "text"):
                for text, replacement in self._smaller_code.items():
                    block = block._replace(text=block.text.replace(text, replacement))
            if block.language in ("sh", pages.INDENTED):
                printed = "".join(self._command(words, block) for words in pages.commands(block))
            elif block.language == "python":
                if block.name:  # for later code to import
                    (self._directory / block.name).write_text(block.text)
                # Lines are numbered as on the page, so that a traceback leads there.
                text = "\n" * (block.line - 1) + block.text
                printed = self._fork(block, _run_code, text, block.page)
            elif block.name == "exact":
                assert block.text == printed, f"{block} is not what is printed:\n{printed}"
            elif block.name == "output":  # lines in order, whatever their numbers
                lines = iter(map(_shape, printed.splitlines()))
                for line in block.text.splitlines():
                    is_printed = line.strip() == "..." or _shape(line) in lines
                    assert is_printed, f"{block}: {line!r} is not what is printed:\n{printed}"

    def _command(self, words: list[str], block: Block) -> str:
        """Returns what a command prints."""
        if words[0] == "make":
            target = ["make", "--dry-run", *words[1:]]
            subprocess.run(target, cwd=pages.ROOT, check=True, capture_output=True)
            return ""
        workdirs = [w.removeprefix("--workdir=") for w in words if re.match("--workdir=|runs/", w)]
        smaller = [flag for workdir in workdirs[:1] for flag in self._run.get(workdir, ())]
        if words[0] == "placement":
            for name, option in _OPTIONS.items():
                smaller = [flag.replace(name, option) for flag in smaller]
            target, flags, takes_settings = _run_installed, words[1:], words[1] != "deploy"
        else:
            assert words[:3] == _ENTRY, f"{block}: {words} is not a command that a page may have"
            target, flags = _run_command, words[3:]
            takes_settings = any(flag.startswith("--config") for flag in flags)
            check_flags(flags)
            if not all(workdir in self._run for workdir in workdirs):
                return ""
        written = " ".join(words)
        if written not in self._printed:
            self._printed[written] = self._fork(block, target, flags + smaller * takes_settings)
        return self._printed[written]

    def _fork(self, block: Block, target: Callable[..., None], *args: str | list[str]) -> str:
        """Returns what a call prints that is made in the directory."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(command.LOADED)
        out, err = (self._directory / name for name in (".stdout", ".stderr"))
        call = (self._directory, out, err, target, *args)
        process = context.Process(target=_redirected, args=call)
        process.start()
        process.join(_LIMIT_S)
        if process.exitcode is None:
            process.kill()
        assert process.exitcode == 0, f"{block}: {args}\n{err.read_text()}"
        return out.read_text()


def check_flags(flags: list[str]) -> None:
    """Checks the flags, the settings and the methods of a command that is not run."""
    assert not list(test_references.missing_flags(" ".join(flags))), flags
    given = dict(flag.split("=", 1) for flag in flags if "=" in flag)
    name = Path(given.get("--config", "quickstart")).stem
    values = dict(runpy.run_path(str(pages.ROOT / "configs" / f"{name}.py"))["get_config"]())
    for flag, text in given.items():
        key = flag.removeprefix("--config.")
        if key != flag:
            kind = type(Settings().to_dict()[key])
            values[key] = text == "true" if kind is bool else kind(text)
    settings = Settings.from_mapping(values)
    is_single = given.get("--task", "place") in ("place", "pretrain")
    methods = settings.method if is_single else settings.methods
    for method in [] if methods == "all" else arguments.split_list(methods):
        registry.check(method, settings.objective)


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


def _run_installed(words: list[str]) -> None:
    cli.main(words, prog_name="placement", standalone_mode=False)


def _run_code(text: str, page: str) -> None:
    sys.path.insert(0, "")
    exec(compile(text, page, "exec"), {"__name__": "__main__"})


def _shape(line: str) -> str:
    """Returns a line without numbers, units of time and widths of columns."""
    without = re.sub(r"-?\d[\d.]*(e-?\d+)?", "#", line)
    return " ".join(re.sub(r"\b(ms|us|s)\b", "s", without).split())
