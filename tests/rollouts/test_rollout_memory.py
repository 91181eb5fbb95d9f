"""Memory stays flat, however many rollouts there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sizes import sized

SCRIPT = """
import re, sys
import numpy as np
from pacbayes_control.rollouts import Execution, evaluate
from pacbayes_control.tasks.functions import FunctionTask

def draw(rng):
    return {"x": 0.5}

def rollout(policy, environment):
    return 1.0

task = FunctionTask(rollout, draw, "trivial", 1)
for environments in map(int, sys.argv[3:]):
    costs = evaluate(task, np.zeros((100, 1)), task.environments(environments, stream="s"),
                     execution=Execution(int(sys.argv[2]), f"{sys.argv[1]} {environments}"))
    assert costs.values.all() and costs.binary
    # Not ru_maxrss, which a process inherits from the one that started it.
    print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_many_more_rollouts_take_hardly_more_memory(tmp_path: Path, workers: int):
    few, many = sized((2_000, 10_000), full=(10_000, 30_000))  # environments, for 100 policies
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "out", *map(str, (workers, few, many))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    one, other = map(float, run.stdout.split())  # MiB at most, until then
    assert one < 500
    assert other - one < 25e-6 * 100 * (many - few)  # 26 bytes a rollout
