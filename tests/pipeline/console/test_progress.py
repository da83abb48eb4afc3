"""Progress of a task: on a terminal, elsewhere, and by verbosity."""

import io
import math
import re
import time

import pytest
from rich.console import Console

from placement.pipeline.console import progress
from placement.runtime.measurement.process import Progress


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


def phase(goal: progress.Goal | None = None, busy: str = "") -> progress.Phase:
    made = progress.Phase("searching lns", lambda: busy, lambda _: None)
    made.goal = goal
    return made


def test_a_search_shows_evaluations_rate_latency_and_remaining_time(clock):
    searching = phase(progress.Goal(1000, 60.0, single_s=2e-3))
    searching.note("compiling")
    assert searching.status() == "compiling"
    clock[0] += 5.0
    searching.update(100, math.inf)
    assert searching.status() == "100/1,000"
    assert searching.remaining_s() == 55.0
    for evaluations in (200, 400):  # the first of these comes after what compilation took
        clock[0] += 2.0
        searching.update(evaluations, 1e-3)
    assert searching.status() == (
        "400/1,000 at 100/s; best 1.000 ms, 0.500 of the best single device"
    )
    assert searching.remaining_s() == 6.0
    clock[0] += 1.5
    assert searching.remaining_s() == 4.5
    assert searching.fraction_done() == 0.4


def test_the_time_limit_counts_if_it_comes_first(clock):
    searching = phase(progress.Goal(10**9, 20.0, spent_s=4.0))
    for evaluations in (10, 20, 30):
        clock[0] += 1.0
        searching.update(evaluations, math.nan)
    assert searching.status() == "30/1,000,000,000 at 10/s"
    assert searching.remaining_s() == 13.0
    assert searching.fraction_done() == pytest.approx(7 / 20)


def test_without_a_goal_nothing_is_estimated(clock):
    searching = phase(busy="compiling placement 2 of 3")
    searching.note("on each device")
    assert (searching.remaining_s(), searching.fraction_done()) == (None, None)
    assert searching.status() == "on each device; compiling placement 2 of 3"


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (None, ""),
        (Progress(1, 2, "compile"), ""),  # of a request that measures no candidates
        (Progress(1, -1, "open", 7), ""),
        (Progress(1, 2, "compile", 7), "compiling placement 3 of 7"),
        (Progress(1, 2, "request", 7), "compiling placement 3 of 7"),
        (Progress(1, 6, "infer", 7), "checking placement 7 of 7"),
        (Progress(1, 2, "infer", 7, True), "timing 7 placements"),
        (Progress(1, 0, "infer", 1, True), "timing 1 placement"),
    ],
)
def test_the_workers_state_is_shown(at, words):
    class LocalMeasurer:
        def progress(self) -> Progress | None:
            return at

    shown, _ = display()
    with shown.show_worker(LocalMeasurer()), shown.phase("measuring") as searching:
        assert searching.status() == words
    with shown.phase("writing") as searching:
        assert searching.status() == ""


def test_in_a_file_a_phase_is_whole_lines_without_control_characters(monkeypatch):
    monkeypatch.setattr(progress, "_FIRST_LINE_S", 0.01)
    monkeypatch.setattr(progress, "_LINE_INTERVAL_S", 0.01)
    shown, out = display(width=40)
    with shown.phase("searching lns", progress.Goal(1000, 60.0, 2e-3)) as searching:
        searching.update(400, 1e-3)
        deadline = time.monotonic() + 30
        while out.getvalue().count("\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = out.getvalue().split("\n")
    status = "searching lns: 400/1,000; best 1.000 ms, 0.500 of the best single device"
    assert lines[0] == lines[1] == f"{status}; 60 s left"
    assert lines[-2].startswith(f"{status}; took 0.")
    assert lines[-1] == ""
    assert out.getvalue().replace("\n", "").isprintable()


def test_a_short_phase_is_one_line_and_an_interrupted_one_says_so(clock):
    shown, out = display()

    def profile(error: BaseException | None = None) -> None:
        with shown.phase("profiling") as searching:
            searching.note("crossings")
            clock[0] += 0.5
            if error:
                raise error

    profile()
    with pytest.raises(KeyboardInterrupt):
        profile(KeyboardInterrupt())
    assert out.getvalue().splitlines() == [
        "profiling: took 0.5 s",
        "profiling: crossings; stopped after 0.5 s",
    ]


@pytest.mark.parametrize(
    ("verbosity", "message"),
    [
        (progress.WARNING, ["warning"]),
        (progress.INFO, ["warning", "note", "phase: took 2.0 s"]),
        (progress.DEBUG, ["warning", "note", "detail", "phase: step: 2.0 s", "phase: took 2.0 s"]),
    ],
)
def test_verbosity_decides_what_is_printed(clock, verbosity, message):
    shown, out = display(verbosity)
    shown.warn("warning")
    shown.say("note")
    shown.detail("detail")
    with shown.phase("phase") as searching:
        searching.note("step")
        clock[0] += 2.0
    assert out.getvalue().splitlines() == message


def test_on_a_terminal_of_80_columns_nothing_is_cut(clock):
    searching = progress.Phase(
        "searching hierarchical:grouping=random,num_samples=16,hidden_size=8",
        lambda: "timing 7 placements",
        lambda _: None,
    )
    searching.goal = progress.Goal(32_000, 3600.0, 2e-3)
    for evaluations in (1000, 2000, 3000):
        clock[0] += 1.0
        searching.update(evaluations, 1e-3)
    console = Console(file=io.StringIO(), width=80)
    console.print(progress._PhaseDrawing(searching, console).get_renderable())
    head, *words = console.file.getvalue().splitlines()
    assert head.startswith("searching hierarchical:")
    assert head.rstrip().endswith(" 0:29 left")
    assert "━" in head
    assert max(map(len, [head, *words])) <= 80
    assert " ".join(" ".join(words).split()) == (
        "3,000/32,000 at 1,000/s; best 1.000 ms, 0.500 of the best single device; "
        "timing 7 placements"
    )


def test_on_a_terminal_a_phase_is_drawn_in_place_and_ends_as_a_line():
    shown, out = display(force_terminal=True, width=80, _environ={"TERM": "xterm"})
    with shown.phase("searching lns", progress.Goal(1000, 60.0)) as searching:
        searching.update(400, 1e-3)
    drawn, line = out.getvalue().rstrip("\n").rsplit("\n", 1)
    assert "━" in drawn
    assert "\x1b[?25l" in drawn  # the cursor is hidden,
    assert "\x1b[?25h" in drawn + line  # and shown again
    assert re.search(r"searching lns: 400/1,000; best 1\.000 ms; took \d+\.\d s$", line)


def test_a_dumb_terminal_gets_no_control_characters():
    shown, out = display(force_terminal=True, color_system=None, _environ={"TERM": "dumb"})
    with shown.phase("searching lns"):
        pass
    assert re.fullmatch(r"searching lns: took \d+\.\d s\n", out.getvalue())
