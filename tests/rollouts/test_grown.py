"""Campaigns that grow: by environments, by policies, and what is written down about looks."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_robots import TASKS, Erratic, kept, lines_of, policies, robot_task

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.looks import Look, list_digest
from pacbayes_control.rollouts import Execution, Progress, evaluate, evaluation, manifest, pools
from pacbayes_control.rollouts.evaluation import PROBES
from pacbayes_control.rollouts.manifest import known_looks, record_look


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """All probes are run, however slow the machine is; and pieces are small."""
    monkeypatch.setattr(evaluation, "PROBING", 3600.0)
    monkeypatch.setattr(pools, "Pace", lambda _: Erratic([5]))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "campaign"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def roll(task: Any, n: int, columns: int, out: Path | None = None, **how: Any) -> Costs:
    train = task.environments(5 + n, stream="train", seed=3)[5:]
    return evaluate(task, policies(9)[:columns], train, execution=Execution(store=out, **how))


UNSEEN = {"policies_unseen": True}


@pytest.mark.parametrize("name", ["hit", "miss", "slip", "trip_all", "slip_all"])
@pytest.mark.parametrize(
    "sizes", [[(20, 3), (31, 3)], [(20, 3), (20, 5)], [(9, 2), (20, 4), (33, 7)]]
)
def test_a_campaign_that_grew_is_the_one_that_began_so_large(
    out: Path, name: str, sizes: list[tuple[int, int]]
):
    for n, columns in sizes:
        grown = roll(TASKS[name], n, columns, out, **UNSEEN)
        whole = roll(TASKS[name], n, columns)
        assert grown.digests == whole.digests
        assert grown.incidents == {}
    assert {path.name for path in out.iterdir()} == {"campaign.json", "costs.npy"}


@pytest.mark.parametrize("sizes", [[(20, 3), (31, 3)], [(20, 3), (20, 5)], [(20, 3), (31, 5)]])
def test_nothing_is_run_again_but_probes(log: Path, out: Path, sizes: list[tuple[int, int]]):
    task = robot_task(log)
    (n, columns), (more, wider) = sizes
    roll(task, n, columns, out)
    before = lines_of(log)
    assert before == n * columns
    roll(task, more, wider, out, **UNSEEN)
    assert lines_of(log) - before == more * wider - n * columns + PROBES


class Stopped(Exception):  # noqa: N818 - no error
    pass


@pytest.mark.parametrize("after", [1, 30, 60])
def test_growing_can_be_interrupted_and_resumed_and_grown_further(log: Path, out: Path, after: int):
    task = robot_task(log)
    roll(task, 20, 3, out)

    def progress(now: Progress) -> None:
        if now.done >= 60 + after:
            raise Stopped

    with pytest.raises(Stopped):
        roll(task, 31, 5, out, progress=progress, **UNSEEN)
    done = len(kept(out))
    assert 60 + after <= done < 155
    with pytest.raises(ValueError, match=r"5 policies, and 6 are given: finish it with the"):
        roll(task, 31, 6, out, **UNSEEN)
    before = lines_of(log)
    costs = roll(task, 40, 5, out, **UNSEEN)
    assert lines_of(log) - before == 200 - done + PROBES
    assert costs.digests == roll(TASKS["hit"], 40, 5).digests
    assert costs.incidents == {"resumed": 1}


def test_what_does_not_extend_a_campaign_is_refused_and_nothing_is_lost(out: Path):
    task = TASKS["slip"]
    roll(task, 20, 3, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(ValueError, match=r"20 environments × 3 policies, more than the 19 × 3"):
        roll(task, 19, 3, out)
    with pytest.raises(ValueError, match=r"20 environments × 3 policies, more than the 30 × 2"):
        roll(task, 30, 2, out)
    with pytest.raises(
        ValueError,
        match=r"3 policies, and 4 are given: policies may be added if they were made without know",
    ):
        roll(task, 20, 4, out)
    train = task.environments(30, stream="train", seed=3)[5:]
    with pytest.raises(ValueError, match="another list of policies"):
        evaluate(task, policies(9)[1:5], train, execution=Execution(store=out, **UNSEEN))
    later = task.environments(40, stream="train", seed=3)[6:]
    with pytest.raises(ValueError, match="another set of environments"):
        evaluate(task, policies(9)[:3], later, execution=Execution(store=out))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_retries_and_overdue_rollouts_of_earlier_calls_stay(out: Path, log: Path):
    train = TASKS["hit"].environments(25, stream="train", seed=3)[5:]
    at = (float(train.arrays()["goal"][13]), 2)
    task = robot_task(log, trouble=(at,), kind="once raises")
    costs = roll(task, 20, 3, out, retries=1)
    assert costs.incidents == {"retries": 1}
    with pytest.raises(ValueError, match="keeps 1 rollouts that had failed before they were"):
        roll(task, 25, 3, out)
    assert roll(task, 25, 3, out, retries=1).incidents == {"retries": 1}
    assert roll(task, 30, 4, out, retries=1, **UNSEEN).incidents == {"retries": 1}


def test_a_chunk_of_another_place_or_campaign_is_rolled_out_again(
    out: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(evaluation, "PROBES", 1)  # they would find some of it

    def stop(now: Progress) -> None:
        if now.done > 50:
            raise InterruptedError

    other = out.with_name("other")
    for task, folder in ((TASKS["hit"], out), (TASKS["trip"], other)):
        with pytest.raises(InterruptedError):
            roll(task, 20, 5, folder, progress=stop)
    whole = roll(TASKS["hit"], 20, 5)
    names = [f"rows-{row}-{row + 1}-columns-0-5.npz" for row in range(10)]
    rows = [whole.values[row].tolist() for row in range(10)]
    here, elsewhere = next((i, j) for i, j in np.ndindex(10, 10) if rows[i] != rows[j])
    strange = next(name for name in names[2:] if name not in (names[here], names[elsewhere]))
    (out / names[here]).write_bytes((out / names[elsewhere]).read_bytes())
    (out / strange).write_bytes((other / strange).read_bytes())
    assert roll(TASKS["hit"], 20, 5, out).digests == whole.digests


# ---- looks --------------------------------------------------------------------------------------


def look(n: int, columns: int, delta: float | None) -> Look:
    return Look(n, list_digest(policies(9)[:columns]), columns, delta)


def test_every_look_at_the_costs_is_told_to_the_next(out: Path):
    task = TASKS["hit"]
    assert known_looks(out) == {}
    assert "looks" not in roll(task, 20, 3, out).origin
    assert "looks" not in roll(task, 20, 3, out).origin  # the same costs
    first = asdict(look(20, 3, None))
    assert known_looks(out) == {"looks": [first]}
    assert roll(task, 30, 3, out).origin["looks"] == [first]
    one, two, three = look(20, 3, None), look(30, 3, 0.01), look(30, 3, 0.02)
    for _ in range(2):
        record_look(out, two, "kl", [one])
    assert known_looks(out) == {"looks": [first, asdict(two)]}
    with pytest.raises(ValueError, match=r"another process has looked at .* meanwhile"):
        record_look(out, three, "kl", [one])
    record_look(out, three, "kl", [one, two])
    record_look(out, two, "kl", [one])  # again
    costs = roll(task, 30, 4, out, **UNSEEN)
    assert costs.origin["looks"] == [first, asdict(two), asdict(three)]


def test_a_look_that_is_repeated_in_another_way_is_refused(out: Path):
    roll(TASKS["hit"], 20, 3, out)
    record_look(out, look(20, 3, 0.01), "kl", [])
    with pytest.raises(ValueError, match="delta by kl, not by occam: to keep the better of two"):
        record_look(out, look(20, 3, 0.01), "occam", [])
    record_look(out, look(20, 3, 0.02), "occam", [look(20, 3, 0.01)])  # which is paid for
    assert len(known_looks(out)["looks"]) == 2


def test_looks_are_declared_before_any_rollout_or_not_at_all(out: Path):
    roll(TASKS["hit"], 20, 3, out)
    assert "declared_looks" not in roll(TASKS["hit"], 20, 3, out, declared_looks=(20, 30)).origin
    other = out.with_name("other")
    assert roll(TASKS["hit"], 20, 3, other, declared_looks=(20, 30)).origin["declared_looks"] == [
        20,
        30,
    ]


def test_there_is_an_end_to_looks(out: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(manifest, "MOST_LOOKS", 2)
    for n in (20, 21):
        roll(TASKS["hit"], n, 3, out)
    for _ in range(2):
        with pytest.raises(ValueError, match="was looked at 2 times, and that is all it keeps"):
            roll(TASKS["hit"], 22, 3, out)
    assert len(known_looks(out)["looks"]) == 2


def test_looks_that_were_edited_are_refused(out: Path):
    roll(TASKS["hit"], 20, 3, out)
    path = out / "campaign.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"looks": []}))
    with pytest.raises(ValueError, match=r"campaign\.json is corrupt: choose another folder"):
        roll(TASKS["hit"], 30, 3, out)


def test_costs_are_in_the_order_of_the_environments_whoever_finished_first(out: Path):
    roll(TASKS["miss"], 20, 3, out)
    grown = roll(TASKS["miss"], 31, 3, out, workers=2)
    assert np.array_equal(grown.values, roll(TASKS["miss"], 31, 3).values)
