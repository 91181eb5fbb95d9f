"""Shared by the benchmarks: time, memory, the tables that they print, and how they are run."""

from __future__ import annotations

import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.table import Table

from pacbayes_control.cli.app import BAD_INPUT, USAGE_ERRORS, complain
from pacbayes_control.cli.interrupting import INTERRUPTED
from pacbayes_control.cli.options import write_json
from pacbayes_control.report.console import say, show

T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """One size of a run that shows how time and memory grow."""

    environments: int
    policies: int
    microseconds: float  # a rollout
    peak_mib: float  # of the whole process so far


def repeat(work: Callable[[], T], at_least: float = 1.0) -> tuple[T, float]:
    """Run until `at_least` seconds are spent; the result and the mean seconds of one run."""
    count, started = 0, time.perf_counter()
    while True:
        result = work()
        count += 1
        spent = time.perf_counter() - started
        if spent >= at_least:
            return result, spent / count


def peak_mib() -> float:
    """The largest memory that this process has held, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def main(command: Callable[..., None]) -> None:
    """Run a benchmark with its options: one clear line and exit code 2 for bad input."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to be stopped is to be interrupted
    script = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
    )
    script.command()(command)
    try:
        code = script(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except USAGE_ERRORS as error:
        code = complain(error.format_message())
    except BAD_INPUT as error:
        code = complain(str(error) or type(error).__name__)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    if code == INTERRUPTED:
        complain("interrupted")
    sys.exit(code if isinstance(code, int) else 0)


def conclude(name: str, result: Any, json_file: Path | None) -> None:
    """Write what a benchmark has measured, where that was asked for, and show it."""
    record = asdict(result)
    write_json(json_file, record)
    show_bench(name, record)


def show_bench(name: str, record: dict[str, Any]) -> None:
    """Measured figures, and how they grow."""
    table = Table("measure", "value", title=f"benchmarks/{name}.py", title_justify="left")
    for words, value in _figures(record):
        table.add_row(words, _figure(value))
    show(table)
    if "scaling" in record:
        scaling = Table("environments", "policies", "µs a rollout", "peak MiB")
        for row in record["scaling"]:
            scaling.add_row(
                f"{row['environments']:,}",
                f"{row['policies']}",
                f"{row['microseconds']:.2f}",
                f"{row['peak_mib']:.0f}",
            )
        show(scaling)

    for rows in (record[key] for key in ("pairs", "mixtures") if key in record):
        plain = Table(*(name.replace("_", " ") for name in rows[0]))
        for row in rows:
            plain.add_row(*(f"{value:,.4g}" for value in row.values()))
        show(plain)
    if "methods" in record:
        names = [*record["methods"][0]][2:]
        methods = Table("costs", "N", *names)
        for row in record["methods"]:
            figures = (f"{row[name]:.4f}" for name in names)
            methods.add_row(row["costs"], f"{row['environments']:,}", *figures)
        show(methods)
    if "power" in record:
        power = Table("failure rate", "trials", "monitor", "fixed sample", "Hoeffding")
        for row in record["power"]:
            chances = (row[name] for name in ("monitor", "fixed_sample", "hoeffding"))
            power.add_row(f"{row['rate']:.3f}", f"{row['trials']}", *(f"{p:.4f}" for p in chances))
        show(power)
        say(
            "How often each test finds the promise of 0.114 broken at level 0.05; in the first rows"
        )
        say("wrongly. The monitor looks after every outcome, the other two once, at the end.")


def _figures(record: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every single figure, with its name in words."""
    for key, value in record.items():
        words = key.replace("_", " ")
        if isinstance(value, dict):
            yield from ((f"{words}, {name}", each) for name, each in value.items())
        elif key not in ("scaling", "power", "methods", "pairs", "mixtures"):
            yield words, value


def _figure(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) >= 0.01 else f"{value:.6f}"
