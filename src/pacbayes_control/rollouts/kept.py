"""Costs kept on disk as they come, so that whatever is killed can be taken up where it was.

A folder holds `rollouts.json`, what is being rolled out; `costs.npy`, the table, or `graded.npy`
once there is a cost between 0 and 1; `finished.jsonl`, a line for each piece that is done, with the
SHA-256 of its costs; `retried.jsonl`, rollouts that had failed at first; and a lock. Costs are
written before the line that tells of them, so that a piece counts if its line is whole and its
costs match. They are written to the file, not to a map of it: a full disk is then an error and not
a crash.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import filelock
import numpy as np
from numpy.lib.format import write_array_header_1_0
from numpy.typing import NDArray

from pacbayes_control.rollouts.description import check_same, described_job
from pacbayes_control.rollouts.jobs import Job, Piece
from pacbayes_control.rollouts.workers import Failure
from pacbayes_control.run import read_json

BYTES, FLOATS = "costs.npy", "graded.npy"  # the table: of 0 and 1, and once there is another cost
AT_A_TIME = 1 << 20  # costs


class KeptCosts:
    """A table of costs in a folder, parts of which are done."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.folder, self.shape = folder, job.shape
        self.rollouts = self.shape[0] * self.shape[1]
        self.graded = (folder / FLOATS).exists()
        if self.graded:
            (folder / BYTES).unlink(missing_ok=True)
        self._file, self._offset = self._open_table()
        self.done = self._read_finished()

    @property
    def finished(self) -> int:
        """How many rollouts are done."""
        return sum(last - first for first, last in self.done)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The rollouts that are to be done, as ranges along the rows."""
        gaps, at = [], 0
        for first, last in [*self.done, (self.rollouts, self.rollouts)]:
            if first > at:
                gaps.append((at, first))
            at = max(at, last)
        return gaps

    def keep(self, piece: Piece, costs: NDArray[np.float64 | np.uint8]) -> None:
        """Write the costs of a piece, and then that it is done."""
        columns = self.shape[1]
        first = piece.first_row * columns + piece.first_column
        try:
            if costs.dtype != np.uint8 and not self.graded:
                self._turn_to_floats()
            self._write(first, costs)
            line = {"first": first, "last": first + costs.size, "sha256": _digest(costs)}
            self._append(json.dumps(line))
        except OSError as error:
            raise OSError(
                f"{self.folder}: {error.strerror or error}; the {self.finished:,} rollouts that "
                "are finished survive there: make room and do the same again to go on"
            ) from error
        self.done = _merged([*self.done, (first, first + costs.size)])

    def keep_retried(self, failure: Failure) -> None:
        """Write down that a rollout had failed before it was tried again."""
        record = {"environment": failure.row, "policy": failure.column, "error": failure.error}
        with (self.folder / "retried.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    @property
    def code(self) -> dict[str, object]:
        """The digest of the task's code, and of what it was before it was mended."""
        known = read_json(self.folder / "rollouts.json")
        return {key: known[key] for key in ("code", "earlier code") if key in known}

    @property
    def retried(self) -> int:
        """How many rollouts had failed before they were tried again."""
        path = self.folder / "retried.jsonl"
        return len(path.read_bytes().splitlines()) if path.exists() else 0

    def cost(self, rollout: int) -> float:
        """What a rollout that is done cost."""
        return float(self._read(rollout, rollout + 1)[0])

    def some(self, count: int) -> list[int]:
        """A few of the rollouts that are done, from the first to the last."""
        first, last = np.array(self.done).T
        ends = np.cumsum(last - first)
        chosen = np.unique(np.linspace(0, ends[-1] - 1, count).astype(int))
        part = np.searchsorted(ends, chosen, side="right")
        return (last[part] - (ends[part] - chosen)).tolist()

    def table(self) -> NDArray[np.float64 | np.uint8]:
        """All costs, mapped and read-only: they need not fit in memory."""
        return np.load(self._path, mmap_mode="r", allow_pickle=False)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    @property
    def _path(self) -> Path:
        return self.folder / (FLOATS if self.graded else BYTES)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64 if self.graded else np.uint8)

    def _open_table(self) -> tuple[int, int]:
        """The file, and where in it the table begins."""
        header, size = self._layout()
        if not self._path.exists():
            new = self._path.with_suffix(".new")
            with new.open("wb") as file:
                file.write(header)
                file.truncate(size)  # takes no room yet
            new.replace(self._path)
        elif self._path.stat().st_size != size:
            raise ValueError(f"{self._path} was altered: it is no table of {self.shape} costs")
        return os.open(self._path, os.O_RDWR), len(header)

    def _layout(self) -> tuple[bytes, int]:
        """The header of a `.npy` file of the table, and the bytes of all of it."""
        header = BytesIO()
        kind = {"descr": self._dtype.str, "fortran_order": False, "shape": self.shape}
        write_array_header_1_0(header, kind)
        return header.getvalue(), header.tell() + self.rollouts * self._dtype.itemsize

    def _write(self, first: int, costs: NDArray) -> None:
        view = memoryview(np.ascontiguousarray(costs, self._dtype).tobytes())
        at = self._offset + first * self._dtype.itemsize
        while view:
            written = os.pwrite(self._file, view, at)
            at, view = at + written, view[written:]

    def _read(self, first: int, last: int) -> NDArray[np.float64 | np.uint8]:
        size = self._dtype.itemsize
        content = os.pread(self._file, (last - first) * size, self._offset + first * size)
        return np.frombuffer(content, self._dtype)

    def _append(self, line: str) -> None:
        with (self.folder / "finished.jsonl").open("ab") as file:
            torn = file.tell() and not self._ends_whole
            file.write((("\n" if torn else "") + line + "\n").encode())
        self._ends_whole = True

    def _turn_to_floats(self) -> None:
        """Another table takes over, with what is done so far: by its name, when it is complete."""
        bytes_file, offset = self._file, self._offset
        self.graded = True
        header, size = self._layout()
        new = self._path.with_suffix(".new")
        with new.open("wb") as file:
            file.write(header)
            file.truncate(size)
            for first, last in self.done:
                for at in range(first, last, AT_A_TIME):
                    part = os.pread(bytes_file, min(AT_A_TIME, last - at), offset + at)
                    file.seek(len(header) + 8 * at)
                    file.write(np.frombuffer(part, np.uint8).astype(np.float64).tobytes())
        new.replace(self._path)
        os.close(bytes_file)
        self._file, self._offset = self._open_table()
        (self.folder / BYTES).unlink()

    def _read_finished(self) -> list[tuple[int, int]]:
        """The pieces whose line is whole and whose costs are those of which it tells."""
        path, done = self.folder / "finished.jsonl", []
        self._ends_whole = True
        if not path.exists():
            return done
        with path.open("rb") as file:
            for line in file:
                self._ends_whole = line.endswith(b"\n")
                piece = self._checked_line(line)
                if piece:
                    done.append(piece)
        return _merged(done)

    def _checked_line(self, line: bytes) -> tuple[int, int] | None:
        try:
            record = json.loads(line)
            first, last, digest = record["first"], record["last"], record["sha256"]
        except (ValueError, TypeError, KeyError):  # half-written
            return None
        if (
            type(first) is not int
            or type(last) is not int
            or not 0 <= first < last <= self.rollouts
        ):
            return None
        return (first, last) if _digest(self._read(first, last)) == digest else None


@contextmanager
def kept_costs(folder: Path, job: Job, mended: bool = False) -> Iterator[KeptCosts]:
    """A folder for a job's costs, new or as it was left; an error if it is of another job.

    mended: the task's code may be another, which leaves what is finished as it is.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and rollouts are kept in a folder")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if "rollouts.json" not in names and not names <= {"lock", "rollouts.new"}:
        raise ValueError(f"{folder} holds other things than rollouts: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / "lock")
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        raise ValueError(f"another process keeps its rollouts in {folder}: wait for it") from None
    try:
        try:
            check_same(folder / "rollouts.json", described_job(job), mended)
            kept = KeptCosts(folder, job)
        except OSError as error:
            raise OSError(f"{folder}: {error.strerror or error}") from error
        try:
            yield kept
        finally:
            kept.close()
    finally:
        lock.release()


def _digest(costs: NDArray) -> str:
    """SHA-256 of costs, the same for bytes and floats."""
    sha, flat = hashlib.sha256(), costs.reshape(-1)
    for at in range(0, flat.size, AT_A_TIME):
        sha.update(np.ascontiguousarray(flat[at : at + AT_A_TIME], np.float64).data)
    return sha.hexdigest()


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged
