"""Costs kept on disk: what the files are, going on where it was, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_robots as robots
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_robots import TASKS, Erratic, kept, lines_of, policies, robot_task, rolled_out, waiting

import pacbayes_control
from pacbayes_control.certify import files
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.files import hash_file
from pacbayes_control.rollouts import (
    Execution,
    Progress,
    evaluate,
    evaluation,
    pools,
    sample_costs,
)
from pacbayes_control.rollouts.evaluation import PROBES
from pacbayes_control.rollouts.kept import KeptCosts
from pacbayes_control.tasks import Environments, Noise
from pacbayes_control.tasks.functions import BatchTask, FunctionTask
from polling import wait_until
from sizes import sized

N, COLUMNS = 30, 4
ROLLOUTS = N * COLUMNS
ALL = [(row, number) for row in range(N) for number in range(COLUMNS)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "out"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """All probes are run, however slow the machine is."""
    monkeypatch.setattr(evaluation, "PROBING", 3600.0)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of five rollouts at most, however fast these are."""
    monkeypatch.setattr(pools, "Pace", lambda _: Erratic([5]))


def environments(task: Any) -> Environments:
    return task.environments(40, stream="train", seed=8)[10:]


def how(**options: Any) -> Execution:
    """An execution, by the short names of these tests."""
    names = {"executor": "workers", "out": "store"}
    return Execution(**{names.get(name, name): value for name, value in options.items()})


def roll(task: Any, out: Path | None = None, **options: Any) -> Costs:
    noise = options.pop("noise", None)
    execution = how(out=out, **options)
    return evaluate(task, policies(COLUMNS), environments(task), noise=noise, execution=execution)


@cache
def expected(name: str) -> Costs:
    """Costs that are kept nowhere."""
    return roll(TASKS[name])


def run_again(task: FunctionTask, log: Path, out: Path) -> list[tuple[int, int]]:
    """The rollouts that are run by the same call once more, in whichever order."""
    before = lines_of(log)
    assert isinstance(task.rollout, robots.Robot)
    twin = expected("miss" if task.rollout.graded else "hit")
    assert roll(task, out).digests["costs"] == twin.digests["costs"]
    return sorted((row, number) for row, number, _ in rolled_out(log, environments(task), before))


class Stopped(Exception):  # noqa: N818 - no error
    """What a test stops an evaluation with."""


def stopped_after(rollouts: int) -> Callable[[int, int], None]:
    def progress(now: Progress) -> None:
        if now.done >= rollouts:
            raise Stopped

    return progress


# ---- the files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("graded", [False, True])
def test_the_files_are_what_is_documented(log: Path, out: Path, graded: bool):
    task, seen = robot_task(log, graded=graded), set[str]()

    def progress(_: Progress) -> None:
        seen.update(path.name for path in out.iterdir())

    costs = roll(task, out, progress=progress)
    assert {path.name for path in out.iterdir()} == {"campaign.json", "costs.npy"}
    assert any(re.fullmatch(r"rows-\d+-\d+-columns-\d+-\d+\.npz", name) for name in seen)
    table = np.load(out / "costs.npy")
    assert table.dtype == (np.float64 if graded else np.uint8)
    assert np.array_equal(table, costs.values)
    assert np.array_equal(table, roll(TASKS["miss" if graded else "hit"]).values)
    described = json.loads((out / "campaign.json").read_text())
    assert list(described["tables"]) == [hash_file(out / "costs.npy")]
    assert described["environments"]["stream"] == "train"
    assert described["version"] == pacbayes_control.__version__
    assert described["task"] == repr(task)


def test_a_finished_call_runs_nothing_but_probes_when_it_is_made_again(log: Path, out: Path):
    task, told = robot_task(log), []
    first = roll(task, out)
    content = {path: path.read_bytes() for path in out.iterdir()}
    before = lines_of(log)
    again = roll(task, out, progress=lambda now: told.append((now.done, now.total)))
    assert before == ROLLOUTS
    assert lines_of(log) == before + PROBES
    assert again.digests == first.digests
    assert told == [(ROLLOUTS, ROLLOUTS)]
    assert {path: path.read_bytes() for path in out.iterdir()} == content


def test_the_returned_costs_are_mapped_and_cannot_be_written_to(log: Path, out: Path):
    costs = roll(robot_task(log), out)
    assert not costs.values.flags.writeable
    bases: list[Any] = [costs.values]
    while getattr(bases[-1], "base", None) is not None:
        bases.append(bases[-1].base)
    assert any(isinstance(base, np.memmap) for base in bases)
    assert costs.digests == roll(TASKS["hit"]).digests


MAPPED = """
import re, sys
import numpy as np
from pathlib import Path
from pacbayes_control.rollouts import Execution, evaluate
from pacbayes_control.tasks.functions import BatchTask

def peak():  # in KiB; not ru_maxrss, which a process inherits from the one that started it
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

def draw(rng, n):
    return {"x": rng.random(n)}

def costs(policies, environments):
    return environments["x"][:, None] > policies[:, 0]

task = BatchTask(costs, draw, "wide", 1)
policies = np.linspace(0, 1, 1000)[:, None]
small = Execution(store=Path(sys.argv[1]) / "small")
evaluate(task, policies, task.environments(2048, stream="s"), execution=small)
before = peak()
rows = int(sys.argv[2])
large = Execution(store=Path(sys.argv[1]) / "big")
big = evaluate(task, policies, task.environments(rows, stream="s"), execution=large)
after = peak()
assert big.values.shape == (rows, 1000) and big.binary, big
print((after - before) * 1024, float(big.means.mean()))
"""


@pytest.mark.slow
def test_a_table_of_millions_of_costs_takes_little_memory(tmp_path: Path):
    rows = sized(8_000, full=20_000)
    command = [sys.executable, "-c", MAPPED, tmp_path, str(rows)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    more, mean = map(float, run.stdout.split())
    assert mean == pytest.approx(0.5, abs=0.02)
    assert more < 5 * rows * 1000  # bytes: floats would take eight each


# ---- going on -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("rollouts", [0, 1, 9, 30])
def test_what_is_finished_is_not_run_again_but_for_the_probes(
    log: Path, out: Path, graded: bool, rollouts: int
):
    task = robot_task(log, graded=graded)
    with pytest.raises(Stopped):
        roll(task, out, progress=stopped_after(rollouts))
    done = kept(out)
    assert rollouts <= len(done) < ROLLOUTS
    again = run_again(task, log, out)
    assert set(again) >= set(ALL) - set(done)
    probes = [cell for cell in again if cell in done]
    assert len(probes) == min(PROBES, len(done))
    assert len(again) == ROLLOUTS - len(done) + len(probes)
    assert sorted(kept(out)) == ALL


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("graded", [False, True])
def test_a_chunk_that_is_damaged_costs_its_rollouts_and_no_others(
    log: Path, out: Path, tmp_path: Path, graded: bool
):
    task = robot_task(log, graded=graded)
    with pytest.raises(Stopped):
        roll(task, out, progress=stopped_after(30))
    shutil.copytree(out, tmp_path / "intact")
    path = sorted(out.glob("*.npz"))[2]
    content, done = path.read_bytes(), kept(out)
    lost = kept_in(path)
    data = content.index(b"NUMPY") + 122  # within the costs, after the header
    for damaged in (
        b"",
        content[:-1],
        content[: len(content) // 2],
        b"[1]",
        flipped(content, data),
    ):
        shutil.rmtree(out)
        shutil.copytree(tmp_path / "intact", out)
        path.write_bytes(damaged)
        again = run_again(task, log, out)
        assert len(again) == ROLLOUTS - len(done - lost) + PROBES
        assert set(again) >= lost


def kept_in(path: Path) -> set[tuple[int, int]]:
    a, b, c, d = map(int, re.findall(r"\d+", path.name))
    return {(i, j) for i in range(a, b) for j in range(c, d)}


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    "name",
    [
        "rows-0-99-columns-0-4.npz",
        "rows-3-3-columns-0-4.npz",
        "rows-0-2-columns-1-3.npz",
        "rows-0-1-columns-0-9.npz",
    ],
)
def test_a_chunk_of_no_use_is_ignored(log: Path, out: Path, name: str):
    task = robot_task(log)
    with pytest.raises(Stopped):
        roll(task, out, progress=stopped_after(1))
    a_chunk = min(out.glob("*.npz"))
    a_chunk.rename(out / name)
    for path in set(out.glob("*.npz")) - {out / name}:
        path.unlink()
    assert run_again(task, log, out) == ALL
    assert not (out / name).exists()


def test_files_of_a_user_stay_in_the_folder(log: Path, out: Path):
    task = robot_task(log)
    with pytest.raises(Stopped):
        roll(task, out, progress=stopped_after(1))
    mine = [out / name for name in ("analysis.npz", "movie.part", ".notes.part")]
    for path in mine:
        path.write_text("mine")
    run_again(task, log, out)
    assert [path.read_text() for path in mine] == ["mine"] * 3


@pytest.mark.slow
@settings(max_examples=sized(25, full=60))
@given(data=st.data())
def test_damage_anywhere_never_changes_the_costs(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    folder = tmp_path_factory.getbasetemp() / "damaged"
    out, task = folder / "out", TASKS["miss"]
    if not folder.exists():
        with pytest.raises(Stopped):
            roll(task, out, progress=stopped_after(60))
        shutil.copytree(out, folder / "intact")
    shutil.rmtree(out)
    shutil.copytree(folder / "intact", out)
    path = data.draw(st.sampled_from(sorted(out.glob("*.npz"))))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    assert roll(task, out).digests == expected("miss").digests


def test_a_table_that_was_altered_is_refused_and_made_again_where_it_is_gone(log: Path, out: Path):
    task = robot_task(log)
    costs = roll(task, out)
    content = (out / "costs.npy").read_bytes()
    for altered in (flipped(content, len(content) - 1), content + b"0", b""):
        (out / "costs.npy").write_bytes(altered)
        with pytest.raises(ValueError, match=r"costs\.npy was altered: delete it to roll out all"):
            roll(task, out)
    (out / "costs.npy").unlink()
    before = lines_of(log)
    assert roll(task, out).digests == costs.digests
    assert lines_of(log) == before + ROLLOUTS


def test_a_description_that_is_damaged_is_refused(log: Path, out: Path):
    task = robot_task(log)
    roll(task, out)
    whole = json.loads((out / "campaign.json").read_text())
    wrong = [{**whole, "size": 3}, {**whole, "tables": {"a": {}}}, {**whole, "looks": [1]}, {}]
    for content in (b"", b"{", b"[1]", b"\xff", *(json.dumps(one).encode() for one in wrong)):
        (out / "campaign.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"campaign\.json is corrupt"):
            roll(task, out)


@pytest.mark.parametrize("workers", [None, 2])
def test_draws_from_a_posterior_are_kept_too(tmp_path: Path, workers: int | None):
    task = TASKS["slip"]
    posterior = DiagonalGaussian([1.0, 2.0], 0.5)
    arguments = (task, posterior, environments(task), 5)
    expected = sample_costs(*arguments)
    out = tmp_path / "out"
    with pytest.raises(Stopped):
        sample_costs(*arguments, Execution(store=out, progress=stopped_after(30)))
    with ThreadPoolExecutor(2) as executor:
        kept = sample_costs(*arguments, Execution(executor if workers else None, out))
    assert kept.digests == expected.digests
    more = {"code": kept.origin["code"], "incidents": {"resumed": 1}}
    assert kept.origin == {**expected.origin, **more}
    with pytest.raises(ValueError, match="holds rollouts of another list of policies"):
        sample_costs(
            task, DiagonalGaussian([1.0, 2.0], 0.6), environments(task), 5, Execution(store=out)
        )
    with pytest.raises(ValueError, match="holds rollouts of another list of policies"):
        sample_costs(task, posterior, environments(task), 6, Execution(store=out))


# ---- 0 and 1 first, and then graded costs -------------------------------------------------------


def late(policy: NDArray, environment: dict[str, Any]) -> float:
    """A cost of 0 or 1 in all environments but a few."""
    cost = robots.miss(policy, environment)
    return cost if environment["goal"] > 0.93 else float(cost > 0.5)


def late_all(policies: NDArray, environments: dict[str, NDArray]) -> NDArray:
    cost = robots.miss_all(policies, environments)
    return np.where(environments["goal"][:, None] > 0.93, cost, cost > 0.5)


@pytest.mark.parametrize("batched", [False, True])
def test_graded_costs_that_come_late_take_over_the_table(out: Path, batched: bool):
    task: Any = FunctionTask(late, robots.draw, "late", 2)
    if batched:
        task = BatchTask(late_all, robots.draw_many, "late", 2)
    train = task.environments(400, stream="train")
    here = evaluate(task, policies(COLUMNS), train)
    assert not here.binary
    first = int(np.argmax((here.values % 1 != 0).any(axis=1)))
    assert first > 2
    kept = evaluate(task, policies(COLUMNS), train, execution=Execution(store=out))
    assert kept.digests == here.digests
    assert (
        evaluate(task, policies(COLUMNS), train, execution=Execution(store=out)).digests
        == here.digests
    )


@pytest.mark.parametrize("moment", ["allocated", "hashed", "described", "replaced", "unlinked"])
def test_an_interruption_while_the_table_is_made_loses_nothing(
    log: Path, out: Path, monkeypatch: pytest.MonkeyPatch, moment: str
):
    task = robot_task(log, graded=True)
    names = {"allocated": (os, "posix_fallocate"), "hashed": (files, "hash_file")}
    names |= {"described": (KeptCosts, "describe"), "replaced": (Path, "replace")}
    owner, name = names.get(moment, (Path, "unlink"))
    do: Any = getattr(owner, name)

    def stop(*arguments: Any, **options: Any) -> Any:
        done = None if moment in ("allocated", "hashed") else do(*arguments, **options)
        part, table = out / ".costs.npy.part", out / "costs.npy"
        if moment in ("allocated", "hashed") or (part if moment == "described" else table).exists():
            raise Stopped
        return done

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stop)
        with pytest.raises(Stopped):
            roll(task, out)
    assert lines_of(log) == ROLLOUTS
    costs = roll(task, out)
    assert lines_of(log) == ROLLOUTS + PROBES
    assert costs.digests["costs"] == expected("miss").digests["costs"]
    assert costs.incidents == {}
    assert {path.name for path in out.iterdir()} == {"campaign.json", "costs.npy"}


# ---- folders that are not for this ---------------------------------------------------------------


def changed_draw(rng: np.random.Generator) -> dict[str, Any]:
    return {"goal": rng.random(), "obstacles": 0.5 * rng.random(3)}


def test_rollouts_of_anything_else_are_refused_with_what_differs(out: Path):
    task = TASKS["slip"]
    train, rows = environments(task), policies(COLUMNS)
    evaluate(task, rows, train, noise=Noise("wind", 1), execution=Execution(store=out))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    again = task.environments(41, stream="train", seed=8)
    others: list[tuple[str, tuple[Any, ...], Noise]] = [
        ("task", (TASKS["trip"], rows, train), Noise("wind", 1)),
        (
            "set of environments",
            (task, rows, task.environments(40, "train")[10:]),
            Noise("wind", 1),
        ),
        (
            "set of environments",
            (task, rows, task.environments(40, "test", 8)[10:]),
            Noise("wind", 1),
        ),
        ("set of environments", (task, rows, again[:30]), Noise("wind", 1)),
        ("list of policies", (task, rows + 1, train), Noise("wind", 1)),
        ("list of policies", (task, rows.astype(np.float32), train), Noise("wind", 1)),
        ("noise", (task, rows, train), Noise("wind", 2)),
        ("noise", (task, rows, train), Noise("waves", 1)),
    ]
    for word, arguments, noise in others:
        words = rf"^{out} holds rollouts of another {word}: .*, not .*; choose another folder, or"
        with pytest.raises(ValueError, match=words) as caught:
            evaluate(*arguments, noise=noise, execution=Execution(store=out))
        assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_rollouts_of_another_version_of_the_library_are_refused(
    out: Path, monkeypatch: pytest.MonkeyPatch
):
    roll(TASKS["miss"], out)
    monkeypatch.setattr(pacbayes_control, "__version__", "9.9")
    with pytest.raises(ValueError, match=r"another version of this library: 0\.\d.*, not 9\.9; ch"):
        roll(TASKS["miss"], out)


def test_environments_that_are_drawn_otherwise_under_the_same_name_are_refused(
    out: Path, monkeypatch: pytest.MonkeyPatch
):
    roll(TASKS["miss"], out)
    monkeypatch.setattr(changed_draw, "__qualname__", "draw")
    monkeypatch.setattr(changed_draw, "__module__", "small_robots")
    changed = FunctionTask(robots.miss, changed_draw, "miss", 2)
    assert repr(changed) == repr(TASKS["miss"])
    with pytest.raises(ValueError, match="holds rollouts of another draw of environments: "):
        roll(changed, out)


def scaled(factor: float) -> FunctionTask:
    def rollout(policy: NDArray, environment: dict[str, Any]) -> float:
        return factor * robots.miss(policy, environment)

    return FunctionTask(rollout, robots.draw, "scaled", 2)


def test_a_function_of_the_same_name_that_does_something_else_is_refused(out: Path):
    roll(scaled(0.5), out)
    with pytest.raises(ValueError, match=f"{out} "):
        roll(scaled(0.25), out)


def test_a_task_that_nobody_could_recognise_is_refused(out: Path):
    class Nameless:
        def __call__(self, policy: NDArray, environment: dict[str, Any]) -> float:
            return robots.miss(policy, environment)

    task = FunctionTask(Nameless(), robots.draw, "nameless", 2)
    with pytest.raises(ValueError, match=r"^task nameless cannot be told from others by its rollo"):
        roll(task, out)
    assert roll(task).digests == roll(TASKS["miss"]).digests


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("Chapter 1")
    with pytest.raises(ValueError, match=f"^{tmp_path} holds other things than rollouts: choose"):
        roll(TASKS["miss"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_the_folder_is_refused_and_left_alone(tmp_path: Path):
    path = tmp_path / "costs"
    path.write_text("precious")
    with pytest.raises(ValueError, match=f"^{path} is a file, and rollouts are kept in a folder$"):
        roll(TASKS["miss"], path)
    assert path.read_text() == "precious"


def test_a_folder_that_cannot_be_written_to_is_named(out: Path):
    out.parent.parent.mkdir(exist_ok=True)
    out.parent.write_text("a file")
    with pytest.raises(OSError, match=f"^{out}: Not a directory$"):
        evaluate(
            TASKS["miss"],
            policies(2),
            TASKS["miss"].environments(5, stream="train"),
            execution=Execution(store=out),
        )


def test_an_empty_folder_will_do_and_so_will_the_name_of_one(tmp_path: Path):
    costs = evaluate(
        TASKS["miss"],
        policies(2),
        environments(TASKS["miss"]),
        execution=Execution(store=str(tmp_path)),
    )
    assert (tmp_path / "costs.npy").exists()
    assert costs.policies == 2


OTHER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from small_robots import policies, robot_task
from pacbayes_control.rollouts import Execution, evaluate

log, out = Path(sys.argv[2]), sys.argv[3]
task = robot_task(log, holds=(2,))
train = task.environments(40, stream="train", seed=8)[10:]
evaluate(task, policies(4), train, execution=Execution(store=out))
"""


@pytest.mark.slow
def test_a_second_process_in_the_same_folder_is_refused(log: Path, out: Path):
    other = subprocess.Popen([sys.executable, "-c", OTHER, robots.HERE, log, out])
    try:
        assert wait_until(lambda: bool(waiting(log, 2)))
        task = robot_task(log, holds=(2,))
        with pytest.raises(ValueError, match=f"^another process keeps its rollouts in {out}: wait"):
            roll(task, out)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    with pytest.raises(Stopped):  # its lock went with it
        roll(task, out, progress=stopped_after(0))


def test_the_same_process_is_refused_too_and_may_go_on_later(log: Path, out: Path):
    task = robot_task(log)

    def progress(now: Progress) -> None:
        assert now.total == ROLLOUTS
        if now.done:
            with pytest.raises(ValueError, match="another process keeps its rollouts in"):
                roll(task, out)

    roll(task, out, progress=progress)
    assert lines_of(log) == ROLLOUTS


@pytest.mark.parametrize("which", ["n", "seed"])
def test_numbers_of_numpy_will_do(out: Path, which: str):
    task: Any = TASKS["miss"]
    numbers = {"n": 5, "seed": 1} | {which: np.int64(7)}
    train = task.environments(numbers["n"], "train", numbers["seed"])
    kept = evaluate(task, policies(2), train, execution=Execution(store=out))
    assert kept.digests == evaluate(task, policies(2), train).digests


# ---- tasks that do not repeat -------------------------------------------------------------------

CALLS: list[int] = []


def counts(policy: NDArray, environment: dict[str, Any]) -> float:
    """It depends on how often it was called."""
    CALLS.append(1)
    return robots.miss(policy, environment) * (0.5 + 0.5 / len(CALLS))


def random(policy: NDArray, environment: dict[str, Any]) -> float:
    """It has randomness that nobody is told of."""
    return 0.5 * robots.miss(policy, environment) + 0.5 * np.random.rand()  # noqa: NPY002


@pytest.mark.parametrize("rollout", [counts, random])
def test_a_task_that_does_not_repeat_is_not_continued(out: Path, rollout: Callable[..., float]):
    task = FunctionTask(rollout, robots.draw, "moody", 2)
    with pytest.raises(Stopped):
        roll(task, out, progress=stopped_after(5))
    before = {path: path.read_bytes() for path in out.glob("*.npz")}
    with pytest.raises(
        ValueError,
        match=rf"^{out} cannot be continued: the rollout of policy \d in environment 1\d cost "
        r"0\.\d+ when it was kept and 0\.\d+ now, so the task is not deterministic, or not the",
    ) as caught:
        roll(task, out)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in out.glob("*.npz")} == before


# ---- a full disk --------------------------------------------------------------------------------

FULL = """
import os, resource, signal, sys
sys.path[:0] = [sys.argv[1], os.path.dirname(sys.argv[1])]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
from pacbayes_control.rollouts import pools
from small_robots import Erratic
from test_kept import fill
pools.Pace = lambda _: Erratic([100])
try:
    fill(sys.argv[3])
except OSError as error:
    print(error)
"""


def fill(out: Path | str) -> Costs:
    """160 kB of graded costs."""
    task = FunctionTask(robots.miss, robots.draw, "large", 2)
    return evaluate(
        task, policies(20), task.environments(1000, stream="train"), execution=Execution(store=out)
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, Callable[[int], bool]]]:
    """A disk of 64 kB, and how to make it larger: where nobody may mount one, none (and False)."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = shutil.which("mount") is not None and (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )

    def grow(kilobytes: int) -> bool:
        if mounted:
            size = f"remount,size={kilobytes}k"
            subprocess.run(["mount", "-o", size, disk], check=True, capture_output=True)
        return mounted

    try:
        yield disk, grow
    finally:
        if mounted:
            subprocess.run(["umount", "-l", disk], check=True)


def overfilled(disk: Path, grow: Callable[[int], bool]) -> tuple[str, str]:
    """What is said when a disk is full, or a file as large as may be, and the cause of it."""
    out = disk / "out"
    if grow(64):
        with pytest.raises(OSError, match=f"^{out}: ") as caught:
            fill(out)
        return str(caught.value), "No space left on device"
    arguments = [sys.executable, "-c", FULL, robots.HERE, str(200_000), str(out)]
    run = subprocess.run(arguments, capture_output=True, text=True, check=True)
    return run.stdout.strip(), "File too large"


def test_a_full_disk_is_an_error_that_says_what_survives_and_going_on_works(
    small_disk: tuple[Path, Callable[[int], bool]],
):
    disk, grow = small_disk
    out = disk / "out"
    message, reason = overfilled(disk, grow)
    done = len(kept(out))
    assert 0 < done < 20_000
    assert message == (
        f"{out}: {reason}; the {done:,} rollouts that are finished survive there: make room and do "
        "the same again to go on"
    )
    grow(1000)
    told = []
    task = FunctionTask(robots.miss, robots.draw, "large", 2)
    train = task.environments(1000, stream="train")
    costs = evaluate(
        task,
        policies(20),
        train,
        execution=Execution(store=out, progress=lambda now: told.append(now.done)),
    )
    assert told[0] == done
    assert costs.digests == evaluate(task, policies(20), train).digests
    del costs


def test_going_on_with_a_disk_that_is_still_full_loses_nothing(
    small_disk: tuple[Path, Callable[[int], bool]],
):
    disk, grow = small_disk
    done = [0]
    for _ in range(3):
        message, reason = overfilled(disk, grow)
        assert reason in message
        assert "that are finished survive there" in message
        done.append(len(kept(disk / "out")))
    assert done == sorted(done)
    grow(1000)
    fill(disk / "out")
    assert len(kept(disk / "out")) == 20_000
