"""Progress of a task: on a terminal, elsewhere, and by verbosity."""

import io
import re
import time

import pytest
from rich.console import Console

from placement.pipeline.console import progress


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [50.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def display(verbosity: int = 0, **options: object) -> tuple[progress.Display, io.StringIO]:
    out = io.StringIO()
    shown = progress.Display(verbosity)
    shown.console = Console(file=out, **options)
    return shown, out


def test_files_get_whole_lines(monkeypatch):
    monkeypatch.setattr(progress, "_LINE_INTERVAL_S", 0.01)
    shown, out = display(width=40)
    with shown.phase("searching lns", progress.Goal(1000, 60.0, 2e-3)) as phase:
        phase.update(400, 1e-3)
        deadline = time.monotonic() + 30
        while out.getvalue().count("\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = out.getvalue().split("\n")
    status = "searching lns: 400/1,000; best 1.000 ms, 0.500 of the best single device"
    assert lines[0] == lines[1] == f"{status}; 0 s left"
    assert lines[-2].startswith(f"{status}; took 0.")
    assert lines[-1] == ""


@pytest.mark.parametrize(
    ("verbosity", "lines"),
    [
        (-1, ["warning"]),
        (0, ["warning", "note", "phase: step; stopped after 2.0 s"]),
        (1, ["warning", "note", "detail", "phase: step; stopped after 2.0 s"]),
    ],
)
def test_verbosity_selects_messages(clock, verbosity, lines):
    shown, out = display(verbosity)
    shown.warn("warning")
    shown.say("note")
    shown.detail("detail")

    def interrupt() -> None:
        with shown.phase("phase") as phase:
            phase.note("step")
            clock[0] += 2.0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert out.getvalue().splitlines() == lines


def test_terminals_draw_in_place():
    shown, out = display(force_terminal=True, width=80, _environ={"TERM": "xterm"})
    with shown.phase("searching lns", progress.Goal(1000, 60.0)) as phase:
        phase.update(400, 1e-3)
    drawn, line = out.getvalue().rstrip("\n").rsplit("\n", 1)
    assert "searching lns: 400/1,000" in drawn
    assert "\x1b[?25l" in drawn  # the cursor is hidden,
    assert "\x1b[?25h" in drawn + line  # and shown again
    assert re.search(r"searching lns: 400/1,000; best 1\.000 ms; took \d+\.\d s$", line)
