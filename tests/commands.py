"""What tests of the command share."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pacbayes_control.cli.commands import main
from pacbayes_control.report import console
from sizes import FULL


def command(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What the command says in a process of its own, as a user runs it in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "pacbayes_control", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


def run_here(*arguments: object) -> int:
    """The exit code of the command within this process, which spares the start of another."""
    with pytest.MonkeyPatch.context() as patch, examples_forgotten():
        patch.setattr(console, "FIRST", math.inf)  # no progress, however slow this machine is
        if not FULL:
            quick_checks(patch)
        patch.setattr(sys, "argv", ["pbc", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


def quick_checks(patch: pytest.MonkeyPatch) -> None:
    """Check tasks on one other process, with no two seconds to see how fast they are."""
    from pacbayes_control.rollouts import (
        conformance,  # where a command runs, not where tests are counted
    )

    speed, pool = conformance._speed, conformance.Processes
    patch.setattr(conformance, "_speed", lambda job, _: speed(job, 0.05))
    patch.setattr(conformance, "Processes", lambda _: pool(1))


@contextmanager
def examples_forgotten() -> Iterator[None]:
    """What is imported from examples and tests' folders is new to the next process, and so here."""
    path, known = [*sys.path], {*sys.modules}
    yield
    folders = {Path(entry) for entry in sys.path if entry not in path}  # those of tasks
    sys.path[:] = path
    for name in {*sys.modules} - known:
        folder = Path(getattr(sys.modules[name], "__file__", None) or "").parent
        if folder.name == "examples" or folder in folders:
            del sys.modules[name]


def complaint(result: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The one line of a failed command."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("pbc: ")
    return lines[0]


def files(folder: Path) -> dict[str, Any]:
    """The content of each file of a run; of its manifest all but the date, and the seal over it."""
    content: dict[str, Any] = {path.name: path.read_bytes() for path in folder.iterdir()}
    manifest = json.loads(content["manifest.json"])
    del manifest["created"], manifest["seal"]
    return content | {"manifest.json": manifest}
