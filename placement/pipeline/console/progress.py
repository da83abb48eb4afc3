"""Progress of a running task.

A task runs one *phase* after another. On a terminal the phase is drawn in place: a bar that shows
the share of the budget or of the time, and below it the evaluations, their rate, the best latency
and the state of the measuring worker. Elsewhere a phase prints a line when it ends; a longer one
also prints a line soon after it starts and then every `_LINE_INTERVAL_S` seconds.

`--verbosity` decides what is printed besides the results: -1 only warnings, 0 also phases and
notes, 1 also details.
"""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from placement.pipeline.console import exits
from placement.reporting import printable, units, wrapped_text
from placement.runtime.measurement.local import LocalMeasurer

WARNING, INFO, DEBUG = -1, 0, 1  # absl's numbers
_FIRST_LINE_S = 1.0  # a shorter phase is one line
_LINE_INTERVAL_S = 10.0
_STAGE_NAMES = {"compile": "compiling", "request": "compiling", "infer": "checking"}


class Goal(NamedTuple):
    """The limits of a search, and the latency that it is compared with."""

    budget: int  # evaluations
    time_limit_s: float = math.inf
    single_s: float = math.nan  # latency of the best single device
    spent_s: float = 0.0  # before the phase began


class _Update(NamedTuple):
    evaluations: int
    best_s: float
    time_s: float


class Phase:
    """A phase of a task, with its latest update."""

    goal: Goal | None = None

    def __init__(self, name: str, worker_status: Callable[[], str], log: Callable[[str], None]):
        """Starts the phase.

        Args:
          name: shown in front of every line.
          worker_status: returns the state of the measuring worker, '' if there is none.
          log: takes the duration of each note, as text.
        """
        self.name = name
        self._worker_status, self._log = worker_status, log
        self._note = ""
        self._start_s = self._note_start_s = time.monotonic()
        self._second: _Update | None = None  # the rate counts from here, after compilation
        self._last: _Update | None = None

    def note(self, text: str) -> None:
        """Shows what is being done until the next update or note."""
        time_s = time.monotonic()
        if self._note:
            self._log(f"{self.name}: {self._note}: {time_s - self._note_start_s:.1f} s")
        self._note, self._note_start_s = text, time_s

    def update(self, evaluations: int, best_s: float = math.nan) -> None:
        """Reports the progress of a search; `best_s` is not finite while there is none."""
        update = _Update(evaluations, best_s, time.monotonic())
        if self._last is not None and self._second is None:
            self._second = update
        self._last = update
        self.note("")

    def elapsed_s(self) -> float:
        """Returns the seconds so far, including those spent before the phase began."""
        spent_s = self.goal.spent_s if self.goal else 0.0
        return spent_s + time.monotonic() - self._start_s

    def remaining_s(self) -> float | None:
        """Estimates the seconds until the budget or the time is spent; None if unknown."""
        if self.goal is None:
            return None
        remaining_s = self.goal.time_limit_s - self.elapsed_s()
        if self._last and (rate := self._rate()):
            budget_s = (self.goal.budget - self._last.evaluations) / rate
            remaining_s = min(remaining_s, budget_s - (time.monotonic() - self._last.time_s))
        return max(0.0, remaining_s) if math.isfinite(remaining_s) else None

    def fraction_done(self) -> float | None:
        """Returns the larger spent fraction of the budget and of the time; None if unknown."""
        if self.goal is None:
            return None
        evaluated = self._last.evaluations / self.goal.budget if self._last else 0.0
        return min(1.0, max(evaluated, self.elapsed_s() / self.goal.time_limit_s))

    def status(self) -> str:
        """Returns one line with the last update, the note and the worker; '' if there is none."""
        parts = []
        if self.goal is not None and self._last is not None and self._last.evaluations >= 2:
            rate = self._rate()
            speed = ""
            if rate:
                speed = f" at {rate:,.0f}/s" if rate >= 10 else f" at {rate:.2g}/s"
            parts.append(f"{self._last.evaluations:,}/{self.goal.budget:,}{speed}")
        best_s = units.number(self._last and self._last.best_s)
        if best_s is not None:
            unit = units.latency_unit([best_s])
            text = f"best {unit.write(best_s)} {unit.name}"
            if self.goal is not None and 0 < self.goal.single_s < math.inf:
                text += f", {best_s / self.goal.single_s:.3f} of the best single device"
            parts.append(text)
        return "; ".join(filter(None, [*parts, self._note, self._worker_status()]))

    def _rate(self) -> float | None:
        """Returns the evaluations per second since the second update."""
        if self._last is None or self._second is None:
            return None
        seconds = self._last.time_s - self._second.time_s
        evaluations = self._last.evaluations - self._second.evaluations
        return evaluations / seconds if evaluations > 0 and seconds > 0 else None


class Display:
    """Prints messages and phases; results go to `console`, whatever the verbosity."""

    def __init__(self, verbosity: int = INFO, rewrite: Callable[[str], str] = exits.unchanged):
        """Sets the verbosity, and a function that rewrites messages for the command in use."""
        self.console = wrapped_text.standard_console()
        self._rewrite = rewrite
        self._verbosity = verbosity
        self._worker_status: Callable[[], str] = lambda: ""

    def result(self, text: str) -> None:
        """Prints a line of the results, whatever the verbosity."""
        self.console.print(self._rewrite(text), markup=False, highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Prints a warning."""
        self._print(WARNING, text)

    def say(self, text: str) -> None:
        """Prints a note about the task."""
        self._print(INFO, text)

    def detail(self, text: str) -> None:
        """Prints a detail that helps to find the cause of a problem."""
        self._print(DEBUG, text)

    @contextlib.contextmanager
    def show_worker(self, measurer: LocalMeasurer) -> Iterator[None]:
        """Makes phases of the block show the state of the measurer's worker."""
        self._worker_status = lambda: _describe_worker(measurer)
        try:
            yield
        finally:
            self._worker_status = lambda: ""

    @contextlib.contextmanager
    def phase(self, name: str, goal: Goal | None = None) -> Iterator[Phase]:
        """Shows a phase while the block runs, and prints a line with its duration at the end."""
        phase = Phase(name, lambda: self._worker_status(), self.detail)
        phase.goal = goal
        ending = "stopped after"
        try:
            with self._show(phase):
                yield phase
            ending = "took"
            phase.note("")
        finally:
            duration = f"{ending} {phase.elapsed_s():.1f} s"
            self.say(f"{name}: " + "; ".join(filter(None, [phase.status(), duration])))

    @contextlib.contextmanager
    def _show(self, phase: Phase) -> Iterator[None]:
        if self._verbosity < INFO:
            yield
        elif self.console.is_terminal and not self.console.is_dumb_terminal:
            with _PhaseDrawing(phase, self.console):
                yield
        else:
            has_ended = threading.Event()
            thread = threading.Thread(
                target=self._print_lines, args=(phase, has_ended), daemon=True
            )
            thread.start()
            try:
                yield
            finally:
                has_ended.set()
                thread.join()

    def _print_lines(self, phase: Phase, has_ended: threading.Event) -> None:
        wait_s = _FIRST_LINE_S
        while not has_ended.wait(wait_s):
            remaining_s = phase.remaining_s()
            clock = f"{phase.elapsed_s():.0f} s"
            if remaining_s is not None:
                clock = f"{remaining_s:.0f} s left" if remaining_s >= 0.5 else "finishing"
            self.say(f"{phase.name}: " + "; ".join(filter(None, [phase.status(), clock])))
            wait_s = _LINE_INTERVAL_S

    def _print(self, level: int, text: str) -> None:
        if level <= self._verbosity:
            # A terminal wraps between words; a file gets every message as one line.
            is_file = not self.console.is_terminal
            message = printable.lines(self._rewrite(text))
            self.console.print(message, markup=False, highlight=False, soft_wrap=is_file)


DEFAULT_DISPLAY = Display()


@contextlib.contextmanager
def stop_on_interrupt(display: Display, stop: threading.Event) -> Iterator[None]:
    """Makes the first Ctrl-C during the block set `stop`; a second one raises as usual.

    KeyboardInterrupt cannot be raised in the middle of a step: C extensions lose it or turn it into
    an error of their own (NumPy's structured comparison answers with a TypeError). Python delivers
    signals only to its main thread; in another thread nothing sets `stop`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def request_stop(number: int, frame: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, previous_handler)
        display.warn("stopping after this step; press Ctrl-C again to stop at once")

    previous_handler = signal.signal(signal.SIGINT, request_stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


class _PhaseDrawing(Progress):
    """A phase on a terminal: a name, a bar and a clock, with its status below."""

    def __init__(self, phase: Phase, console: Console):
        self._phase = phase
        name = Column(no_wrap=True, overflow="ellipsis", max_width=48)
        columns = (
            TextColumn("{task.description}", style="bold", markup=False, table_column=name),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            TextColumn("{task.fields[clock]}"),
        )
        super().__init__(
            *columns,
            console=console,
            # Drawing takes milliseconds of a core on which the worker may be measuring.
            refresh_per_second=2,
            transient=True,
            expand=True,
        )
        self.add_task(phase.name, clock="")

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yields the current lines of the phase."""
        fraction, remaining_s = self._phase.fraction_done(), self._phase.remaining_s()
        seconds = self._phase.elapsed_s() if remaining_s is None else remaining_s
        minutes, seconds = divmod(int(seconds), 60)
        clock = f"{minutes}:{seconds:02d}" + ("" if remaining_s is None else " left")
        total = None if fraction is None else 1.0
        for task in self.task_ids:
            self.update(task, total=total, completed=fraction, clock=clock)
        yield from super().get_renderables()
        yield Text(self._phase.status(), style="dim")


def _describe_worker(measurer: LocalMeasurer) -> str:
    """Describes what the worker does with the candidates of its request; '' if nothing."""
    state = measurer.progress()
    if state is None or not state.candidates:
        return ""
    if state.timing:
        return f"timing {state.candidates} placement{'s' if state.candidates > 1 else ''}"
    if state.candidate < 0 or state.stage not in _STAGE_NAMES:
        return ""
    return f"{_STAGE_NAMES[state.stage]} placement {state.candidate + 1} of {state.candidates}"
