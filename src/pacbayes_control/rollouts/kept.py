"""A campaign: a folder that keeps costs as they finish, to be resumed and to grow.

It holds `campaign.json`, which says what the costs depend on; a file for each finished chunk, whose
name says which rows and columns of the table it has; once all are finished, `costs.npy`, the table,
in place of the chunks; `failed.jsonl`, a line for each failure; and, while it is used, a lock.
Every file is complete or absent, so that a crash at any moment loses at most the chunks in flight.
A finished campaign can grow by environments and by policies: what it has is never run again.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import write_array_header_1_0

from pacbayes_control.certify import files
from pacbayes_control.certify.looks import Look, looks_from
from pacbayes_control.rollouts.execution import Execution
from pacbayes_control.rollouts.failures import FailureLog, rollout_error
from pacbayes_control.rollouts.jobs import Job, Piece, Span, Table, merged, without
from pacbayes_control.rollouts.manifest import (
    COUNTED,
    KINDS,
    LOCK,
    MANIFEST,
    continued,
    described_job,
    locked_campaign,
    with_look,
    write_manifest,
)
from pacbayes_control.rollouts.processes import Place
from pacbayes_control.rollouts.worker import Done

TABLE = "costs.npy"
CHUNK = re.compile(r"rows-(\d+)-(\d+)-columns-(\d+)-(\d+)\.npz")
UNFINISHED = re.compile(rf"\.([0-9a-f]{{32}}|{re.escape(TABLE)})\.part")  # of a killed process


class KeptCosts:
    """A table of costs in a folder, some of them finished."""

    def __init__(self, folder: Path, job: Job, record: dict[str, Any]) -> None:
        self.folder, self.job, self.record = folder, job, record
        self.rollouts = job.shape[0] * job.shape[1]
        self.code = record["code"]  # digest of the task's code
        table = self._read_table()
        rows, columns = self.shape = table["shape"]  # of the table; the rest is in chunks
        self.raised, self._retried = table["raised"], table["retries"]
        self.overdue: list[Place] = [(i, j) for i, j in table["overdue"]]
        self.graded = self.shape != (0, 0) and self.table().dtype != np.uint8
        right = Piece(0, rows, columns, job.shape[1])
        below = Piece(rows, job.shape[0], 0, job.shape[1])
        self._parts = [(right, 0), (below, right.rollouts)]  # not in the table; first rollout
        spans = map(self._read_chunk, self.chunks())
        self._done = merged(span for span in spans if span)  # rollouts, counted along the parts
        self.failures = FailureLog()

    # ---- what is finished -----------------------------------------------------------------------

    @property
    def finished(self) -> int:
        """How many rollouts are finished."""
        return self.shape[0] * self.shape[1] + sum(last - first for first, last in self._done)

    @property
    def incidents(self) -> Counter[str]:
        """Counts of retries, declared failures and so on, over all calls."""
        retries = self._retried + len(self.failures.retried)
        now = {"retries": retries, "raised": self.raised, "timeouts": len(self.overdue)}
        return Counter({kind: self.record.get(kind, 0) for kind in COUNTED}) + Counter(now)

    def unfinished(self) -> Iterator[tuple[Job, list[Span]]]:
        """The parts of the job that are not in the table, each with its gaps."""
        for part, first in self._parts:
            if spans := without([(first, first + part.rollouts)], self._done):
                job = replace(self.job.part(part), first_rollout=first)
                yield job, [(a - first, b - first) for a, b in spans]

    def chunks(self) -> Iterator[Piece]:
        """The finished chunks, in any order; there may be millions, so that they are not listed."""
        named = (CHUNK.fullmatch(path.name) for path in self.folder.iterdir())
        return (Piece(*map(int, name.groups())) for name in named if name)

    def some(self, count: int) -> Iterator[tuple[Piece, float]]:
        """A few finished rollouts, from the first to the last, and their costs."""
        pieces = [Piece(0, self.shape[0], 0, self.shape[1]), *sorted(self.chunks())]
        ends = np.cumsum([piece.rollouts for piece in pieces])
        for at in np.unique(np.linspace(0, ends[-1] - 1, count).astype(int)):
            number = int(np.searchsorted(ends, at, side="right"))
            piece = pieces[number]
            wide = piece.last_column - piece.first_column
            row, column = divmod(int(at - ends[number]) + piece.rollouts, wide)
            costs = self._load(piece).costs if number else self.table()
            place = piece.first_row + row, piece.first_column + column
            if place not in self.overdue:
                yield Piece.at(*place), float(costs[row, column])

    def table(self) -> Table:
        """The costs in the table, mapped and read-only: they need not fit in memory."""
        return np.load(self.folder / TABLE, mmap_mode="r", allow_pickle=False)

    def _read_table(self) -> dict[str, Any]:
        """The record of the table that is there; of an empty one if there is none."""
        path = self.folder / TABLE
        if not path.exists():
            return {"shape": (0, 0), "raised": 0, "overdue": [], "retries": 0}
        known = self.record["tables"].get(files.hash_file(path))
        if known is None or self.table().shape != tuple(known["shape"]):
            raise ValueError(f"{path} was altered: delete it to roll out all of it again")
        return known | {"shape": tuple(known["shape"])}

    def _read_chunk(self, piece: Piece) -> Span | None:
        """The rollouts of a chunk; one that is damaged, or of no use, is deleted."""
        for part, first in self._parts:
            if span := piece.span_in(part):
                try:
                    self._count(piece, self._load(piece))
                except Exception:  # a damaged file may raise anything
                    break
                return first + span[0], first + span[1]
        self._path(piece).unlink()
        return None

    def _load(self, piece: Piece) -> Done:
        """The content of a chunk; an error of any kind if it is damaged, or of another place."""
        with np.load(io.BytesIO(self._path(piece).read_bytes())) as file:
            costs, about = file["costs"], json.loads(file["about"].item())
        shape = piece.last_row - piece.first_row, piece.last_column - piece.first_column
        done = Done(costs.reshape(shape), about["raised"], overdue=about["overdue"])
        if about != self._about(piece, done):
            raise ValueError("the chunk is of another place, or of another campaign")
        return done

    def _about(self, piece: Piece, done: Done) -> dict[str, Any]:
        """What a chunk holds beside its costs."""
        place = {"campaign": self.record["id"], "piece": [*piece]}
        return place | {"raised": int(done.raised), "overdue": bool(done.overdue)}

    def _path(self, piece: Piece) -> Path:
        first_row, last_row, first, last = piece
        return self.folder / f"rows-{first_row}-{last_row}-columns-{first}-{last}.npz"

    def _count(self, piece: Piece, done: Done) -> None:
        self.graded = self.graded or done.costs.dtype != np.uint8
        self.raised += done.raised
        self.overdue += [(piece.first_row, piece.first_column)] if done.overdue else []

    # ---- more of it -----------------------------------------------------------------------------

    def take_up(self, known: dict[str, Any], execution: Execution) -> None:
        """Continue the work of earlier calls; an error if their rollouts may not be used.

        Args:
            known: the description in the folder before this call, empty if it is new
            execution: how often a rollout may be run again, and whether the code may have changed
        """
        retries, earlier = execution.retries, known.get("code", self.code)
        if earlier != self.code and self.finished:
            if not execution.allow_code_change:
                raise ValueError(
                    f"the code of the task has changed since {self.folder} was begun: if that "
                    "leaves the costs of the rollouts that are finished as they are, say so "
                    "(allow_code_change=True, or --set allow_code_change=true), which the "
                    "certificate will tell; otherwise delete the folder"
                )
            self._add("retries", len(self._log(retries, earlier).retried))
            self._add("code changes", 1)
        self.failures = self._log(retries, self.code)
        if self.failures.refused:
            first = min(failed.span for failed in self.failures.retried)[0]
            part, before = next(p for p in reversed(self._parts) if p[1] <= first)
            job = replace(self.job.part(part), first_rollout=before)
            raise rollout_error(job, [], self.failures)
        if (count := self.incidents["retries"]) and not retries:
            raise ValueError(
                f"{self.folder} keeps {count:,} rollouts that had failed before they were run "
                "again: allow retries as before (retries=1, --set retries=1)"
            )
        if known and [*self.shape] != known["size"] and self.finished < self.rollouts:
            self._add("resumed", 1)
        if self.record != known:
            self.describe()

    def _log(self, retries: int, code: str) -> FailureLog:
        """Failures of some code since the table was as large as it is."""
        since = f"{code} after {self.shape[0]} × {self.shape[1]}"
        return FailureLog.read(retries, self.folder / "failed.jsonl", since, self._done)

    def _add(self, kind: str, count: int) -> None:
        if count:
            self.record[kind] = self.record.get(kind, 0) + count

    def keep(self, part: Job, piece: Piece, done: Done) -> None:
        """Write the costs of a piece of one of the parts."""
        row = part.environments.start - self.job.environments.start
        column = part.first_column - self.job.first_column
        first_row, last_row, first, last = piece
        own = Piece(row + first_row, row + last_row, column + first, column + last)
        content = io.BytesIO()
        np.savez(content, costs=done.costs, about=json.dumps(self._about(own, done)).encode())
        with self._telling_what_survives():
            files.write_atomic(self._path(own), content.getvalue())
        self._count(own, done)
        self._done = merged([*self._done, part.span(piece)])

    def finish(self) -> None:
        """Put the finished chunks into the table, and delete them."""
        if not self._done:
            return
        path = self.folder / f".{TABLE}.part"
        try:
            with self._telling_what_survives():
                self._write_table(path)
        finally:
            path.unlink(missing_ok=True)
        for piece in self.chunks():
            self._path(piece).unlink()

    def _write_table(self, path: Path) -> None:
        """Write the table to a file that then takes the place of the old one."""
        rows, columns = self.shape
        kind = np.dtype(np.float64 if self.graded else np.uint8)
        header = {"descr": kind.str, "fortran_order": False, "shape": self.job.shape}
        with path.open("wb") as file:
            write_array_header_1_0(file, header)
            size = file.tell() + self.rollouts * kind.itemsize
            reserve = getattr(os, "posix_fallocate", lambda fd, _, size: os.truncate(fd, size))
            reserve(file.fileno(), 0, size)  # a full disk is then an error, and not a crash
        table = np.load(path, mmap_mode="r+")
        if rows:
            table[:rows, :columns] = self.table()
        for piece in self.chunks():
            first_row, last_row, first, last = piece
            table[first_row:last_row, first:last] = self._load(piece).costs
        table.flush()
        del table
        # The description knows the old table and the new one, whichever a crash leaves behind.
        counts = {"shape": self.job.shape, "raised": self.raised, "overdue": self.overdue}
        counts["retries"] = self._retried + len(self.failures.retried)
        before = files.hash_file(self.folder / TABLE) if rows else ""
        kept = {before: self.record["tables"][before]} if rows else {}
        self.record["tables"] = kept | {files.hash_file(path): counts}
        self.describe()
        path.replace(self.folder / TABLE)

    def look(self) -> list[dict[str, Any]]:
        """The earlier looks at costs of this campaign; this one is recorded beside them."""
        here = Look(self.job.shape[0], self.record["policies"]["sha256"], self.job.shape[1], None)
        known = looks_from(self.record["looks"])
        if not any(look.same_costs(here) for look in known):
            self.record["looks"] = with_look(self.folder, known, here)
            self.describe()
        return [asdict(look) for look in known if look != here]

    def describe(self) -> None:
        """Write the description."""
        with self._telling_what_survives():
            write_manifest(self.folder, self.record)

    @contextmanager
    def _telling_what_survives(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                f"{self.folder}: {error.strerror or error}; the {self.finished:,} rollouts that "
                "are finished survive there: make room and do the same again to go on"
            ) from error


@contextmanager
def kept_costs(folder: Path, job: Job, execution: Execution) -> Iterator[KeptCosts]:
    """The folder of a job's costs, new or of an earlier call; an error if it is of another job."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and rollouts are kept in a folder")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    parts = {name for name in names if UNFINISHED.fullmatch(name)}
    if MANIFEST not in names and names - parts - {LOCK}:
        raise ValueError(f"{folder} holds other things than rollouts: choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"{folder}: {error.strerror or error}") from error
    with locked_campaign(folder):
        try:
            for name in parts:
                (folder / name).unlink(missing_ok=True)
            known = continued(folder, job, execution)
            now = described_job(job, job.shape, execution)
            more = {name: known[name] for name in KINDS if name in known and name not in now}
            if execution.declared_looks and not known.get("looks"):
                more["declared_looks"] = [*execution.declared_looks]
            new = {"id": files.sha256(files.json_bytes(now))}
            new |= {"tables": {}, "looks": [], "ways": {}}
            kept = KeptCosts(folder, job, new | now | more)
        except OSError as error:
            raise OSError(f"{folder}: {error.strerror or error}") from error
        kept.take_up(known, execution)
        yield kept
