"""The folder of a sweep: what it was begun with, and the draws that are finished.

It holds `begun.json`, all that the figures depend on; folders of rollouts; `finished.jsonl`, one
line for each finished draw; and, at the end, `sweep.json` and `sweep.csv`. The same sweep goes on
where it was, and another one is refused.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from shutil import rmtree
from typing import Any, get_type_hints

import pacbayes_control
from pacbayes_control.certify import files
from pacbayes_control.certify.tables.pilots import pilot_file
from pacbayes_control.rollouts import Execution
from pacbayes_control.study.campaign_slices import Campaign, Outcome, Size
from pacbayes_control.study.sweep_grid import Grid
from pacbayes_control.tasks.identity import code_digest, identity

BEGUN, FINISHED, LOCK = "begun.json", "finished.jsonl", "lock"
CONTENT = {  # facts whose values would tell a reader nothing
    "code": "the code of the task has",
    "tasks": "the task has",
    "files": "the files of policies or of the prior have",
}
LINE = {"cell": int, "draw": int, **get_type_hints(Outcome)}


class FinishedDraws:
    """Outcomes by the number of the cell and of the draw, kept in a file as they come."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outcomes: dict[tuple[int, int], Outcome] = {}
        file = folder / FINISHED
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            with suppress(ValueError):  # an interruption left a part of a line
                record = json.loads(line)
                files.check_record(record, LINE)
                place = record.pop("cell"), record.pop("draw")
                self.outcomes[place] = Outcome(**record)

    def store(self, cell: int, draw: int) -> Path:
        """A prefix for the files of a draw that is not finished."""
        return self.folder / f"draw-{cell}-{draw}"

    def add(self, cell: int, draw: int, outcome: Outcome) -> None:
        """Keep the outcome of a draw; what was kept to continue it is deleted."""
        line = json.dumps({"cell": cell, "draw": draw, **asdict(outcome)}, allow_nan=False)
        with (self.folder / FINISHED).open("a", encoding="utf-8") as file:
            file.write(f"\n{line}")  # the end of the line before may be missing
        self.outcomes[cell, draw] = outcome
        for path in self.folder.glob(f"{self.store(cell, draw).name}.*"):
            rmtree(path) if path.is_dir() else path.unlink()


def description(
    grid: Grid, size: Size, campaigns: Sequence[Campaign], execution: Execution
) -> dict[str, Any]:
    """All that the figures of a sweep depend on, as plain values."""
    named: dict[str, str] = {}
    for cell in grid.cells:
        plan = cell.plan
        paths = [Path(name) for name in (plan.policies, plan.prior) if name]
        paths += [pilot_file(plan.pilot)] if plan.pilot else []
        named |= {str(path): files.hash_file(path) for path in paths if path.is_file()}
    return {
        "version": pacbayes_control.__version__,
        "task": campaigns[0].task.name,
        "plan": grid.plan.to_dict(),
        "over": [[name, list(values)] for name, values in grid.over.items()],
        "draws": size.draws,
        "test environments": size.test_environments,
        "rollout timeout": execution.rollout_timeout,
        "tasks": [files.sha256(identity(each.task).encode()) for each in campaigns],
        "code": [code_digest(each.task) for each in campaigns],
        "files": named,
    }


@contextmanager
def opened(folder: Path, begun_with: Mapping[str, Any]) -> Iterator[FinishedDraws]:
    """The folder of a sweep, new or begun earlier; a ValueError if it is of another one."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: a sweep needs a folder")
    begun = folder / BEGUN
    others = {path.name for path in folder.iterdir()} - {LOCK} if folder.is_dir() else set()
    if others and BEGUN not in others:
        raise ValueError(f"{folder} holds other things than a sweep: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder / LOCK, f"another process sweeps in {folder}: wait for it"):
        if begun.exists():
            check_same(folder, files.read_json(begun), begun_with)
        else:
            files.write_atomic(begun, files.json_bytes(begun_with))
        yield FinishedDraws(folder)


def check_same(folder: Path, known: Any, asked: Mapping[str, Any]) -> None:
    """Raise ValueError, with the first difference, if a folder is of another sweep."""
    known = known if isinstance(known, dict) else {}
    for name, value in json.loads(files.json_bytes(asked)).items():
        if known.get(name) == value:
            continue
        if name in CONTENT:
            raise ValueError(
                f"{CONTENT[name]} changed since {folder} was begun: finished draws cannot be mixed "
                "with others; choose another folder"
            )
        words = f"{name} {_short(known.get(name))}, not {_short(value)}"
        raise ValueError(f"{folder} holds another sweep, with {words}: choose another folder")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:79] + "…"


def csv_bytes(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as a CSV file, with all digits."""
    text = io.StringIO()
    written = csv.DictWriter(text, columns, lineterminator="\n")
    written.writeheader()
    written.writerows(rows)
    return text.getvalue().encode()
