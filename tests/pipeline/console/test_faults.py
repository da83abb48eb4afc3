"""Exit codes, and errors that end a task only at its end."""

import contextlib
import errno

import pytest

from placement.errors import UserError
from placement.pipeline.console import faults


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (None, 0, ""),
        (ZeroDivisionError("by 0"), 1, "fault of the program: ZeroDivisionError: by 0; the trace"),
        (UserError("no\nmodel"), 2, "error: no model"),
        (OSError(errno.ENAMETOOLONG, "no", "x"), 2, "error: 'x' is too long a name"),
        (OSError(errno.ENOSPC, "No space left", "x.json"), 3, "error: x.json: No space left; the"),
        (RuntimeError("RESOURCE_EXHAUSTED: 9 bytes"), 3, "error: RESOURCE_EXHAUSTED: 9 bytes; the"),
        (KeyboardInterrupt(), 130, "interrupted; the same command continues"),
    ],
)
def test_errors_have_exit_codes(error, code, line, tmp_path, capsys):
    (tmp_path / faults.FILE).write_text("of an earlier command")
    ends = contextlib.nullcontext() if error is None else pytest.raises(SystemExit)
    with ends as caught, faults.exit_on_error(tmp_path):
        if error is not None:
            raise error
    assert caught is None or caught.value.code == code
    assert (capsys.readouterr().err.splitlines() or [""])[-1].startswith(line)
    assert (tmp_path / faults.FILE).exists() == (error is not None)


def test_tasks_continue_after_faults():
    done = []

    def task(*errors: Exception) -> None:
        with faults.raise_at_end() as fault_log:
            for error in errors:
                with fault_log.during("drawing"):
                    raise error
            done.append(len(errors))

    with pytest.raises(KeyError) as caught:
        task(KeyError("a"))
    assert caught.value.__notes__ == ["while drawing"]
    with pytest.raises(ExceptionGroup) as group:
        task(KeyError("a"), OSError("b"))
    assert faults.summarise(group.value) == "KeyError: 'a'; OSError: b"
    with pytest.raises(OSError, match="b"):  # several failures of the machine: the first
        task(OSError("b"), MemoryError())
    assert done == [1, 2, 2]
    with pytest.raises(UserError, match="no model"):
        task(UserError("no model"), KeyError("not reached"))
