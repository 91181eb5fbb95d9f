"""What tests of the command share."""

from __future__ import annotations

import subprocess


def complaint(result: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The one line of a failed command."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("pbc: ")
    return lines[0]
