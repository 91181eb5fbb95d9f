"""A run: a folder with a certificate and everything that it rests on. Nothing is pickled."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any, Generic, TypeVar

import numpy as np

from pacbayes_control.certify.certificate import Certificate, round_up
from pacbayes_control.certify.costs import Costs, read_npy
from pacbayes_control.certify.distributions import (
    Categorical,
    DiagonalGaussian,
    distribution_from_record,
)

FORMAT = 3  # format 1 knew no draws, and format 2 no sites and no date
EARLIER = 2  # the last that went with certificates before format 4
REQUIRED = ("certificate.json", "costs.npy", "prior.json", "posterior.json")
LARGEST_JSON = 1 << 27  # bytes; a posterior over a million policies takes a fifth of it
MOST_PARTS = 1_000_000  # lists and objects in it: each takes far more memory than its brackets
MOST_VALUES = 8_000_000
FILES = (*REQUIRED, "policies.npy")  # that a run may own, beside its manifest and pictures
PICTURES = (".png", ".svg")  # of any name
SIGNATURE = "manifest.json.sig"  # of the manifest, so that the manifest cannot list it


class AlteredRun(ValueError):  # noqa: N818 - a state of the run, not a fault of the program
    """A run whose files are not those that were saved."""


D = TypeVar("D", Categorical, DiagonalGaussian)


@dataclass(frozen=True, eq=False, repr=False)
class Run(Generic[D]):
    """A certificate with everything that it rests on; the kind of distribution in brackets."""

    certificate: Certificate
    costs: Costs
    prior: D
    posterior: D
    created: str | None = None  # when it was saved, where that is known

    def __repr__(self) -> str:
        c = self.certificate
        return f"Run({c.method}, bound {round_up(c.bound)}, δ = {c.delta:g}, {self.costs!r})"

    def save(
        self,
        folder: str | Path,
        overwrite: bool = False,
        attachments: Mapping[str, bytes] | None = None,
    ) -> Path:
        """Write the run as a folder that anybody can verify, with further files such as pictures.

        An error if the folder holds anything, unless `overwrite` allows to replace what a run has.
        """
        folder, attachments = Path(folder), attachments or {}
        check_free(folder, overwrite)
        folder.mkdir(parents=True, exist_ok=True)
        # A signature is of the old manifest. The manifest goes before the files and comes after
        # them: without it, an interrupted folder is no run.
        for name in (SIGNATURE, "manifest.json", *owned(folder)):
            (folder / name).unlink(missing_ok=True)
        (folder / "certificate.json").write_bytes(json_bytes(self.certificate.to_dict()))
        np.save(folder / "costs.npy", self.costs.values, allow_pickle=False)
        (folder / "prior.json").write_bytes(self.prior.to_bytes())
        (folder / "posterior.json").write_bytes(self.posterior.to_bytes())
        if self.costs.parameters is not None:
            np.save(folder / "policies.npy", self.costs.parameters, allow_pickle=False)
        for name, content in attachments.items():
            (folder / name).write_bytes(content)
        names = dict.fromkeys([*owned(folder), *attachments])
        manifest = {
            "format": FORMAT,
            "files": {name: hash_file(folder / name) for name in names},
            "origin": dict(self.costs.origin),
            "policy_names": list(self.costs.names),
            "draws": self.costs.draws,
            "sites": list(self.costs.sites),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if self.certificate.format < 4:  # of an earlier version, and kept so
            manifest["format"] = EARLIER
            del manifest["sites"], manifest["created"]
        manifest["seal"] = seal(manifest)
        (folder / "manifest.json").write_bytes(json_bytes(manifest))
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Run[Any]:
        """Read a run; an error if a file is missing, unreadable or altered."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        parameters = None
        if "policies.npy" in manifest["files"]:
            parameters = read_npy(folder / "policies.npy")
        certificate = Certificate.from_dict(read_json(folder / "certificate.json"))
        if (certificate.format < 4) != (manifest["format"] <= EARLIER):
            raise AlteredRun("certificate.json is of another version than manifest.json")
        values = read_npy(folder / "costs.npy")
        names, origin, draws = manifest["policy_names"], manifest["origin"], manifest.get("draws")
        return Run(
            certificate,
            Costs(values, names, origin, parameters, draws, manifest.get("sites", ())),
            *_distributions(folder),
            manifest.get("created"),
        )


def _distributions(folder: Path) -> tuple[Any, Any]:
    """Prior and posterior, of either kind."""
    prior, posterior = (
        distribution_from_record(read_json(folder / f"{name}.json"), name)
        for name in ("prior", "posterior")
    )
    return prior, posterior


def owned(folder: Path) -> list[str]:
    """The files in a folder that belong to its run, if it is one, beside its manifest."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    pictures = [name for name in names if Path(name).suffix in PICTURES]
    return [*(name for name in FILES if name in names), *pictures]


def check_free(folder: Path, overwrite: bool) -> None:
    """An error if `folder` cannot take a run without something being lost."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, and a run is a folder: choose another name")
    entries = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    interrupted = "certificate.json" in entries and entries <= {SIGNATURE, *owned(folder)}
    if entries and overwrite and "manifest.json" not in entries and not interrupted:
        raise ValueError(f"{folder} holds other things than a run: choose another folder")
    if entries and not overwrite:
        raise ValueError(
            f"{folder} is not empty: choose another folder, or allow overwriting (--force)"
        )


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, after checking its seal and the hash of every file that it lists."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no run at {folder}")
    manifest = read_json(folder / "manifest.json")
    if not _is_manifest(manifest):
        raise ValueError(f"{folder / 'manifest.json'} is not a manifest of format 1 to {FORMAT}")
    if manifest["seal"] != seal(manifest):
        raise AlteredRun("manifest.json was altered: its seal does not match")
    missing = [name for name in REQUIRED if name not in manifest["files"]]
    if missing:
        raise AlteredRun(f"manifest.json lists no {missing[0]}")
    for name, digest in manifest["files"].items():
        path = folder / name
        if Path(name).name != name:
            raise AlteredRun(f"manifest.json lists {name!r}, which is not in the run's folder")
        _check_regular(path)
        if hash_file(path) != digest:
            raise AlteredRun(f"{name} was altered: its SHA-256 is not the one in the manifest")
    for name in owned(folder):
        if name not in manifest["files"]:
            raise AlteredRun(f"{name} was added: the manifest does not list it")
    if os.path.lexists(folder / SIGNATURE):
        _check_regular(folder / SIGNATURE)
    return manifest


def _check_regular(path: Path) -> None:
    """A stranger's run must not lead out of its folder, nor to a pipe or a device."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ValueError(f"{path} is not a plain file")
    if not path.exists():
        raise FileNotFoundError(f"the run at {path.parent} is incomplete: {path.name} is missing")


def _is_manifest(record: Any) -> bool:
    """Whether a stranger's record has the fields and types of a manifest."""
    if not isinstance(record, dict) or record.get("format") not in range(1, FORMAT + 1):
        return False
    files, names, sites = (record.get(name) for name in ("files", "policy_names", "sites"))
    version, created = record["format"], record.get("created")
    return (
        isinstance(files, dict)
        and isinstance(names, list)
        and isinstance(sites, list if version >= 3 else NoneType)
        and all(isinstance(text, str) for text in [*files, *files.values(), *names, *(sites or [])])
        and isinstance(record.get("origin"), dict)
        and isinstance(record.get("draws", None if version == 1 else 0), str | None)
        and (isinstance(created, str) and _is_date(created) if version >= 3 else created is None)
        and isinstance(record.get("seal"), str)
    )


def _is_date(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None and text.isprintable()
    except ValueError:
        return False


def seal(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest without its seal."""
    unsealed = {key: value for key, value in manifest.items() if key != "seal"}
    return hashlib.sha256(json_bytes(unsealed)).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_bytes(record: Any) -> bytes:
    """Canonical, readable JSON: the same record gives the same bytes."""
    text = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def read_json(path: Path) -> Any:
    """A JSON file of a run."""
    _check_regular(path)
    if path.stat().st_size > LARGEST_JSON:
        raise ValueError(f"{path} is larger than any record of a run")
    content = path.read_bytes()
    if content.count(b"[") + content.count(b"{") > MOST_PARTS or content.count(b",") > MOST_VALUES:
        raise ValueError(f"{path} has more parts than any record of a run")
    try:
        return json.loads(content.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is corrupt: it is not JSON") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are told once: readers differ on which of two counts."""
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key stands twice")
    return record


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
