"""Types of values read from JSON, and files that are written without loss."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pacbayes_control.certify.files import (
    check_record,
    existing_file,
    has_type,
    hash_file,
    locked,
    seal,
    sha256,
    write_atomic,
    write_output,
)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, int),
        (1, float),
        (-2.5, float),
        (None, str | None),
        ("a", str),
        (True, bool),
        ({"a": 1.5, "b": 2}, Mapping[str, float]),
        ([], list[int]),
        ([1, 2], Sequence[int]),
        ((1, 2), list[int]),
        (["a", 1], tuple[str, int]),
        ([[1, 2, 3], []], tuple[tuple[int, ...], tuple[int, ...]]),
        (object(), Any),
    ],
)
def test_a_value_of_the_annotated_type_is_accepted(value: Any, kind: Any):
    assert has_type(value, kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, int),
        (True, float),
        (1.0, int),
        (math.nan, float),
        (math.inf, float),
        (10**400, int),
        ("1", float),
        (None, int),
        (0, None | str),
        ([1], dict[str, int]),
        ({"a": "1"}, dict[str, int]),
        ("ab", list[str]),
        ([1, "2"], list[int]),
        (["a"], tuple[str, int]),
        (["a", 1, 2], tuple[str, int]),
        ([1, "a"], tuple[str, int]),
        (1, tuple[int, ...]),
    ],
)
def test_a_value_of_another_type_is_refused(value: Any, kind: Any):
    assert not has_type(value, kind)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "^point has other fields than expected, such as “x”$"),
        ([1], "^point has other fields than expected, such as “x”$"),
        ({"x": 1, "y": 2, "z\x1b": 3}, r"such as “z\\x1b”$"),
        ({"x": 1, "y": "2"}, r"^bad point\.y: expected int \| None$"),
        ({"x": "1", "y": 2}, r"^bad point\.x: expected float$"),
    ],
)
def test_a_record_with_other_fields_or_types_is_refused(record: Any, message: str):
    with pytest.raises(ValueError, match=message):
        check_record(record, {"x": float, "y": int | None}, "point")


def test_the_old_content_stays_until_the_new_one_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.json"
    write_atomic(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    write_atomic(path, b"new")
    assert hash_file(path) == sha256(b"new")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=re.escape(f"'{tmp_path}/none/a.json'")):
        write_atomic(tmp_path / "none" / "a.json", b"")


def test_a_file_that_a_user_names_may_be_a_link_or_a_pipe(tmp_path: Path):
    target, link, pipe = tmp_path / "a.json", tmp_path / "link", tmp_path / "pipe"
    target.write_bytes(b"old")
    target.chmod(0o660)
    link.symlink_to(target)
    write_output(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o660
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as other:
        read = other.submit(pipe.read_bytes)
        write_output(pipe, b"through")
        assert read.result() == b"through"
    assert pipe.is_fifo()
    ends = os.pipe()
    write_output(Path(f"/dev/fd/{ends[1]}"), b"as a shell gives it")
    assert os.read(ends[0], 100) == b"as a shell gives it"
    for end in ends:
        os.close(end)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "link", "pipe"]


def test_an_output_that_is_not_finished_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.json"
    write_output(path, b"old")
    monkeypatch.setattr("os.replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_output(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_lock_is_held_once(tmp_path: Path):
    path = tmp_path / "lock"
    refused = pytest.raises(ValueError, match="it is busy")
    with locked(path, ""), refused, locked(path, "it is busy"):
        pass
    with locked(path, "it is free again"), ThreadPoolExecutor(1) as other:
        with pytest.raises(ValueError, match="it is busy"):
            other.submit(locked(path, "it is busy").__enter__).result()
        assert [file.name for file in tmp_path.iterdir()] == ["lock"]
    assert not list(tmp_path.iterdir())


HOLD = """
import os, sys, time
from pathlib import Path
from pacbayes_control.certify.files import locked

with locked(Path(sys.argv[1]), "busy"):
    read, write = os.pipe()
    if not os.fork():
        os.write(write, b"forked")
        time.sleep(600)
    os.read(read, 6)
    print("held", flush=True)
    time.sleep(600)
"""


def test_no_lock_outlives_its_process(tmp_path: Path):
    """Not where the process is killed, nor where it has forked another that lives on."""
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"held\n"
            with pytest.raises(ValueError, match="it is busy"), locked(path, "it is busy"):
                pass
            process.kill()
            process.wait()
            assert path.exists()
            with locked(path, "the killed process holds it"):
                pass
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert not path.exists()


def test_a_seal_depends_on_every_entry_but_itself():
    record = {"a": 1, "b": [2, 3]}
    assert seal(record) == seal(record | {"seal": "x"}) != seal(record | {"a": 2})


def test_a_folder_is_no_file(tmp_path: Path):
    with pytest.raises(ValueError, match="is a folder: give a file"):
        existing_file(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        existing_file(tmp_path / "none")
