"""Costs kept on disk as they finish, so that a job that was killed can be resumed.

A folder holds `rollouts.json`, the description of the job; `costs.npy`, the table, or `graded.npy`
once there is a cost between 0 and 1; `finished.jsonl`, a line for each finished piece, with the
SHA-256 of its costs; `failed.jsonl`, a line for each failure; and a lock. Costs are written before
their line, so that a piece counts if its line is complete and its costs match. They are written to
the file, not to a memory map: a full disk is then an error and not a crash.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
import numpy as np
from numpy.lib.format import write_array_header_1_0
from numpy.typing import NDArray

import pacbayes_control
from pacbayes_control.certify.files import json_bytes, read_json, sha256
from pacbayes_control.rollouts.execution import Execution
from pacbayes_control.rollouts.failures import FailureLog, append_line, read_lines, rollout_error
from pacbayes_control.rollouts.jobs import FreshDraws, Job, Piece, Span, Table, merged, without
from pacbayes_control.tasks.identity import code_digest, identity

FORMAT = 2
WORDS = {  # for keys of a description, where those do not read well
    "environments": "set of environments",
    "first environments": "draw of environments",
    "policies": "list of policies",
    "version": "version of this library",
}
BYTES, FLOATS = "costs.npy", "graded.npy"  # the table: costs of 0 and 1 only, or any costs
HEADER = 128  # bytes before the costs: NumPy's header of any such table, padded to a multiple of 64
AT_A_TIME = 1 << 20  # costs that are read or hashed together
FINISHED = {"first": int, "last": int, "sha256": str, "raised": int}  # lines of finished.jsonl
COUNTED = ("retries", "code changes", "resumed")  # incidents of earlier calls, in `rollouts.json`


class KeptCosts:
    """A table of costs in a folder, some of them finished."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.folder, self.job, self.shape = folder, job, job.shape
        self.rollouts = self.shape[0] * self.shape[1]
        self.graded = (folder / FLOATS).exists()
        if self.graded:
            (folder / BYTES).unlink(missing_ok=True)
        self.done: list[Span] = []
        if not self._path.exists():
            self._make_table(np.empty(0))
        elif self._path.stat().st_size != HEADER + self.rollouts * self._dtype.itemsize:
            raise ValueError(f"{self._path} was altered: it is not a table of {self.shape} costs")
        self.done, self.raised = self._read_finished()
        self.failures = FailureLog()
        self.code = ""  # digest of the task's code
        self._before: Counter[str] = Counter()  # incidents of earlier calls

    @property
    def finished(self) -> int:
        """How many rollouts are finished."""
        return sum(last - first for first, last in self.done)

    @property
    def gaps(self) -> list[Span]:
        """The rollouts that are not finished."""
        return without([(0, self.rollouts)], self.done)

    @property
    def incidents(self) -> Counter[str]:
        """Counts of retries, declared failures, code changes and resumptions, over all calls."""
        return self._before + Counter(retries=self.failures.count, raised=self.raised)

    def keep(self, piece: Piece, costs: Table, raised: int = 0) -> None:
        """Write the costs of a piece, and then its line in `finished.jsonl`."""
        first, last = piece.span(self.shape[1])
        line: dict[str, Any] = {"first": first, "last": last, "sha256": _digest(costs)}
        with self._telling_what_survives():
            if costs.dtype != np.uint8 and not self.graded:
                self._turn_to_floats()
            self._write(self._path, first, costs)
            line |= {"raised": raised} if raised else {}
            append_line(self.folder / "finished.jsonl", line)
        self.done = merged([*self.done, (first, last)])
        self.raised += raised

    def take_up(self, known: dict[str, Any], now: dict[str, Any], execution: Execution) -> None:
        """Continue the work of earlier calls; an error if their rollouts may not be used.

        Args:
            known: the description in the folder, empty if it is new
            now: the description of this call
            execution: how often a rollout may be run again, and whether the code may have changed
        """
        log, code, retries = self.folder / "failed.jsonl", now["code"], execution.retries
        self._before = Counter({kind: known.get(kind, 0) for kind in COUNTED})
        if known and known.get("code") != code and self.finished:
            if not execution.allow_code_change:
                raise ValueError(
                    f"the code of the task has changed since {self.folder} was begun: if that "
                    "leaves the costs of the rollouts that are finished as they are, say so "
                    "(allow_code_change=True, or --set allow_code_change=true), which the "
                    "certificate will tell; otherwise delete the folder"
                )
            earlier = FailureLog.read(retries, log, known.get("code", ""), self.done)
            self._before += Counter({"retries": earlier.count, "code changes": 1})
        self.failures, self.code = FailureLog.read(retries, log, code, self.done), code
        if self.failures.refused:
            raise rollout_error(self.job, [], self.failures)
        if self._before["retries"] and not retries:
            raise ValueError(
                f"{self.folder} keeps {self._before['retries']:,} rollouts that had failed before "
                "they were run again: allow retries as before (retries=1, --set retries=1)"
            )
        if known and self.gaps:
            self._before["resumed"] += 1
        described = now | dict(+self._before)
        if (known or now) != described:
            with self._telling_what_survives():
                _describe(self.folder, described)

    def some(self, count: int) -> list[int]:
        """A few finished rollouts, from the first to the last."""
        first, last = np.array(self.done).T
        ends = np.cumsum(last - first)
        chosen = np.unique(np.linspace(0, ends[-1] - 1, count).astype(int))
        part = np.searchsorted(ends, chosen, side="right")
        return (last[part] - (ends[part] - chosen)).tolist()

    def table(self) -> Table:
        """All costs, mapped and read-only: they need not fit in memory."""
        return np.load(self._path, mmap_mode="r", allow_pickle=False)

    @contextmanager
    def _telling_what_survives(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                f"{self.folder}: {error.strerror or error}; the {self.finished:,} rollouts that "
                "are finished survive there: make room and do the same again to go on"
            ) from error

    @property
    def _path(self) -> Path:
        return self.folder / (FLOATS if self.graded else BYTES)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64 if self.graded else np.uint8)

    def _costs(self) -> Table:
        """The costs in the order of the rollouts, mapped and read-only."""
        return np.memmap(self._path, self._dtype, "r", HEADER, (self.rollouts,))

    def _write(self, path: Path, first: int, costs: NDArray) -> None:
        """Write the costs of a rollout and those after it to the file of a table."""
        with path.open("r+b") as file:
            file.seek(HEADER + first * self._dtype.itemsize)
            file.write(np.ascontiguousarray(costs, self._dtype).tobytes())

    def _make_table(self, earlier: NDArray) -> None:
        """Make the file of the table, with costs that are finished already."""
        new = self._path.with_suffix(".new")
        kind = {"descr": self._dtype.str, "fortran_order": False, "shape": self.shape}
        with new.open("wb") as file:
            write_array_header_1_0(file, kind)
            file.truncate(HEADER + self.rollouts * self._dtype.itemsize)  # takes no space yet
        for first, last in self.done:
            for at in range(first, last, AT_A_TIME):
                self._write(new, at, earlier[at : min(at + AT_A_TIME, last)])
        new.replace(self._path)

    def _turn_to_floats(self) -> None:
        """Copy the finished costs to a table of floats, which replaces the table of bytes."""
        earlier, self.graded = self._costs(), True
        self._make_table(earlier)
        (self.folder / BYTES).unlink()

    def _read_finished(self) -> tuple[list[Span], int]:
        """The pieces whose line is complete and whose costs match, and how many rollouts raised.

        If a piece was rolled out twice, both lines may match: the later one counts.
        """
        costs, lines = self._costs(), []
        for line in read_lines(self.folder / "finished.jsonl", FINISHED, raised=0):
            first, last, raised = line["first"], line["last"], line["raised"]
            right = 0 <= first < last <= self.rollouts and 0 <= raised <= last - first
            if right and _digest(costs[first:last]) == line["sha256"]:
                lines.append(((first, last), raised))
        done = merged(span for span, _ in lines)
        raised = sum(count for _, count in lines)
        if raised and sum(b - a for (a, b), _ in lines) > sum(b - a for a, b in done):
            raised, counted = 0, np.zeros(self.rollouts, bool)
            for (first, last), count in reversed(lines):
                raised += 0 if counted[first:last].all() else count
                counted[first:last] = True
        return done, raised


@contextmanager
def kept_costs(folder: Path, job: Job, execution: Execution) -> Iterator[KeptCosts]:
    """The folder of a job's costs, new or of an earlier call; an error if it is of another job."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and rollouts are kept in a folder")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if "rollouts.json" not in names and not names <= {"lock", "rollouts.new"}:
        raise ValueError(f"{folder} holds other things than rollouts: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = filelock.FileLock(folder / "lock").acquire(blocking=False)
    except filelock.Timeout:
        raise ValueError(f"another process keeps its rollouts in {folder}: wait for it") from None
    with lock:
        try:
            now = described_job(job)
            known = known_job(folder / "rollouts.json", now)
            if not known:
                _describe(folder, now)
            kept = KeptCosts(folder, job)
        except OSError as error:
            raise OSError(f"{folder}: {error.strerror or error}") from error
        kept.take_up(known, now, execution)
        yield kept


def _describe(folder: Path, description: dict[str, Any]) -> None:
    new = folder / "rollouts.new"
    new.write_bytes(json_bytes(description))
    new.replace(folder / "rollouts.json")


def _digest(costs: NDArray) -> str:
    """SHA-256 of costs, independent of their dtype."""
    sha, flat = hashlib.sha256(), costs.reshape(-1)
    for at in range(0, flat.size, AT_A_TIME):
        sha.update(np.ascontiguousarray(flat[at : at + AT_A_TIME], np.float64).data)
    return sha.hexdigest()


# ---- the description: everything that the costs depend on, so that none are mixed ----------------


def described_job(job: Job) -> dict[str, Any]:
    """Everything that the costs of a job depend on, as plain values."""
    environments = job.environments
    if isinstance(job.policies, FreshDraws):
        draws, posterior = job.policies, sha256(job.policies.posterior.to_bytes())
        policies: dict[str, Any] = {"posterior": posterior, "draws": draws.draws}
        policies |= {"stream": draws.stream, "seed": draws.seed}
    else:
        array = np.ascontiguousarray(job.policies)
        digest = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
        digest.update(array.data)
        policies = {"policies": job.shape[1], "sha256": digest.hexdigest()}
    noise = job.noise
    return {
        "format": FORMAT,
        "version": pacbayes_control.__version__,
        "task": _hashed(identity(job.task)),
        "code": code_digest(job.task),
        "environments": environments.origin,
        "first environments": environments[: environments.block].digest(),
        "policies": policies,
        "noise": {"stream": noise.stream, "seed": noise.seed, "of": noise.kind} if noise else None,
        "surrogate": job.surrogate,
    }


def known_job(path: Path, description: dict[str, Any]) -> dict[str, Any]:
    """The description in a folder, empty if the folder is new.

    Raises ValueError if it differs from the given one in anything but the code.
    """
    known: Any = read_json(path) if path.exists() else {}
    if not isinstance(known, dict):
        raise ValueError(f"{path} is corrupt: choose another folder")
    for key, value in description.items() if known else ():
        if key != "code" and known.get(key) != value:
            what, found = WORDS.get(key, key), _short(known.get(key))
            raise ValueError(
                f"{path.parent} holds rollouts of another {what}: {found}, not {_short(value)}; "
                "choose another folder, or delete it to begin again"
            )
    return known


def _hashed(words: str) -> str:
    """A long text, such as that of a large array, shortened to its beginning and its digest."""
    if len(words) <= 2000:
        return words
    return f"{words[:100]}… {sha256(words.encode())}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return text if len(text) <= 160 else text[:157] + "…"
