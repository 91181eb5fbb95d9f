"""The policy to ship: its bound is that of Occam with equal weights, from its own trials."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacbayes_control.bounds import clopper_pearson
from pacbayes_control.bounds.anytime import highest_cost
from pacbayes_control.bounds.theorems import exact_tail_of_tasks
from pacbayes_control.certify.trials import Trials
from pacbayes_control.trials.choosing import OTHERS, choose
from pacbayes_control.trials.usual import usual_interval
from pacbayes_control.verify import verify
from recorded_trials import paired, unpaired


def column(failures: int, trials: int) -> list[float]:
    return [1.0] * failures + [0.0] * (trials - failures)


@pytest.fixture
def three() -> Trials:
    """Three policies with 20 trials each in the same environments."""
    return paired(np.column_stack([column(k, 20) for k in (6, 2, 9)]))


# ---- the numbers --------------------------------------------------------------------------------


def test_the_policy_with_the_smallest_bound_is_chosen_at_its_share_of_delta(three: Trials):
    choice = choose(three, 0.06)
    c = choice.run.certificate
    assert (choice.chosen, c.method, c.delta, c.candidates) == ("pi0", "occam", 0.06, 3)
    assert c.budget == pytest.approx({"occam": 0.02, OTHERS: 0.04})
    assert c.bound == pytest.approx(float(clopper_pearson(2, 20, 0.02)), rel=1e-9)
    for row, failures in zip(choice.policies, (6, 2, 9), strict=True):
        assert (row.trials, row.mean) == (20, failures / 20)
        assert row.bound == pytest.approx(float(clopper_pearson(failures, 20, 0.02)), rel=1e-9)
        assert row.usual_interval == usual_interval(column(failures, 20))


def test_the_sentence_tells_the_choice_and_the_unit(three: Trials):
    assert choose(three, 0.06).run.certificate.sentence == (
        "With confidence 94 %, policy “pi0” fails in at most 32.75 % of new environments drawn "
        "like the 20 it was tested on; a new environment is another “seed”; it was chosen by its "
        "trials among 3 policies, which the confidence allows for."
    )


def test_one_policy_alone_has_nothing_to_pay_for():
    choice = choose(paired(np.transpose([column(3, 30)])), 0.05)
    c = choice.run.certificate
    assert c.budget == {"occam": 0.05}
    assert c.bound == pytest.approx(float(clopper_pearson(3, 30, 0.05)), rel=1e-9)
    assert "chosen" not in c.sentence


def test_policies_that_were_given_up_count_too(three: Trials):
    c = choose(three, 0.06, candidates=60).run.certificate
    assert c.candidates == 60
    assert c.budget["occam"] == pytest.approx(0.001)
    assert c.bound == pytest.approx(float(clopper_pearson(2, 20, 0.001)), rel=1e-9)
    assert "among 60 policies" in c.sentence


def test_trials_that_may_be_stopped_at_any_time_have_a_bound_for_that(three: Trials):
    c = choose(three, 0.06, stopping="anytime").run.certificate
    assert (c.method, list(c.budget)) == ("anytime", ["anytime", OTHERS])
    assert c.bound == pytest.approx(highest_cost(column(2, 20), 0.02), rel=1e-9)
    assert c.bound > choose(three, 0.06).run.certificate.bound
    assert "the trials might be stopped at any time" in c.sentence


def test_graded_costs_are_bounded_by_bets_which_are_better_if_they_vary_little():
    rng = np.random.default_rng(0)
    choice = choose(paired(np.column_stack((rng.beta(20, 80, 80), rng.beta(2, 4, 80)))), 0.05)
    c = choice.run.certificate
    assert (choice.chosen, c.method, c.graded) == ("act", "occam", True)
    assert 0.2 < c.bound < float(clopper_pearson(16, 80, 0.025))
    assert "has an expected cost of at most" in c.sentence


# ---- tasks --------------------------------------------------------------------------------------


def test_a_promise_about_a_fixed_list_of_tasks_has_the_tail_for_tasks():
    outcomes = np.zeros((20, 2))
    outcomes[:3, 0] = outcomes[::2, 1] = 1
    c = choose(paired(outcomes, tasks=[0, 1, 2, 3] * 5), 0.1).run.certificate
    assert c.tasks == 4
    assert c.bound == pytest.approx(float(exact_tail_of_tasks(3, 20, 0.05)), rel=1e-9)
    assert "of new episodes, on average over 4 tasks," in c.sentence
    assert "another “seed” of one of these tasks, and not of others" in c.sentence


@pytest.mark.parametrize("stopping", ["fixed", "anytime"])
def test_graded_costs_of_a_fixed_list_of_tasks_are_certified(stopping: Any):
    costs = np.random.default_rng(1).beta(2, 8, (60, 2))
    choice = choose(paired(costs, tasks=[0, 1, 2] * 20), stopping=stopping)
    c = choice.run.certificate
    assert (c.tasks, c.graded) == (3, True)
    assert max(costs.mean(axis=0)) < c.bound < 0.4


def test_the_order_in_which_trials_of_tasks_were_recorded_does_not_matter():
    """Of graded costs: bets are in rounds, by the names of the environments."""
    costs, tasks = np.random.default_rng(2).random((30, 1)), np.arange(30) % 3
    one = choose(paired(costs, tasks=tasks.tolist()))
    order = np.argsort(tasks, kind="stable")
    names = tuple(f"seed {i}" for i in order)
    other = choose(paired(costs[order], tasks=tasks[order].tolist()), 0.05)
    renamed = Trials(**{**vars(other.trials), "environments": names})
    assert choose(renamed).run.certificate.bound == one.run.certificate.bound


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_policy_without_trials_in_some_task_is_not_averaged_over_the_others(missing: int):
    outcomes = np.zeros((9, 2))
    tasks = [0, 1, 2] * 3
    outcomes[np.array(tasks) == missing, 1] = np.nan
    with pytest.raises(ValueError, match=f"“pi0” has 0 trials in the task “task {missing}” and 3"):
        choose(paired(outcomes, tasks=tasks), stopping="fixed")


def test_a_policy_with_more_trials_in_one_task_than_in_another_is_refused():
    with pytest.raises(ValueError, match="as many in each"):
        choose(paired(np.zeros((5, 1)), tasks=[0, 1, 0, 1, 0]))


# ---- numbers of trials --------------------------------------------------------------------------


def test_different_numbers_of_trials_are_refused_until_it_is_said_how_they_came_about():
    trials = unpaired(column(1, 30), column(2, 20))
    with pytest.raises(ValueError, match="“pi0” has 20 trials and “act” has 30: say --stopping"):
        choose(trials)
    fixed, anytime = (choose(trials, stopping=s).run.certificate for s in ("fixed", "anytime"))
    assert (fixed.method, anytime.method) == ("occam", "anytime")
    assert fixed.environments == anytime.environments == 30


def test_a_way_of_stopping_that_is_misspelt_is_not_taken_for_a_fixed_number(three: Trials):
    with pytest.raises(ValueError, match="stopped fixed or anytime, not 'anytme'"):
        choose(three, stopping="anytme")  # pyright: ignore[reportArgumentType]


def test_more_trials_outweigh_a_slightly_better_rate():
    choice = choose(unpaired(column(0, 4), column(2, 100)), stopping="fixed")
    assert choice.chosen == "pi0"
    assert choice.policies[0].mean < choice.policies[1].mean


def test_a_policy_with_one_trial_is_shown_and_never_chosen():
    choice = choose(unpaired(column(0, 1), column(9, 10)), stopping="fixed")
    assert (choice.policies[0].bound, choice.policies[0].trials) == (1, 1)
    assert choice.chosen == "pi0"
    with pytest.raises(ValueError, match="no policy has two trials or more"):
        choose(unpaired([0], [1]))


def test_of_equal_bounds_the_lower_mean_and_then_the_first_is_chosen():
    assert choose(unpaired(column(10, 10), column(9, 9)), stopping="fixed").chosen == "act"
    assert choose(paired([[1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 0, 0]])).chosen == "act"
    graded = unpaired([1, 1], [1, 0.9], graded=True)  # of which neither bound is below 1
    choice = choose(graded, 1e-9)
    assert choice.policies[0].bound == choice.policies[1].bound == 1
    assert choice.chosen == "pi0"


def test_fewer_candidates_than_policies_with_trials_are_refused(three: Trials):
    for candidates in (2, 0, -1):
        with pytest.raises(ValueError, match=f"3 policies, and only {candidates} candidates"):
            choose(three, candidates=candidates)
    with pytest.raises(ValueError, match="the number of candidates"):
        choose(three, candidates=2**60)


@pytest.mark.parametrize("delta", [0, 1, -0.5, math.nan])
def test_an_impossible_delta_is_refused(three: Trials, delta: float):
    with pytest.raises(ValueError, match="must lie strictly between 0 and 1"):
        choose(three, delta)


# ---- the record ---------------------------------------------------------------------------------


def test_a_choice_as_json_has_every_policy_and_the_certificate(three: Trials):
    record = json.loads(json.dumps(choose(three).to_dict()))
    assert record.keys() == {"policies", "chosen", "certificate"}
    assert record["chosen"] == record["certificate"]["policy_name"] == "pi0"
    keys = {"name", "trials", "mean", "usual_interval", "bound"}
    assert all(row.keys() == keys for row in record["policies"])
    assert [row["name"] for row in record["policies"]] == ["act", "pi0", "dp"]
    assert record["policies"][1]["bound"] == record["certificate"]["bound"]


def test_the_same_trials_give_the_same_record(three: Trials):
    assert choose(three).to_dict() == choose(Trials.from_record(three.to_record())).to_dict()


def test_a_saved_choice_holds_all_trials_and_is_verified(three: Trials, tmp_path: Path):
    folder = choose(three).save(tmp_path / "run")
    saved = Trials.from_record(json.loads((folder / "trials.json").read_text()))
    assert np.array_equal(saved.table, three.table)
    assert verify(folder).certificate.policy_name == "pi0"
    with pytest.raises(ValueError, match="not empty"):
        choose(three).save(folder)
    choose(three, 0.01).save(folder, overwrite=True)
    assert verify(folder).certificate.delta == 0.01


def test_incidents_and_sources_of_a_log_are_told(tmp_path: Path):
    trials = paired(np.zeros((9, 1)), incidents={"missing": 2}, sources={"logs/eval.csv": "0" * 64})
    run = choose(trials).run
    assert "2 trials in the log without an outcome count as failures" in run.certificate.sentence
    assert run.certificate.distribution == "as the environments of eval.csv were chosen"
    assert verify(run.save(tmp_path / "run", attachments=attached(trials)))


def attached(trials: Trials) -> dict[str, bytes]:
    return {"trials.json": json.dumps(trials.to_record()).encode()}


# ---- the usual interval -------------------------------------------------------------------------


def test_the_usual_interval_is_wilson_s_for_successes_and_failures():
    """Its ends solve (p - k/n)² = z² p (1 - p)/n."""
    for failures, n in ((9, 50), (0, 20), (20, 20), (1, 1)):
        z = 1.959963984540054
        for end in usual_interval(column(failures, n)):
            assert (end - failures / n) ** 2 == pytest.approx(z**2 * end * (1 - end) / n, abs=1e-12)


def test_the_usual_interval_of_graded_costs_is_that_of_their_standard_error():
    costs = [0.1, 0.2, 0.4]
    half = 1.959963984540054 * np.std(costs, ddof=1) / math.sqrt(3)
    low, high = usual_interval(costs, graded=True)
    assert high == pytest.approx(np.mean(costs) + half)
    assert low == pytest.approx(max(np.mean(costs) - half, 0))
    assert usual_interval([0.3], graded=True) == (0, 1)


def test_a_bare_table_of_costs_is_trials_too():
    table = [[0, 1, 0.5], [0, 1, 0.25]]
    trials = Trials.from_costs(table, ["a", "b", "c"])
    assert trials.graded
    assert trials.table.tolist() == table
    assert choose(trials).chosen == "a"
    assert Trials.from_costs([[0, 1], [0, 0]]).graded is None
    with pytest.raises(ValueError, match=r"cost 1\.5 at environment 1, policy 0 is outside"):
        Trials.from_costs([[0, 1], [1.5, 0]])
    with pytest.raises(ValueError, match="2 names for 3 policies"):
        Trials.from_costs(table, ["a", "b"])
    with pytest.raises(ValueError, match="graded costs, and does not say so"):
        Trials.from_costs(table, graded=False)
