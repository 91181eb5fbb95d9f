"""Rollouts that fail and then do not: refused, or allowed and counted; and what else is counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_robots as robots
from numpy.typing import NDArray
from small_robots import TASKS, policies

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.learn import Plan, SearchSettings, learn_finite, learn_gaussian
from pacbayes_control.learn.gaussian import certify_draw, learn_one
from pacbayes_control.rollouts import (
    Draws,
    Execution,
    Progress,
    RolloutError,
    certifying_draws,
    evaluate,
    mean_costs,
)
from pacbayes_control.rollouts.failures import FailureLog, append_line
from pacbayes_control.tasks import Environments
from pacbayes_control.tasks.functions import BatchTask, FunctionTask

COLUMNS = 4
REFUSED = "failed at first .* but not when it was run again"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def train(n: int = 30) -> Environments:
    return TASKS["hit"].environments(n, stream="train")


class Moody:
    """A function that is known by its name alone, whatever it remembers."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, policy: NDArray, environment: Mapping[str, Any]) -> Any:
        return self.function(policy, environment)

    def __repr__(self) -> str:
        return "Moody()"


def falls_over(rate: float, seed: int = 0) -> FunctionTask:
    """It raises at random, and costs 0 otherwise."""
    rng = np.random.default_rng(seed)
    return falls_over_when(lambda: rng.random() < rate)


def falls_over_once() -> FunctionTask:
    times = iter([True])
    return falls_over_when(lambda: next(times, False))


def falls_over_when(it_does: Callable[[], bool]) -> FunctionTask:
    def rollout(policy: NDArray, environment: Mapping[str, Any]) -> float:  # noqa: ARG001
        if it_does():
            raise RuntimeError("robot fell over")
        return 0.0

    return FunctionTask(Moody(rollout), robots.draw, "falls over", 2)


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


# ---- refused ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_repeating_the_call_never_gives_costs_of_a_task_that_fails_at_random(out: Path):
    later = 0
    for seed in range(20):
        task, told = falls_over(0.3, seed), []
        for _ in range(4):
            with pytest.raises(RolloutError, match="robot fell over") as caught:
                evaluate(task, policies(1), train(), execution=Execution(store=out / str(seed)))
            told.append("also when it was tried again" in str(caught.value))
        later += told[0] and not told[-1]
    assert later > 5  # which failed twice in the first call, and not in a later one


def test_with_retries_the_costs_say_how_many_had_failed(out: Path):
    task = falls_over(0.3)
    costs = evaluate(task, policies(2), train(50), execution=Execution(store=out, retries=30))
    lines = [json.loads(line) for line in (out / "failed.jsonl").read_text().splitlines()]
    failed = {tuple(line["rollouts"]) for line in lines}
    assert all(last - first == 1 for first, last in failed)
    assert costs.incidents == {"retries": len(failed)}
    assert 15 < len(failed) < 60
    certificate = learn_finite(costs).certificate
    words = f"{len(failed)} rollouts count that had failed before they were run again"
    assert words in certificate.sentence
    words = f"keeps {len(failed)} rollouts that had failed before they were run again: allow"
    with pytest.raises(ValueError, match=words):  # and they stay so
        evaluate(task, policies(2), train(50), execution=Execution(store=out))


@pytest.mark.parametrize("retries", [-1, 1.0, True, None])
def test_retries_are_a_whole_number(retries: Any):
    with pytest.raises(ValueError, match=r"^retries = .* is not a whole number of 0 or more$"):
        evaluate(TASKS["hit"], policies(2), train(), execution=Execution(retries=retries))


def test_a_rollout_that_fails_more_often_than_retries_allow_is_an_error():
    for failures, retries, enough in ((2, 2, True), (3, 2, False), (1, 1, True), (2, 1, False)):
        times = iter([True] * failures)

        def rollout(policy: NDArray, environment: Mapping[str, Any], left: Iterator[bool] = times):
            if policy[0] == 1 and next(left, False):
                raise RuntimeError("stuck")
            return robots.hit(policy, environment)

        def roll(task: FunctionTask, retries: int) -> Costs:
            return evaluate(task, policies(2), train(2)[:2], execution=Execution(retries=retries))

        task = FunctionTask(lambda p, e, f=rollout: f(p, e), robots.draw, "stuck", 2)
        if enough:
            assert roll(task, retries).incidents == {"retries": 1}
        else:
            with pytest.raises(RolloutError, match="failed, also when it was tried again"):
                roll(task, retries)


@pytest.mark.slow
def test_training_and_certifying_refuse_too_and_allow_on_request():
    prior = DiagonalGaussian([0.0, 0.0], 0.5)
    quick = SearchSettings(steps=2, pairs=2, natural=False)
    for call in (
        lambda task, n: mean_costs(task, policies(2), train(), execution=n),
        lambda task, n: certifying_draws(task, prior, train(), Draws(2), n),
        lambda task, n: certifying_draws(task, prior, train(), Draws(2, shared=True), n),
        lambda task, n: learn_gaussian(task, train(), prior, Plan(search=quick, draws=2), n),
        lambda task, n: learn_one(task, train(), prior, execution=n),
        lambda task, n: certify_draw(task, train(), prior, prior, execution=n),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            call(falls_over_once(), None)
        found = call(falls_over(0.2), Execution(retries=30))
        costs = getattr(found, "costs", found)
        if isinstance(costs, Costs):
            assert costs.incidents["retries"] > 0


def test_shared_draws_in_parts_add_up_what_failed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pacbayes_control.rollouts.jobs.CELLS", 4)
    bad = {(0, 1), (3, 4)}
    calls: set[tuple[int, int]] = set()
    prior = DiagonalGaussian([0.0, 0.0], 0.5)
    whole = certifying_draws(TASKS["hit"], prior, train(6), Draws(5, shared=True))
    draws = {}

    def rollout(policy: NDArray, environment: Mapping[str, Any]) -> float:
        row = float(environment["goal"])
        at = (list(goals).index(row), draws.setdefault(policy.tobytes(), len(draws)))
        if at in bad - calls:
            calls.add(at)
            raise RuntimeError("stuck")
        return robots.hit(policy, environment)

    goals = train(6).arrays()["goal"].tolist()
    task = FunctionTask(rollout, robots.draw, "parts", 2)
    costs = certifying_draws(task, prior, train(6), Draws(5, shared=True), Execution(retries=1))
    assert calls == bad
    assert costs.incidents == {"retries": 2}
    assert np.array_equal(costs.values, whole.values)


# ---- batches ------------------------------------------------------------------------------------


def moody_batches(fails: Any) -> BatchTask:
    """Batches that raise without a word on which rollout did, where a function says so."""

    def rollouts(policies: NDArray, environments: Mapping[str, NDArray]) -> NDArray:
        if fails(len(environments["goal"])):
            raise FloatingPointError("diverged")
        return robots.hit_all(policies, environments)

    return BatchTask(Moody(rollouts), robots.draw_many, "moody", 2)


@pytest.mark.parametrize("kept", [False, True])
def test_a_batch_that_fails_while_its_halves_do_not_is_a_retry(out: Path, kept: bool):
    folder = out if kept else None

    def batches() -> BatchTask:
        left = iter([True])
        return moody_batches(lambda rows: rows > 4 and next(left, False))

    environments = batches().environments(60, stream="train")
    words = (
        r"^one of \d+ rollouts in environments \d+ to \d+ of stream 'train' \(seed 0\) failed at "
        r"first \(FloatingPointError: diverged \(test_retries\.py:\d+\)\)"
    )
    with pytest.raises(RolloutError, match=words):
        evaluate(batches(), policies(COLUMNS), environments, execution=Execution(store=folder))
    task = batches()
    costs = evaluate(task, policies(COLUMNS), environments, execution=Execution(retries=1))
    assert costs.incidents == {"retries": 1}
    assert (
        costs.digests
        == evaluate(
            BatchTask(robots.hit_all, robots.draw_many, "calm", 2), policies(COLUMNS), environments
        ).digests
    )


def test_halves_that_fail_each_are_two_retries_and_the_whole_is_no_third():
    sizes = iter([60, 30, 30])
    expected = [next(sizes)]

    def fails(rows: int) -> bool:
        if rows != expected[0]:
            return False
        expected[0] = next(sizes, -1)
        return True

    task = moody_batches(fails)
    environments = task.environments(60, stream="train")
    assert evaluate(task, policies(2), environments, execution=Execution(retries=1)).incidents == {
        "retries": 2
    }


# ---- failures of earlier calls ------------------------------------------------------------------


class Switched:
    """A rollout that goes wrong at policy 2 in one environment, for as long as it is told to."""

    def __init__(self, trouble: Any) -> None:
        self.trouble, self.on = trouble, True
        self.at = float(train().arrays()["goal"][13])

    def __call__(self, policy: NDArray, environment: Mapping[str, Any]) -> Any:
        if self.on and environment["goal"] == self.at and policy[0] == 2:
            return self.trouble()
        return robots.hit(policy, environment)

    def __repr__(self) -> str:
        return "Switched()"


@pytest.mark.parametrize("kind", ["raises", "nan", "two", "exits", "none", "words"])
def test_a_rollout_that_failed_in_an_earlier_call_is_refused_when_it_does_not(out: Path, kind: str):
    rollout = Switched(robots.TROUBLE[kind])
    task = FunctionTask(rollout, robots.draw, "switched", 2)
    with pytest.raises(RolloutError, match="environment 13"):
        evaluate(task, policies(COLUMNS), train(), execution=Execution(store=out))
    rollout.on = False
    for _ in range(3):
        with pytest.raises(
            RolloutError, match=f"^the rollout of policy 2 in environment 13 .*{REFUSED}"
        ):
            evaluate(task, policies(COLUMNS), train(), execution=Execution(store=out))
    costs = evaluate(task, policies(COLUMNS), train(), execution=Execution(store=out, retries=1))
    assert costs.incidents == {"retries": 1, "resumed": 1}
    assert np.array_equal(costs.values, evaluate(TASKS["hit"], policies(COLUMNS), train()).values)


def test_batches_of_the_wrong_shape_are_remembered_too(out: Path):
    wrong = iter([True])

    def rollouts(policies: NDArray, environments: Mapping[str, NDArray]) -> NDArray:
        costs = robots.hit_all(policies, environments)
        return costs[:, :-1] if next(wrong, False) else costs

    task = BatchTask(Moody(rollouts), robots.draw_many, "shapes", 2)
    environments = task.environments(9, stream="train")
    with pytest.raises(RolloutError, match="returned costs of shape"):
        evaluate(task, policies(COLUMNS), environments, execution=Execution(store=out))
    with pytest.raises(RolloutError, match=REFUSED):
        evaluate(task, policies(COLUMNS), environments, execution=Execution(store=out))


def test_an_interrupt_between_a_failure_and_its_second_try_forgets_nothing(out: Path):
    turns = iter(["raise", "interrupt"])

    def trouble() -> float:
        turn = next(turns, "")
        if turn == "interrupt":
            raise KeyboardInterrupt
        if turn == "raise":
            raise RuntimeError("stuck")
        return 0.0

    task = FunctionTask(Switched(trouble), robots.draw, "interrupted", 2)
    with pytest.raises(KeyboardInterrupt):
        evaluate(task, policies(COLUMNS), train(), execution=Execution(store=out))
    with pytest.raises(RolloutError, match=REFUSED):
        evaluate(task, policies(COLUMNS), train(), execution=Execution(store=out))


@pytest.mark.parametrize("line", [b"", b"{", b"[]\n", b'{"rollouts": 3, "code": ""}\n', b"\xff\n"])
def test_a_line_that_was_cut_off_hides_no_other(tmp_path: Path, line: bytes):
    path = tmp_path / "failed.jsonl"
    append_line(path, {"rollouts": [0, 1], "error": "a", "code": "c"})
    with path.open("ab") as file:
        file.write(line)
    append_line(path, {"rollouts": [2, 3], "error": "b", "code": "c"})
    append_line(path, {"rollouts": [4, 5], "error": "b", "code": "another"})
    log = FailureLog.read(1, path, "c", [(0, 3)])
    assert [failed.span for failed in log.retried] == [(0, 1), (2, 3)]


def test_words_of_a_failure_that_cannot_be_shown_are_escaped(tmp_path: Path):
    path = tmp_path / "failed.jsonl"
    append_line(path, {"rollouts": [0, 1], "error": "a\x1b[2K", "code": ""})
    assert FailureLog.read(0, path, "", [(0, 1)]).retried[0].error == "a\\x1b[2K"


# ---- changed code, and interruptions ------------------------------------------------------------


def coded(extra: str, trouble: str = "") -> FunctionTask:
    """A task of the same name whose code is another."""
    names: dict[str, Any] = {"hit": robots.hit, "raises": robots.raises, "__name__": "typed"}
    at = float(train().arrays()["goal"][13])
    source = f"def rollout(policy, environment):\n    {extra}\n"
    if trouble:
        source += f"    if environment['goal'] == {at!r} and policy[0] == 2: {trouble}\n"
    exec(source + "    return hit(policy, environment)\n", names)
    return FunctionTask(names["rollout"], robots.draw, "coded", 2)


def test_changed_code_is_refused_or_counted_and_its_failures_are_not_held_against_it(out: Path):
    rows = policies(COLUMNS)
    with pytest.raises(RolloutError, match=r"--set allow_code_change=true\) to go on$"):
        evaluate(coded("a = 1", "raises()"), rows, train(), execution=Execution(store=out))
    with pytest.raises(ValueError, match=r"^the code of the task has changed .*allow_code_change="):
        evaluate(coded("a = 2"), rows, train(), execution=Execution(store=out))
    costs = evaluate(
        coded("a = 2"), rows, train(), execution=Execution(store=out, allow_code_change=True)
    )
    assert costs.incidents == {"code changes": 1, "resumed": 1}
    assert (
        evaluate(coded("a = 2"), rows, train(), execution=Execution(store=out)).incidents
        == costs.incidents
    )
    costs = evaluate(
        coded("a = 3"), rows, train(), execution=Execution(store=out, allow_code_change=True)
    )
    assert costs.incidents == {"code changes": 2, "resumed": 1}
    assert "earlier code" not in costs.origin
    assert "the task's code was changed 2 times" in learn_finite(costs).certificate.sentence


def test_changed_code_needs_no_leave_where_nothing_is_finished(out: Path):
    with pytest.raises(RolloutError):
        evaluate(coded("raises()"), policies(COLUMNS), train(), execution=Execution(store=out))
    assert not list(out.glob("*.npz"))
    costs = evaluate(coded("a = 1"), policies(COLUMNS), train(), execution=Execution(store=out))
    assert costs.incidents == {"resumed": 1}


def test_retries_before_a_change_of_the_code_are_still_told(out: Path):
    once = iter([True])
    task = coded("a = 1", "next(once, False) and raises()")
    task.rollout.__globals__["once"] = once  # type: ignore[attr-defined]
    rows = policies(COLUMNS)
    assert evaluate(task, rows, train(), execution=Execution(store=out, retries=1)).incidents == {
        "retries": 1
    }
    with pytest.raises(ValueError, match="keeps 1 rollouts that had failed before"):
        evaluate(
            coded("a = 2"), rows, train(), execution=Execution(store=out, allow_code_change=True)
        )
    costs = evaluate(
        coded("a = 2"),
        rows,
        train(),
        execution=Execution(store=out, retries=1, allow_code_change=True),
    )
    assert costs.incidents == {"retries": 1, "code changes": 1}


def test_interruptions_are_counted_and_nothing_else_is(out: Path):
    def stop(now: Progress) -> None:
        if now.done > 5:
            raise KeyboardInterrupt

    task = TASKS["miss"]
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            evaluate(
                task, policies(COLUMNS), train(60), execution=Execution(store=out, progress=stop)
            )
    for _ in range(2):
        costs = evaluate(task, policies(COLUMNS), train(60), execution=Execution(store=out))
        assert costs.incidents == {"resumed": 3}
    assert evaluate(task, policies(COLUMNS), train(60)).incidents == {}
    assert "interrupted 3 times and resumed" in learn_finite(costs).certificate.sentence


# ---- errors that were declared to be failures ---------------------------------------------------


class Declared:
    """A task that counts what it raises as failures, and says how many."""

    name = "declared"
    cost_rule = "1 where\nit falls\x1b[2K"
    distribution = "goals in [0, 1]"
    data_used = (EnvironmentRange("pictures", 3, 0, 10),)

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        return TASKS["hit_all"].environments(n, stream, seed)

    def costs_and_raised(self, policies: NDArray, environments: Environments) -> Any:
        costs = self.costs(policies, environments)
        raised = environments.arrays()["goal"][:, None] > 0.8 + 0 * policies[..., 0]
        return np.maximum(costs, raised), int(raised.sum())

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return robots.hit_all(policies, environments.arrays()).astype(float)

    def __repr__(self) -> str:
        return "Declared()"


@pytest.mark.parametrize("workers", [None, 2])
def test_declared_failures_are_counted_here_on_workers_and_in_a_folder(
    out: Path, threads: Executor, workers: int | None
):
    task: Any = Declared()
    executor = threads if workers else None
    environments = task.environments(50, "train")
    raised = COLUMNS * int(np.sum(environments.arrays()["goal"] > 0.8))
    assert raised > 8
    costs = evaluate(task, policies(COLUMNS), environments, execution=Execution(workers=executor))
    assert costs.incidents == {"raised": raised}
    assert costs.failures.sum() >= raised
    for _ in range(2):
        kept = evaluate(
            task, policies(COLUMNS), environments, execution=Execution(workers=executor, store=out)
        )
        assert kept.incidents == {"raised": raised}
        assert kept.digests == costs.digests


def test_declared_failures_are_counted_once_where_rollouts_were_done_again(out: Path):
    task: Any = Declared()
    environments = task.environments(50, "train")
    costs = evaluate(task, policies(COLUMNS), environments, execution=Execution(store=out))
    (out / "costs.npy").unlink()
    for _ in range(2):
        again = evaluate(task, policies(COLUMNS), environments, execution=Execution(store=out))
        assert again.digests == costs.digests
        assert again.incidents["raised"] == costs.incidents["raised"]


def test_the_record_says_what_the_task_says_of_itself():
    task: Any = Declared()
    costs = evaluate(task, policies(2), task.environments(5, "train"))
    assert costs.origin["cost_rule"] == r"1 where it falls\x1b[2K"
    assert costs.origin["distribution"] == "goals in [0, 1]"
    assert costs.origin["data_used"] == [["pictures", 3, 0, 10]]
    assert costs.policies_seen == task.data_used
    assert (
        evaluate(TASKS["hit"], policies(2), train()).origin["cost_rule"]
        == "cost by hit of small_robots"
    )
