"""Memory stays flat, however many rollouts there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import re, sys
import numpy as np
from pacbayes_control.rollouts import evaluate
from pacbayes_control.tasks.functions import FunctionTask

def draw(rng):
    return {"x": 0.5}

def rollout(policy, environment):
    return 1.0

task = FunctionTask(rollout, draw, "trivial", 1)
costs = evaluate(task, np.zeros((100, 1)), task.environments(int(sys.argv[1]), stream="s"),
                 executor=int(sys.argv[3]), out=sys.argv[2])
assert costs.values.all() and costs.binary
# Not ru_maxrss, which a process inherits from the one that started it.
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


def peak(out: Path, environments: int, workers: int) -> float:
    """Of a process that rolls out 100 policies in so many, in MiB."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(environments), out, str(workers)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return float(run.stdout)


@pytest.mark.parametrize("workers", [1, 2])
def test_three_million_rollouts_take_hardly_more_memory_than_one_million(
    tmp_path: Path, workers: int
):
    one = peak(tmp_path / "one", 10_000, workers)
    three = peak(tmp_path / "three", 30_000, workers)
    assert one < 500
    assert three < one + 50
