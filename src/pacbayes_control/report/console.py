"""The consoles of the command: text is shown as it is, and no number is ever cut."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from pacbayes_control.certify.text import printable

if TYPE_CHECKING:  # a verdict should not wait for a simulator to load
    from pacbayes_control.rollouts import Progress

WIDEST = 10_000  # columns of what is not a terminal: nothing is wrapped there
AS_IT_IS: Any = {"markup": False, "emoji": False, "highlight": False}


class _Console(Console):
    """A console that shows text as it is: no markup, and no escape sequences."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **{**options, **AS_IT_IS})

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The same for text that did not come as a string, such as a progress bar's."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=printable(part.text))

    def on_broken_pipe(self) -> None:
        """Rich would end with code 1 where a reader has closed the pipe: that is no verdict."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


out, err = _Console(), _Console(stderr=True)


def say(text: str, style: str | None = None) -> None:
    """A line of prose: wrapped for a person at a terminal, whole in a pipe."""
    out.print(text, style=style, soft_wrap=not out.is_terminal)


def warn(text: str) -> None:
    """A line that should not be overlooked."""
    say(f"WARNING: {text}", style="bold")


def show(table: Table) -> None:
    """A table; on a terminal that is too narrow for it, cell by cell. No number is ever cut."""
    for column in table.columns[:-1]:
        column.no_wrap = True
    # The words of the last column may be wrapped.
    last = table.columns[-1]
    lines = [line for cell in (last.header, *last.cells) for line in str(cell).splitlines()]
    longest_line = max((cell_len(line) for line in lines), default=0)
    longest_word = max((cell_len(word) for line in lines for word in line.split()), default=0)
    whole = out.measure(table, options=out.options.update(width=WIDEST)).maximum
    if not out.is_terminal or whole - longest_line + longest_word <= out.width:
        table.width = None if out.is_terminal else whole
        out.print(table, crop=out.is_terminal)
        return
    say(str(table.title or ""))
    headings = [f"{column.header}: " if table.show_header else "" for column in table.columns]
    between, after = ("\n", "\n") if table.show_header else (": ", "")
    for row in zip(*(column.cells for column in table.columns), strict=True):
        cells = zip(headings, map(str, row), strict=True)
        say(between.join(heading + cell for heading, cell in cells if cell) + after)


def print_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Collection[str] = (),
    section: int = 0,
) -> None:
    """A table of results, with numbers flush right.

    Args:
        title: above it
        headings: one for each column
        rows: the cells of each row
        left: headings of columns of words
        section: rows between two lines; 0 for no lines
    """
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right", no_wrap=True)
    for number, row in enumerate(rows, 1):
        table.add_row(*row, end_section=section > 0 and number % section == 0)
    show(table)


def key_values(rows: Iterable[Sequence[str | Text]]) -> Table:
    """A table of names and their values, without lines."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    return table


def working(title: str) -> AbstractContextManager[Any]:
    """A sign of work on a terminal, nothing in a pipe."""
    return err.status(Text(printable(title))) if err.is_terminal else nullcontext()


# ---- progress -----------------------------------------------------------------------------------

FIRST, UNMEASURED = 1.0, 2.0  # seconds before work is described; without knowing how fast it goes
LONG = 10.0  # seconds of work that is described as soon as it is known to take as long
LINES = 2.0, 5.0, 10.0, 20.0, 60.0  # seconds after which a log has another line; then every minute
TICK = 0.5  # seconds between two looks at whether a line is due


@dataclass
class _Work:
    """Work of one title, as far as it was reported."""

    now: Progress
    words: str
    started: float
    told: float  # when it was last reported
    described: bool = False
    remark: str = ""  # the last one that is in no line yet
    # Two moments, and how much was done then: the rate is measured since the first of them. At the
    # beginning, workers start and compilers run, so that they are set by the first progress.
    marks: tuple[tuple[float, int], ...] = ()

    @property
    def rate(self) -> float | None:
        """How much is done in a second, lately; None if that is not known."""
        if not self.marks or self.told <= self.marks[0][0]:
            return None
        return (self.now.done - self.marks[0][1]) / (self.told - self.marks[0][0]) or None

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take; None if that is not known."""
        return (self.now.total - self.now.done) / self.rate if self.rate else None


class ProgressLines:
    """Progress in lines: how much work there is, and how long it will take; then how far it is.

    The first comes after about a second, so that short work is silent, and the others ever rarer.

    Args:
        write: is given each line
        log: whether to go on after the first line of each work, which is enough beside a bar
        clock: the time in seconds
    """

    def __init__(
        self, write: Callable[[str], None], log: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.write, self.log, self.clock = write, log, clock
        self.work: _Work | None = None
        self.begun: float | None = None
        self.due = FIRST  # seconds after the beginning
        self._lock = threading.Lock()

    def tell(self, now: Progress) -> None:
        """Take note of a report, and write a line if one is due."""
        with self._lock:
            moment, work = self.clock(), self.work
            if work is None or work.now.title != now.title or now.done < work.now.done:
                work = self.work = _Work(now, self._in_words(now), moment, moment)
            else:
                work.remark = now.remark or work.remark
                if now.done > work.now.done and not work.marks:
                    work.marks = ((moment, now.done),) * 2
            work.now, work.told = now, moment
            self.begun = moment if self.begun is None else self.begun
            if now.done < now.total:
                self._write_due(work, moment)
                return
            if work.described and self.log:
                took = f"done in {time_words(moment - work.started)}"
                self._write(work, f"{now.total:,} of {now.total:,}, {took}")
            self.work = None

    def look(self) -> None:
        """Write a line if one is due, although nothing was reported."""
        with self._lock:
            if self.work is not None:
                self._write_due(self.work, self.clock())

    def _write(self, work: _Work, words: str) -> None:
        self.write(f"{work.now.title}: {words}" + (f"; {work.remark}" if work.remark else ""))
        work.remark = ""

    @staticmethod
    def _in_words(first: Progress) -> str:
        """Work in words, by the first report on it."""
        if first.kept and first.done:
            return f"resuming, {first.remark or f'{first.done:,} of {first.total:,} are done'}"
        return first.remark or f"{first.total:,}"

    def _write_due(self, work: _Work, moment: float) -> None:
        assert self.begun is not None
        due, now = self.log and moment - self.begun >= self.due, work.now
        speed = rate_words(work.rate) if work.rate else ""
        if not work.described:
            waited, long = moment - work.started, work.left is not None and work.left >= LONG
            if waited < FIRST or not (long or (due and (speed or waited >= UNMEASURED))):
                return
            left = f", about {time_words(work.left)} at {speed}" if work.left else ""
            self.write(f"{now.title}: {work.words}{left}")
            work.described = True
        elif due:
            left = f", {speed}, about {time_words(work.left)} left" if work.left else ""
            share = f"{now.done:,} of {now.total:,} ({100 * now.done // now.total} %)"
            self._write(work, f"{share}{left}")
        else:
            return
        if work.marks:
            work.marks = work.marks[-1], (work.told, now.done)
        since = moment - self.begun
        later = (seconds for seconds in LINES if seconds > since)
        self.due = next(later, (since // LINES[-1] + 1) * LINES[-1])


def time_words(seconds: float) -> str:
    """A time for a person, in the unit that fits.

    >>> [time_words(seconds) for seconds in (0.4, 75, 1500, 64_000, 1e6)]
    ['1 s', '75 s', '25 min', '18 h', '12 days']
    """
    for unit, size in (("s", 1), ("min", 60), ("h", 3600)):
        if seconds < 100 * size or (unit == "h" and seconds < 48 * size):
            return f"{max(1, round(seconds / size))} {unit}"
    return f"{round(seconds / 86400):,} days"


def rate_words(rate: float) -> str:
    """How much is done in a second, for a person."""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


WHOLE = Column(no_wrap=True)  # of numbers: where a terminal is narrow, remarks are wrapped


@contextmanager
def progress_bars() -> Iterator[Callable[[Progress], None]]:
    """A bar for each title of progress on a terminal, while it lasts; lines in a pipe or a file.

    On a terminal, a line above the bars says what long work will cost.
    """

    def write(line: str) -> None:
        with suppress(OSError):  # as of a full disk: the work is worth more than its log
            err.print(line, soft_wrap=True)

    lines = ProgressLines(write, log=not err.is_terminal)
    if not err.is_terminal:
        over = threading.Event()

        def look_now_and_then() -> None:
            while not over.wait(TICK):
                lines.look()

        ticking = threading.Thread(target=look_now_and_then, daemon=True)
        ticking.start()
        try:
            yield lines.tell
        finally:
            over.set()
            ticking.join()
        return
    title, rate = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[rate]}")
    numbers = MofNCompleteColumn(table_column=WHOLE), rate, TimeRemainingColumn(table_column=WHOLE)
    remark = TextColumn("{task.fields[remark]}", markup=False, table_column=Column(overflow="fold"))
    columns = title, BarColumn(12), *numbers, remark
    with RichProgress(*columns, console=err, transient=True) as bars:
        known: dict[str, TaskID] = {}

        def tell(now: Progress) -> None:
            lines.tell(now)
            words = printable(now.remark)
            if now.title not in known:  # the first remark is in the line above
                words, title = "", printable(now.title)
                known[now.title] = bars.add_task(title, total=now.total, rate="", remark="")
            task, unfinished = known[now.title], now.done < now.total
            bars.update(task, completed=now.done, total=now.total, remark=words, visible=unfinished)
            if speed := bars.tasks[task].speed:  # lately
                bars.update(task, rate=rate_words(speed))

        yield tell
