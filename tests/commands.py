"""What tests of the command share."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def command(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What the command says in a process of its own, as a user runs it in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "pacbayes_control.cli", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


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
