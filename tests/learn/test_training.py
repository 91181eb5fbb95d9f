"""A search put to work: being killed changes nothing, and a bad cost stops it in good order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from toys import Reach, Slippery, Smooth

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.learn import GaussianSearch, SearchSettings, SearchStopped, training
from pacbayes_control.learn.training import CHECKPOINT_EVERY, rollout_rate, search_posterior
from pacbayes_control.rollouts import Execution, Progress
from pacbayes_control.tasks import Environments, Noise, Task
from sizes import sized

STEPS = 2 * CHECKPOINT_EVERY + 3
AROUND = (CHECKPOINT_EVERY - 1, CHECKPOINT_EVERY, CHECKPOINT_EVERY + 1)  # the first checkpoint
INTERRUPTED_AT = sized((0, 1, *AROUND, STEPS - 1), full=range(STEPS))
PRIOR = DiagonalGaussian([0.0, 0.0], 0.5)


def new_search(prior: DiagonalGaussian = PRIOR, **settings) -> GaussianSearch:
    options = {"steps": STEPS, "pairs": 4, **settings}
    return GaussianSearch(prior, 50, 0.01, "kl", SearchSettings(**options))


def train(task: Task, search: GaussianSearch | None = None, **options) -> GaussianSearch:
    search = search or new_search()
    how = Execution(store=options.pop("checkpoint", None), **options)
    search_posterior(task, task.environments(50, stream="train"), search, how)
    return search


class Alarm:
    """Interrupts at a given call, or at the report that so many steps are taken."""

    def __init__(self, at: int) -> None:
        self.left, self.last = at, -1

    def __call__(self, now: Progress | None = None) -> None:
        if now is not None:
            again, self.last = now.done == self.last, now.done
            taken = now.done * STEPS // now.total
            if not again or f", step {taken} of" not in now.remark:
                return  # within a step, or at the end of its rollouts
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@dataclass(frozen=True)
class Interrupted(Reach):
    """A task during which someone presses Ctrl-C."""

    alarm: Callable[[], None] = field(default=lambda: None, repr=False)

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        self.alarm()
        return super().costs(policies, environments)


@dataclass(frozen=True)
class Spoilt(Reach):
    """A task that has a bad cost at environment 6, policy 2 in the calls that are named."""

    calls: list[int] = field(default_factory=list, repr=False)
    bad: float = field(default=np.nan, repr=False)
    at: tuple[int, ...] = field(default=(), repr=False)

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        costs = super().costs(policies, environments).astype(float)
        if len(self.calls) in self.at:
            costs[6, 2] = self.bad
        self.calls.append(len(environments))
        return costs


# ---- being killed -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("where", ["between steps", "in a rollout"])
def test_a_search_that_is_interrupted_at_any_step_and_taken_up_again_ends_the_same(
    tmp_path: Path, where: str
):
    task = Interrupted()
    whole = train(task).posterior
    for step in INTERRUPTED_AT:
        checkpoint, alarm = tmp_path / f"{where} {step}", Alarm(step)
        options: dict[str, Any] = {"checkpoint": checkpoint}
        if where == "between steps":
            options["progress"] = alarm
        with pytest.raises(KeyboardInterrupt):
            train(Interrupted(alarm=alarm) if where == "in a rollout" else task, **options)
        resumed = train(task, checkpoint=checkpoint)
        assert resumed.posterior.to_bytes() == whole.to_bytes()
        assert resumed.step == STEPS


def test_a_search_that_is_interrupted_again_and_again_ends_the_same(tmp_path: Path):
    task, checkpoint = Reach(), tmp_path / "checkpoint"
    for attempt in range(10):
        search = new_search()
        try:
            train(task, search, checkpoint=checkpoint, progress=Alarm(CHECKPOINT_EVERY))
            break
        except KeyboardInterrupt:
            assert search.step == min((attempt + 1) * CHECKPOINT_EVERY + 1, STEPS)
    assert search.posterior.to_bytes() == train(task).posterior.to_bytes()


@pytest.mark.parametrize(("seconds", "steps"), [(0.0, [10, 20, STEPS]), (0.5, [10, STEPS])])
def test_steps_do_not_wait_for_one_slow_checkpoint_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, steps: list[int]
):
    saved: list[int] = []
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    save = GaussianSearch.save

    def slow(search: GaussianSearch, path: Path, fingerprint: str) -> None:
        saved.append(search.step)
        clock.now += seconds
        save(search, path, fingerprint)

    monkeypatch.setattr(GaussianSearch, "save", slow)
    monkeypatch.setattr(training, "time", clock)
    train(Reach(), checkpoint=tmp_path / "checkpoint")
    assert saved == steps


def test_a_search_that_is_done_takes_no_more_rollouts(tmp_path: Path):
    checkpoint = tmp_path / "checkpoint"
    whole = train(Reach(), checkpoint=checkpoint).posterior
    again = train(Reach(), checkpoint=checkpoint, progress=Alarm(0)).posterior
    assert again.to_bytes() == whole.to_bytes()


KILLED = """
import itertools, sys, time
from pathlib import Path
from test_training import CHECKPOINT_EVERY, Interrupted, train

calls = itertools.count()

def stall():
    if next(calls) == CHECKPOINT_EVERY + 3:
        print("stalled", flush=True)
        time.sleep(3600)

train(Interrupted(alarm=stall), checkpoint=Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_a_search_that_ends_the_same(tmp_path: Path):
    checkpoint = tmp_path / "checkpoint"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, checkpoint],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"stalled\n"  # in a rollout after a checkpoint
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
    told: list[Progress] = []
    found = train(Interrupted(), checkpoint=checkpoint, progress=told.append)
    done = f"{CHECKPOINT_EVERY} of {STEPS} steps of 8 policies in 50 environments are done"
    assert told[0] == ("rollouts", 400 * CHECKPOINT_EVERY, 400 * STEPS, done, True)
    assert {now.done // 400 for now in told} == set(range(CHECKPOINT_EVERY, STEPS + 1))
    assert found.posterior.to_bytes() == train(Interrupted()).posterior.to_bytes()


class Plain:
    """A task as the protocol asks for it, and no more: it does not say how it is shown."""

    name = "plain"

    def __init__(self, radius: float = 1.0) -> None:
        self.reach = Reach(radius=radius)
        self.table = np.arange(5000.0)  # shown abbreviated

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        return self.reach.environments(n, stream, seed)

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return self.reach.costs(policies, environments)


def test_the_search_of_any_task_can_be_taken_up_by_another_process(tmp_path: Path):
    checkpoint, first, second = tmp_path / "checkpoint", Plain(), Plain()
    with pytest.raises(KeyboardInterrupt):
        train(first, checkpoint=checkpoint, progress=Alarm(CHECKPOINT_EVERY))
    assert train(second, checkpoint=checkpoint).step == STEPS


def test_a_task_that_does_not_say_how_it_is_shown_is_told_by_its_settings(tmp_path: Path):
    checkpoint = tmp_path / "checkpoint"
    train(Plain(), checkpoint=checkpoint)
    with pytest.raises(ValueError, match="belongs to another run"):
        train(Plain(radius=1.5), checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("task", "n", "stream"),
    [(Reach(), 49, "train"), (Reach(), 50, "other"), (Reach(radius=1.1), 50, "train")],
    ids=["fewer environments", "another stream", "another task"],
)
def test_a_checkpoint_of_other_surroundings_is_refused(
    tmp_path: Path, task: Reach, n: int, stream: str
):
    checkpoint = tmp_path / "checkpoint"
    train(Reach(), checkpoint=checkpoint)
    with pytest.raises(ValueError, match="belongs to another run"):
        search_posterior(
            task, task.environments(n, stream), new_search(), Execution(store=checkpoint)
        )


# ---- costs that are none ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.nan, r"step 15: the cost at environment 6, policy 2 is NaN"),
        (1.5, r"step 15: cost 1.5 at environment 6, policy 2 is outside \[0, 1\]"),
        (-0.1, r"step 15: cost -0.1 at environment 6, policy 2 is outside \[0, 1\]"),
    ],
)
def test_a_bad_cost_stops_a_search_which_can_go_on_once_the_task_is_mended(
    tmp_path: Path, bad: float, message: str
):
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(SearchStopped, match=message) as stopped:
        train(Spoilt(bad=bad, at=(15,)), checkpoint=checkpoint)
    assert str(checkpoint) in str(stopped.value)
    assert stopped.value.search.step == 15
    mended = train(Spoilt(), checkpoint=checkpoint)
    assert mended.posterior.to_bytes() == train(Spoilt()).posterior.to_bytes()


def test_a_bad_cost_in_the_first_step_leaves_no_checkpoint(tmp_path: Path):
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(SearchStopped, match="step 0: the cost at environment 6") as stopped:
        train(Spoilt(at=(0,)), checkpoint=checkpoint)
    assert "state before" not in str(stopped.value)
    assert list(tmp_path.iterdir()) == []
    train(Reach(radius=1.1), checkpoint=checkpoint)  # another task, and nothing in its way


def test_a_bad_cost_in_the_second_step_does(tmp_path: Path):
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(SearchStopped, match=r"step 1: .*; the state before this step is in"):
        train(Spoilt(at=(1,)), checkpoint=checkpoint)
    assert checkpoint.exists()


def test_the_state_that_is_saved_is_the_one_before_the_bad_step(tmp_path: Path):
    states = []

    search = new_search()

    def watch(_: object) -> None:
        states.append((search.step, search.coordinates.tobytes(), search.value))

    checkpoint = tmp_path / "checkpoint"
    task = Spoilt(at=(15,))
    with pytest.raises(SearchStopped) as stopped:
        train(task, search, checkpoint=checkpoint, progress=watch)
    loaded = new_search()
    environments = task.environments(50, stream="train")
    loaded.load(checkpoint, loaded.fingerprint(task=repr(task), environments=environments.origin))
    for search in (loaded, stopped.value.search):
        assert (search.step, search.coordinates.tobytes(), search.value) == states[-1]


def test_without_a_checkpoint_a_bad_cost_still_leaves_the_search():
    with pytest.raises(SearchStopped, match="is NaN") as stopped:
        train(Spoilt(at=(3,)))
    assert stopped.value.search.step == 3
    assert "state before" not in str(stopped.value)


def test_costs_of_the_wrong_shape_stop_a_search():
    @dataclass(frozen=True)
    class Transposed(Reach):
        def costs(self, policies: NDArray, environments: Environments) -> NDArray:
            return super().costs(policies, environments).T

    with pytest.raises(SearchStopped, match=r"task reach returned costs of shape \(8, 50\)"):
        train(Transposed())


# ---- derivatives and surrogates -----------------------------------------------------------------


def test_a_tasks_own_gradients_are_used():
    search = new_search(estimator="gradient", steps=60, natural=False)
    train(Smooth(), search)
    assert search.posterior.mean.min() > 0.5  # the goals are about 1
    assert search.value < new_value(Smooth())


def new_value(task: Task) -> float:
    """The objective at the prior."""
    search = new_search(steps=1, pairs=64)
    return train(task, search).value


def test_a_task_without_gradients_says_what_to_use_instead():
    with pytest.raises(ValueError, match="task reach has no gradients of its own: use evolut"):
        train(Reach(), new_search(estimator="gradient"))


@dataclass(frozen=True)
class BadGradients(Smooth):
    cost: float = np.nan

    def gradients(self, policies: NDArray, environments: Environments) -> tuple[NDArray, NDArray]:
        costs, gradients = super().gradients(policies, environments)
        costs[2] = self.cost
        return costs, gradients


@pytest.mark.parametrize("cost", [np.nan, 1.5, -0.1])
def test_a_bad_cost_among_gradients_stops_a_search(cost: float):
    with pytest.raises(SearchStopped, match=r"policy 2 is|outside \[0, 1\]"):
        train(BadGradients(cost=cost), new_search(estimator="gradient"))


@dataclass(frozen=True)
class WithSurrogate(Reach):
    """Its own costs tell nothing; its surrogate does."""

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return np.ones((len(environments), policies.shape[-2]), bool)

    def surrogate(self, policies: NDArray, environments: Environments) -> NDArray:
        return Smooth().costs(policies, environments)


def test_differences_use_a_surrogate_and_evolution_the_cost_itself():
    surrogate, cost = (
        train(WithSurrogate(), GaussianSearch(PRIOR, 50, 0.01, "pinsker", settings))
        for settings in (
            SearchSettings(estimator="differences", pairs=2, steps=40),
            SearchSettings(estimator="evolution", pairs=8, steps=40),
        )
    )
    assert surrogate.posterior.mean.min() > 0.3
    np.testing.assert_allclose(cost.posterior.mean, 0, atol=1e-12)


def test_differences_of_a_task_without_a_surrogate_use_its_costs():
    search = train(Reach(graded=True, radius=3.0), new_search(estimator="differences", pairs=2))
    assert search.posterior.mean.min() > 0.1


# ---- environments and noise that change ---------------------------------------------------------


@dataclass(frozen=True)
class Watched(Slippery):
    """Keeps what it was given."""

    given: list[tuple[Environments, Noise]] = field(default_factory=list, repr=False)

    def costs(
        self, policies: NDArray, environments: Environments, noise: Noise | None = None
    ) -> NDArray:
        assert noise is not None
        self.given.append((environments, noise))
        return super().costs(policies, environments, noise)


def test_environments_may_be_a_function_of_the_step():
    task = Watched()

    def environments(step: int) -> Environments:
        return task.environments(10 * (step + 1), stream="train")[10 * step :]

    search_posterior(task, environments, new_search(steps=5))
    ranges = [(given.start, given.stop) for given, _ in task.given]
    assert ranges == [(10 * step, 10 * step + 10) for step in range(5)]


def test_environments_that_change_are_taken_up_where_they_were_left(tmp_path: Path):
    task, checkpoint = Slippery(), tmp_path / "checkpoint"

    def environments(step: int) -> Environments:
        return task.environments(10 * (step + 1), stream="train")[10 * step :]

    whole, first, second = (new_search() for _ in range(3))
    search_posterior(task, environments, whole)
    with pytest.raises(KeyboardInterrupt):
        search_posterior(task, environments, first, Execution(store=checkpoint, progress=Alarm(13)))
    search_posterior(task, environments, second, Execution(store=checkpoint))
    assert second.posterior.to_bytes() == whole.posterior.to_bytes()


def test_noise_differs_from_step_to_step_and_from_search_to_search():
    task = Watched()
    train(task, new_search(steps=4))
    search_posterior(
        task,
        task.environments(50, stream="train"),
        GaussianSearch(PRIOR, 50, 0.01, "kl", SearchSettings(steps=2), seed=1),
    )
    keys = [noise.keys(environments, 8) for environments, noise in task.given]
    assert len(keys) == 6
    for i, one in enumerate(keys):
        for other in keys[:i]:
            assert not np.isin(one, other).any()
    assert {noise.kind for _, noise in task.given} == {"ice"}


def test_noise_is_the_same_in_the_same_step_of_the_same_search():
    assert train(Slippery()).posterior.to_bytes() == train(Slippery()).posterior.to_bytes()


def test_a_task_that_cannot_be_told_from_others_has_no_checkpoints(tmp_path: Path):
    task = Plain()
    task.rule = lambda cost: cost  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="cannot be told from others by its rule"):
        train(task, checkpoint=tmp_path / "checkpoint")
    train(task)


def test_tasks_that_differ_in_the_middle_of_an_array_are_told_apart(tmp_path: Path):
    first, second = Plain(), Plain()
    second.table[2500] = 9
    with pytest.raises(KeyboardInterrupt):
        train(first, checkpoint=tmp_path / "checkpoint", progress=Alarm(CHECKPOINT_EVERY))
    with pytest.raises(ValueError, match="belongs to another run"):
        train(second, checkpoint=tmp_path / "checkpoint")


def test_a_checkpoint_needs_a_folder(tmp_path: Path):
    with pytest.raises(ValueError, match="there is no folder"):
        train(Plain(), checkpoint=tmp_path / "nowhere" / "checkpoint")


# ---- progress -----------------------------------------------------------------------------------


def test_a_search_says_what_it_will_cost_and_counts_its_rollouts():
    told: list[Progress] = []
    train(Reach(), new_search(steps=3), progress=told.append)
    words = "3 steps of 8 policies in 50 environments, 1,200 rollouts"
    assert told[0] == Progress("rollouts", 0, 1200, words)
    done = [now.done for now in told]
    assert done == sorted(done)
    assert {*done} == {0, 400, 800, 1200}
    assert {now.total for now in told} == {1200}
    assert re.fullmatch(r"bound 0\.\d{4}, step 3 of 3", told[-1].remark)


def test_a_step_is_reported_while_it_lasts():
    told: list[Progress] = []
    task = Reach()
    search_posterior(
        task,
        task.environments(3000, stream="train"),
        new_search(steps=2),
        Execution(progress=told.append),
    )
    within = [now for now in told if now.done % 24_000]
    assert within
    assert within[-1].remark.endswith(", step 2 of 2")


def test_a_search_that_stops_early_is_reported_as_complete():
    told: list[Progress] = []
    found = train(Reach(), new_search(patience=1, step_size=1e-9), progress=told.append)
    assert found.step < STEPS
    assert told[-1].done == told[-1].total == 400 * found.step


# ---- batches ------------------------------------------------------------------------------------


def test_batches_go_through_all_environments_in_turn():
    task = Watched()
    found = train(task, new_search(steps=5, batch=20))
    ranges = [(given.start, given.stop) for given, _ in task.given]
    assert ranges == [(0, 20), (20, 40), (30, 50), (0, 20), (20, 40)]
    assert [tuple(part)[2:] for part in found.posterior.seen] == [(0, 50)]
    first = train(Watched(), new_search(steps=1, batch=20))
    assert [tuple(part)[2:] for part in first.posterior.seen] == [(0, 20)]  # what it has seen


def test_a_batch_of_all_environments_is_no_batch():
    assert train(Slippery(), new_search(batch=50)).posterior.to_bytes() == (
        train(Slippery()).posterior.to_bytes()
    )


def test_a_search_in_batches_is_taken_up_where_it_was(tmp_path: Path):
    whole = train(Slippery(), new_search(batch=7)).posterior
    alarm, checkpoint = Alarm(13), tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        train(Slippery(), new_search(batch=7), checkpoint=checkpoint, progress=alarm)
    again = train(Slippery(), new_search(batch=7), checkpoint=checkpoint).posterior
    assert again.to_bytes() == whole.to_bytes()
    with pytest.raises(ValueError, match="belongs to another run"):
        train(Slippery(), new_search(batch=8), checkpoint=checkpoint)


def test_batches_that_are_impossible_are_refused():
    with pytest.raises(ValueError, match="batch = 51: there are 50 environments to train on"):
        train(Reach(), new_search(batch=51))
    task = Reach()
    with pytest.raises(ValueError, match="batch has no use where the environments are a function"):
        search_posterior(task, lambda _: task.environments(9, stream="train"), new_search(batch=3))


def test_the_rate_is_measured_in_environments_of_its_own():
    task = Watched()
    assert rollout_rate(task, PRIOR, seed=3) > 0
    assert {(given.stream, given.seed) for given, _ in task.given} == {("timing", 3)}
    assert {(noise.stream, noise.seed) for _, noise in task.given} == {("timing noise", 3)}
