"""Progress of a task: on a terminal, elsewhere, and by verbosity."""

import io
import math
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


def display(
    verbosity: int = progress.INFO, **options: object
) -> tuple[progress.Display, io.StringIO]:
    out = io.StringIO()
    made = progress.Display(verbosity)
    made.console = Console(file=out, **options)
    return made, out


def phase(goal: progress.Goal | None = None) -> progress.Phase:
    return progress.Phase("searching lns", goal)


def test_search_shows_its_progress(clock):
    searching = phase(progress.Goal(1000, 60.0, single_s=2e-3))
    searching.note("compiling")
    assert searching.line() == "searching lns: compiling; 60 s left"
    clock[0] += 5.0
    searching.update(100, math.inf)
    assert searching.line() == "searching lns: 100/1,000; 45 s left"
    clock[0] += 5.0
    searching.update(400, 1e-3)
    assert searching.line() == (
        "searching lns: 400/1,000; best 1.000 ms, 0.500 of the best single device; 15 s left"
    )
    clock[0] += 50.0
    assert searching.line().endswith("; 0 s left")


def test_phases_without_goals_count_time(clock):
    searching = phase()
    searching.note("on each device")
    clock[0] += 3.0
    assert searching.line() == "searching lns: on each device; 3 s"


def test_files_get_whole_lines(monkeypatch):
    monkeypatch.setattr(progress, "_LINE_INTERVAL_S", 0.01)
    shown, out = display(width=40)
    with shown.phase("searching lns", progress.Goal(1000, 60.0, 2e-3)) as searching:
        searching.update(400, 1e-3)
        deadline = time.monotonic() + 30
        while out.getvalue().count("\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = out.getvalue().split("\n")
    status = "searching lns: 400/1,000; best 1.000 ms, 0.500 of the best single device"
    assert lines[0] == lines[1] == f"{status}; 0 s left"
    assert lines[-2].startswith(f"{status}; took 0.")
    assert lines[-1] == ""
    assert out.getvalue().replace("\n", "").isprintable()


def test_interrupted_phases_say_so(clock):
    shown, out = display()

    def interrupt() -> None:
        with shown.phase("profiling") as searching:
            searching.note("crossings")
            clock[0] += 0.5
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert out.getvalue() == "profiling: crossings; stopped after 0.5 s\n"


@pytest.mark.parametrize(
    ("verbosity", "message"),
    [
        (progress.WARNING, ["warning"]),
        (progress.INFO, ["warning", "note", "phase: took 2.0 s"]),
        (progress.DEBUG, ["warning", "note", "detail", "phase: took 2.0 s"]),
    ],
)
def test_verbosity_selects_messages(clock, verbosity, message):
    shown, out = display(verbosity)
    shown.warn("warning")
    shown.say("note")
    shown.detail("detail")
    with shown.phase("phase") as searching:
        searching.note("step")
        clock[0] += 2.0
    assert out.getvalue().splitlines() == message


def test_terminals_draw_in_place():
    shown, out = display(force_terminal=True, width=80, _environ={"TERM": "xterm"})
    with shown.phase("searching lns", progress.Goal(1000, 60.0)) as searching:
        searching.update(400, 1e-3)
    drawn, line = out.getvalue().rstrip("\n").rsplit("\n", 1)
    assert "searching lns: 400/1,000" in drawn
    assert "\x1b[?25l" in drawn  # the cursor is hidden,
    assert "\x1b[?25h" in drawn + line  # and shown again
    assert re.search(r"searching lns: 400/1,000; best 1\.000 ms; took \d+\.\d s$", line)
