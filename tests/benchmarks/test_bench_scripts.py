"""The benchmarks as users run them: what they print, what they write, and how they fail."""

from __future__ import annotations

import doctest
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from commands import complaint
from loading import BENCHMARKS, SHARED, load
from pacbayes_control.report import console
from robots.planar.emulated import emulate

Result = subprocess.CompletedProcess[str]
Script = Callable[..., Result]

NAMES = sorted(file.stem for file in BENCHMARKS.glob("*.py") if file.stem not in SHARED)
RECORD: dict[str, Any] = {
    "rollouts_per_second": 1_234_567.8,
    "ratio": 12.3456,
    "scaling": [{"environments": 12_345, "policies": 50, "microseconds": 1.2345, "peak_mib": 123}],
    "power": [{"rate": 0.123, "trials": 1000, "monitor": 0.1234, "fixed_sample": 0.2345,
               "hoeffding": 0.3456}],
    "pairs": [{"a": 0.02, "b": 0.06, "ours": 413.9, "ratio": 0.8996}],
    "seconds": {"choose": 1.2345},
}  # fmt: skip


@pytest.fixture
def script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Script:
    """A benchmark within this process, in an empty folder, which spares the start of another."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: object) -> Result:
        benchmark = load(name)
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            benchmark.main(benchmark.command)
        assert isinstance(stop.value.code, int)
        return Result(arguments, stop.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks that time everything once, not for a second."""
    monkeypatch.setattr(load("measuring").repeat, "__defaults__", (0.0,))


# ---- what works ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("hasty")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="PyBullet has no wheels beyond 3.11")
def test_the_vehicle_is_measured_against_pybullet(script: Script, tmp_path: Path):
    result = script("vehicle", "--environments", 1, "--scale-to", 8, "--json", "b.json")
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "b.json").read_text())
    assert record["ratio"] == pytest.approx(
        record["rollouts_per_second"] / record["reference_rollouts_per_second"], rel=1e-6
    )
    assert 0.9 <= record["agreement"] <= 1
    assert [row["environments"] for row in record["scaling"]] == [2, 4, 8, 2, 2]


@pytest.mark.usefixtures("hasty")
def test_learning_is_measured_against_the_programmes(script: Script, tmp_path: Path):
    result = script("learn", "--json", "b.json")
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "b.json").read_text())
    assert record["ratio"] > 0  # whichever is faster on a busy machine
    assert record["objective"] <= record["reference_objective"]


@pytest.mark.slow
def test_the_benchmark_of_grasping_keeps_its_contract(
    script: Script, monkeypatch: pytest.MonkeyPatch
):
    grasping = load("grasping")
    real = grasping.bench_grasping
    monkeypatch.setattr(grasping, "bench_grasping", lambda seed: real(2, 3, seed=seed))
    result = script("grasping", "--json", "-")
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["grasps_per_second"] > 0
    if sys.version_info < (3, 12):  # PyBullet has no wheels beyond 3.11
        speed, reference = record["grasps_per_second"], record["reference_grasps_per_second"]
        assert record["ratio"] == pytest.approx(speed / reference)
    assert "grasps per second" in result.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_the_benchmark_of_simulation_keeps_its_contract(
    script: Script, monkeypatch: pytest.MonkeyPatch
):
    benchmark = load("sim_to_real")
    real = benchmark.bench_sim_to_real
    monkeypatch.setattr(benchmark, "PAIRS", (100,))
    monkeypatch.setattr(benchmark, "SIMILAR", 3)
    monkeypatch.setattr(benchmark, "bench_sim_to_real", lambda seed: real(2, 4_000, seed=seed))
    result = script("sim_to_real", "--json", "-")
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["ratio"] == pytest.approx(record["reference_seconds"] / record["seconds_bets"])
    good = record["methods"][0]
    assert good["certified"] < good["alone"] < good["anytime_alone"]
    assert record["mixtures"][0]["certified"] < record["mixtures"][0]["posterior"]


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
def test_the_benchmark_of_gpus_keeps_its_contract(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    emulate(monkeypatch)
    result = script("gpu", "--environments", 40, "--steps", 1, "--json", "b.json")
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "b.json").read_text())
    assert (record["device"], record["policies"]) == ("an emulator", 50)
    assert record["agreement"] >= 0.99
    assert record["network_agreement"] >= 0.99
    assert record["ratio"] == pytest.approx(
        record["rollouts_per_second"] / record["cpu_rollouts_per_second"]
    )
    assert [row["environments"] for row in record["scaling"]] == [10, 20, 40]


@pytest.mark.parametrize("name", NAMES)
def test_help_has_an_example(script: Script, name: str):
    result = script(name, "--help")
    assert result.returncode == 0
    assert f"Example: .venv/bin/python benchmarks/{name}.py" in result.stdout
    assert "--json" in result.stdout


def test_examples_in_docstrings_hold():
    tried = [doctest.testmod(load(name)) for name in ("measuring", *NAMES)]
    assert sum(module.attempted for module in tried) > 0
    assert sum(module.failed for module in tried) == 0


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("learn", "--solver", "magic"), "solver 'magic' is unknown"),
        (("vehicle", "--environments", 0), "Invalid value for '--environments'"),
        (("fly", "--minutes", 0), "Invalid value for '--minutes'"),
        (("swing", "--minutes", 1), "No such option"),
        (("monitor", "--json", "none/b.json"), "there is no folder none"),
    ],
)
@pytest.mark.usefixtures("hasty")
def test_bad_arguments_get_one_clear_line(script: Script, arguments: tuple, message: str):
    assert message in complaint(script(*arguments))


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_is_one_line(
    script: Script, monkeypatch: pytest.MonkeyPatch, stop: signal.Signals
):
    monkeypatch.setattr(load("swing"), "bench_swing", lambda **_: signal.raise_signal(stop))
    assert complaint(script("swing"), code=130) == "pbc: interrupted"


@pytest.mark.slow
def test_a_missing_extra_says_what_to_type(tmp_path: Path):
    """In a process of its own, where the script is the main module."""
    words = (
        "import sys; sys.modules['pybullet'] = None\n"
        "import importlib.util as u, runpy; find = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'pybullet' else find(n, *a)\n"
        "sys.argv = sys.argv[1:]; sys.path[0] = sys.argv[0].rpartition('/')[0]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", words, str(BENCHMARKS / "vehicle.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "pip install 'pacbayes-control[pybullet]'" in complaint(result)


# ---- tables -------------------------------------------------------------------------------------


def shown(width: int | None = None) -> str:
    """The tables in so many columns, without styles; in a pipe where none are given."""
    file, terminal = StringIO(), width is not None
    with pytest.MonkeyPatch.context() as patch:
        made = console._Console(file=file, force_terminal=terminal, width=width, no_color=True)
        patch.setattr(console, "out", made)
        load("measuring").show_bench("vehicle", RECORD)
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())


def numbers(text: str) -> Counter[str]:
    return Counter(re.findall(r"\d(?:[\d.,]*\d)?(?:e[+-]?\d+)?", text))


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_number_is_cut(width: int):
    whole, narrow = shown(), shown(width)
    assert sum(numbers(whole).values()) > 1
    assert max(map(len, narrow.splitlines())) <= width
    assert numbers(narrow) >= numbers(whole)
    assert set(numbers(narrow)) == set(numbers(whole))  # a heading may stand more often
    assert "…" not in narrow
