"""Scotch, a graph partitioner that is installed as a program, not as a Python package."""

import os
import shutil
import subprocess

from placement.errors import UserError

# Debian's name first: Scotch's own name 'gmap' can be that of an unrelated program.
_PROGRAMS = ("scotch_gmap", "gmap")


def describe_missing() -> str | None:
    """Returns a message that Scotch is not installed; None if it is."""
    if _find_program():
        return None
    return "scotch is not installed (no program scotch_gmap); on Debian: apt-get install scotch"


def _find_program() -> str | None:
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


def run_gmap(text: str) -> str:
    """Maps a graph onto an architecture, both in Scotch's formats; returns the standard output.

    The simpler program `gpart` does not support parts of different sizes. Scotch runs with one
    thread: with several, the same input gives another mapping every time. Its seed is fixed.

    Raises:
      UserError: Scotch is not installed, or refuses the input.
    """
    program = _find_program()
    if program is None:
        raise UserError(describe_missing())
    result = subprocess.run(
        [program, "-", "-", "-"],
        input=text,
        capture_output=True,
        text=True,
        env=os.environ | {"SCOTCH_PTHREAD_NUMBER": "1"},
        process_group=0,  # so that only the caller gets a Ctrl-C
    )
    # After some errors the exit code is 0.
    if result.returncode or "ERROR" in result.stderr:
        cause = " ".join(result.stderr.split()) or f"ended with {result.returncode}"
        raise UserError(f"{program} failed: {cause}")
    return result.stdout
