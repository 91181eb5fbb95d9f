"""Flights in a folder: numbered, logged, counted by the monitor, and never overwritten.

flight-0001.csv    a row for each control step
flight-0001.json   the summary: policy, obstacles, seed, end, outcome, deadlines, events
flight-0001.world  of simulated flights in real time: the commands that the world received
outcomes.csv       one row for each trial, in order
monitor.json       the state of the monitor, as of `pbc monitor --state`
secret             of real flights: the seed of their policies and environments
"""

from __future__ import annotations

import csv
import io
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify import files
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.tables.columns import read_feature, read_outcomes
from pacbayes_control.deploy.monitor import Monitor, Report
from pacbayes_control.deploy.monitor.state import certificate_digest
from pacbayes_control.robots.swing.flight import stages
from pacbayes_control.robots.swing.flight.limits import FlightLimits
from pacbayes_control.robots.swing.flight.log import FlightRecord, FlightRecorder, write_summary
from pacbayes_control.robots.swing.flight.loop import fly_once
from pacbayes_control.robots.swing.simulator import Swing

HEADER = b"flight,cost,end,reason\n"
KILLED = "the process ended in flight"
RESTORE = "restore it, or report these flights and begin another folder"
READ_AGAIN = {  # entries of a summary, of which those are there that are known at its state
    "certificate": str,
    "simulated": bool,
    "rehearsed": list[str],
    "obstacles": list[tuple[float, float, float]],
    "state": str,
    "cost": int | None,
    "end": str,
    "reason": str,
}


class FlightCampaign:
    """A folder of flights of one run, all simulated or all real, locked by this process."""

    def __init__(self, folder: Path, run: Run[Any], simulated: bool) -> None:
        """Open a folder, or begin one; an error if its flights are of another kind."""
        self.folder, self.run, self.simulated = folder, run, simulated
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file, and flights are kept in a folder")
        folder.mkdir(parents=True, exist_ok=True)
        busy = f"{folder} is in use by another flight: wait for its end"
        self._lock = ExitStack()
        self._lock.enter_context(files.locked(folder / ".lock", busy))
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        certificate, state = self.run.certificate, self.folder / "monitor.json"
        self.digest = certificate_digest(certificate)
        names = [re.fullmatch(r"flight-(\d+)\..*", path.name) for path in self.folder.iterdir()]
        numbers = sorted({int(name[1]) for name in names if name})  # of flights that left a file
        self.summaries = {number: self._summary(number) for number in numbers}
        self.secret = None if self.simulated else self._secret()
        self.monitor = Monitor.load(state, certificate) if state.exists() else Monitor(certificate)
        self.outcomes = self.folder / "outcomes.csv"
        self.counted: list[int] = []  # numbers of the flights that are trials
        if self.outcomes.is_file():
            numbers = read_feature(self.outcomes, "flight", numeric=True)
            self.counted = [int(number) for number in numbers]
            if self.counted != numbers:
                raise ValueError(f"{self.outcomes} has flights without a whole number: {RESTORE}")
        self.lost: list[int] = []  # flights whose process ended while they flew
        self._count_new()

    def __enter__(self) -> FlightCampaign:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder."""
        self._lock.close()

    # ---- the folder -----------------------------------------------------------------------------

    def stem(self, number: int) -> Path:
        """The path of a flight's files, without suffix."""
        return self.folder / f"flight-{number:04d}"

    def _summary(self, number: int) -> dict[str, Any]:
        """The summary of a flight; an error where it is of another kind, or of another run."""
        path = self.stem(number).with_suffix(".json")
        summary = files.read_json(path) if path.is_file() else {}
        if type(summary) is not dict:
            raise ValueError(f"{path} is not the summary of a flight: {RESTORE}")
        kinds = {name: kind for name, kind in READ_AGAIN.items() if name in summary}
        files.check_record({name: summary[name] for name in kinds}, kinds, str(path))
        if summary.get("certificate", self.digest) != self.digest:
            raise ValueError(
                f"{self.folder} holds flights of another certificate: give another --out"
            )
        if summary.get("simulated", self.simulated) != self.simulated:
            kinds = ("simulated", "real") if self.simulated else ("real", "simulated")
            raise ValueError(
                f"flight {number} in {self.folder} is {kinds[1]}, and these are {kinds[0]}: give "
                "another --out"
            )
        return summary

    @property
    def next(self) -> int:
        """The number of the next flight."""
        return max(self.summaries, default=0) + 1

    @property
    def trials(self) -> int:
        """How many flights were trials."""
        return len(self.counted)

    # ---- draws ----------------------------------------------------------------------------------

    def _secret(self) -> int:
        """The seed of real flights: unpredictable, and kept, so that no draw can be repeated."""
        path = self.folder / "secret"
        if path.is_file():
            text = path.read_text(encoding="utf-8").strip()
            if not re.fullmatch(r"[0-9]{1,19}", text):
                raise ValueError(f"{path} is damaged: {RESTORE}")
            return int(text)
        if self.summaries:
            raise ValueError(f"{path} is missing, and flights are drawn with it: {RESTORE}")
        secret = secrets.randbits(63)
        files.write_atomic(path, f"{secret}\n".encode(), durable=True, mode=0o600)
        return secret

    def policy_seed(self, seed: int | None) -> int:
        """The seed of the next flight's policy.

        A real flight that stays on the ground leaves its draw to the next one: the draw depends on
        the trials so far, so that giving up before take-off does not lead to another policy.
        """
        if self.secret is None:
            return stages.flight_seed(seed or 0, self.next)
        if seed is not None:
            raise ValueError("a seed is for simulated flights: real ones are unpredictable")
        return stages.flight_seed(self.secret, self.trials + 1)

    def draw_environment(self, task: Swing) -> NDArray[np.float64]:
        """The obstacles of the next real flight, to be set up; the same until it is a trial."""
        assert self.secret is not None
        return stages.drawn_obstacles(task, self.secret, self.trials + 1)

    def check_new(self, obstacles: NDArray, name: str) -> None:
        """An error for obstacles of an earlier flight: an environment counts once."""
        for number, summary in self.summaries.items():
            known = np.array(summary.get("obstacles", []), float)
            if summary.get("cost") is not None and stages.same_obstacles(known, obstacles):
                raise ValueError(
                    f"{name} has the obstacles of flight {number}: the certificate is about new "
                    "environments, and each counts once"
                )

    # ---- flights --------------------------------------------------------------------------------

    def fly(
        self,
        task: Swing,
        obstacles: NDArray,
        stage: stages.Stage,
        seed: int | None,
        *,
        limits: FlightLimits | None = None,
        rehearsed: Sequence[str] = (),
        hardware: Mapping[str, Any] | None = None,
    ) -> FlightRecord:
        """Fly once, with a policy drawn for this flight, and count the outcome.

        Args:
            task: the Swing that the run was learnt on
            obstacles: (n, 3) as x, y, radius in m
            stage: tracker, drone and clock
            seed: of simulated flights; None for real ones, which use the folder's secret
            limits: by default with the task's steps and period
            rehearsed: faults of a rehearsal, which is logged and not counted; that is decided
                before the flight, so that its outcome cannot influence it
            hardware: drone and tracker, for the summary
        """
        number = self.next
        policy_seed = self.policy_seed(seed)
        pilot = stages.draw_pilot(self.run, task, policy_seed)
        limits = limits or FlightLimits(task.steps, task.time_step)
        about = {
            "flight": number,
            "certificate": self.digest,
            "simulated": self.simulated,
            "rehearsed": list(rehearsed),
            "seed": seed,
            "obstacles": np.asarray(obstacles, float).tolist(),
            "obstacles_drawn": self.secret is None
            or stages.same_obstacles(obstacles, self.draw_environment(task)),
            "hardware": dict(hardware or {}),
            "settings": limits.to_dict(),
        }
        drawn = {
            "policy_seed": policy_seed,
            "policy": pilot.index,
            "policy_name": pilot.name,
            "policy_parameters": pilot.policy.tolist(),
        }
        recorder = FlightRecorder(self.stem(number), about, drawn)
        self.summaries[number] = {}
        try:
            flight = fly_once(pilot, obstacles, stage, limits, recorder)
        finally:
            recorder.close()
        self.summaries[number] = {**recorder.about, "state": "ended", **asdict(flight)}
        self._count_new()
        return flight

    def _count_new(self) -> None:
        """Add the trials that are not in the table yet, and have the monitor observe them.

        A flight whose process was killed is a trial too, whether it was in flight or had not yet
        added its outcome: to leave out an outcome would be to select the outcomes.
        """
        counted = set(self.counted)
        for number, summary in self.summaries.items():
            if number in counted:
                continue
            if summary.get("state") == "in flight":
                summary |= {"state": "ended", "end": "killed", "reason": KILLED, "cost": 1}
                summary |= {"fault": True}
                write_summary(self.stem(number), summary)
                self.lost.append(number)
            ended = summary.get("state") == "ended" and summary.get("cost") is not None
            if ended and not summary.get("rehearsed"):
                self._add_outcome(number, summary)
        if not self.counted:
            return
        before, costs = self.monitor.trials, read_outcomes(self.outcomes, "cost")
        self.monitor.observe_file(self.outcomes.name, costs, "grown")
        if self.monitor.trials > before:
            self.monitor.save(self.folder / "monitor.json")

    def _add_outcome(self, number: int, summary: Mapping[str, Any]) -> None:
        """Add an outcome to the table, and sync it to the disk."""
        if not {"end", "reason"} <= summary.keys() or summary["cost"] not in (0, 1):
            raise ValueError(
                f"the summary of flight {number} in {self.folder} does not say how it ended: it "
                "was altered, so give another --out"
            )
        known = self.outcomes.read_bytes() if self.outcomes.exists() else HEADER
        row = io.StringIO()
        values = (number, summary["cost"], summary["end"], summary["reason"])
        csv.writer(row, lineterminator="\n").writerow(values)
        files.write_atomic(self.outcomes, known + row.getvalue().encode(), durable=True)
        self.counted.append(number)

    def report(self) -> Report | None:
        """The monitor's verdict; None before the first trial."""
        return self.monitor.report() if self.monitor.trials else None
