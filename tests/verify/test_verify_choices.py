"""Runs of a policy that was chosen by its trials: verified, and refused if a forger altered them.

A forger writes consistent files: every hash, seal and sentence is made anew.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes_control.bounds import clopper_pearson
from pacbayes_control.certify.balls import ball_of_samples
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.files import hash_file, json_bytes, seal, sha256
from pacbayes_control.certify.priors import with_costs_used
from pacbayes_control.certify.run import AlteredRun, Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.trials import TrialFacts, Trials
from pacbayes_control.learn import learn_finite
from pacbayes_control.trials.choosing import OTHERS, choose
from pacbayes_control.verify import InvalidCertificate, verify
from pacbayes_control.verify.intervals import iv
from pacbayes_control.verify.trials import log_e_from_below, proves_at_any_time
from recorded_trials import paired, unpaired

KINDS: dict[str, dict[str, Any]] = {
    "binary": {},
    "graded": {"graded": True},
    "tasks": {"tasks": [0, 1, 2] * 8},
    "graded tasks": {"graded": True, "tasks": [0, 1, 2] * 8},
}


def outcomes(kind: str, seed: int = 0) -> Trials:
    """Three policies in 24 environments, of which pi0 is the best."""
    rng, more = np.random.default_rng(seed), dict(KINDS[kind])
    graded = more.pop("graded", False)
    costs = rng.beta([4, 1, 6], [6, 9, 4], (24, 3))
    return paired(costs if graded else rng.random((24, 3)) < costs, **more)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved choice of each kind, and of each with trials that might be stopped at any time."""
    folder, found = tmp_path_factory.mktemp("choices"), {}
    for kind in KINDS:
        for stopping in ("fixed", "anytime"):
            name = kind if stopping == "fixed" else f"{kind}, anytime"
            choice = choose(outcomes(kind), 0.09, stopping=stopping)
            assert choice.chosen == "pi0"
            found[name] = choice.save(folder / name.replace(", ", "-"))
    return found


@pytest.fixture
def copied(runs: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(runs[name], tmp_path / "run"))


NAMES = [*KINDS, *(f"{kind}, anytime" for kind in KINDS)]


# ---- honest runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_choice_is_verified_at_the_last_digits(runs: dict[str, Path], name: str):
    verification = verify(runs[name])
    c = verification.certificate
    assert verification.recomputed <= c.bound <= verification.recomputed + 1e-8
    assert (
        "that at most 3 policies were ever to be tried in these environments, however they did"
        in verification.told
    )
    fixed = "that the number of trials was fixed before any was seen"
    assert (fixed in verification.told) == (c.method == "occam")


def test_declarations_about_a_log_are_told(tmp_path: Path):
    """Nobody can prove them: numbers of episodes, trials that were left out, other looks."""
    more = {"episodes": None, "incidents": {"untried": 3}, "understood": "only the task “lift”"}
    trials = paired(np.random.default_rng(0).random((20, 2)), **more)
    verification = verify(choose(trials, 0.05, spent=0.05).save(tmp_path / "run"))
    told = "\n".join(verification.told)
    assert "the numbers of episodes in an environment do not depend on how they went" in told
    assert "how the log was read: “only the task 'lift'”" in told
    assert "all other looks at these trials had 0.05 of δ" in told
    left_out = "3 trials without an outcome were left out as not tried"
    assert left_out in verification.certificate.sentence
    anytime = choose(outcomes("binary"), stopping="anytime").save(tmp_path / "anytime")
    assert "no trial that had begun is left out" in "\n".join(verify(anytime).told)
    plain = "\n".join(verify(choose(outcomes("binary")).save(tmp_path / "plain")).told)
    assert "episodes" not in plain
    assert "other looks" not in plain


@settings(max_examples=25)
@given(st.data())
def test_any_small_choice_is_verified(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    policies, rounds = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 6))
    count = data.draw(st.sampled_from([0, 1, 2, 3]))  # of tasks
    rows = rounds * max(count, 1)
    cost = st.floats(0, 1) if data.draw(st.booleans()) else st.sampled_from([0.0, 1.0])
    columns = st.lists(cost, min_size=rows, max_size=rows)
    table = np.array([data.draw(columns) for _ in range(policies)])
    tasks = [i % count for i in range(rows)] if count else None
    if data.draw(st.booleans()):
        trials = paired(table.T, tasks=tasks)
    else:
        trials = unpaired(*table, tasks=None if tasks is None else [tasks] * policies)
    choice = choose(
        trials,
        data.draw(st.sampled_from([0.9, 0.05, 1e-9])),
        stopping=data.draw(st.sampled_from([None, "anytime"])),
        candidates=policies + data.draw(st.integers(0, 3)),
    )
    folder = tmp_path_factory.mktemp("choice") / "run"
    verification = verify(choice.save(folder))
    assert verification.recomputed <= choice.run.certificate.bound


@pytest.mark.parametrize("stopping", ["fixed", "anytime"])
@pytest.mark.parametrize("cost", [0.0, 1.0, 1e-12, 1 - 1e-12, 5e-324])
def test_extreme_costs_are_verified(cost: float, stopping: Any, tmp_path: Path):
    choice = choose(paired(np.full((6, 2), cost)), stopping=stopping)
    assert verify(choice.save(tmp_path / "run")).recomputed <= choice.run.certificate.bound


def test_policies_with_different_numbers_of_trials_are_verified(tmp_path: Path):
    trials = unpaired([0] * 30, [0, 1] * 5, [1])
    for stopping in ("fixed", "anytime"):
        choice = choose(trials, stopping=stopping, candidates=7)
        assert verify(choice.save(tmp_path / stopping)).certificate.candidates == 7


def test_the_e_value_from_below_is_below_and_near():
    rng = np.random.default_rng(5)
    for values in (rng.random(300), rng.random(300) < 0.7, np.ones(5000)):
        values = values.astype(float)
        for mean in (0.2, 0.5, 0.9):
            stakes = np.append(1.0, 2.0 ** (-np.arange(1, 22) / 3))
            shares = np.append(0.5, 0.5 * stakes[1:] ** 1.5 / np.sum(stakes[1:] ** 1.5))
            with np.errstate(divide="ignore"):
                logs = np.log((1 - stakes) + stakes * values[:, None] / mean).sum(axis=0)
            exact = float(np.logaddexp.reduce(logs + np.log(shares)))
            below = log_e_from_below(values, mean)
            assert exact - 1e-6 * (1 + abs(exact)) <= below <= exact + 1e-12 * (1 + abs(exact))


def test_a_bound_at_any_time_is_proven_from_some_number_on():
    costs = np.array([0.0] * 20 + [1.0] * 2)
    proven = [proves_at_any_time(costs, iv.mpf(b), iv.mpf(0.05)) for b in np.linspace(0, 0.99, 100)]
    assert proven == sorted(proven)
    assert not proven[0]
    assert proven[-1]


# ---- forged certificates ------------------------------------------------------------------------


def reseal(folder: Path, change: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
    """Change the manifest, and list the files in the folder with their hashes."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    names = sorted(file.name for file in folder.iterdir() if file.name != path.name)
    manifest["files"] = {name: hash_file(folder / name) for name in names}
    manifest["seal"] = seal(manifest)
    path.write_bytes(json_bytes(manifest))


def forge(folder: Path, changes: dict[str, Any], origin: dict[str, Any] | None = None) -> None:
    """Change the certificate, with its sentence and every hash, and the origin of the costs."""
    path = folder / "certificate.json"
    record = {**json.loads(path.read_text()), **changes}
    record["sentence"] = Certificate.from_dict(record).sentence
    path.write_bytes(json_bytes(record))
    reseal(folder, lambda manifest: manifest["origin"].update(origin or {}))


def forge_trials(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "trials.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_bytes(json_bytes(record))
    reseal(folder)


WRONG = "wrong about the unit, the tasks or the number of candidates"
LOW = "is below what"


@pytest.mark.parametrize("name", NAMES)
def test_a_bound_that_is_a_little_smaller_is_refused(copied: Callable[[str], Path], name: str):
    folder = copied(name)
    bound = json.loads((folder / "certificate.json").read_text())["bound"]
    forge(folder, {"bound": bound * (1 - 1e-3)})
    with pytest.raises(InvalidCertificate, match=LOW):
        verify(folder)


@pytest.mark.parametrize(
    ("name", "changes", "origin", "message"),
    [
        ("binary", {"candidates": 2}, {}, WRONG),
        ("binary", {"candidates": None}, {}, WRONG),
        ("binary", {"candidates": 2}, {"candidates": 2}, "more policies than candidates"),
        ("binary", {"candidates": 100}, {"candidates": 100}, "does not pay for the choice among"),
        ("binary", {"candidates": 0}, {"candidates": 0}, "does not have the number of candidates"),
        ("binary", {"candidates": 2**60}, {"candidates": 2**60}, "the number of candidates"),
        ("binary", {}, {"candidates": True}, "does not have the number of candidates"),
        ("binary", {"budget": {"occam": 0.09}}, {}, "does not pay for the choice among 3"),
        ("binary", {"budget": {"occam": 0.031, OTHERS: 0.059}}, {}, "does not pay for the choice"),
        ("binary", {"budget": {"occam": 0.03, OTHERS: 0.07}}, {}, "overspends"),
        ("binary", {"budget": {OTHERS: 0.09}}, {}, "no share for occam"),
        ("binary", {"delta": 0.06}, {}, "overspends"),
        ("binary", {"unit": "site"}, {}, WRONG),
        ("binary", {"unit": None}, {}, WRONG),
        ("binary", {"unit": "site"}, {"unit": "site"}, "other tasks, units or kinds of costs"),
        ("binary", {"unit": ""}, {"unit": ""}, "does not say the unit in plain words"),
        ("binary", {"tasks": 3}, {}, WRONG),
        ("binary", {"tasks": 3}, {"tasks": [0, 1, 2] * 8}, "other tasks, units or kinds"),
        ("binary", {"tasks": 1, "bound": 1.0}, {"tasks": [0] * 24}, "other tasks, units or kinds"),
        ("tasks", {"tasks": 2}, {}, WRONG),
        ("tasks", {"tasks": None}, {}, WRONG),
        ("tasks", {"tasks": None}, {"tasks": []}, "other tasks, units or kinds of costs"),
        ("tasks", {"tasks": 2}, {"tasks": [0, 1] * 12}, "other tasks, units or kinds of costs"),
        ("tasks", {}, {"tasks": [0, 1, 2] * 7}, "as many trials of each task"),
        ("tasks", {}, {"tasks": [0, 1, 2] * 7 + [0, 1, 1]}, "as many trials of each task"),
        ("tasks", {}, {"tasks": [0, 1, 2] * 7 + [0, 1, 10**30]}, "as many trials of each task"),
        ("tasks", {}, {"tasks": [0, 1, 2] * 7 + [0, 1, -1]}, "as many trials of each task"),
        ("tasks", {}, {"tasks": "012" * 8}, "does not have the tasks of its trials"),
        ("tasks", {}, {"tasks": None}, "does not have the tasks of its trials"),
        ("binary", {"graded": True}, {}, "wrong about whether costs are graded"),
        ("binary", {"graded": True, "grid": 8192}, {"graded": True}, "other tasks, units or kinds"),
        ("graded", {"graded": False}, {"graded": False}, "graded|between 0 and 1"),
        ("binary", {"cost_rule": "0"}, {"cost_rule": "0"}, "scores trials in another way"),
        ("binary", {"incidents": {"missing": 2}}, {"incidents": {"missing": 2}}, "other incidents"),
        ("binary", {"policy_name": "act"}, {}, "is named 'pi0', not 'act'"),
        ("binary", {"of": "quantile:0.9", "bound": 1.0}, {}, "by its mean cost"),
        ("binary", {"method": "anytime"}, {}, "the objective “occam” is not one of anytime"),
        ("binary", {"method": "anytime", "objective": "anytime"}, {}, "no share for anytime"),
        ("tasks", {"tasks": 10**30 + 1}, {"tasks": [10**30] * 24}, "as many trials of each task"),
    ],
)
def test_a_forged_certificate_of_a_choice_is_refused(
    copied: Callable[[str], Path],
    name: str,
    changes: dict[str, Any],
    origin: dict[str, Any],
    message: str,
):
    folder = copied(name)
    forge(folder, changes, origin)
    with pytest.raises(ValueError, match=message):
        verify(folder)


def test_the_share_of_an_estimated_shift_does_not_pay_for_the_choice(tmp_path: Path):
    ball = ball_of_samples(["dry", "wet"] * 500, ["dry", "wet"] * 500, 0.05, cells=["dry", "wet"])
    run = under_shift(choose(outcomes("binary"), 0.09).run, ball)
    folder = run.save(tmp_path / "run")
    assert verify(folder).certificate.delta == pytest.approx(0.14)
    shares = {"occam": 0.03, OTHERS: 0.01, "shift": 0.05}
    forge(folder, {"delta": 0.09, "budget": shares})
    with pytest.raises(InvalidCertificate, match="does not pay for the choice among 3"):
        verify(folder)


def test_the_tail_for_equal_tasks_is_refused_for_a_list_of_different_ones(tmp_path: Path):
    """With 23 failures in 24 trials, of which tasks that always fail are bounded by 1 only."""
    table = np.ones((24, 1))
    table[0] = 0
    folder = choose(paired(table, tasks=[0, 1, 2] * 8), 0.5).save(tmp_path / "run")
    assert verify(folder).certificate.bound == 1
    forge(folder, {"bound": float(clopper_pearson(23, 24, 0.5)) + 1e-6})
    with pytest.raises(InvalidCertificate, match=LOW):
        verify(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound_for_a_fixed_number_is_none_for_any_time(copied: Callable[[str], Path], kind: str):
    folder = copied(kind)
    forge(
        folder,
        {
            "method": "anytime",
            "objective": "anytime",
            "grid": None,
            "budget": {"anytime": 0.03, OTHERS: 0.06},
        },
    )
    with pytest.raises(InvalidCertificate, match="is below what anytime gives"):
        verify(folder)


def test_a_bound_for_any_time_holds_for_a_fixed_number_too(copied: Callable[[str], Path]):
    """It is the weaker claim of both, which a forger may well make."""
    folder = copied("binary, anytime")
    changes = {"method": "occam", "objective": "occam", "budget": {"occam": 0.03, OTHERS: 0.06}}
    forge(folder, changes)
    assert verify(folder).recomputed < verify(folder).certificate.bound


def test_a_sentence_that_leaves_out_the_choice_is_refused(copied: Callable[[str], Path]):
    folder = copied("binary")
    path = folder / "certificate.json"
    record = json.loads(path.read_text())
    record["sentence"] = record["sentence"].split("; it was chosen")[0] + "."
    path.write_bytes(json_bytes(record))
    reseal(folder)
    with pytest.raises(InvalidCertificate, match="the sentence does not say what the numbers say"):
        verify(folder)


# ---- forged trials ------------------------------------------------------------------------------


def left_out(record: dict[str, Any], trial: int) -> None:
    for name in ("policy", "environment", "costs"):
        del record[name][trial]


def another_order(record: dict[str, Any]) -> None:
    record["environments"][:2] = record["environments"][1::-1]


def further_task(record: dict[str, Any]) -> None:
    """In which another policy was tried, and the chosen one was not."""
    record["environments"].append("seed 24")
    record["tasks"].append("task 3")
    for name, value in (("task", 3), ("policy", 0), ("environment", 24), ("costs", 1)):
        record[name].append(value)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("tasks", further_task, "other tasks, units or kinds of costs"),
        ("binary", lambda r: left_out(r, 1), "not those of the trials"),
        ("binary", another_order, "not those of the trials"),
        ("binary", lambda r: r["costs"].__setitem__(1, 1 - r["costs"][1]), "not those of the"),
        ("binary", lambda r: r.update(policies=["act", "pi1", "dp"]), "no trials of the chosen"),
        ("binary", lambda r: r.update(policies=["pi0", "act", "dp"]), "not those of the trials"),
        ("binary", lambda r: r.update(unit="site"), "other tasks, units or kinds of costs"),
        ("binary", lambda r: r.update(graded=True), "other tasks, units or kinds of costs"),
        ("binary", lambda r: r.update(outcome="0"), "scores trials in another way"),
        ("binary", lambda r: r.update(incidents={"broken": 1}), "other incidents"),
        ("binary", lambda r: r.update(shared=False), "wrong about whether environments are shared"),
        ("tasks", lambda r: r.update(task=None, tasks=[]), "other tasks, units or kinds of costs"),
        ("tasks", lambda r: r.update(task=[0, 1] * 12, tasks=["a", "b"]), "other tasks, units"),
        ("graded", lambda r: r.update(graded=False), "has graded costs, and does not say so"),
        ("binary", lambda r: r.update(format=2), "not of format 1"),
        ("binary", lambda r: r.pop("sources"), "other fields than expected"),
    ],
)
def test_forged_trials_are_refused(
    copied: Callable[[str], Path], name: str, change: Callable[..., None], message: str
):
    folder = copied(name)
    forge_trials(folder, change)
    with pytest.raises(ValueError, match=message):  # InvalidCertificate is one too
        verify(folder)


def test_a_run_of_a_choice_has_its_trials(copied: Callable[[str], Path]):
    folder = copied("binary")
    (folder / "trials.json").unlink()
    with pytest.raises(OSError, match=r"trials\.json is missing"):
        verify(folder)
    reseal(folder)
    with pytest.raises(InvalidCertificate, match=r"trials\.json is missing"):
        verify(folder)


def test_trials_that_were_added_to_another_run_are_refused(
    copied: Callable[[str], Path], tmp_path: Path
):
    trials = (copied("binary") / "trials.json").read_bytes()
    folder = learn_finite(Costs(np.zeros((9, 1)))).save(tmp_path / "other")
    (folder / "trials.json").write_bytes(trials)
    with pytest.raises(AlteredRun, match=r"trials\.json was added"):
        verify(folder)
    reseal(folder)
    with pytest.raises(InvalidCertificate, match="in a run that was not made from trials"):
        verify(folder)


def test_the_costs_of_another_policy_are_refused(tmp_path: Path):
    """A run of act's trials with pi0's costs in it, made anew from the start."""
    choice = choose(outcomes("binary"), 0.09)
    trials, run = choice.trials, choice.run
    values = trials.table[:, [0]]
    for costs in (
        Costs(values, ["pi0"], run.costs.origin, sites=run.costs.sites),
        Costs(run.costs.values, ["act"], run.costs.origin, sites=run.costs.sites),
    ):
        posterior = with_costs_used(Categorical.one(0, 1), run.prior, costs)
        hashes = {**costs.digests, "prior": sha256(run.prior.to_bytes())}
        certificate = dataclasses.replace(
            run.certificate,
            bound=1.0,
            empirical_cost=float(costs.means[0]),
            policy_name=costs.names[0],
            hashes=hashes | {"posterior": sha256(posterior.to_bytes())},
        )
        forged = Run(certificate, costs, run.prior, posterior)
        folder = forged.save(
            tmp_path / costs.names[0],
            attachments={"trials.json": json_bytes(trials.to_record())},
        )
        with pytest.raises(InvalidCertificate, match="not those of the trials"):
            verify(folder)


# ---- files that hold anything -------------------------------------------------------------------

HOSTILE = [
    10**29,
    -(10**29),
    2**63,
    10**400,
    -1,
    1e300,
    1e-320,
    True,
    None,
    "",
    "text\u202e\x1b[2K",
    [],
    {},
    [[[]]],
    [None],
    [True],
    [10**30],
    [-1],
    [0.5],
    ["a", "a"],
    {"a": 10**400},
    {"a": "\x00"},
    [0] * 1000,
    [2.0],
]


def survives(call: Callable[[], Any]) -> None:
    """Nothing but the errors that are for files from an unknown source."""
    with suppress(ValueError, OSError):  # InvalidCertificate and AlteredRun are among them
        call()


@pytest.mark.parametrize("kind", ["binary", "graded tasks"])
def test_trials_with_anything_in_them_are_refused_in_an_orderly_way(
    copied: Callable[[str], Path], kind: str
):
    folder = copied(kind)
    honest = json.loads((folder / "trials.json").read_text())
    refused = 0
    for field in honest:
        for value in HOSTILE:
            (folder / "trials.json").write_text(json.dumps({**honest, field: value}))
            reseal(folder)
            try:
                verify(folder)
            except (ValueError, OSError):
                refused += 1
        for value in HOSTILE[:9]:
            if isinstance(honest[field], list) and honest[field]:
                changed = [*honest[field][:-1], value]
                (folder / "trials.json").write_text(json.dumps({**honest, field: changed}))
                reseal(folder)
                survives(lambda: verify(folder))
    assert refused > 15 * len(HOSTILE) // 2


@pytest.mark.parametrize("content", ["", "[]", "null", "{", '{"a": 1, "a": 1}', "[" * 2000, "NaN"])
def test_trials_that_are_no_record_are_refused(copied: Callable[[str], Path], content: str):
    folder = copied("binary")
    (folder / "trials.json").write_text(content)
    reseal(folder)
    with pytest.raises(ValueError, match="trials"):
        verify(folder)


@pytest.mark.parametrize("entry", ["unit", "candidates", "tasks", "graded", "incidents", "sources"])
def test_an_origin_with_anything_in_it_is_refused_in_an_orderly_way(
    copied: Callable[[str], Path], entry: str
):
    folder = copied("tasks")
    for value in HOSTILE:
        reseal(folder, lambda manifest, value=value: manifest["origin"].update({entry: value}))
        if entry == "sources" or value == {}:  # as it is without incidents
            survives(lambda: verify(folder))
        else:
            with pytest.raises((ValueError, OSError)):
                verify(folder)


@given(st.lists(st.integers(-2, 8), max_size=12))
def test_facts_have_as_many_trials_of_each_task_or_none(tasks: list[int]):
    try:
        facts = TrialFacts.of({"tasks": tasks}, len(tasks))
    except ValueError:
        counts = [tasks.count(task) for task in range(max(max(tasks), 0) + 1)]
        assert min(tasks) < 0 or len(set(counts)) > 1 or max(tasks) >= len(tasks)
        return
    assert len({facts.tasks.count(task) for task in range(facts.task_count or 0)}) <= 1
    order = facts.in_rounds(np.arange(len(tasks))[::-1])
    assert sorted(order.tolist()) == list(range(len(tasks)))
    if facts.task_count:
        rounds = np.array(tasks)[order].reshape(-1, facts.task_count)
        assert np.array_equal(
            np.sort(rounds, axis=1), np.tile(range(facts.task_count), (len(rounds), 1))
        )
