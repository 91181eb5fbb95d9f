"""Logs of LeRobot, vla-eval and Stable-Baselines3."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from evaluation_logs import (
    done,
    evaluation,
    evaluation_of_tasks,
    vla_result,
    write,
    write_dataset,
)

from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.reading import read_trials


def test_lerobot_evaluations_pair_by_their_seeds(tmp_path: Path):
    home = tmp_path / "outputs" / "eval" / "2026-01-02"
    write(home / "10-00_pusht_act" / "eval_info.json", evaluation([True, False], [1000, 1001]))
    write(home / "11-00_pusht_pi0" / "eval_info.json", evaluation([True, True], [1000, 1001]))
    trials = read_trials([tmp_path / "outputs"])
    assert trials.policies == ("10-00_pusht_act", "11-00_pusht_pi0")
    assert trials.environments == ("1000", "1001")
    assert trials.table.tolist() == [[0, 0], [1, 0]]
    assert (trials.shared, trials.unit, trials.graded) == (True, "seed", False)
    assert trials.links[0] == "videos/eval_episode_0.mp4"
    assert trials.understood == (
        "2 files: 2 policies × 2 environments (seeds), 4 trials; “success” = true is a success; "
        "nothing is missing"
    )
    options = LogOptions(outcome="sum_reward", scale="0:20")
    assert read_trials([tmp_path], options).table.tolist() == [[0.5, 0.5], [1, 0.5]]


def test_checkpoints_are_named_by_their_run_and_steps(tmp_path: Path):
    for steps in ("010000", "020000"):
        home = tmp_path / "train" / "act" / "checkpoints" / steps / "eval"
        write(home / "eval_info.json", evaluation([True, False], [1, 2]))
    assert read_trials([tmp_path]).policies == ("act/010000", "act/020000")


def test_folders_of_one_name_are_told_apart_by_the_parts_that_differ(tmp_path: Path):
    for run in ("act", "pi0"):
        write(
            tmp_path / run / "seed1" / "eval" / "eval_info.json", evaluation([True, False], [1, 2])
        )
    assert read_trials([f"{tmp_path}/*/seed1"]).policies == ("act", "pi0")
    [only] = read_trials([tmp_path / "act" / "seed1" / "eval" / "eval_info.json"]).policies
    assert only == "eval"


def test_a_folder_without_an_evaluation_is_told(tmp_path: Path):
    write(tmp_path / "act" / "eval_info.json", evaluation([True, False], [1, 2]))
    (tmp_path / "pi0" / "videos").mkdir(parents=True)
    write(tmp_path / "notes.csv", "a,b\n1,2\n")
    line = read_trials([tmp_path]).understood
    assert "no evaluation in other folders (1: “pi0”)" in line
    assert "not read (1)" in line


def test_lerobot_episodes_without_seeds_pair_only_if_it_is_said(tmp_path: Path):
    write(tmp_path / "act" / "eval_info.json", evaluation([True, False]))
    write(tmp_path / "pi0" / "eval_info.json", evaluation([True, True]))
    with pytest.raises(ValueError, match=r"say --paired .* else --unpaired"):
        read_trials([tmp_path])
    assert read_trials([tmp_path], LogOptions(paired=True)).shared
    apart = read_trials([tmp_path], LogOptions(paired=False))
    assert (apart.shared, len(apart.environments), apart.unit) == (False, 4, "episode")


def test_several_tasks_of_lerobot_need_two_answers(tmp_path: Path):
    for policy in ("act", "pi0"):
        log = evaluation_of_tasks({"0": [True, False], "1": [True, True]})
        write(tmp_path / policy / "eval_info.json", log)
    with pytest.raises(ValueError, match=r"2 tasks .“libero/0”, “libero/1”.: say --tasks"):
        read_trials([tmp_path])
    trials = read_trials([tmp_path], LogOptions(tasks="fixed", paired=True))
    assert trials.tasks == ("libero/0", "libero/1")
    assert trials.environments[1] == "libero/0 / episode 1"
    assert trials.shared
    drawn = read_trials([tmp_path], LogOptions(tasks="drawn"))
    assert (drawn.environments, drawn.episodes) == (("libero/0", "libero/1"), 2)
    assert drawn.table.tolist() == [[0.5, 0.5], [0, 0]]
    one = read_trials([tmp_path], LogOptions(tasks="libero/1", paired=False))
    assert len(one) == 4


def test_a_recorded_dataset_has_one_trial_an_episode(tmp_path: Path):
    episodes = [[False, True, False], [False, False]]
    folder = write_dataset(tmp_path / "act", episodes, "next.success")
    trials = read_trials([folder])
    assert trials.policies == ("act",)
    assert trials.costs.tolist() == [0, 1]
    write_dataset(tmp_path / "pi0", [[True], [True]], "next.success")
    assert read_trials([tmp_path], LogOptions(paired=False)).counts.tolist() == [2, 2]


def test_rewards_of_a_dataset_are_summed_and_scaled(tmp_path: Path):
    folder = write_dataset(tmp_path / "act", [[1.0, 1.0], [0.0, 1.0]], "next.reward")
    with pytest.raises(ValueError, match=r"“next.reward” has no limits of its own: say --scale"):
        read_trials([folder])
    assert read_trials([folder], LogOptions(scale="0:4")).costs.tolist() == [0.5, 0.75]


def test_vla_eval_counts_episodes_that_broke_off_as_failures(tmp_path: Path):
    broken = {"metrics": {}, "failure_reason": "timeout"}
    write(tmp_path / "act" / "libero.json", vla_result({"pick": [done(True), broken]}))
    write(tmp_path / "pi0" / "libero.json", vla_result({"pick": [done(True), done(True)]}))
    trials = read_trials([tmp_path])
    assert trials.policies == ("act", "pi0")
    assert trials.table.tolist() == [[0, 0], [1, 0]]
    assert trials.environments == ("episode 0, seed 7", "episode 1, seed 7")
    assert trials.shared
    assert trials.incidents == {"broken": 1}
    assert "1 that broke off counted as failures" in trials.understood


def test_episodes_of_other_tasks_that_broke_off_are_not_counted(tmp_path: Path):
    broken = {"metrics": {}, "failure_reason": "timeout"}
    tasks = {"pick": [done(True), done(False)], "place": [broken, broken]}
    write(tmp_path / "act.json", vla_result(tasks))
    assert read_trials([tmp_path / "act.json"], LogOptions(tasks="pick")).incidents == {}
    assert read_trials([tmp_path / "act.json"], LogOptions(tasks="place")).incidents["broken"] == 2


def test_vla_eval_results_of_other_seeds_do_not_pair(tmp_path: Path):
    for seed in (1, 2):
        result = vla_result({"pick": [done(True), done(False)]}, seed=seed)
        write(tmp_path / f"model{seed}_aggregate.json", result)
    trials = read_trials([tmp_path])
    assert trials.policies == ("model1", "model2")
    assert not trials.shared


def test_vla_eval_benchmarks_in_one_folder_are_tasks_of_one_policy(tmp_path: Path):
    for name in ("spatial", "goal"):
        result = vla_result({"pick": [done(True), done(False)]}, benchmark=name)
        write(tmp_path / "act" / f"{name}_aggregate.json", result)
    trials = read_trials([tmp_path], LogOptions(tasks="fixed"))
    assert trials.policies == ("act",)
    assert trials.tasks == ("goal/pick", "spatial/pick")


def test_other_metrics_of_vla_eval_are_named(tmp_path: Path):
    graded = [{"metrics": {"subtasks": n}} for n in (0, 3)]
    path = write(tmp_path / "r.json", vla_result({"pick": graded}))
    options = LogOptions(outcome="subtasks", scale="0:5")
    assert read_trials([path], options).costs.tolist() == [1, 0.4]


def test_each_evaluation_of_stable_baselines_is_a_policy(tmp_path: Path):
    arrays = {"timesteps": np.array([1000, 2000]), "results": np.array([[1.0, 5.0], [10.0, 10.0]])}
    np.savez(tmp_path / "evaluations.npz", **arrays, ep_lengths=np.ones((2, 2)))
    trials = read_trials([tmp_path], LogOptions(scale="0:10"))
    assert trials.policies == ("1000 steps", "2000 steps")
    assert trials.costs.tolist() == [0.9, 0.5, 0, 0]
    assert (trials.shared, trials.unit) == (False, "episode")
    paired = read_trials([tmp_path], LogOptions(scale="0:10", paired=True))
    assert paired.table.tolist() == [[0.9, 0], [0.5, 0]]
    for run in ("sac", "ppo"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        successes = np.array([[True, False], [True, True]])
        np.savez(tmp_path / "runs" / run / "evaluations.npz", **arrays, successes=successes)
    several = read_trials([tmp_path / "runs"])
    assert several.policies[0] == "ppo, 1000 steps"
    assert several.costs.tolist() == [0, 1, 0, 0] * 2
