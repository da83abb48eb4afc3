"""The entry point: flags, then the task.

python -m experiments.main --config=quickstart --workdir=runs/quickstart

It exits with one of `EXIT_CODES`; after 3 and 130, and after a kill, the same command goes on from
what was saved.
"""

import errno
import importlib
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from absl import app, flags
from ml_collections import config_flags

from configs import common
from experiments import usage
from placement import arguments
from placement.errors import UserError
from placement.reporting import printable

TASKS = (
    *("place", "advise", "front", "deploy", "compare", "solve"),
    *("profile", "pretrain", "export", "report", "list"),
)
EXIT_CODES = {
    0: "done, or stopped by Ctrl-C with a table of what was found",
    1: "a fault of the program; what was found is kept, fault.txt has the traceback",
    2: "the command asks for what cannot be",
    3: "the machine failed: a full disk, a lost device, a worker that dies, no placement that runs",
    130: "stopped by Ctrl-C before there was a table",
}
_NEEDS = {"report": ("workdir",), "list": ()}  # of the others both flags
_EXAMPLES = {"config": "quickstart", "workdir": "runs/quickstart"}
# As absl takes them: each is answered with the same help.
_HELP = re.compile(r"--?(h|\?|help|helpshort|helpfull|helpxml)(=(true|1|yes))?", re.IGNORECASE)

_loaded: list[str] = []  # files of configurations that are being read

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "The configuration: its name or its file.", lock_config=True
)
_WORKDIR = flags.DEFINE_string("workdir", None, "The run directory.")
_TASK = flags.DEFINE_string("task", "place", f"One of {', '.join(TASKS)}.")
_COORDINATOR = flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0, of several.")
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Processes that learn as one.")
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "The number of this one, from 0.")


def main(argv: Sequence[str]) -> None:
    """Runs the task; whatever goes wrong is one line and one of `EXIT_CODES`."""
    try:
        if len(argv) > 1:
            raise UserError(f"unexpected argument {argv[1]!r}; flags look like --task=place")
        arguments.check("task", _TASK.value, TASKS)
        _check_needs(_TASK.value)
        _keep_compiled()
        if _is_one_of_several():
            _run_with_others()
        else:
            _run()
    except UserError as error:
        report_mistake(error)
    except (OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            report_mistake(UserError(f"{error.filename!r} is too long a name; give a shorter one"))
        report_failure(error)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from what this one saved", file=sys.stderr)
        sys.exit(130)
    except Exception as fault:
        report_fault(fault)


def _keep_compiled() -> None:
    """Has JAX keep what it compiles, for later runs; called before JAX is loaded."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(cache, "placement"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


def _run() -> None:
    # Not loaded above, as they load JAX and OpenVINO: help and mistakes are printed at once.
    task = importlib.import_module(f"placement.pipeline.tasks.{_TASK.value}")
    progress = importlib.import_module("placement.pipeline.console.progress")
    workdir = Path(_WORKDIR.value) if _WORKDIR.value else None
    task.run(_CONFIG.value, workdir, progress.Display(flags.FLAGS.verbosity))
    if workdir is not None:
        importlib.import_module("placement.pipeline.console.faults").forget(workdir)


def _is_one_of_several() -> bool:
    """Whether this process is one of several, judged by the flags."""
    given = {flag.name: flag.value for flag in (_COORDINATOR, _NUM_PROCESSES, _PROCESS_ID)}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return False
    if missing:
        raise UserError(
            f"--{' and --'.join(missing)} missing; give each of several processes "
            "--coordinator=HOST:PORT --num_processes=N --process_id=I"
        )
    return True


def _run_with_others() -> None:
    # First of all what loads OpenVINO: that forks, which it must not once JAX has threads.
    follower = importlib.import_module("placement.pipeline.distributed.follower")
    processes = importlib.import_module("placement.pipeline.distributed.processes")
    processes.join(_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value)
    if _PROCESS_ID.value:
        # Ctrl-C often reaches all processes of a terminal: the first decides when all stop.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        follower.run()
        return
    with processes.stopping():
        _run()


def parse(argv: list[str]) -> list[str]:
    """Parses flags; whatever is wrong with them is one line and exit code 2."""
    try:
        return flags.FLAGS(_with_whole_config(argv))
    except flags.UnrecognizedFlagError as error:
        report_mistake(arguments.unknown("flag", error.flagname, ("config", "workdir", "task")))
    except (flags.Error, AttributeError, KeyError, ValueError, TypeError, OSError) as error:
        if error.args and isinstance(cause := error.args[0], KeyError):
            key = str(cause.args[0]).partition("\n")[0].strip("'")
            error = arguments.unknown("key of the configuration", key, common.KEYS)
        report_mistake(_of_config(error) or error)
    except Exception as error:
        mistake = _of_config(error)
        if mistake is None:
            report_fault(error)
        report_mistake(mistake)


def _of_config(error: Exception) -> UserError | None:
    """Returns the mistake in a configuration's file that made an error; None of any other."""
    frames = traceback.extract_tb(error.__traceback__)
    lines: list[tuple[str | None, int | None]] = [(f.filename, f.lineno) for f in frames]
    lines += [(error.filename, error.lineno)] if isinstance(error, SyntaxError) else []
    mine = [(file, line) for file, line in lines if file in _loaded]
    no_function = isinstance(error, AttributeError) and error.name == "get_config"
    if not mine and not (no_function and _loaded):
        return None
    file, line = mine[-1] if mine else (_loaded[-1], None)
    where = f", line {line}" if line else ""
    what = "it has no get_config()" if no_function else f"{type(error).__name__}: {error.args[0]}"
    return UserError(
        f"{file!r}{where} is no configuration: {what}; give a Python file whose get_config() "
        f"returns one, or one of {', '.join(usage.configs())}"
    )


def report_mistake(error: Exception) -> NoReturn:
    """Prints the error in one line and exits with 2."""
    print(f"error: {printable.text(' '.join(str(error).split()))}", file=sys.stderr)
    sys.exit(2)


def report_failure(error: OSError | MemoryError) -> NoReturn:
    """Prints what failed, with the file if it is about one, and exits with 3."""
    where, cause = "", str(error) or "out of memory"
    if isinstance(error, OSError):
        where, cause = f"{error.filename}: " if error.filename else "", error.strerror or cause
    cause = " ".join(cause.split())
    rest = "the same command goes on from what was saved"
    print(printable.text(f"error: {where}{cause}; {rest}"), file=sys.stderr)
    sys.exit(3)


def report_fault(fault: Exception) -> NoReturn:
    """Writes the traceback, names its file in one line, and exits with 1.

    What JAX says when memory runs out is a failure of the machine instead.
    """
    faults = importlib.import_module("placement.pipeline.console.faults")
    if (failure := faults.out_of_memory(fault)) is not None:
        report_failure(failure)
    file = faults.write(fault, Path(_WORKDIR.value) if _WORKDIR.value else None)
    if file is None:
        traceback.print_exception(fault)
    where = f"the traceback is in {file}" if file else "its traceback stands above"
    line = f"fault of the program: {faults.in_short(fault)}; {where}"
    print(printable.text(line), file=sys.stderr)
    sys.exit(1)


def _check_needs(task: str) -> None:
    given = {"config": _CONFIG.value, "workdir": _WORKDIR.value}
    missing = [name for name in _NEEDS.get(task, given) if not given[name]]
    if missing:
        wanted = " and ".join(f"--{name}" for name in missing)
        such = " ".join(f"--{name}={_EXAMPLES[name]}" for name in missing)
        names = f"; configurations: {', '.join(usage.configs())}" if "config" in missing else ""
        raise UserError(f"--task={task} needs {wanted}, such as {such}{names}")


def _with_whole_config(argv: list[str]) -> list[str]:
    """Puts a configuration's file in the place of its name.

    Raises:
      UserError: there is no such file and no installed configuration of that name.
    """
    whole = list(argv)
    for i, argument in enumerate(whole):
        flag, equals, value = argument.partition("=")
        if flag not in ("--config", "-config"):
            continue
        if equals:
            _loaded.append(str(_config_file(value)))
            whole[i] = f"{flag}={_loaded[-1]}"
        elif i + 1 < len(whole):
            _loaded.append(str(_config_file(whole[i + 1])))
            whole[i + 1] = _loaded[-1]
    return whole


def _config_file(text: str) -> Path:
    """Returns the file of a configuration.

    A bare name, such as 'hsdag', is an installed configuration. A file of the user's is given as a
    path with a separator or the suffix .py: a name alone must not run code of the current folder.
    """
    is_path = text.endswith(".py") or "/" in text or os.sep in text
    installed = usage.CONFIGS / f"{text}.py"
    candidates = [Path(text), usage.CONFIGS.parent / text] if is_path else [installed]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise arguments.unknown("configuration", text, usage.configs())


def cli() -> None:
    """Runs absl with `parse` in place of its own parser, which answers with usage and exit 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # of which the encoding may lack a character
            stream.reconfigure(errors="backslashreplace")
    given = sys.argv[1:]
    if not given:
        print(usage.short(TASKS), file=sys.stderr)
        sys.exit(2)
    if any(map(_HELP.fullmatch, given)):
        print(usage.full(TASKS, EXIT_CODES))
        sys.exit(0)
    app.run(main, flags_parser=parse)


if __name__ == "__main__":
    cli()
