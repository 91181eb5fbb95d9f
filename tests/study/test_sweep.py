"""Sweeps: draws are disjoint and independent, figures are right, and nothing is run twice."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.learn import Plan, SearchSettings, learn_finite
from pacbayes_control.rollouts import Execution
from pacbayes_control.study.campaign_slices import Campaign, Outcome, Size
from pacbayes_control.study.sweep import Sweep, figures, load_sweep, sweep
from pacbayes_control.study.sweep_grid import MOST_CELLS, Grid
from pacbayes_control.tasks import Environments, Noise
from pacbayes_control.tasks.demo import Stopping
from pacbayes_control.tasks.options import option

TESTS = 400
TINY = SearchSettings(steps=2, pairs=2)


@dataclass(frozen=True)
class Widths:
    """Options of the task below."""

    width: float = option(0.2, "How far away is a miss.")
    kind: str = option("list", "list, or a search.")


class Counted(Stopping):
    """One that counts the rollouts in each environment, and may be interrupted."""

    Options = Widths

    def __init__(self, width: float = 0.2, kind: str = "list", ends_after: float = np.inf) -> None:
        self.width = width
        self.policies: Any = Stopping.policies if kind == "list" else None
        self.prior: Any = None if kind == "list" else DiagonalGaussian([1.0], 0.04)
        self.counts: Counter[tuple[str, int]] = Counter()
        self.ends_after = ends_after

    def __repr__(self) -> str:
        return f"Counted({self.width})"

    @classmethod
    def from_options(cls, options: Any) -> Counted:
        return cls(options.width, options.kind)

    def costs(self, policies: NDArray, environments: Environments, *_: Noise) -> NDArray:
        if environments.stream.startswith("sweep"):
            if self.counts.total() >= self.ends_after:
                raise KeyboardInterrupt
            rows = range(environments.start, environments.stop)
            self.counts.update({(environments.stream, row): policies.shape[-2] for row in rows})
        marks = environments.arrays()["mark"][:, None]
        return np.abs(policies[..., 0] - marks) > self.width


@dataclass(frozen=True)
class Reaching:
    """A task of a user, whose fields are numbers; it inherits from nothing."""

    parameters: int = 1
    radius: float = 0.2
    policies: Any = None
    name: str = "reaching"

    def __post_init__(self) -> None:
        object.__setattr__(self, "policies", Stopping.policies)

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        return Stopping().environments(n, stream, seed)

    def costs(self, policies: NDArray, environments: Environments) -> NDArray:
        return np.abs(policies[..., 0] - environments.arrays()["mark"][:, None]) > self.radius


def swept(task: Any, folder: Path, over: Any, plan: Plan | None = None, draws: int = 3) -> Sweep:
    return sweep(task, plan, over, folder=folder, draws=draws, test_environments=TESTS)


def true_costs(width: float = 0.2) -> NDArray:
    """Of the policies of the task, in closed form."""
    ways = Stopping.policies[:, 0]
    inside = stats.norm.cdf(ways + width, 1, 0.1) - stats.norm.cdf(ways - width, 1, 0.1)
    return 1 - inside


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "finished.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines() if line]


def test_rows_agree_with_slices_of_one_campaign_that_are_learnt_from_by_hand(tmp_path: Path):
    task, draws = Stopping(), 4
    methods, numbers, deltas = ["occam", "kl"], [30, 80], [0.05, 0.2]
    over = {"environments": numbers, "method": methods, "delta": deltas}
    found = swept(task, tmp_path / "s", over, draws=draws)
    train = task.environments(80 * draws, stream="sweep").arrays()["mark"]
    test = task.environments(TESTS, stream="sweep test").arrays()["mark"]

    def by_hand(marks: NDArray) -> NDArray:
        return np.abs(task.policies[:, 0] - marks[:, None]) > 0.2

    cells = [(n, m, d) for n in numbers for m in methods for d in deltas]
    assert [(row["environments"], row["method"], row["delta"]) for row in found.rows] == cells
    for row, (n, method, delta) in zip(found.rows, cells, strict=True):
        parts = [train[i * n : (i + 1) * n] for i in range(draws)]
        runs = [learn_finite(Costs(by_hand(p)), delta, method=method) for p in parts]
        bounds = np.array([run.certificate.bound for run in runs])
        truths = np.array(
            [run.posterior.probabilities @ by_hand(test).mean(axis=0) for run in runs]
        )
        assert row["bound"] == pytest.approx(bounds.mean(), abs=1e-12)
        assert row["bound_sd"] == pytest.approx(bounds.std(ddof=1), abs=1e-12)
        assert row["true_cost"] == pytest.approx(truths.mean(), abs=1e-12)
        assert row["true_cost_sd"] == pytest.approx(truths.std(ddof=1), abs=1e-12)
        exact = np.mean([run.posterior.probabilities @ true_costs() for run in runs])
        assert abs(row["true_cost"] - exact) < 5 * row["true_cost_se"] + 1e-12
        assert row["below_truth"] == np.mean(bounds < truths)
        assert row["draws"] == draws
    assert load_sweep(tmp_path / "s") == found
    table = (tmp_path / "s" / "sweep.csv").read_text().splitlines()
    assert table[0] == ",".join(found.columns)
    assert len(table) == 1 + len(cells)


def test_draws_are_disjoint_and_test_environments_are_used_for_nothing_else():
    few = Campaign(Stopping(), Plan(), Size(draws=5, test_environments=TESTS), largest=12)
    for n in (7, 12):
        parts = [few.part(few.costs, n, draw=draw) for draw in range(5)]
        ranges = [part.range for part in parts]
        assert all(part.environments == n for part in parts)
        for number, one in enumerate(ranges):
            assert one is not None
            assert one.stop <= few.costs.environments
            assert not one.overlaps(few.test.range)
            assert not any(one.overlaps(other) for other in ranges[:number] if other)


def test_draws_of_a_search_are_disjoint_too():
    seen = []
    for draw in range(3):
        task = Counted(kind="search")
        plan = Plan(environments=10, draws=2, search=TINY)
        Campaign(task, plan, Size(draws=3, test_environments=TESTS), 20).learn(plan, draw)
        assert {row for stream, row in task.counts if stream == "sweep test"} == {*range(TESTS)}
        seen.append({row for stream, row in task.counts if stream == "sweep"})
    assert seen == [{*range(10 * draw, 10 * (draw + 1))} for draw in range(3)]


def test_every_rollout_is_run_once_for_all_rows(tmp_path: Path):
    task = Counted()
    over = {"environments": [20, 40], "method": ["occam", "kl"], "delta": [0.01, 0.1]}
    swept(task, tmp_path / "s", over)
    assert {*task.counts.values()} == {len(task.policies)}
    assert len(task.counts) == 40 * 3 + TESTS


def test_an_option_of_the_task_has_a_campaign_each(tmp_path: Path):
    over = {"width": [0.1, 0.15], "environments": [20, 40]}
    found = swept(Counted, tmp_path / "s", over)
    kept = {path.name for path in (tmp_path / "s").iterdir() if path.is_dir()}
    assert kept == {f"rollouts-{i}.{kind}" for i in (0, 1) for kind in ("train", "test")}
    narrow, _, wide, _ = found.rows
    for row, width in ((narrow, 0.1), (wide, 0.15)):
        assert abs(row["true_cost"] - true_costs(width).min()) < 5 * row["true_cost_se"] + 1e-3


def test_a_field_of_a_task_that_is_a_dataclass_can_be_swept(tmp_path: Path):
    found = swept(Reaching(), tmp_path / "s", {"task.radius": [0.1, 1.0]}, Plan(environments=20))
    assert found.rows[0]["true_cost"] > found.rows[1]["true_cost"]
    for name in ("task.policies", "task.name", "task.unknown"):
        with pytest.raises(ValueError, match=r"plain number or word: choose from task\.parameters"):
            swept(Reaching(), tmp_path / "t", {name: [1]})


def test_an_interrupted_campaign_goes_on_without_running_finished_rollouts_again(tmp_path: Path):
    over, folder = {"environments": [2000, 4000]}, tmp_path / "s"
    whole = swept(at_once := Counted(), tmp_path / "whole", over)
    with pytest.raises(KeyboardInterrupt):
        swept(first := Counted(ends_after=30_000), folder, over)
    second = Counted()
    assert swept(second, folder, over) == whole
    total = at_once.counts.total()
    assert 0 < first.counts.total() < total
    # of finished ones, a few are run again to compare their costs
    assert first.counts.total() + second.counts.total() <= total + 16
    third = Counted()
    assert swept(third, folder, over) == whole
    assert not third.counts


def test_an_interrupted_search_goes_on_with_the_draws_that_are_left(tmp_path: Path):
    over, plan = {"environments": [10, 20]}, Plan(draws=3, search=TINY)
    whole = swept(Counted(kind="search"), tmp_path / "whole", over, plan)
    assert whole.searched
    assert "of the policies" in whole.caption
    all_of_it = Counted(kind="search")
    swept(all_of_it, tmp_path / "again", over, plan)
    ends = Counted(kind="search", ends_after=all_of_it.counts.total() / 2)
    with pytest.raises(KeyboardInterrupt):
        swept(ends, tmp_path / "s", over, plan)
    before = lines(tmp_path / "s")
    assert 0 < len(before) < 6
    with (tmp_path / "s" / "finished.jsonl").open("a") as file:
        file.write('\n{"cell": 1, "dr')  # as a killed process leaves it
    second = Counted(kind="search")
    assert swept(second, tmp_path / "s", over, plan) == whole
    assert second.counts.total() < all_of_it.counts.total() * 0.8
    left = {path.name for path in (tmp_path / "s").iterdir()}
    assert left == {"begun.json", "finished.jsonl", "sweep.json", "sweep.csv"}


def test_a_continuous_task_has_true_costs_that_are_right(tmp_path: Path):
    plan = Plan(environments=30, draws=4, search=TINY)
    for certify in ("posterior", "one"):
        over = {"delta": [0.1, 0.2]}
        fixed = plan if certify == "posterior" else Plan(environments=30, certify=certify)
        found = swept(Counted(kind="search"), tmp_path / certify, over, fixed)
        for row in found.rows:
            assert row["bound"] >= row["true_cost"] - 5 * row["true_cost_se"]
            truth = true_costs()[2] if certify == "one" else 0.37  # of N(1, 0.04), by integration
            assert abs(row["true_cost"] - truth) < 5 * row["true_cost_se"] + 0.02


def test_the_share_of_bounds_below_the_truth_is_counted_and_kept_by_a_right_bound(tmp_path: Path):
    assert figures([Outcome(0.3, 0.1, 0.2, 0.01), Outcome(0.1, 0.1, 0.2, 0.03)]) == {
        "draws": 2,
        "bound": 0.2,
        "bound_sd": pytest.approx(0.2 / np.sqrt(2)),
        "empirical_cost": 0.1,
        "empirical_cost_sd": 0.0,
        "true_cost": 0.2,
        "true_cost_sd": 0.0,
        "true_cost_se": pytest.approx(0.02),
        "below_truth": 0.5,
    }
    delta, draws = 0.1, 150
    [row] = swept(
        Counted(0.1), tmp_path / "s", {"delta": [delta]}, Plan(environments=30), draws
    ).rows
    most = delta + 3 * np.sqrt(delta * (1 - delta) / draws)
    assert row["below_truth"] <= most
    wrong = [line["empirical_cost"] < line["true_cost"] for line in lines(tmp_path / "s")]
    assert np.mean(wrong) > most  # no bound: the training cost itself


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({}, "name a field to sweep over"),
        ({"enviroments": [10]}, "there is no field 'enviroments': choose from"),
        ({"environments": []}, "needs a list"),
        ({"environments": 10}, "needs a list"),
        ({"method": "occam"}, "needs a list"),
        ({"environments": [10, "many"]}, "environments = 'many' must be int"),
        ({"environments": [10, 1]}, "at least 2 is needed"),
        ({"delta": [0.1, 0.1]}, "delta = 0.1 is listed twice"),
        ({"delta": [0.1, 1.5]}, "1.5"),
        ({"method": ["occam", "hoeffding"]}, "method = 'hoeffding' must be occam"),
        ({"method": ["best"], "objective": ["kl"]}, "best takes no objective"),
        ({"certify": ["one"]}, "certify is for continuous policies"),
        ({"steps": [3]}, "has no use where nothing is searched for"),
        ({"draws": [3, 4]}, "draws is a column of the table"),
        ({"seed": [0, 1]}, "seed is an option of its own"),
        ({"until": [0.1]}, "until is not for a sweep"),
        ({"ball": ["kl:0.1"]}, "ball is not for a sweep"),
        ({"of": ["cvar:0.1"]}, "of is not for a sweep"),
        ({"campaign": ["folder"]}, "a sweep keeps its own rollouts"),
        ({"prior": ["missing.json"]}, "there is no prior missing.json"),
        ({"environments": range(2, 100), "delta": list(np.linspace(0.1, 0.2, 11))}, "too many"),
    ],
    ids=str,
)
def test_a_sweep_that_cannot_be_made_is_refused_before_any_rollout(
    tmp_path: Path, over: dict[str, Any], words: str
):
    task = Counted()
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        swept(task, tmp_path / "s", over)
    assert not task.counts
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("size", "words"),
    [({"draws": 0}, "draws = 0"), ({"test_environments": 1}, "test_environments = 1")],
)
def test_a_sweep_needs_a_draw_and_test_environments(tmp_path: Path, size: Any, words: str):
    with pytest.raises(ValueError, match=words):
        sweep(Stopping(), None, {"delta": [0.1]}, folder=tmp_path / "s", **size)


def test_fields_of_a_plan_that_a_sweep_does_not_take_are_refused(tmp_path: Path):
    for plan in (Plan(until=0.1), Plan(ball="kl:0.1"), Plan(campaign="folder")):
        with pytest.raises(ValueError, match="sweep"):
            swept(Stopping(), tmp_path / "s", {"delta": [0.1]}, plan)
    with pytest.raises(ValueError, match="no retries"):
        sweep(Stopping(), None, {"delta": [0.1]}, folder=tmp_path, execution=Execution(retries=1))


class Failing(Counted):
    """One that cannot roll out one of its environments."""

    def costs(self, policies: NDArray, environments: Environments, *noise: Noise) -> NDArray:
        if environments.start <= 5 < environments.stop and environments.stream == "sweep":
            raise RuntimeError("no motor")
        return super().costs(policies, environments, *noise)


def test_a_task_that_fails_is_told_with_advice_that_a_sweep_can_follow(tmp_path: Path):
    with pytest.raises(ValueError, match="no motor") as error:
        swept(Failing(), tmp_path / "s", {"delta": [0.1]}, Plan(environments=10))
    assert str(error.value).endswith("mend the task, and sweep into another folder")
    assert "allow_code_change" not in str(error.value)


@pytest.mark.slow
def test_a_time_limit_of_rollouts_is_told_in_the_caption(tmp_path: Path):
    folder, limited = tmp_path / "s", Execution(rollout_timeout=60.0, workers=0)
    plan, over = Plan(environments=5), {"delta": [0.1]}
    facts: Any = {"folder": folder, "draws": 1, "test_environments": 2}
    made = sweep(Stopping(), plan, over, **facts, execution=limited)
    assert "Rollouts that took longer than 60 s cost 1, the worst." in made.caption
    assert load_sweep(folder) == made
    assert "longer" not in replace(made, rollout_timeout=None).caption
    with pytest.raises(ValueError, match="rollout timeout"):
        sweep(Stopping(), plan, over, **facts)


def test_a_folder_of_another_sweep_or_of_other_things_is_refused(tmp_path: Path):
    folder, over = tmp_path / "s", {"delta": [0.1]}
    plan = Plan(environments=10)
    swept(Counted(), folder, over, plan)
    before = (folder / "sweep.json").read_bytes()
    for other in ({"delta": [0.2]}, {"environments": [10]}):
        with pytest.raises(ValueError, match="holds another sweep, with over"):
            swept(Counted(), folder, other, plan)
    with pytest.raises(ValueError, match="draws 3, not 4"):
        swept(Counted(), folder, over, plan, draws=4)
    with pytest.raises(ValueError, match="another sweep, with plan"):
        swept(Counted(), folder, over, replace(plan, seed=1))
    with pytest.raises(ValueError, match=r"the task has changed since .* was begun"):
        swept(Counted(0.3), folder, over, plan)
    assert (folder / "sweep.json").read_bytes() == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds other things than a sweep"):
        swept(Counted(), tmp_path / "other", over, plan)
    with pytest.raises(ValueError, match="is a file"):
        swept(Counted(), tmp_path / "other" / "notes.txt", over, plan)


def test_a_prior_that_has_seen_the_environments_of_the_sweep_is_refused(tmp_path: Path):
    few = Campaign(Stopping(), Plan(), Size(draws=3, test_environments=TESTS), largest=20)
    learnt = learn_finite(few.part(few.costs, 20, draw=1)).posterior
    (tmp_path / "prior.json").write_bytes(learnt.to_bytes())
    plan = Plan(environments=20, prior=str(tmp_path / "prior.json"))
    with pytest.raises(ValueError, match="learnt from some of these environments"):
        swept(Stopping(), tmp_path / "s", {"delta": [0.1]}, plan)


def test_as_many_combinations_as_allowed_are_a_grid():
    most = Grid.of(Stopping(), Plan(), {"environments": range(2, MOST_CELLS + 2)})
    assert len(most.cells) == MOST_CELLS


# ---- the file of a stranger ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sweep") / "s"
    over = {"environments": [10, 20]}
    return swept(Stopping(), folder, over).to_dict()


BAD: dict[str, Any] = {
    "no record": lambda _: [],
    "a field missing": lambda r: {k: v for k, v in r.items() if k != "rows"},
    "one too many": lambda r: r | {"caption": "certified for ever"},
    "another format": lambda r: r | {"format": 2},
    "no rows": lambda r: r | {"rows": []},
    "too many rows": lambda r: r | {"rows": r["rows"][:1] * (MOST_CELLS + 1)},
    "a bound in words": lambda r: r | {"rows": [r["rows"][0] | {"bound": "0"}]},
    "a bound above 1": lambda r: r | {"rows": [r["rows"][0] | {"bound": 1.5}]},
    "no draws": lambda r: r | {"rows": [r["rows"][0] | {"draws": 0}]},
    "draws in words": lambda r: r | {"rows": [r["rows"][0] | {"draws": True}]},
    "a row without a figure": lambda r: r | {"rows": [{"environments": 10}]},
    "a list as a value": lambda r: r | {"rows": [r["rows"][0] | {"environments": [1]}]},
    "a long value": lambda r: r | {"rows": [r["rows"][0] | {"environments": "x" * 2000}]},
    "a field of no name": lambda r: r | {"swept": ["environ\x1b[2Kments"]},
    "a figure as a field": lambda r: r | {"swept": ["bound"]},
    "a field twice": lambda r: r | {"swept": ["environments", "environments"]},
    "no test": lambda r: r | {"test_environments": 0},
    "a time limit of nothing": lambda r: r | {"rollout_timeout": 0.0},
    "a wrong plan": lambda r: r | {"plan": {"delta": 2.0}},
    "another plan": lambda r: r | {"plan": {"delta": [0.1]}},
}


@pytest.mark.parametrize("kind", BAD)
def test_a_malformed_file_is_refused_in_a_line_that_names_it(
    tmp_path: Path, record: dict[str, Any], kind: str
):
    (tmp_path / "sweep.json").write_text(json.dumps(BAD[kind](record)))
    with pytest.raises(ValueError, match=r"sweep\.json is no sweep: ") as error:
        load_sweep(tmp_path)
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)


def test_what_is_no_json_or_not_there_is_refused(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no finished sweep"):
        load_sweep(tmp_path)
    (tmp_path / "sweep.json").write_text('{"rows": NaN}')
    with pytest.raises(ValueError, match="not JSON"):
        load_sweep(tmp_path)


def test_words_of_a_stranger_are_shown_safely(record: dict[str, Any]):
    evil = "robot\x1b[2K | forged\nrow"
    rows = [record["rows"][0] | {"environments": evil}]
    table = Sweep.from_dict(record | {"task": evil, "rows": rows})
    assert "\x1b" not in table.title + table.table() + table.caption
    assert len(table.table().splitlines()) == 3
    assert r"\| forged" in table.table()


def test_the_caption_states_the_guarantee(record: dict[str, Any]):
    words = Sweep.from_dict(record).caption
    assert "3 independent draws" in words
    assert "for its own row, with probability at least 99 % over the draw of the training" in words
    assert f"{TESTS} environments used for nothing else" in words
    over_delta = record | {"swept": ["delta"]}
    over_delta["rows"] = [
        {k: v for k, v in row.items() if k != "environments"} | {"delta": 0.1}
        for row in record["rows"]
    ]
    assert "at least 1 - δ" in Sweep.from_dict(over_delta).caption
