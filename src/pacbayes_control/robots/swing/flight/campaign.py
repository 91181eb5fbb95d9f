"""Flights in a folder: numbered, logged, counted by the monitor, and never overwritten.

flight-0001.csv    a row for each control step
flight-0001.json   the summary: policy, obstacles, seed, end, outcome, deadlines, events
flight-0001.world  of simulated flights in real time: what the world received
outcomes.csv       one row for each trial, in order
monitor.json       the state of the monitor, as `pbc monitor --state` has it
secret             of real flights: what their policies and environments are drawn with
"""

from __future__ import annotations

import csv
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from pacbayes_control.certify.run import Run, read_json
from pacbayes_control.certify.tables.columns import read_outcomes
from pacbayes_control.deploy.monitor import Monitor, Report
from pacbayes_control.deploy.monitor.state import certificate_digest
from pacbayes_control.robots.swing.flight.fields import same_obstacles
from pacbayes_control.robots.swing.flight.log import Flight, FlightLog, sync_folder, write_summary
from pacbayes_control.robots.swing.flight.loop import fly
from pacbayes_control.robots.swing.flight.pilot import draw_pilot
from pacbayes_control.robots.swing.flight.settings import Settings
from pacbayes_control.robots.swing.flight.stages import Stage, drawn_obstacles, flight_seed

if TYPE_CHECKING:
    from pacbayes_control.robots.swing.simulator import Swing

HEADER = ("flight", "cost", "end", "reason")
KILLED = "the process ended in flight"


class Campaign:
    """A folder of flights of one run, all simulated or all real; open while this process has it."""

    def __init__(self, folder: Path, run: Run[Any], simulated: bool) -> None:
        """Open a folder, or begin one; an error if its flights are of another kind."""
        self.folder, self.run, self.simulated = folder, run, simulated
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file, and flights are kept in a folder")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(folder / ".lock", timeout=0)
            self._lock.acquire()
        except Timeout:
            raise ValueError(f"{folder} is in use by another flight: wait for its end") from None
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self.numbers = self._known()
        self.digest = certificate_digest(self.run.certificate)
        self.summaries = {number: self._summary(number) for number in self.numbers}
        for number, summary in self.summaries.items():
            self._check_kind(number, summary)
        self.secret = None if self.simulated else self._secret()
        state = self.folder / "monitor.json"
        certificate = self.run.certificate
        self.monitor = Monitor.load(state, certificate) if state.exists() else Monitor(certificate)
        self.lost: list[int] = []  # flights that were under way when their process ended
        self._count_lost()
        self._weigh()

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others have the folder."""
        self._lock.release()

    # ---- what is there --------------------------------------------------------------------------

    def _known(self) -> list[int]:
        """Numbers of flights that have left a file."""
        matches = [re.fullmatch(r"flight-(\d+)\..*", path.name) for path in self.folder.iterdir()]
        return sorted({int(match[1]) for match in matches if match})

    def stem(self, number: int) -> Path:
        """The files of a flight, without suffix."""
        return self.folder / f"flight-{number:04d}"

    def _summary(self, number: int) -> dict[str, Any]:
        path = self.stem(number).with_suffix(".json")
        record = read_json(path) if path.is_file() else {}
        return record if isinstance(record, dict) else {}

    def _check_kind(self, number: int, summary: Mapping[str, Any]) -> None:
        """An error where real flights would be counted with simulated ones, or two runs mixed."""
        if summary.get("certificate", self.digest) != self.digest:
            raise ValueError(
                f"{self.folder} holds flights of another certificate: choose another folder (--out)"
            )
        if summary.get("simulated", self.simulated) != self.simulated:
            kinds = ("simulated", "real") if self.simulated else ("real", "simulated")
            raise ValueError(
                f"flight {number} in {self.folder} is {kinds[1]}, and these are {kinds[0]}: "
                "choose another folder (--out)"
            )

    @property
    def next(self) -> int:
        """The number of the next flight."""
        return max(self.numbers, default=0) + 1

    @property
    def trials(self) -> int:
        """How many flights have counted."""
        return len(self._rows())

    # ---- what is drawn --------------------------------------------------------------------------

    def _secret(self) -> int:
        """What real flights are drawn with: unpredictable, and kept, so that nobody draws again."""
        path = self.folder / "secret"
        if path.is_file():
            text = path.read_text(encoding="utf-8").strip()
            if not re.fullmatch(r"[0-9]{1,19}", text):
                raise ValueError(
                    f"{path} is damaged: restore it, or report these flights and begin anew"
                )
            return int(text)
        if self.numbers:
            raise ValueError(
                f"{path} is gone, and flights are drawn with it: restore it, or report these "
                "flights and begin another folder"
            )
        unfinished = path.with_name(".secret.part")
        unfinished.unlink(missing_ok=True)
        found = secrets.randbits(63)
        with os.fdopen(
            os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as file:
            file.write(f"{found}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        sync_folder(self.folder)
        return found

    def policy_seed(self, seed: int | None) -> int:
        """What the policy of the next flight is drawn with.

        A real flight that stays on the ground leaves the draw to the next one: the draw goes by the
        trials so far, so that to give up before take-off is no way to another policy.
        """
        if self.secret is None:
            return flight_seed(seed or 0, self.next)
        if seed is not None:
            raise ValueError("a seed is for simulated flights: real ones are unpredictable")
        return flight_seed(self.secret, self.trials + 1)

    def drawn_field(self, task: Swing) -> NDArray[np.float64]:
        """The environment of the next real flight, to be set up; the same if asked again."""
        assert self.secret is not None
        return drawn_obstacles(task, self.secret, self.trials + 1)

    def check_new(self, obstacles: NDArray, what: str) -> None:
        """An error for obstacles that an earlier flight had: an environment is drawn once."""
        for number, summary in self.summaries.items():
            known = np.array(summary.get("obstacles", []), float).reshape(-1, 3)
            if summary.get("cost") is not None and same_obstacles(known, obstacles):
                raise ValueError(
                    f"{what} has the obstacles of flight {number}: the promise is about new "
                    "environments, and each counts once"
                )

    # ---- flying ---------------------------------------------------------------------------------

    def fly(
        self,
        task: Swing,
        obstacles: NDArray,
        stage: Stage,
        seed: int | None,
        settings: Settings | None = None,
        rehearsed: Sequence[str] = (),
        hardware: Mapping[str, Any] | None = None,
    ) -> Flight:
        """Fly once, with a policy drawn for it, and count the outcome.

        seed: of simulated flights; None for real ones, which have the folder's secret. hardware:
        what to remember of drone and tracker.

        A flight with rehearsed faults is logged and not counted: that was decided before it began,
        so nothing is chosen by its outcome.
        """
        number = self.next
        own = self.policy_seed(seed)
        pilot = draw_pilot(self.run, task, own)
        settings = settings or Settings(task.steps, task.time_step)
        about = {
            "flight": number,
            "certificate": self.digest,
            "simulated": self.simulated,
            "rehearsed": list(rehearsed),
            "seed": seed,
            "obstacles": np.asarray(obstacles, float).tolist(),
            "obstacles_drawn": self.secret is None
            or same_obstacles(obstacles, self.drawn_field(task)),
            "hardware": dict(hardware or {}),
            "settings": settings.to_dict(),
        }
        drawn = {
            "policy_seed": own,
            "policy": pilot.index,
            "policy_name": pilot.name,
            "policy_parameters": pilot.policy.tolist(),
        }
        log = FlightLog(self.stem(number), about, drawn)
        self.numbers.append(number)
        try:
            tracker, drone, clock, _ = stage
            flight = fly(pilot, obstacles, tracker, drone, clock, settings, log)
        finally:
            log.close()
        self.summaries[number] = {**log.about, "cost": flight.cost}
        if flight.cost is not None and not rehearsed:
            self._add(number, flight.cost, flight.end, flight.reason)
            self._weigh()
        return flight

    def _count_lost(self) -> None:
        """Count flights whose process was killed in the air: an outcome that is left out is chosen.

        And those whose outcome was not written down any more.
        """
        counted = {int(row["flight"]) for row in self._rows()}
        for number, summary in self.summaries.items():
            if number in counted:
                continue
            if summary.get("state") == "in flight":
                summary |= {"state": "ended", "end": "killed", "reason": KILLED, "cost": 1}
                summary |= {"fault": True}
                write_summary(self.stem(number), summary)
                self.lost.append(number)
            if summary.get("rehearsed"):
                continue
            if summary.get("state") == "ended" and summary.get("cost") is not None:
                self._add(number, summary["cost"], summary["end"], summary["reason"])

    def _rows(self) -> list[dict[str, str]]:
        path = self.folder / "outcomes.csv"
        if not path.is_file():
            return []
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def _add(self, number: int, cost: int, end: str, reason: str) -> None:
        """Add an outcome to the table, and have it on the disk before anything else happens."""
        path = self.folder / "outcomes.csv"
        new = not path.exists()
        with path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(HEADER)
            writer.writerow((number, cost, end, reason))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.folder)

    def _weigh(self) -> None:
        """Have the monitor take in what is new in the table."""
        path = self.folder / "outcomes.csv"
        if not self._rows():
            return
        before = self.monitor.trials
        self.monitor.observe_file(path.name, read_outcomes(path, "cost"), "grown")
        if self.monitor.trials > before:
            self.monitor.save(self.folder / "monitor.json")

    def report(self) -> Report | None:
        """The monitor's verdict; None before the first trial."""
        return self.monitor.report() if self.monitor.trials else None
