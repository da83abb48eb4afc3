"""What a task says while it runs.

A task is in one *phase* after another. On a terminal the phase is drawn in place: a bar of what
ends first, evaluations or time, and below it what was evaluated, how fast, what the best is worth,
and what the measuring worker is at. Elsewhere a phase is a line when it ends; one that takes longer
is a line when it has begun, and one every `_EVERY_S` seconds.

`--verbosity` decides what is said beside results, which are printed in any case: -1 warnings alone,
0 phases and notes as well, 1 details too.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from placement.reporting import printable, units, words
from placement.runtime.measurement.local import LocalMeasurer

WARNING, INFO, DEBUG = -1, 0, 1  # as absl counts
_BEGUN_S = 1.0  # a phase that takes no longer is one line
_EVERY_S = 10.0
# Drawing costs milliseconds of a core, which the worker may be measuring on.
_DRAWN_PER_S = 2
_LONGEST_NAME = 48  # columns of the terminal
_STAGES = {"compile": "compiling", "request": "compiling", "infer": "checking"}


class Goal(NamedTuple):
    """What a search may spend, and what it is compared with."""

    budget: int  # evaluations
    time_limit_s: float = math.inf
    single_s: float = math.nan  # latency of the best single device
    spent_s: float = 0.0  # before the phase began


class _Update(NamedTuple):
    evaluations: int
    best_s: float
    when_s: float


class Phase:
    """What a task is in, and how far it was when it last said so."""

    goal: Goal | None = None

    def __init__(self, name: str, busy: Callable[[], str], detail: Callable[[str], None]):
        self.name = name
        self._busy, self._detail = busy, detail
        self._note = ""
        self._began_s = self._noted_s = time.monotonic()
        self._since: _Update | None = None  # the rate counts from here
        self._last: _Update | None = None

    def note(self, text: str) -> None:
        """Says what is being done, until the next update or another note."""
        now_s = time.monotonic()
        if self._note:
            self._detail(f"{self.name}: {self._note}: {now_s - self._noted_s:.1f} s")
        self._note, self._noted_s = text, now_s

    def update(self, evaluations: int, best_s: float = math.nan) -> None:
        """Says how far a search is; a best that is not finite is none."""
        update = _Update(evaluations, best_s, time.monotonic())
        if self._last is not None and self._since is None:
            self._since = update
        self._last = update
        self.note("")

    def elapsed_s(self) -> float:
        """Returns seconds, those before the phase began included."""
        spent_s = self.goal.spent_s if self.goal else 0.0
        return spent_s + time.monotonic() - self._began_s

    def left_s(self) -> float | None:
        """Returns seconds until the budget or the time is spent, whichever is first, if known."""
        if self.goal is None:
            return None
        left_s = self.goal.time_limit_s - self.elapsed_s()
        if self._last and (rate := self._rate()):
            of_budget_s = (self.goal.budget - self._last.evaluations) / rate
            left_s = min(left_s, of_budget_s - (time.monotonic() - self._last.when_s))
        return max(0.0, left_s) if math.isfinite(left_s) else None

    def share(self) -> float | None:
        """Returns that of the budget or of the time, whichever is nearer its end, if known."""
        if self.goal is None:
            return None
        evaluated = self._last.evaluations / self.goal.budget if self._last else 0.0
        return min(1.0, max(evaluated, self.elapsed_s() / self.goal.time_limit_s))

    def words(self) -> str:
        """Returns one line of the last update, the note and the worker; '' if that is nothing."""
        return "; ".join(filter(None, [self._evaluated(), self._best(), self._note, self._busy()]))

    def _evaluated(self) -> str:
        if self.goal is None or self._last is None or self._last.evaluations < 2:
            return ""
        rate = self._rate()
        speed = f" at {rate:,.0f}/s" if rate and rate >= 10 else f" at {rate:.2g}/s" if rate else ""
        return f"{self._last.evaluations:,}/{self.goal.budget:,}{speed}"

    def _best(self) -> str:
        best_s = units.number(self._last and self._last.best_s)
        if best_s is None:
            return ""
        unit = units.of_latencies([best_s])
        text = f"best {unit.write(best_s)} {unit.name}"
        if self.goal is None or not self.goal.single_s > 0 or math.isinf(self.goal.single_s):
            return text
        return f"{text}, {best_s / self.goal.single_s:.3f} of the best single device"

    def _rate(self) -> float | None:
        """Returns evaluations a second since the second update, which is after compilation."""
        if self._last is None or self._since is None:
            return None
        seconds = self._last.when_s - self._since.when_s
        evaluations = self._last.evaluations - self._since.evaluations
        return evaluations / seconds if evaluations > 0 and seconds > 0 else None


class Display:
    """Where a task says what it does. Results are printed on `console`, whatever the verbosity."""

    def __init__(self, verbosity: int = INFO):
        self.console = words.console()
        self._verbosity = verbosity
        self._busy: Callable[[], str] = lambda: ""

    def warn(self, text: str) -> None:
        """Says what should not be overlooked."""
        self._print(WARNING, text)

    def say(self, text: str) -> None:
        """Says what is done."""
        self._print(INFO, text)

    def detail(self, text: str) -> None:
        """Says what only someone who looks for a cause wants to know."""
        self._print(DEBUG, text)

    @contextlib.contextmanager
    def watching(self, measurer: LocalMeasurer) -> Iterator[None]:
        """Has phases say within it what the measurer's worker is at."""
        self._busy = lambda: _busy(measurer)
        try:
            yield
        finally:
            self._busy = lambda: ""

    @contextlib.contextmanager
    def phase(self, name: str, goal: Goal | None = None) -> Iterator[Phase]:
        """Shows a phase as long as it lasts; its last line says how long that was."""
        phase = Phase(name, lambda: self._busy(), self.detail)
        phase.goal = goal
        ended = "stopped after"
        try:
            with self._shown(phase):
                yield phase
            ended = "took"
            phase.note("")
        finally:
            took = f"{ended} {phase.elapsed_s():.1f} s"
            self.say(f"{name}: " + "; ".join(filter(None, [phase.words(), took])))

    @contextlib.contextmanager
    def _shown(self, phase: Phase) -> Iterator[None]:
        if self._verbosity < INFO:
            yield
        elif self.console.is_terminal and not self.console.is_dumb_terminal:
            with _Drawing(phase, self.console):
                yield
        else:
            over = threading.Event()
            thread = threading.Thread(target=self._narrate, args=(phase, over), daemon=True)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()

    def _narrate(self, phase: Phase, over: threading.Event) -> None:
        wait_s = _BEGUN_S
        while not over.wait(wait_s):
            left_s = phase.left_s()
            left = f"{left_s:.0f} s left" if left_s is not None else f"{phase.elapsed_s():.0f} s"
            self.say(f"{phase.name}: " + "; ".join(filter(None, [phase.words(), left])))
            wait_s = _EVERY_S

    def _print(self, level: int, text: str) -> None:
        if level <= self._verbosity:
            # A terminal gets whole words, a file whole lines.
            whole = not self.console.is_terminal
            shown = printable.lines(text)
            self.console.print(shown, markup=False, highlight=False, soft_wrap=whole)


NORMAL = Display()


class _Drawing(Progress):
    """A phase on a terminal: a name, a bar and a clock, and words below."""

    def __init__(self, phase: Phase, console: Console):
        self._phase = phase
        name = Column(no_wrap=True, overflow="ellipsis", max_width=_LONGEST_NAME)
        columns = (
            TextColumn("{task.description}", style="bold", markup=False, table_column=name),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
            TextColumn("{task.fields[clock]}"),
        )
        super().__init__(
            *columns, console=console, refresh_per_second=_DRAWN_PER_S, transient=True, expand=True
        )
        self.add_task(phase.name, clock="")

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yields the lines, of the phase as it is now."""
        share, left_s = self._phase.share(), self._phase.left_s()
        minutes, seconds = divmod(int(self._phase.elapsed_s() if left_s is None else left_s), 60)
        clock = f"{minutes}:{seconds:02d}" + ("" if left_s is None else " left")
        for task in self.task_ids:
            self.update(task, total=None if share is None else 1.0, completed=share, clock=clock)
        yield from super().get_renderables()
        yield Text(self._phase.words(), style="dim")


def _busy(measurer: LocalMeasurer) -> str:
    """Returns what the measuring worker is at, of the candidates that it was given."""
    at = measurer.progress()
    if at is None or not at.candidates:
        return ""
    if at.timing:
        return f"timing {at.candidates} placement{'s' if at.candidates > 1 else ''}"
    if at.candidate < 0 or at.stage not in _STAGES:
        return ""
    return f"{_STAGES[at.stage]} placement {at.candidate + 1} of {at.candidates}"
