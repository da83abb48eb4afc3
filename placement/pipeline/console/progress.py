"""Progress of a running task.

A task runs one *phase* after another. A terminal shows the current phase as one line that is drawn
in place. Elsewhere a phase prints a line when it ends, and before that one every
`_LINE_INTERVAL_S` seconds.

`--verbosity` decides what is printed besides the results: -1 only warnings, 0 also phases and
notes, 1 also details.
"""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from rich.live import Live
from rich.text import Text

from placement.reporting import printable, units
from placement.reporting.tables import grids

WARNING, INFO, DEBUG = -1, 0, 1  # absl's numbers
_LINE_INTERVAL_S = 10.0


class Goal(NamedTuple):
    """The limits of a search, and the latency that it is compared with."""

    budget: int  # evaluations
    time_limit_s: float = math.inf
    single_s: float = math.nan  # latency of the best single device
    spent_s: float = 0.0  # before the phase began


class Phase:
    """A phase of a task, with its latest update."""

    def __init__(self, name: str, goal: Goal | None = None):
        """Starts the phase; a search has a goal."""
        self.name, self.goal = name, goal
        self._note = ""
        self._start_s = time.monotonic()
        self._evaluations, self._best_s = 0, math.nan

    def note(self, text: str) -> None:
        """Shows what is being done until the next update or note."""
        self._note = text

    def update(self, evaluations: int, best_s: float = math.nan) -> None:
        """Reports the progress of a search; `best_s` is not finite while there is none."""
        self._evaluations, self._best_s, self._note = evaluations, best_s, ""

    def elapsed_s(self) -> float:
        """Returns the seconds so far, including those spent before the phase began."""
        spent_s = self.goal.spent_s if self.goal else 0.0
        return spent_s + time.monotonic() - self._start_s

    def line(self, ending: str = "") -> str:
        """Returns a line with the last update, the note, and the remaining time or `ending`."""
        parts, elapsed_s, remaining_s = list[str](), self.elapsed_s(), math.inf
        if self.goal is not None:
            remaining_s = self.goal.time_limit_s - elapsed_s
            if self._evaluations >= 2:
                parts.append(f"{self._evaluations:,}/{self.goal.budget:,}")
                budget_s = elapsed_s * (self.goal.budget / self._evaluations - 1)
                remaining_s = min(remaining_s, budget_s)
        if math.isfinite(self._best_s):
            unit = units.latency_unit([self._best_s])
            text = f"best {unit.write(self._best_s)} {unit.name}"
            if self.goal is not None and 0 < self.goal.single_s < math.inf:
                text += f", {self._best_s / self.goal.single_s:.3f} of the best single device"
            parts.append(text)
        is_known = remaining_s < math.inf
        time_text = f"{max(remaining_s, 0):.0f} s left" if is_known else f"{elapsed_s:.0f} s"
        return f"{self.name}: " + "; ".join(filter(None, [*parts, self._note, ending or time_text]))


class Display:
    """Prints messages and phases; results go to `console`, whatever the verbosity."""

    def __init__(self, verbosity: int = INFO):
        self.console = grids.standard_console()
        self._verbosity = verbosity

    def result(self, text: str) -> None:
        """Prints a line of the results, whatever the verbosity."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

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
    def phase(self, name: str, goal: Goal | None = None) -> Iterator[Phase]:
        """Shows a phase while the block runs, and prints a line with its duration at the end."""
        phase, ending, has_ended = Phase(name, goal), "stopped after", threading.Event()

        def print_lines() -> None:
            while not has_ended.wait(_LINE_INTERVAL_S):
                self.say(phase.line())

        thread = threading.Thread(target=print_lines, daemon=True)
        shown: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if self._verbosity >= INFO:
            if self.console.is_terminal and not self.console.is_dumb_terminal:
                shown = Live(
                    console=self.console,
                    get_renderable=lambda: Text(printable.text(phase.line()), style="dim"),
                    refresh_per_second=2,  # drawing takes milliseconds of a core that may be timed
                    transient=True,
                )
            else:
                thread.start()
        try:
            with shown:
                yield phase
            ending = "took"
            phase.note("")
        finally:
            has_ended.set()
            if thread.is_alive():
                thread.join()
            self.say(phase.line(f"{ending} {phase.elapsed_s():.1f} s"))

    def _print(self, level: int, text: str) -> None:
        if level <= self._verbosity:
            # A terminal wraps between words; a file gets every message as one line.
            is_file = not self.console.is_terminal
            message = printable.lines(text)
            self.console.print(message, markup=False, highlight=False, soft_wrap=is_file)


DEFAULT_DISPLAY = Display()


@contextlib.contextmanager
def stop_on_interrupt(display: Display, stop: threading.Event) -> Iterator[None]:
    """Makes the first Ctrl-C during the block set `stop`; a second one raises as usual.

    KeyboardInterrupt cannot be raised in the middle of a step: C extensions lose it or turn it into
    another error (NumPy's structured comparison answers with a TypeError). Python delivers signals
    only to its main thread; in another thread nothing sets `stop`.
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
