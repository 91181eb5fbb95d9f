"""Files of runs, monitors and tables: JSON, hashes, type checks, and writing without loss.

A file may come from an unknown source. Nothing is unpickled, links are not followed, and a file
that is not as expected raises a ValueError or an OSError that names it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin
from uuid import uuid4

import filelock
import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.text import quoted

LARGEST_JSON = 1 << 27  # bytes; a posterior over a million policies takes a fifth of it
MOST_PARTS = 1_000_000  # lists and objects in a file: each takes far more memory than its brackets
MOST_VALUES = 8_000_000


# ---- JSON ---------------------------------------------------------------------------------------


def json_bytes(record: Any) -> bytes:
    """Canonical, readable JSON: the same record gives the same bytes."""
    text = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def read_json(path: Path) -> Any:
    """The content of a JSON file, without repeated keys and without NaN or infinite numbers."""
    check_regular(path)
    if path.stat().st_size > LARGEST_JSON:
        raise ValueError(f"{path} is larger than any record of a run")
    return parse_json(path.read_bytes(), str(path))


def parse_json(content: bytes, name: str, *, nan_as_none: bool = False) -> Any:
    """What JSON from an unknown source holds, as `read_json`; a ValueError names the source.

    nan_as_none: read NaN and infinite numbers, which Python writes, as None.
    """
    if content.count(b"[") + content.count(b"{") > MOST_PARTS or content.count(b",") > MOST_VALUES:
        raise ValueError(f"{name} has more parts than any record of a run")
    constant = _none if nan_as_none else _refuse
    try:
        return json.loads(content.decode(), object_pairs_hook=_unique, parse_constant=constant)
    except (ValueError, RecursionError):
        raise ValueError(f"{name} is corrupt: it is not JSON") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object without repeated keys: programs differ on which of two values counts."""
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key is repeated")
    return record


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _none(_: str) -> None:
    return None


def has_type(value: Any, kind: Any) -> bool:
    """Whether a value read from JSON has the type of an annotation.

    A float may be written as a whole number. A bool is not a number, and a number must be below
    1e300. A list may stand for a tuple, and a tuple for a list.

    >>> has_type({"a": [1, 2.5]}, dict[str, list[float]]), has_type(True, int | None)
    (True, False)
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(has_type(value, one) for one in inner)
    if origin in (dict, Mapping):
        return type(value) is dict and all(has_type(entry, inner[1]) for entry in value.values())
    if origin in (list, tuple, Sequence) and type(value) not in (list, tuple):
        return False
    if origin in (list, Sequence) or inner[1:] == (...,):
        return all(has_type(entry, inner[0]) for entry in value)
    if origin is tuple:
        return len(value) == len(inner) and all(map(has_type, value, inner))
    if kind in (int, float):
        return type(value) in (int, kind) and abs(value) < 1e300
    return kind is Any or type(value) is kind


def check_record(record: Any, kinds: Mapping[str, Any], name: str = "") -> None:
    """An error unless a record read from JSON has exactly these fields, of these types.

    >>> check_record({"cost": "0.1"}, {"cost": float}, "estimate")
    Traceback (most recent call last):
    ValueError: bad estimate.cost: expected float
    """
    different = record.keys() ^ kinds.keys() if type(record) is dict else kinds.keys()
    if different:
        first = quoted(min(different))
        raise ValueError(f"{name or 'it'} has other fields than expected, such as {first}")
    for field, kind in kinds.items():
        if not has_type(record[field], kind):
            expected = kind.__name__ if isinstance(kind, type) else str(kind)
            raise ValueError(f"bad {name and f'{name}.'}{field}: expected {expected}")


# ---- hashes -------------------------------------------------------------------------------------


def sha256(content: bytes) -> str:
    """SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record without its entry `seal`."""
    return sha256(json_bytes({key: value for key, value in record.items() if key != "seal"}))


# ---- reading and writing ------------------------------------------------------------------------


def check_regular(path: Path) -> None:
    """An error for a link, which may lead out of a run's folder, a pipe, a device or no file."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ValueError(f"{path} is not a plain file")
    if not path.exists():
        raise FileNotFoundError(f"the run at {path.parent} is incomplete: {path.name} is missing")


def existing_file(path: str | Path) -> Path:
    """The path of a file; an error if it is a folder, or if there is no such file."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give a file")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return path


def read_npy(path: Path) -> NDArray:
    """The array in a `.npy` file; a ValueError for any other file."""
    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except MemoryError:
        raise
    except Exception:  # the header is parsed as Python, and fails in many ways
        raise ValueError(f"{path} is corrupt: it is not a NumPy array") from None


def write_atomic(path: Path, content: bytes, durable: bool = False, mode: int = 0o666) -> None:
    """Write a file; the old content stays until the new one is complete.

    durable: whether to sync the file and its name to the disk. mode: its permissions, for `umask`.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    with replacing(path) as unfinished, open(unfinished, "xb", opener=opener) as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    if durable:
        sync(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The name of a file to write beside another, whose place it takes once it is complete."""
    unfinished = path.with_name(f".{uuid4().hex}.part")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except OSError as error:
        if error.errno is None:
            raise
        # with the name of the file that was asked for, not of the unfinished one
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        unfinished.unlink(missing_ok=True)


def write_output(path: Path, content: bytes) -> None:
    """Write a file that a user named: as `write_atomic`, but through links and into pipes."""
    special = path.absolute().parts[1:2] in (("dev",), ("proc",))
    if special or (path.exists() and not path.is_file()):
        path.write_bytes(content)
        return
    path = path.resolve()
    mode = path.stat().st_mode & 0o777 if path.exists() else None
    write_atomic(path, content)
    if mode is not None:
        path.chmod(mode)


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock file, which is removed in the end; a ValueError with `busy` if another holds it.

    The operating system releases the lock when this process ends, by whatever signal: a lock file
    that is left behind then is no obstacle. Forked processes do not inherit it.
    """
    try:
        lock = filelock.FileLock(path).acquire(blocking=False)
    except filelock.Timeout:
        raise ValueError(busy) from None
    with lock:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is held: to lock a removed file does not count
