"""Runs the command line in a process that need not load JAX and OpenVINO again.

A server that has loaded them forks for each command, before either has started any thread. For
commands that are refused; what computes is given a process of its own.
"""

import multiprocessing
import os
import sys
from pathlib import Path

_TASKS = ("compare", "deploy", "place", "profile", "report", "solve")


def run(workdir: Path, *flags: str, config: str, outputs: Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error; files for these go to `outputs`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([f"experiments.{task}" for task in _TASKS])
    streams = [outputs / name for name in ("stdout", "stderr")]
    argv = [f"--config={config}", f"--workdir={workdir}", *flags]
    process = context.Process(target=_main, args=(argv, *streams))
    process.start()
    process.join(120)
    assert process.exitcode is not None, "it does not end"
    return process.exitcode, *(stream.read_text() for stream in streams)


def _main(argv: list[str], out: Path, err: Path) -> None:
    for stream, path in ((sys.stdout, out), (sys.stderr, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream.fileno())
    sys.argv = ["experiments.main", *argv]
    from experiments import main

    main.cli()
