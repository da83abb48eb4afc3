"""Runs Scotch, a partitioner of graphs that is installed as a program, not as a package."""

import os
import shutil
import subprocess

from placement.errors import UserError

# Debian's name, then Scotch's own, which programs of other kinds have too.
_PROGRAMS = ("scotch_gmap", "gmap")


def missing() -> str | None:
    """In words that it is not installed, if so."""
    if _program():
        return None
    return "scotch is not installed (no program scotch_gmap); on Debian: apt-get install scotch"


def _program() -> str | None:
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


def gmap(text: str) -> str:
    """The standard output of `gmap - - -`: maps a graph onto an architecture, both in `text`.

    `gpart`, its simpler sister, knows no parts of different sizes. One thread, as with several the
    same text gives another mapping every time; the seed is fixed in Scotch.

    Raises:
      UserError: it is not installed, or refuses the text.
    """
    program = _program()
    if program is None:
        raise UserError(missing())
    found = subprocess.run(
        [program, "-", "-", "-"],
        input=text,
        capture_output=True,
        text=True,
        env=os.environ | {"SCOTCH_PTHREAD_NUMBER": "1"},
        process_group=0,  # Ctrl-C is for the caller to answer
    )
    # It ends with 0 after some errors.
    if found.returncode or "ERROR" in found.stderr:
        cause = " ".join(found.stderr.split()) or f"ended with {found.returncode}"
        raise UserError(f"{program} failed: {cause}")
    return found.stdout
