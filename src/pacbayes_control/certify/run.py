"""A run: a folder with a certificate and all files that it depends on. Nothing is pickled."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, cast

import numpy as np

from pacbayes_control.certify import descriptions, files
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import D, distribution_from_record
from pacbayes_control.certify.simulation import FACTS, MORE, PAIRS, Simulation
from pacbayes_control.certify.text import round_up
from pacbayes_control.certify.trials import FILE as TRIALS
from pacbayes_control.certify.trials import Trials

FORMAT = 3  # format 1 had no draws, and format 2 no sites and no date
EARLIER = 2  # the last format of runs with certificates before format 4
REQUIRED = ("certificate.json", "costs.npy", "prior.json", "posterior.json")
# of a run, beside its manifest and pictures
FILES = (*REQUIRED, "policies.npy", "plan.json", TRIALS, descriptions.FILE, PAIRS, MORE, FACTS)
PICTURES = (".png", ".svg")  # of any name
SIGNATURE = "manifest.json.sig"  # of the manifest, which therefore does not list it
# In the folder while a run is written: it, unfinished; it, complete; and the lock of the writer.
NEW, WHOLE, LOCK = ".run.new", ".run.whole", ".run.lock"
OWN = ("manifest.json", SIGNATURE, NEW, WHOLE, LOCK)  # files of a run that no manifest lists


class AlteredRun(ValueError):  # noqa: N818 - a state of the run, not a fault of the program
    """A run whose files are not those that were saved."""


@dataclass(frozen=True, eq=False, repr=False)
class Run(Generic[D]):
    """A certificate with its costs, prior and posterior; the kind of distribution in brackets."""

    certificate: Certificate
    costs: Costs
    prior: D
    posterior: D
    created: str | None = None  # when it was saved, if known
    plan: Mapping[str, Any] | None = None  # how it was made, for `learn.Plan.from_dict`
    trials: Trials | None = None  # of every policy, if it was made from an evaluation log

    def __repr__(self) -> str:
        c = self.certificate
        return f"Run({c.method}, bound {round_up(c.bound)}, δ = {c.delta:g}, {self.costs!r})"

    def save(
        self,
        folder: str | Path,
        overwrite: bool = False,
        attachments: Mapping[str, bytes] | None = None,
    ) -> Path:
        """Write the run as a folder that can be verified, with further files such as pictures.

        An error if the folder is not empty, unless `overwrite` allows to replace an earlier run.
        Either all of the new run is in the folder in the end, or all that was there before.
        """
        folder = Path(folder)
        _check_folder(folder)
        existed = folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with _only_writer(folder):
                if overwrite:
                    _put_in_place(folder)  # what a process was killed at
                replaces = _replaces_run(folder, overwrite)
                try:
                    self._write(folder / NEW, attachments or {}, durable=replaces)
                    os.rename(folder / NEW, folder / WHOLE)
                except OSError as error:
                    why = error.strerror or f"not all was written: {error}"
                    raise OSError(f"{folder} cannot be written ({why}): it is as it was") from error
                finally:
                    shutil.rmtree(folder / NEW, ignore_errors=True)
                _put_in_place(folder)
        finally:
            if not existed:
                with suppress(OSError):  # it is not empty if the run was written
                    folder.rmdir()
        return folder

    def _write(self, folder: Path, attachments: Mapping[str, bytes], durable: bool) -> None:
        """Write the run's files to a new folder, and wait until they are on the disk if durable."""
        shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
        folder.mkdir()
        simulation = self.costs.simulation
        arrays = {"costs.npy": self.costs.values, "policies.npy": self.costs.parameters}
        arrays |= simulation.arrays if simulation else {}
        arrays = {name: array for name, array in arrays.items() if array is not None}
        for name, array in arrays.items():
            np.save(folder / name, array, allow_pickle=False)
        contents = {
            "certificate.json": files.json_bytes(self.certificate.to_dict()),
            "prior.json": self.prior.to_bytes(),
            "posterior.json": self.posterior.to_bytes(),
        }
        if self.plan is not None:
            contents["plan.json"] = files.json_bytes(dict(self.plan))
        if self.trials is not None:
            contents[TRIALS] = files.json_bytes(self.trials.to_record())
        if self.costs.described:
            contents[descriptions.FILE] = descriptions.to_bytes(self.costs.described)
        if simulation is not None:
            contents[FACTS] = files.json_bytes(simulation.facts)
        contents |= attachments
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        manifest = {
            "format": FORMAT,
            "files": {name: files.hash_file(folder / name) for name in (*arrays, *contents)},
            "origin": dict(self.costs.origin),
            "policy_names": list(self.costs.names),
            "draws": self.costs.draws,
            "sites": list(self.costs.sites),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if self.certificate.format < 4:  # of an earlier version, and kept so
            manifest["format"] = EARLIER
            del manifest["sites"], manifest["created"]
        manifest["seal"] = files.seal(manifest)
        (folder / "manifest.json").write_bytes(files.json_bytes(manifest))
        if durable:
            for path in (*folder.iterdir(), folder):
                files.sync(path)

    @classmethod
    def load(cls, folder: str | Path) -> Run[Any]:
        """Read a run; an error if a file is missing, unreadable or altered."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        parameters = None
        if "policies.npy" in manifest["files"]:
            parameters = files.read_npy(folder / "policies.npy")
        certificate = Certificate.from_dict(files.read_json(folder / "certificate.json"))
        if (certificate.format < 4) != (manifest["format"] <= EARLIER):
            raise AlteredRun("certificate.json is of another version than manifest.json")
        values, described = files.read_npy(folder / "costs.npy"), None
        if descriptions.FILE in manifest["files"]:
            described = descriptions.read_descriptions(folder / descriptions.FILE, len(values))
        costs = Costs(
            values,
            manifest["policy_names"],
            origin=manifest["origin"],
            parameters=parameters,
            draws=manifest.get("draws"),
            sites=manifest.get("sites", ()),
            described=described,
        )
        if FACTS in manifest["files"]:
            pairs, more = (files.read_npy(folder / name) for name in (PAIRS, MORE))
            facts = files.read_json(folder / FACTS)
            costs = costs.with_simulation(Simulation.from_files(pairs, more, facts))
        prior, posterior = (
            cast(Any, distribution_from_record(files.read_json(folder / f"{name}.json"), name))
            for name in ("prior", "posterior")
        )
        plan, trials = (
            files.read_json(folder / name) if name in manifest["files"] else None
            for name in ("plan.json", TRIALS)
        )
        trials = None if trials is None else Trials.from_record(trials)
        return Run(certificate, costs, prior, posterior, manifest.get("created"), plan, trials)


def run_files(folder: Path) -> list[str]:
    """The files in a folder that belong to its run, if it is one, beside its manifest."""
    names = sorted(path.name for path in folder.iterdir())
    pictures = [name for name in names if Path(name).suffix in PICTURES]
    return [*(name for name in FILES if name in names), *pictures]


def check_free(folder: Path, overwrite: bool) -> None:
    """Raise ValueError unless a run may be written to a folder, and replaces no more than a run."""
    _check_folder(folder)
    if folder.is_dir():
        with _only_writer(folder):
            _replaces_run(folder, overwrite)


def _check_folder(folder: Path) -> None:
    if os.path.lexists(folder) and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and a run is a folder: choose another name")


def _only_writer(folder: Path) -> AbstractContextManager[None]:
    """Keep others from writing a run to a folder."""
    busy = f"{folder} is being written by another process: try again, or choose another folder"
    return files.locked(folder / LOCK, busy)


def _replaces_run(folder: Path, overwrite: bool) -> bool:
    """Whether a run in `folder` replaces another; an error if it would replace anything else."""
    entries = {path.name for path in folder.iterdir()}
    if entries <= {NEW, LOCK}:  # of a process that was killed before the run was complete
        return False
    if not overwrite:
        raise ValueError(
            f"{folder} is not empty: choose another folder, or allow overwriting (--force)"
        )
    known = run_files(folder)
    try:
        manifest = files.read_json(folder / "manifest.json")
        _check_manifest(manifest)
        added = [name for name in known if name not in manifest["files"]]
    except (ValueError, OSError):  # not a manifest, or an interrupted run
        interrupted = "certificate.json" in entries and entries <= {*OWN, *known}
        if WHOLE not in entries and not interrupted:
            words = f"{folder} holds other things than a run: choose another folder"
            raise ValueError(words) from None
        added = []
    added += [name for name in (*known, *OWN[:2]) if (folder / name).is_dir()]
    if added and WHOLE not in entries:
        raise ValueError(f"{folder / added[0]} is not of the run in {folder}: move it elsewhere")
    return True


def _put_in_place(folder: Path) -> None:
    """Replace the run in a folder by the whole one in WHOLE, if there is one.

    The old manifest goes first and the new one comes last: a folder without it is not a run. After
    an interruption at any moment, this can be done again.
    """
    whole = folder / WHOLE
    if whole.is_symlink() or not whole.is_dir():
        return
    names = {path.name for path in whole.iterdir()}
    if names:
        manifest = files.read_json(whole / "manifest.json")
        _check_manifest(manifest)
        for name in (*OWN[:2], *run_files(folder)):
            if name not in manifest["files"]:
                (folder / name).unlink(missing_ok=True)
        for name in sorted(names - {"manifest.json"}):
            os.replace(whole / name, folder / name)
        os.replace(whole / "manifest.json", folder / "manifest.json")
    whole.rmdir()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, after checking its seal and the hash of every file that it lists."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no run at {folder}")
    if (folder / WHOLE).is_dir() and not (folder / "manifest.json").exists():
        raise ValueError(
            f"the process that replaced the run at {folder} has not finished: if it was killed, "
            f"move the files in {folder / WHOLE} up into {folder}"
        )
    manifest = files.read_json(folder / "manifest.json")
    try:
        _check_manifest(manifest)
    except ValueError as error:
        file = folder / "manifest.json"
        raise ValueError(f"{file} is not a manifest of format 1 to {FORMAT}: {error}") from None
    if manifest["seal"] != files.seal(manifest):
        raise AlteredRun("manifest.json was altered: its seal does not match")
    missing = [name for name in REQUIRED if name not in manifest["files"]]
    if missing:
        raise AlteredRun(f"manifest.json lists no {missing[0]}")
    for name, digest in manifest["files"].items():
        path = folder / name
        if Path(name).name != name:
            raise AlteredRun(f"manifest.json lists {name!r}, which is not in the run's folder")
        files.check_regular(path)
        if files.hash_file(path) != digest:
            raise AlteredRun(f"{name} was altered: its SHA-256 is not the one in the manifest")
    for name in run_files(folder):
        if name not in manifest["files"]:
            raise AlteredRun(f"{name} was added: the manifest does not list it")
    if os.path.lexists(folder / SIGNATURE):
        files.check_regular(folder / SIGNATURE)
    return manifest


def _check_manifest(record: Any) -> None:
    """An error unless a record that may hold anything has the fields and types of a manifest."""
    version = record.get("format") if isinstance(record, dict) else None
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise ValueError("it has another format")
    kinds = {"format": int, "files": dict[str, str], "policy_names": list[str], "origin": dict}
    kinds |= {"draws": str | None} if version >= 2 else {}
    kinds |= {"sites": list[str], "created": str} if version >= 3 else {}
    files.check_record(record, kinds | {"seal": str})
    created = record.get("created")
    if created is None:
        return
    if not created.isprintable() or datetime.fromisoformat(created).tzinfo is None:
        raise ValueError("bad created")
