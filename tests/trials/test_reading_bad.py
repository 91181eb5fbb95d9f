"""Logs that are wrong or unclear: one line that says what to do, and no other error."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from evaluation_logs import (
    PLAIN,
    done,
    evaluation,
    evaluation_of_tasks,
    vla_result,
    write,
    write_dataset,
    write_parquet,
    write_workbook,
)

from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.reading import read_trials

HEAD = "policy,seed,success\n"
DEEP = "[" * 100_000 + "]" * 100_000
EPISODES = PLAIN.replace("environment", "episode").replace(",a,", ",1,").replace(",b,", ",2,")
TASKS = "policy,task,seed,success\nact,pick,1,1\nact,push,1,0\nact,push,2,0\n"

# The text of trials.csv, the options, and the error.
TABLES: dict[str, tuple[str, dict, str]] = {
    "policy in two spellings": (
        HEAD + "ACT,1,1\nact ,1,0\n",
        {},
        r"trials.csv, line 3: the policy “act” is “ACT” in trials.csv, line 2: write one name",
    ),
    "policy with an underscore": (HEAD + "pi 0,1,1\npi_0,1,0\n", {}, "“pi_0” is “pi 0”"),
    "environment in two spellings": (HEAD + "act,1,1\npi0,1.0,0\n", {}, "environment “1.0” is “1”"),
    "duplicated trials": (
        PLAIN + PLAIN.partition("\n")[2],
        {},
        r"every trial is recorded twice \(trials.csv\): remove the copies",
    ),
    "two tables put together": (
        "seed,success\n1,1\n2,1\nSeed,Success\n3,1\n",
        {},
        "trials.csv, line 4: the header again, as of tables that were put together: remove",
    ),
    "one row a step": (
        "policy,seed,step,crash\nact,1,0,0\nact,1,1,1\nact,2,0,0\nact,2,1,0\n",
        {},
        "trials.csv, line 3: the same trial as in line 2, at another “step”: give one row a trial",
    ),
    "one row a step, without environments": (
        "policy,frame_index,success\nact,0,0\nact,1,0\nact,2,1\n",
        {},
        "line 3: the same trial as in line 2, at another “frame_index”",
    ),
    "several checkpoints of a policy": (
        "policy,seed,Step,success\nact,1,1000,0\nact,2,1000,0\nact,1,2000,1\nact,2,2000,1\n",
        {},
        r"line 4: the same trial .* “Step”.*checkpoints are policies of their own \(--policy\)",
    ),
    "one duplicated trial": (PLAIN + "act,a,1\n", {}, "line 6: the same as line 2 .*remove"),
    "score on another scale": (
        "policy,seed,score\nact,1,0.5\nact,2,85\n",
        {},
        r"line 3: “score” is “85”, outside \[0, 1\]: say --scale WORST:BEST",
    ),
    "percentages": ("policy,seed,score\na,1,50%\na,2,60%\n", {}, "“50%”, a percentage.*0:100"),
    "percentages of success": (HEAD + "a,1,50%\na,2,60%\n", {}, "“50%”, neither success nor"),
    "NaN score": (
        "policy,seed,score\nact,1,0.5\nact,2,nan\n",
        {},
        "line 3: the outcome of “act” is missing, .* say --missing failure, or --missing untried",
    ),
    "infinite score": ("policy,seed,cost\nact,1,inf\nact,2,0\n", {}, r"“inf”, outside \[0, 1\]"),
    "words in a score": ("policy,seed,cost\na,1,low\na,2,0\n", {}, "“cost” is “low”, not a number"),
    "missing success": (HEAD + "act,1,1\nact,2,\n", {}, "line 3: the outcome of “act” is missing"),
    "success maybe": (HEAD + "act,1,1\nact,2,maybe\n", {}, "“maybe”, neither success.*--success"),
    "fraction of success": (HEAD + "act,1,1\nact,2,0.5\n", {}, "“0.5”, neither success.*--scale"),
    "rewards without limits": (
        "policy,seed,reward\nact,1,10\nact,2,20\n",
        {},
        "“reward” has no limits of its own: say --scale WORST:BEST",
    ),
    "reward outside its limits": (
        "policy,seed,reward\nact,1,10\nact,2,20\n",
        {"scale": "0:15"},
        "line 3: “reward” is “20”, outside --scale 0:15: give limits that no trial can leave",
    ),
    "limits turned round": (
        "policy,seed,reward\nact,1,10\nact,2,20\n",
        {"scale": "20:0"},
        "“reward” counts up, and --scale 20:0 says that 0 is the best",
    ),
    "limits of a success turned round": (PLAIN, {"scale": "1:0"}, "“success” counts up"),
    "one limit": (PLAIN, {"scale": "10"}, "--scale “10”: give two different numbers WORST:BEST"),
    "equal limits": (PLAIN, {"scale": "1:1"}, "--scale “1:1”: give two different numbers"),
    "limits that are no numbers": (PLAIN, {"scale": "a:b"}, "--scale “a:b”: give two different"),
    "infinite limits": (PLAIN, {"scale": "0:inf"}, "--scale “0:inf”: give two different"),
    "success and scale": (PLAIN, {"scale": "0:1", "success": "1"}, "give one of them"),
    "result of unknown direction": (
        PLAIN.replace("success", "result"),
        {},
        "“result” has the values “1”, “0”: say --success VALUE",
    ),
    "result of unknown limits": (
        "policy,seed,result\nact,1,3.5\nact,2,4\n",
        {},
        "“result” does not say which number is best: say --scale",
    ),
    "result of words and numbers": (
        "policy,seed,result\nact,1,pass\nact,2,0\n",
        {},
        "mixes words such as pass and fail with “0”",
    ),
    "success that never occurs": (
        PLAIN,
        {"success": "done"},
        "no trial has the outcome “done”: “success” is “1”, “0”",
    ),
    "success that is blank": (PLAIN, {"success": "-"}, "--success “-” is no outcome"),
    "two success columns": (
        "policy,seed,success,is_success\nact,1,1,0\nact,2,1,1\n",
        {},
        "columns “success” and “is_success” may each be the outcome: say --outcome COLUMN",
    ),
    "success and collision": (
        "policy,seed,success,collision\nact,1,1,1\nact,2,1,0\n",
        {},
        "“success” and “collision” may each be the outcome",
    ),
    "model and checkpoint": (
        "model,checkpoint,seed,success\nact,1,1,1\nact,2,1,1\npi0,1,1,0\n",
        {},
        "“model” and “checkpoint” may each be the policy: say --policy COLUMN",
    ),
    "site and object": (
        "policy,site,object,success\nact,x,cup,1\nact,y,cup,1\nact,y,box,0\n",
        {},
        "“site” and “object” may each be the environment: say --environment COLUMN",
    ),
    "mixed tasks": (TASKS, {}, "there are 2 tasks .“pick”, “push”.: say --tasks fixed"),
    "unequal numbers in tasks": (
        TASKS,
        {"tasks": "fixed"},
        "as many trials of “act” in every task, and it has: “pick” 1, “push” 2",
    ),
    "unknown task": (TASKS, {"tasks": "stack"}, "“stack” is neither fixed, drawn nor a task"),
    "tasks without tasks": (PLAIN, {"tasks": "fixed"}, "the log names no tasks"),
    "tasks alone, repeated": (
        "policy,task,success\nact,pick,1\nact,pick,0\nact,push,1\nact,push,1\n",
        {},
        "there are 2 tasks .*say --tasks fixed .* --tasks drawn",
    ),
    "episodes of two policies": (
        EPISODES,
        {},
        "several policies have the episode “1”: say --paired if .* same number .* else --unpaired",
    ),
    "pairs without numbers": (
        "policy,success\nact,1\npi0,0\n",
        {"paired": True},
        "--paired: no column numbers the trials",
    ),
    "unequal episodes": (
        "policy,site,episode,success\nact,x,1,1\nact,y,1,0\nact,y,2,1\n",
        {},
        "numbers of episodes differ, 1 of “act” in “x” and 2 of “act” in “y”: say --episodes "
        "declared .*0.50 into 0.31",
    ),
    "row of means": (HEAD + "act,1,1\nact,mean,1\n", {}, "“mean” is a summary of other rows"),
    "row of totals": (HEAD + "act,1,1\nTotal,2,1\n", {}, "policy “Total” is a summary"),
    "missing policy": (HEAD + "act,1,1\n,2,1\n", {}, "line 3: the policy is missing"),
    "missing seed": (HEAD + "act,1,1\nact,n/a,1\n", {}, "line 3: the environment is missing"),
    "column that does not exist": (
        PLAIN,
        {"policy": "robot"},
        "has no column “robot”: its columns are “policy”, “environment”, “success”",
    ),
    "one column for two roles": (PLAIN, {"environment": "policy"}, "one column cannot be two of"),
    "no policy": (
        "seed,robot,success\n1,left,1\n2,right,0\n",
        {},
        "no column is recognised as the policy .columns: “seed”, “robot”, “success”.: say --policy",
    ),
    "no outcome": ("policy,seed\nact,1\nact,2\n", {}, "no column is recognised as the outcome"),
    "no table of trials": ("name,colour\nx,red\ny,blue\n", {}, "no column for the policy .*name"),
    "repeated header": ("policy,seed,seed,success\na,1,1,1\n", {}, "has two columns “seed”"),
    "header alone": (HEAD, {}, "trials.csv has a header and no trials"),
    "empty file": ("", {}, "trials.csv has no rows: it is empty"),
    "one trial": (HEAD + "act,1,1\n", {}, "one trial is not a sample: at least two"),
    "cut off half-way": (PLAIN[:-4], {}, "trials.csv is ragged: line 5 has 2 cells"),
    "unclosed quote": (HEAD + 'act,"1,1\nact,2,1\n', {}, "trials.csv is not a CSV file"),
    "blank line": (HEAD + "act,1,1\n\nact,2,1\n", {}, "line 3 is blank"),
    "control characters": (
        HEAD + "a\x1b[2Kct,1,1\nact,2,1\n",
        {},
        "characters that cannot be shown",
    ),
    "long name": (HEAD + "a" * 10_000 + ",1,1\nact,2,1\n", {}, "has 10000 characters: at most 300"),
    "matrix of numbers": (
        "site,act,pi0\nx,0,1\ny,1,1\n",
        {},
        "its cells may be scores or costs: say --scale 0:1 if 1 is the best, --scale 1:0",
    ),
    "matrix with two columns of labels": (
        "site,episode,act\nx,1,1\ny,2,0\n",
        {"scale": "0:10"},
        "no column for the policy .columns: “site”, “episode”, “act”.: say --policy",
    ),
    "matrix whose numbered scenes are outside": (
        "scene,act,pi0\n1,0,1\n2,1,70\n",
        {"scale": "0:10"},
        "line 3: a cell is “70”, outside --scale 0:10",
    ),
    "another choice": (PLAIN, {"episodes": "all"}, "episodes = 'all' must be declared"),
    "steps in the place of policies": (
        "step,seed,success\n10,1,1\n10,2,1\n20,1,1\n20,2,0\n",
        {},
        "the same trial as in line 2, at another “step”: give one row a trial",
    ),
    "checkpoints of several policies": (
        "policy,step,seed,success\nact,10,1,1\nact,20,1,0\npi0,10,1,1\npi0,20,1,1\n",
        {},
        "checkpoints are policies of their own .--policy.",
    ),
    "train and eval": (
        "policy,split,seed,success\nact,train,1,1\nact,eval,2,0\n",
        {},
        "column “split” has “train” and “eval”: keep the rows of one kind",
    ),
    "scores on two scales": (
        "policy,seed,score\nact,1,87\nact,2,12.5\npi0,1,0.87\npi0,2,0.1\n",
        {"scale": "0:100"},
        "all of “pi0” lie between 0 and 1, and those of “act” reach 87: write all on one scale",
    ),
    "title above the header": (
        "Day 3,,\npolicy,seed,success\nact,1,1\n",
        {},
        "the first row is a title, “Day 3”: remove it",
    ),
    "matrix without a header": ("0,1\n1,1\n", {}, "the first line is no header"),
    "matrix with empty cells": (
        "site,act,pi0\nx,0.5,\ny,1,1\n",
        {"scale": "0:1"},
        "line 2: the outcome of “pi0” is missing",
    ),
    "matrix with a prior": (
        "site,act,pi0\nprior,0.5,0.5\nx,0,1\ny,1,1\n",
        {"scale": "0:1"},
        "a row “prior” has no trials: pbc certify takes it",
    ),
    "matrix with a row of means": (
        "act,pi0\n0,1\n1,1\n0,0.5\n0.33333,0.83333\n",
        {"scale": "0:1"},
        "line 5: it has the means of the rows above",
    ),
    "policy never tried": (
        "site,act,pi0\nx,pass,\ny,fail,\n",
        {"missing": "untried"},
        "the policy “pi0” has no trials",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_bad_table_is_refused_in_one_line(tmp_path: Path, case: str):
    text, options, message = TABLES[case]
    path = write(tmp_path / "trials.csv", text)
    check(lambda: read_trials([path], LogOptions(**options)), message)


def check(read: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, OSError)) as caught:
        read()
    text = str(caught.value)
    assert "\n" not in text
    assert text.isprintable()
    assert len(text) < 600
    assert re.search(message, text), text


def two(home: Path, first: dict, second: dict, name: str = "eval_info.json") -> Path:
    write(home / "act" / name, first)
    write(home / "pi0" / name, second)
    return home


def cut_off(result: dict) -> dict:
    result["tasks"][0]["num_episodes"] = 50
    return result


def pickled(path: Path) -> Path:
    ragged = np.array([[1.0], [1.0, 2.0]], dtype=object)
    np.savez(path, timesteps=np.array([1, 2]), results=ragged)
    return path


def saved(path: Path, **arrays: object) -> Path:
    np.savez(path, **{name: np.array(array) for name, array in arrays.items()})
    return path


GOOD = evaluation([True, False], [1, 2])
EDITED = {**GOOD, "per_episode": GOOD["per_episode"][:1]}
BROKEN = {"metrics": {"score": 0.5}}
NESTED = {"policy": ["a", "a"], "seed": [1, 2], "success": [{"x": 1}, {"x": 2}]}
ROWS = [["policy", "seed", "success"], ["act", 1, True], ["act", 2, False]]

# A function that writes the log in a folder and returns its name, the options, and the error.
LOGS: dict[str, tuple[Callable[[Path], object], dict, str]] = {
    "missing file": (lambda t: t / "no.csv", {}, "there is no file or folder “.*no.csv”"),
    "empty folder": (lambda t: t, {}, "the folder “.*” has no logs: expected CSV"),
    "pattern without files": (lambda t: f"{t}/*.csv", {}, r"no file matches “.*/\*.csv”"),
    "no name": (lambda _: "", {}, "is no name of a file"),
    "name with a zero byte": (lambda _: "a\0b", {}, "is no name of a file"),
    "name that is too long": (lambda _: "a" * 5000, {}, "is no name of a file|no file or folder"),
    "another kind of file": (lambda t: write(t / "a.pdf", "x"), {}, "a.pdf is no log that can be"),
    "not UTF-8": (lambda t: write(t / "a.csv", b"policy,seed\xff\n"), {}, "a.csv is not UTF-8"),
    "JSON cut off": (
        lambda t: write(t / "act" / "eval_info.json", '{"per_episode": [{"episode_ix": 0,'),
        {},
        "eval_info.json is corrupt: it is not JSON",
    ),
    "JSON lines cut off": (
        lambda t: write(t / "a.jsonl", '{"policy": "act", "seed": 1, "success": true}\n{"poli'),
        {},
        "a.jsonl, line 2 is corrupt: it is not JSON",
    ),
    "deep JSON": (lambda t: write(t / "a.json", DEEP), {}, "a.json is corrupt|more parts"),
    "huge JSON": (lambda t: write(t / "a.json", "[" * 1_000_001), {}, "a.json has more parts"),
    "another JSON": (lambda t: write(t / "a.json", {"x": 1}), {}, "neither a LeRobot eval_info"),
    "JSON list": (lambda t: write(t / "a.json", "[1]"), {}, "a.json is no log of an evaluation"),
    "empty JSON": (lambda t: write(t / "a.json", ""), {}, "a.json is empty: no trials"),
    "JSON lines of lists": (lambda t: write(t / "a.jsonl", "[1]\n"), {}, "one JSON object a line"),
    "empty JSON lines": (lambda t: write(t / "a.jsonl", ""), {}, "a.jsonl has no rows"),
    "empty checkpoint": (
        lambda t: two(t, GOOD, evaluation([])),
        {},
        "the policy “pi0” has no trials: eval_info.json lists none",
    ),
    "empty file of a checkpoint": (
        lambda t: write(t / "pi0" / "eval_info.json", "").parent,
        {},
        "the policy “pi0” has no trials: eval_info.json is empty",
    ),
    "edited evaluation": (
        lambda t: two(t, GOOD, EDITED),
        {},
        "states 50 % successes, and its 1 episodes have 100 %: it was cut off or edited",
    ),
    "evaluation that states another success rate, with successes as numbers": (
        lambda f: write(
            f / "act" / "eval_info.json",
            '{"per_episode": [{"success": 1, "seed": 1}, {"success": 0, "seed": 2}],'
            ' "aggregated": {"pc_success": 90.0}}',
        ),
        {},
        "it states 90 % successes, and its 2 episodes have 50 %: it was cut off or edited",
    ),
    "evaluation with fewer episodes than it states": (
        lambda t: two(t, GOOD, {**GOOD, "aggregated": {"n_episodes": 50}}),
        {},
        "it states 50 episodes, and has 2: it was cut off or edited",
    ),
    "evaluation without episodes": (
        lambda t: write(t / "eval_info.json", {"aggregated": {}}),
        {},
        "has no list per_episode or per_task",
    ),
    "evaluation with a column": (
        lambda t: two(t, GOOD, GOOD),
        {"policy": "x"},
        "--policy “x” does not apply to this kind of log",
    ),
    "evaluation by another metric": (
        lambda t: two(t, GOOD, GOOD),
        {"outcome": "reward"},
        "--outcome “reward” must be success, sum_reward, max_reward",
    ),
    "evaluation without an outcome": (
        lambda t: two(t, GOOD, evaluation([True, None], [1, 2])),
        {},
        "of “pi0”, episode 1: the outcome of “pi0” is missing",
    ),
    "evaluations of unlike kinds": (
        lambda t: two(t, GOOD, evaluation([True, False])),
        {},
        "environments are told by seeds in .* and by episode numbers in",
    ),
    "task without episodes": (
        lambda t: write(t / "eval_info.json", evaluation_of_tasks({"0": [True], "1": []})),
        {},
        "the task “libero/1” has no episodes",
    ),
    "dataset that is not whole": (
        lambda t: write(
            write_dataset(t / "act", [[True], [False]], "next.success") / "meta" / "info.json",
            {"total_episodes": 3},
        ).parents[1],
        {},
        "states 3 episodes, and its data have 2: is it whole",
    ),
    "dataset without outcomes": (
        lambda t: write_dataset(t / "act", [[1.0], [0.0]], "action"),
        {},
        "has no column next.success or next.reward",
    ),
    "result without success": (
        lambda t: write(t / "r.json", vla_result({"pick": [BROKEN, BROKEN]}) | {"metric_keys": {}}),
        {},
        "r.json has no metric “success”: say --outcome METRIC, of “score”",
    ),
    "result with an empty task": (
        lambda t: write(t / "r.json", vla_result({"pick": [done(True)], "push": []})),
        {},
        "the task “push” has 0 episodes, not some",
    ),
    "result that is not whole": (
        lambda t: write(t / "r.json", cut_off(vla_result({"pick": [done(True)]}))),
        {},
        "the task “pick” has 1 episodes, not 50",
    ),
    "result with tasks": (
        lambda t: write(t / "r.json", vla_result({"pick": [done(True)], "push": [done(True)]})),
        {},
        "r.json: there are 2 tasks",
    ),
    "pickled arrays": (lambda t: pickled(t / "evaluations.npz"), {}, "cannot be read as NumPy"),
    "no archive": (lambda t: write(t / "a.npz", b"PK\x03\x04xx"), {}, "cannot be read as NumPy"),
    "archive without costs": (lambda t: saved(t / "a.npz", x=[1]), {}, "no array named costs"),
    "returns without limits": (
        lambda t: saved(t / "evaluations.npz", timesteps=[1, 2], results=[[1, 2], [3, 4]]),
        {},
        "“results” has no limits of its own: say --scale",
    ),
    "a timestep evaluated twice": (
        lambda t: saved(t / "evaluations.npz", timesteps=[1, 1], results=[[1, 2], [3, 4]]),
        {"scale": "0:9"},
        "a timestep is evaluated twice",
    ),
    "workbook with two sheets": (
        lambda t: write_workbook(t / "a.xlsx", {"May": ROWS, "June": ROWS}),
        {},
        "a.xlsx has several sheets with cells, “May”, “June”",
    ),
    "empty workbook": (
        lambda t: write_workbook(t / "a.xlsx", {"May": []}),
        {},
        "a.xlsx has no rows",
    ),
    "no workbook": (lambda t: write(t / "a.xlsx", "policy"), {}, "cannot be read as an XLSX"),
    "workbook with a blank row": (
        lambda t: write_workbook(t / "a.xlsx", {"May": [*ROWS[:2], [], ROWS[2]]}),
        {},
        "a.xlsx: row 3 is blank",
    ),
    "nested Parquet": (
        lambda t: write_parquet(t / "a.parquet", NESTED),
        {},
        "column “success” holds lists or records",
    ),
    "no Parquet": (
        lambda t: write(t / "a.parquet", "PAR1"),
        {},
        "a.parquet cannot be read as Parq",
    ),
    "one trial in two files": (
        lambda t: [write(t / "a" / "t.csv", PLAIN), write(t / "b" / "t.csv", PLAIN + "x,c,1\n")][
            0
        ].parents[1],
        {},
        "“act” in “a” is in two files, t.csv and t.csv: give each trial once",
    ),
    "files scored in two ways": (
        lambda t: (
            [
                write(t / "a.csv", PLAIN),
                write(t / "b.csv", PLAIN.replace("success", "score").replace("act", "dp")),
            ][0].parent
        ),
        {},
        "a.csv is read as “success” = 1 .*, and b.csv as “score” from 0",
    ),
    "a file among others of its name": (
        lambda t: [write(t / "a" / "t.csv", PLAIN), write(t / "b" / "t.csv", HEAD)][0].parents[1],
        {},
        "in .*b: t.csv has a header and no trials",
    ),
}


@pytest.mark.parametrize("case", LOGS)
def test_a_bad_log_is_refused_in_one_line(tmp_path: Path, case: str):
    make, options, message = LOGS[case]
    check(lambda: read_trials([make(tmp_path)], LogOptions(**options)), message)  # type: ignore


def test_no_logs_at_all_are_refused():
    check(lambda: read_trials([]), "give at least one log")
