"""What tests of the command share."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any


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
