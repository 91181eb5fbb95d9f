"""The consoles of the command: text is shown as it is, and no number is ever cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.segment import Segment
from rich.table import Table
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


@contextmanager
def progress_bars() -> Iterator[Callable[[Progress], None]]:
    """A bar for each title of progress on a terminal, while it lasts; nothing in a pipe."""
    if not err.is_terminal:
        yield lambda _: None
        return
    title, rate = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[rate]}")
    columns = title, BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn()
    with RichProgress(*columns, console=err, transient=True) as bars:
        known: dict[str, TaskID] = {}

        def tell(now: Progress) -> None:
            words = printable(f"{now.title} ({now.remark})" if now.remark else now.title)
            if now.title not in known:
                known[now.title] = bars.add_task(words, total=now.total, rate="")
            task = known[now.title]
            bars.update(
                task,
                description=words,
                completed=now.done,
                total=now.total,
                visible=now.done < now.total,
            )
            if speed := bars.tasks[task].speed:  # lately
                bars.update(task, rate=f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s")

        yield tell
