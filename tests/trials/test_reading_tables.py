"""Tables with one row a trial, and matrices."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from evaluation_logs import PLAIN, write, write_parquet, write_workbook
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pacbayes_control.certify.trials import Trials
from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.reading import read_trials


def read(tmp_path: Path, text: str, name: str = "trials.csv", **options: object) -> Trials:
    return read_trials([write(tmp_path / name, text)], LogOptions(**options))


# ---- one row a trial ----------------------------------------------------------------------------


def test_the_plainest_table_is_read(tmp_path: Path):
    trials = read(tmp_path, PLAIN)
    assert trials.policies == ("act", "pi0")
    assert trials.environments == ("a", "b")
    assert trials.table.tolist() == [[0, 0], [1, 0]]
    assert (trials.graded, trials.shared, trials.unit) == (False, True, "environment")
    assert (trials.episodes, trials.tasks, trials.links) == (1, (), ())
    assert trials.understood == (
        "trials.csv: 2 policies × 2 environments (column “environment”), 4 trials; “success” = 1 "
        "is a success; nothing is missing"
    )
    digest = hashlib.sha256((tmp_path / "trials.csv").read_bytes()).hexdigest()
    assert trials.sources == {str(tmp_path / "trials.csv"): digest}


@pytest.mark.parametrize(
    ("header", "cells", "costs"),
    [
        ("Is Success", "True False", [0, 1]),
        ("succeeded", "yes no", [0, 1]),
        ("pass", "1.0 0.0", [0, 1]),
        ("success", "pass fail", [0, 1]),
        ("failed", "1 0", [1, 0]),
        ("Crash", "true false", [1, 0]),
        ("collision", "no yes", [0, 1]),
        ("outcome", "success failure", [0, 1]),
        ("Result", "PASS Fail", [0, 1]),
        ("eval/success", "1 0", [0, 1]),
        ("metrics.success", "1 0", [0, 1]),
        ("score", "0.25 1", [0.75, 0]),
        ("progress", "0 0.5", [1, 0.5]),
        ("cost", "0.25 1", [0.25, 1]),
    ],
)
def test_outcomes_count_up_or_down_by_their_names(
    tmp_path: Path, header: str, cells: str, costs: list[float]
):
    one, two = cells.split()
    trials = read(tmp_path, f"policy,seed,{header}\nact,1,{one}\nact,2,{two}\n")
    assert trials.costs.tolist() == costs
    assert trials.graded == (header in ("score", "progress", "cost"))


@pytest.mark.parametrize(
    ("header", "scale", "cells", "costs"),
    [
        ("reward", "0:300", "300 150", [0, 0.5]),
        ("return", "-100:100", "-100 0", [1, 0.5]),
        ("distance", "2:0", "0.5 2", [0.25, 1]),
        ("score", "0:100", "85% 100", [0.15, 0]),
        ("final", "10:0", "10 0", [1, 0]),
        ("success", "0:1", "0.5 1", [0.5, 0]),
    ],
)
def test_scores_are_scaled_by_limits_known_beforehand(
    tmp_path: Path, header: str, scale: str, cells: str, costs: list[float]
):
    one, two = cells.split()
    text = f"policy,seed,{header}\nact,1,{one}\nact,2,{two}\n"
    trials = read(tmp_path, text, scale=scale, outcome=header)
    assert trials.costs.tolist() == pytest.approx(costs)
    assert trials.graded
    assert f"“{header}” from {scale.split(':')[0]}, the worst" in trials.outcome


def test_a_value_may_be_named_as_the_success(tmp_path: Path):
    text = "policy,seed,state\nact,1,done\nact,2,stuck\nact,3,lost\n"
    trials = read(tmp_path, text, outcome="state", success="Done")
    assert trials.costs.tolist() == [0, 1, 1]
    assert trials.outcome == "“state” = Done is a success, and the 2 other values are failures"
    numbers = text.replace("done", "1").replace("stuck", "0").replace("lost", "0")
    assert read(tmp_path, numbers, outcome="state", success="1").costs.tolist() == [0, 1, 1]
    assert read(tmp_path, numbers, outcome="state", success="0").costs.tolist() == [1, 0, 0]
    assert read(tmp_path, numbers, outcome="state", success="true").costs.tolist() == [0, 1, 1]


def test_a_success_is_preferred_to_a_reward_beside_it(tmp_path: Path):
    text = "policy,seed,reward,success,video\nact,1,12.5,1,a.mp4\nact,2,3,0,\n"
    trials = read(tmp_path, text)
    assert trials.costs.tolist() == [0, 1]
    assert "“reward” not used (--outcome)" in trials.understood
    assert trials.links == ("a.mp4", "")
    assert read(tmp_path, text, outcome="reward", scale="0:20").costs[0] == 0.375


def test_columns_are_named_by_options(tmp_path: Path):
    text = "who,where,how\nact,x,pass\nact,y,fail\n"
    options = {"policy": "who", "environment": "Where", "outcome": "how"}
    trials = read(tmp_path, text, **options)
    assert trials.environments == ("x", "y")
    assert trials.costs.tolist() == [0, 1]
    assert trials.unit == "where"


def test_columns_that_make_no_difference_are_not_asked_about(tmp_path: Path):
    text = "policy,method,seed,env,success\na1,act,1,push,1\na2,act,1,push,0\na2,act,2,push,0\n"
    trials = read(tmp_path, text)
    assert trials.policies == ("a1", "a2")
    assert trials.unit == "seed"
    assert "1 to 2 trials a policy, 1 of 4 pairs of policy and environment missing" in (
        trials.understood
    )


def test_lengths_of_episodes_and_numbers_of_rows_are_not_checkpoints(tmp_path: Path):
    lines = (
        "policy,seed,steps,_step,success\nact,1,90,0,1\nact,1,80,1,0\nact,2,90,2,1\nact,2,90,3,1\n"
    )
    assert read_trials([write(tmp_path / "trials.csv", lines)]).costs.tolist() == [0.5, 0]


def test_checkpoints_are_policies_if_their_column_is_named(tmp_path: Path):
    lines = "policy,epoch,seed,success\nact,1,1,1\nact,2,1,0\nact,1,2,1\nact,2,2,1\n"
    path = write(tmp_path / "trials.csv", lines)
    assert read_trials([path], LogOptions(policy="epoch")).policies == ("1", "2")


@pytest.mark.parametrize(("good", "bad"), [("Y", "n"), ("✓", "✗"), ("✅", "❌")])
def test_letters_and_ticks_are_outcomes(tmp_path: Path, good: str, bad: str):
    lines = f"policy,seed,success\nact,1,{good}\nact,2,{bad}\n"
    assert read_trials([write(tmp_path / "trials.csv", lines)]).costs.tolist() == [0, 1]


def test_without_an_environment_every_trial_has_its_own(tmp_path: Path):
    trials = read(tmp_path, "policy,success\nact,1\nact,1\npi0,0\n")
    assert trials.environments == ("trial 1", "trial 2", "trial 3")
    assert not trials.shared
    assert trials.unit == "trial"


@pytest.mark.parametrize(("paired", "environments"), [(True, 2), (False, 4)])
def test_numbers_of_episodes_are_environments_if_they_are_paired(
    tmp_path: Path, paired: bool, environments: int
):
    text = PLAIN.replace("environment", "episode").replace(",a,", ",1,").replace(",b,", ",2,")
    trials = read(tmp_path, text, paired=paired)
    assert (len(trials.environments), trials.shared) == (environments, paired)
    assert trials.unit == "episode"


def test_numbers_need_no_pairing_for_one_policy_or_if_none_is_repeated(tmp_path: Path):
    assert not read(tmp_path, "policy,trial,success\nact,1,1\nact,2,0\n").shared
    assert not read(tmp_path, "policy,trial,success\nact,1,1\npi0,2,0\n").shared


def test_episodes_in_one_environment_are_averaged(tmp_path: Path):
    text = "policy,site,episode,success\n" + "".join(
        f"act,{site},{episode},{int(episode > 0)}\n" for site in "ab" for episode in range(4)
    )
    trials = read(tmp_path, text)
    assert trials.costs.tolist() == [0.25, 0.25]
    assert (trials.graded, trials.episodes, trials.unit) == (True, 4, "site")
    assert "the mean of 4 episodes is one trial" in trials.understood
    fewer = text.rsplit("\n", 2)[0] + "\n"
    assert read(tmp_path, fewer, episodes="declared").episodes is None
    first = read(tmp_path, fewer, episodes="first")
    assert (first.episodes, first.graded, first.costs.tolist()) == (1, False, [1, 1])
    assert "only the first episode in each environment counts, 5 left out" in first.understood


def test_missing_outcomes_are_failures_or_not_tried(tmp_path: Path):
    text = PLAIN.replace("act,b,0", "act,b,")
    failed = read(tmp_path, text, missing="failure")
    assert failed.costs.tolist() == [0, 1, 0, 0]
    assert failed.incidents == {"missing": 1}
    untried = read(tmp_path, text, missing="untried")
    assert untried.counts.tolist() == [1, 2]
    assert untried.incidents == {"untried": 1}
    assert "1 without an outcome left out as not tried" in untried.understood


TASKS = "policy,task,seed,success\n" + "".join(
    f"{p},{t},{s},{int(s > 1)}\n" for p in ("act", "pi0") for t in ("pick", "push") for s in (1, 2)
)


def test_a_fixed_list_of_tasks_is_kept(tmp_path: Path):
    trials = read(tmp_path, TASKS, tasks="fixed")
    assert trials.tasks == ("pick", "push")
    assert trials.task is not None
    assert trials.task.tolist() == [0, 0, 1, 1]
    assert trials.environments[0] == "pick / 1"
    assert (trials.unit, trials.shared, trials.graded) == ("seed", True, False)


def test_tasks_that_are_drawn_are_environments(tmp_path: Path):
    trials = read(tmp_path, TASKS, tasks="drawn")
    assert trials.environments == ("pick", "push")
    assert (trials.unit, trials.episodes, trials.tasks) == ("task", 2, ())
    assert trials.costs.tolist() == [0.5] * 4


def test_one_of_the_tasks_may_be_read_alone(tmp_path: Path):
    trials = read(tmp_path, TASKS, tasks="push")
    assert (len(trials), trials.tasks) == (4, ())
    assert "only the task “push”, 4 trials of other tasks left out" in trials.understood


def test_tasks_alone_with_one_trial_each_are_environments(tmp_path: Path):
    trials = read(tmp_path, "policy,task,success\nact,pick,1\nact,push,0\npi0,pick,1\npi0,push,1\n")
    assert (trials.environments, trials.unit, trials.shared) == (("pick", "push"), "task", True)


def test_suite_and_task_are_one_name(tmp_path: Path):
    text = "model,suite,task_id,seed,success\nact,a,0,1,1\nact,b,0,1,1\nact,b,1,1,0\n"
    trials = read(tmp_path, text, tasks="drawn")
    assert trials.environments == ("a/0", "b/0", "b/1")


def test_an_environment_that_varies_beside_a_seed_is_a_task(tmp_path: Path):
    text = TASKS.replace("task", "env")
    assert read(tmp_path, text, tasks="fixed").tasks == ("pick", "push")
    named = read(tmp_path, text, tasks="fixed", environment="seed")
    assert named.tasks == ("pick", "push")


def test_environments_that_differ_in_a_sign_or_a_point_are_not_spellings_of_one(tmp_path: Path):
    places = ['"(0.1, -0.2)"', '"(0.1, 0.2)"', "1.5", "15", "-15", "a1e-3", "a1e3"]
    lines = [f"act,{place},1" for place in places]
    assert len(read(tmp_path, "policy,site,success\n" + "\n".join(lines)).environments) == 7


def test_decimal_commas_are_read_between_semicolons(tmp_path: Path):
    text = "policy;seed;score\nact;1;0,25\nact;2;1,0\n"
    assert read(tmp_path, text).costs.tolist() == [0.75, 0]


def test_equal_seeds_may_be_said_to_be_other_environments(tmp_path: Path):
    trials = read(tmp_path, PLAIN, paired=False)
    assert (trials.shared, len(trials.environments)) == (False, 4)


def test_several_files_are_merged(tmp_path: Path):
    header, *lines = PLAIN.splitlines(keepends=True)
    write(tmp_path / "logs" / "1.csv", header + "".join(lines[:2]))
    write(tmp_path / "logs" / "2.csv", header + "".join(lines[2:]))
    for logs in ([tmp_path / "logs"], [f"{tmp_path}/**/*.csv"], [f"{tmp_path}/logs/[12].csv"]):
        trials = read_trials(logs)
        assert trials.table.tolist() == [[0, 0], [1, 0]]
        assert trials.understood.startswith("2 files: 2 policies × 2 environments")
        assert len(trials.sources) == 2
    again = read_trials([tmp_path / "logs", tmp_path / "logs" / "1.csv"])
    assert len(again) == 4


def test_a_growing_table_is_read_up_to_its_last_whole_line(tmp_path: Path):
    path = tmp_path / "trials.csv"
    for text, count in (
        ("", 0),
        ("policy,env", 0),
        ("policy,environment,success\n", 0),
        ("policy,environment,success\nact,a,1\nact,b", 1),
        (PLAIN + "pi0,c,", 4),
    ):
        path.write_text(text)
        assert len(read_trials([path], growing=True)) == count
    lines = write(tmp_path / "t.jsonl", '{"policy": "act", "seed": 1, "success": true}\n{"pol')
    assert read_trials([lines], growing=True).costs.tolist() == [0]


# ---- matrices -----------------------------------------------------------------------------------


def test_a_matrix_of_words_is_clear(tmp_path: Path):
    trials = read(tmp_path, "site,act,pi0\nx,pass,fail\ny,pass,pass\n")
    assert trials.table.tolist() == [[0, 1], [0, 0]]
    assert (trials.shared, trials.graded, trials.unit) == (True, False, "site")


def test_a_matrix_of_progress_may_have_empty_cells(tmp_path: Path):
    text = "act,pi0,dp\n0.5,1,\n,0.25,1\n1,0,0\n"
    trials = read(tmp_path, text, scale="0:1", missing="untried")
    assert np.isnan(trials.table).sum() == 2
    assert trials.table[0, 0] == 0.5
    assert trials.graded
    assert trials.counts.tolist() == [2, 3, 2]
    whole = text.replace("0.5", "1").replace("0.25", "1")
    assert read(tmp_path, whole, scale="1:0", missing="failure").graded is None


def test_an_array_of_costs_is_clear(tmp_path: Path):
    np.savez(tmp_path / "c.npz", costs=np.eye(2), policies=["act", "pi0"], sites=["x", "y"])
    trials = read_trials([tmp_path / "c.npz"])
    assert (trials.policies, trials.environments) == (("act", "pi0"), ("x", "y"))
    assert trials.table.tolist() == [[1, 0], [0, 1]]
    np.save(tmp_path / "c.npy", np.eye(2))
    scores = read_trials([tmp_path / "c.npy"], LogOptions(scale="0:1"))
    assert scores.table.tolist() == [[0, 1], [1, 0]]


# ---- the same from every kind of file -----------------------------------------------------------

tables = st.lists(
    st.tuples(
        st.sampled_from(["act", "pi0", "diffusion policy"]),
        st.integers(0, 30),
        st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1, width=32)),
        st.sampled_from(["", "https://host/a.mp4"]),
    ),
    min_size=2,
    max_size=12,
    unique_by=lambda row: row[:2],
)


@given(rows=tables)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_kind_of_file_gives_the_same_trials(tmp_path: Path, rows: list[tuple]):
    header = ["policy", "seed", "score", "video"]
    text = [",".join(map(str, row)) for row in [tuple(header), *rows]]
    write(tmp_path / "t.csv", "\n".join(text) + "\n")
    write(tmp_path / "t.tsv", "\n".join(text).replace(",", "\t"))
    records = [json.dumps(dict(zip(header, row, strict=True))) for row in rows]
    write(tmp_path / "t.jsonl", "\n".join(records))
    columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
    write_parquet(tmp_path / "t.parquet", columns)
    write_workbook(tmp_path / "t.xlsx", {"Sheet1": [header, *map(list, rows)], "Empty": []})
    first = read_trials([tmp_path / "t.csv"])
    assert first.costs.tolist() == [1 - row[2] for row in rows]
    for name in ("t.tsv", "t.jsonl", "t.parquet", "t.xlsx"):
        other = read_trials([tmp_path / name])
        for field in ("policies", "environments", "links", "shared", "unit", "outcome", "graded"):
            assert getattr(other, field) == getattr(first, field), (name, field)
        assert np.array_equal(other.costs, first.costs)
        assert np.array_equal(other.policy, first.policy)
        assert np.array_equal(other.environment, first.environment)
        assert other.understood.partition(":")[2] == first.understood.partition(":")[2]


def test_columns_with_lists_are_no_obstacle_if_they_are_not_used(tmp_path: Path):
    columns = {"policy": ["a", "a"], "seed": [1, 2], "success": [True, False], "x": [[1], [2]]}
    assert read_trials([write_parquet(tmp_path / "t.parquet", columns)]).costs.tolist() == [0, 1]


def test_four_thousand_trials_are_read_in_well_under_a_second(tmp_path: Path):
    lines = [f"p{j},scene {i},{(i * j % 10) / 10}" for i in range(599) for j in range(7)]
    path = write(tmp_path / "t.csv", "policy,scene,score\n" + "\n".join(lines))
    start = time.process_time()  # however busy the machine is
    trials = read_trials([path])
    assert time.process_time() - start < 0.9
    assert trials.table.shape == (599, 7)


def test_a_missing_package_is_named_with_its_command(tmp_path: Path):
    write(tmp_path / "t.parquet", b"PAR1")
    write(tmp_path / "t.xlsx", b"PK")
    script = (
        "import sys\n"
        "sys.modules['pyarrow'] = sys.modules['openpyxl'] = None\n"
        "from pacbayes_control.trials.logs.reading import read_trials\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        read_trials([name])\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    names = [str(tmp_path / "t.parquet"), str(tmp_path / "t.xlsx")]
    run = subprocess.run(
        [sys.executable, "-c", script, *names], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == [
        't.parquet needs pyarrow to be read: pip install "pacbayes-control[tables]"',
        't.xlsx needs openpyxl to be read: pip install "pacbayes-control[tables]"',
    ]


def test_a_table_without_policies_is_of_the_policy_that_its_file_names(tmp_path: Path):
    for name, text in (("act", "seed,success\n1,1\n2,0\n"), ("pi0", "seed,success\n1,1\n2,1\n")):
        (tmp_path / f"{name}.csv").write_text(text)
    trials = read_trials([tmp_path / "*.csv"])
    assert trials.policies == ("act", "pi0")
    assert trials.table.tolist() == [[0, 0], [1, 0]]
    assert "the file is the policy" in trials.understood


def test_the_length_of_a_trial_is_not_a_step_of_it(tmp_path: Path):
    """One row a trial, with the step at which it ended."""
    lines = ("act,1,1,50,1", "act,1,2,70,0", "act,2,1,9,1", "act,2,2,8,1")
    file = tmp_path / "trials.csv"
    file.write_text("\n".join(["policy,seed,episode,step,success", *lines]) + "\n")
    assert read_trials([file]).costs.tolist() == [0.5, 0.0]


def test_a_workbook_with_a_format_far_away_is_read_at_once(tmp_path: Path):
    rows = [["policy", "seed", "success"], *(["act", i, 1] for i in range(5))]
    path = write_workbook(tmp_path / "t.xlsx", {"Sheet1": rows})
    book = openpyxl.load_workbook(path)
    for place in ((900_000, 1), (5, 16_384)):
        book.worksheets[0].cell(*place).font = openpyxl.styles.Font(bold=True)
    book.save(path)
    started = time.monotonic()
    assert len(read_trials([path])) == 5
    assert time.monotonic() - started < 20


def test_the_seed_of_a_whole_evaluation_is_no_environment(tmp_path: Path):
    lines = "policy,seed,episode,success\nact,7,1,1\nact,7,2,0\npi0,7,1,1\npi0,7,2,1\n"
    path = write(tmp_path / "trials.csv", lines)
    trials = read_trials([path], LogOptions(paired=True))
    assert (len(trials), trials.unit) == (4, "episode")
    assert "“seed” is the same in all rows, and not used" in trials.understood


def test_one_task_of_several_is_named_with_the_unit(tmp_path: Path):
    lines = "policy,task,seed,success\nact,lift,1,1\nact,lift,2,0\nact,pour,1,1\n"
    trials = read_trials([write(tmp_path / "trials.csv", lines)], LogOptions(tasks="lift"))
    assert trials.unit == "seed of lift"
    assert "(column “seed”)" in trials.understood


def test_scores_of_a_hopeless_policy_may_all_be_low(tmp_path: Path):
    lines = "policy,seed,score\nact,1,87\nact,2,12\npi0,1,0\npi0,2,1\n"
    path = write(tmp_path / "trials.csv", lines)
    assert read_trials([path], LogOptions(scale="0:100")).table[:, 1].tolist() == [1, 0.99]


def test_a_log_that_numbers_its_trials_is_asked_only_where_pairs_matter(tmp_path: Path):
    lines = "policy,episode,success\nact,1,1\nact,2,0\npi0,1,1\npi0,2,1\n"
    path = write(tmp_path / "trials.csv", lines)
    with pytest.raises(ValueError, match="--paired"):
        read_trials([path])
    trials = read_trials([path], pairs=False)
    assert (len(trials), trials.shared) == (4, False)
