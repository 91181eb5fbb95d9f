"""Logs among files, folders and patterns, each with the program that wrote it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pacbayes_control.certify.files import LARGEST_JSON
from pacbayes_control.certify.text import quoted
from pacbayes_control.trials.logs.harnesses import read_arrays
from pacbayes_control.trials.logs.jsons import kind_of_json, parse_log
from pacbayes_control.trials.logs.lerobot import is_dataset
from pacbayes_control.trials.logs.rows import shown_name
from pacbayes_control.trials.logs.sheets import TABLES

EVALUATION = "eval_info.json"
READ = "CSV, TSV, Parquet, XLSX, JSON lines, eval_info.json, results of vla-eval, evaluations.npz"
MOST_FILES = 10_000


@dataclass
class Found:
    """The logs that were found, by the program that wrote them."""

    lerobot: list[Path] = field(default_factory=list)
    datasets: list[Path] = field(default_factory=list)  # folders
    vla_eval: list[Path] = field(default_factory=list)
    callbacks: list[Path] = field(default_factory=list)  # of Stable-Baselines3
    tables: list[Path] = field(default_factory=list)
    arrays: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)

    def add(self, path: Path, kind: str) -> None:
        """Add a log, unless it was found before."""
        if path.absolute() not in self.seen:
            self.seen.add(path.absolute())
            getattr(self, kind).append(path)


def find_logs(names: Sequence[str | Path]) -> Found:
    """The logs that files, folders and patterns stand for."""
    if isinstance(names, str | Path):
        names = [names]
    if not names:
        raise ValueError("give at least one log: a file, a folder or a pattern such as runs/*.csv")
    found = Found()
    for name in names:
        for path in _expanded(str(name)):
            if path.is_dir():
                _search(path, found)
            else:
                found.add(path, _kind(path))
    return found


def _expanded(name: str) -> list[Path]:
    if "\0" in name or not name:
        raise ValueError(f"{quoted(name)} is no name of a file")
    try:
        if Path(name).exists():
            return [Path(name)]
    except OSError as error:
        raise OSError(f"{quoted(name)} is no name of a file ({error.strerror})") from None
    if not glob.has_magic(name):
        raise FileNotFoundError(f"there is no file or folder {quoted(name, 200)}")
    matches = sorted(glob.glob(name, recursive=True))
    if not matches:
        raise FileNotFoundError(f"no file matches {quoted(name, 200)}")
    inside = {Path(match) for match in matches if Path(match).is_dir()}
    # `**` matches folders as well as the files in them: a folder is searched only if alone
    return [
        path
        for path in map(Path, matches)
        if path not in inside or not any(path in Path(other).parents for other in matches)
    ]


def _kind(path: Path) -> str:
    """The kind of log that a file is, by its name and its content."""
    suffix = path.suffix.lower()
    if suffix in TABLES:
        return "tables"
    if path.name == EVALUATION:
        return "lerobot"
    if suffix == ".json":
        if not path.stat().st_size:
            raise ValueError(f"{shown_name(path)} is empty: no trials are recorded in it")
        kind = {"lerobot": "lerobot", "vla-eval": "vla_eval"}.get(
            kind_of_json(parse_log(path)) or ""
        )
        if kind:
            return kind
        raise ValueError(
            f"{shown_name(path)} is neither a LeRobot {EVALUATION} nor a result of vla-eval"
        )
    if suffix == ".npz":
        names = read_arrays(path).keys()
        return "callbacks" if {"timesteps", "results"} <= names else "arrays"
    if suffix == ".npy":
        return "arrays"
    raise ValueError(f"{shown_name(path)} is no log that can be read: give {READ}")


# ---- folders ------------------------------------------------------------------------------------


def _search(folder: Path, found: Found) -> None:
    """Add the logs of evaluation programs below a folder, or else its tables."""
    files, programs, tables = _files_below(folder), [], []
    for path in files:
        if path.name == "info.json" and path.parent.name == "meta":
            if is_dataset(path.parent.parent):
                programs.append((path.parent.parent, "datasets"))
        elif path.name == EVALUATION:
            programs.append((path, "lerobot"))
        elif path.name == "evaluations.npz":
            programs.append((path, "callbacks"))
        elif path.suffix.lower() == ".json" and _is_vla_eval(path):
            programs.append((path, "vla_eval"))
        elif path.suffix.lower() in TABLES:
            tables.append((path, "tables"))
    inside = [home for home, kind in programs if kind == "datasets"]
    tables = [(p, kind) for p, kind in tables if not any(home in p.parents for home in inside)]
    logs = programs or tables
    if not logs:
        raise ValueError(f"the folder {quoted(str(folder), 200)} has no logs: expected {READ}")
    for path, kind in logs:
        found.add(path, kind)
    if programs and tables:
        found.notes.append(f"tables in {quoted(folder.name)} not read ({len(tables)})")
    _note_silent(folder, [path for path, kind in programs if kind == "lerobot"], found)


def _files_below(folder: Path) -> list[Path]:
    """Files in a folder and the folders in it, in order; hidden ones are left out."""
    files: list[Path] = []
    for home, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        files += [Path(home, name) for name in sorted(names) if not name.startswith(".")]
        if len(files) > MOST_FILES * 10:
            raise ValueError(
                f"the folder {quoted(str(folder), 200)} has too many files: name the logs"
            )
    return files


def _is_vla_eval(path: Path) -> bool:
    """Whether a JSON file in a folder is a result of vla-eval; others are no logs."""
    if path.stat().st_size > LARGEST_JSON:
        return False
    start = path.read_bytes()
    if b'"benchmark"' not in start or b'"tasks"' not in start:
        return False
    return kind_of_json(parse_log(path)) == "vla-eval"


def _note_silent(folder: Path, evaluations: Iterable[Path], found: Found) -> None:
    """Tell of folders beside those of evaluations that have no evaluation themselves."""
    homes = {path.parent for path in evaluations} - {folder}
    parents = {home.parent for home in homes}
    silent = sorted(
        each.name
        for parent in parents
        for each in parent.iterdir()
        if each.is_dir() and not any(each == home or each in home.parents for home in homes)
    )
    if silent:
        shown = ", ".join(quoted(name) for name in silent[:5])
        found.notes.append(f"no evaluation in other folders ({len(silent)}: {shown})")
