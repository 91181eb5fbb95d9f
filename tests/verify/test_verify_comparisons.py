"""Saved comparisons: recomputed by code of their own, and refused if a forger altered them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes_control.bounds.anytime import log_e_path, log_e_value
from pacbayes_control.certify.files import json_bytes, sha256
from pacbayes_control.certify.run import AlteredRun
from pacbayes_control.certify.trials import Trials
from pacbayes_control.trials.comparing import compare, load_comparison, save_comparison
from pacbayes_control.trials.pairing import pairs_of
from pacbayes_control.verify import InvalidCertificate
from pacbayes_control.verify.comparisons import check_comparison
from pacbayes_control.verify.trials import log_e_from_below, log_e_path_from_below
from recorded_trials import paired, unpaired


def ready(folder: Path, **options: Any) -> Path:
    """A comparison of act, which is better, with pi0; dp is a third policy."""
    fails = np.random.default_rng(0).random((60, 3)) < [0.1, 0.6, 0.5]
    trials = paired(fails, tasks=options.pop("tasks", None))
    return save_comparison(compare(trials, "act", "pi0", **options), trials, folder)


def forge(
    folder: Path,
    change: Callable[[dict[str, Any]], object] = lambda _: None,
    trials: Callable[[dict[str, Any]], object] = lambda _: None,
) -> None:
    """Change the trials and the comparison, with the hash of the trials."""
    record, listed = (json.loads((folder / name).read_text()) for name in FILES)
    trials(listed)
    content = json.dumps(listed, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    (folder / "trials.json").write_text(content)
    record["trials"] = sha256(content.encode())
    change(record)
    (folder / "comparison.json").write_text(json.dumps(record))


FILES = ("comparison.json", "trials.json")


# ---- honest comparisons -------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.data())
def test_any_small_comparison_is_verified(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    cost = data.draw(st.sampled_from([st.sampled_from([0.0, 1.0]), st.floats(0, 1)]))
    count = data.draw(st.sampled_from([0, 1, 2, 3]))  # of tasks
    rows = data.draw(st.integers(1, 20 // max(count, 1))) * max(count, 1)
    tasks = [i % count for i in range(rows)] if count else None
    columns = [data.draw(st.lists(cost, min_size=rows, max_size=rows)) for _ in range(2)]
    if data.draw(st.booleans()):
        trials = paired(np.transpose(columns), tasks=tasks)
    else:
        columns = [[0.0, 1.0, 0.0, *column][:rows] for column in columns]  # sorted ones are refused
        trials = unpaired(*columns, tasks=None if tasks is None else [tasks, tasks[::-1]])
    answer = compare(
        trials,
        *data.draw(st.permutations(["act", "pi0"])),
        alpha=data.draw(st.sampled_from([0.9, 0.3, 0.05, 1e-9])),
        margin=data.draw(st.sampled_from([0.0, 0.05, 0.5])),
        in_order=data.draw(st.booleans()),
    )
    folder = save_comparison(answer, trials, tmp_path_factory.mktemp("one") / "comparison")
    again, _ = load_comparison(folder)
    assert again.to_dict() == answer.to_dict()


@settings(max_examples=40)
@given(st.data())
def test_pairs_are_found_again_by_other_code(data: st.DataObject):
    """Of trials in any order, in some environments or all, with tasks or without."""
    rows = data.draw(st.integers(1, 10))
    cells = st.sampled_from([0.0, 0.5, 1.0, math.nan])
    table = np.array([[data.draw(cells), data.draw(cells), 0.25] for _ in range(rows)])
    table[0, :2] = 0, 1  # so that both have a trial
    if rows % 2 == 0 and data.draw(st.booleans()):
        table, tasks = np.nan_to_num(table, nan=0.5), [i % 2 for i in range(rows)]
    else:
        tasks = None
    trials = paired(table, tasks=tasks, by_policy=data.draw(st.booleans()))
    answer = compare(trials, "act", "pi0", untried=True, alpha=0.4)
    check_comparison(answer.to_dict(), trials)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_e_values_from_below_are_below_and_near(values: list[float], mean: float):
    pairs = [(log_e_from_below(np.array(values), mean), log_e_value(values, mean))]
    path = log_e_path_from_below(np.array(values), mean)
    pairs += zip(path, log_e_path(values, mean), strict=True)
    for below, value in pairs:
        assert value - 1e-9 * (1 + abs(value)) <= below <= value + 1e-12 * (1 + abs(value))


# ---- forged comparisons -------------------------------------------------------------------------


def test_limits_that_are_narrower_by_a_hair_are_refused(tmp_path: Path):
    low, high = json.loads((ready(tmp_path / "0") / "comparison.json").read_text())["difference"]
    for number, (changed, which) in enumerate(
        [([low + 1e-7, high], "lower"), ([low, high - 1e-7], "upper")], 1
    ):
        folder = ready(tmp_path / str(number))
        forge(folder, lambda record, changed=changed: record.update(difference=changed))
        with pytest.raises(InvalidCertificate, match=f"the {which} limit .* is not proven"):
            load_comparison(folder)


def test_limits_that_are_wider_are_refused_as_other_limits(tmp_path: Path):
    folder = ready(tmp_path / "comparison")
    forge(folder, lambda record: record.update(difference=[0.01, 0.99]))
    with pytest.raises(AlteredRun, match="has another difference than its trials give"):
        load_comparison(folder)


ALTERED = "has another {} than its trials give"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verdict": "worse"}, "the verdict is better by the limits"),
        ({"verdict": "undecided"}, "the verdict is better by the limits"),
        ({"verdict": "best"}, "the verdict is better by the limits"),
        ({"a": "pi0", "b": "act"}, "lower limit .* is not proven"),
        ({"a": "dp"}, "is not proven"),
        ({"b": "dp"}, "is not proven"),
        ({"a": "pi0"}, "policies without trials"),
        ({"b": "pi"}, "policies without trials"),
        ({"alpha": 0.01}, "is not proven"),
        ({"alpha": 1e-320}, "is not proven"),
        ({"alpha": 0.1}, ALTERED.format("decided_after")),
        ({"alpha": 0}, "impossible settings"),
        ({"alpha": 1.5}, "impossible settings"),
        ({"margin": 0.6}, "the verdict is undecided by the limits"),
        ({"margin": 0.05}, ALTERED.format("decided_after")),
        ({"margin": -0.1}, "impossible settings"),
        ({"difference": [0.2]}, "impossible settings"),
        ({"difference": [0.2, 0.5, 0.7]}, "impossible settings"),
        ({"difference": []}, "impossible settings"),
        ({"difference": [-5, 5]}, "the verdict is undecided by the limits"),
        ({"difference": [1e299, 1e299]}, "is not proven"),
        ({"pairs": 59}, "about another number of pairs"),
        ({"pairs": -1}, "about another number of pairs"),
        ({"in_order": True}, "has another"),
        ({"e_value": 1e12}, ALTERED.format("e_value")),
        ({"e_value": 10**400}, ALTERED.format("e_value")),
        ({"needed": 10**400}, ALTERED.format("needed")),
        ({"mean_difference": -(10**400)}, ALTERED.format("mean_difference")),
        ({"mean_difference": "0.5"}, ALTERED.format("mean_difference")),
        ({"decided_after": 2}, ALTERED.format("decided_after")),
        ({"decided_after": None}, ALTERED.format("decided_after")),
        ({"more": 1}, ALTERED.format("more")),
        ({"left_out": 3}, ALTERED.format("left_out")),
        ({"paired": False}, ALTERED.format("paired")),
        ({"tasks": ["stack"]}, ALTERED.format("tasks")),
        ({"sentence": "“act” never fails."}, ALTERED.format("sentence")),
        ({"remark": "approved"}, "other fields than a comparison of format 1"),
        ({"format": 2}, "not a comparison of format 1"),
        ({"format": None}, "not a comparison of format 1"),
        ({"trials": "0" * 64}, "was altered: its SHA-256"),
        ({"trials": None}, "was altered: its SHA-256"),
    ],
)
def test_a_forged_comparison_is_refused(tmp_path: Path, changes: dict[str, Any], message: str):
    folder = ready(tmp_path / "comparison")
    forge(folder, lambda record: record.update(changes))
    with pytest.raises(ValueError, match=message):  # InvalidCertificate and AlteredRun are such
        load_comparison(folder)


FIELDS = ["a", "b", "alpha", "margin", "in_order", "untried", "verdict", "difference", "pairs"]


@pytest.mark.parametrize("name", FIELDS)
def test_a_comparison_without_one_of_its_settings_is_refused(tmp_path: Path, name: str):
    folder = ready(tmp_path / "comparison")
    forge(folder, lambda record: record.pop(name))
    with pytest.raises(InvalidCertificate, match=f"the comparison has no valid {name}"):
        load_comparison(folder)


@pytest.mark.parametrize("name", ["e_value", "needed", "sentence", "tasks", "more", "left_out"])
def test_a_comparison_without_one_of_its_results_is_refused(tmp_path: Path, name: str):
    folder = ready(tmp_path / "comparison")
    forge(folder, lambda record: record.pop(name))
    with pytest.raises(AlteredRun, match="has other fields"):
        load_comparison(folder)


# ---- forged trials ------------------------------------------------------------------------------


def one_failure_less(record: dict[str, Any]) -> None:
    failed = next(
        i
        for i, (p, c) in enumerate(zip(record["policy"], record["costs"], strict=True))
        if c and not p
    )
    record["costs"][failed] = 0


def one_trial_less(record: dict[str, Any]) -> None:
    for name in ("policy", "environment", "costs"):
        del record[name][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (one_failure_less, "upper limit .* is not proven"),
        (one_trial_less, "about another number of pairs"),
        (lambda r: r.update(policies=["pi0", "act", "dp"]), "is not proven"),
        (lambda r: r.update(graded=True), ALTERED.format("sentence")),
        (lambda r: r.update(shared=False), "wrong about whether environments are shared"),
        (lambda r: r.update(tasks=["a", "b"], task=[0, 1] * 30), "has another"),
        (lambda r: r["policy"].__setitem__(0, 10**29), "trials without names"),
        (lambda r: r["environment"].__setitem__(0, 2**62), "trials without names"),
        (lambda r: r["environment"].__setitem__(0, -1), "trials without names"),
        (lambda r: r["environment"].__setitem__(0, 1), "a trial twice|names without trials"),
        (lambda r: r["costs"].__setitem__(0, 1.5), r"costs outside \[0, 1\]"),
        (lambda r: r["costs"].__setitem__(0, 0.5), "graded costs, and does not say so"),
        (lambda r: r["costs"].append(0), "one entry of each kind for each trial"),
        (lambda r: r.update(links=["a"]), "one entry of each kind for each trial"),
        (lambda r: r.update(policy=[0]), "one entry of each kind for each trial"),
        (lambda r: r.update(task=[0] * 60), "names without trials|tasks without trials"),
        (lambda r: r.update(task=[0], tasks=["a"]), "a task for each environment"),
        (lambda r: r.update(unit="a\x1b[2K"), "characters that cannot be shown"),
        (lambda r: r.update(sources={"a": "\n"}), "characters that cannot be shown"),
        (lambda r: r.update(format=7), "not of format 1"),
        (lambda r: r.update(extra=1), "other fields than expected"),
        (lambda r: r.pop("graded"), "other fields than expected"),
    ],
)
def test_forged_trials_of_a_comparison_are_refused(
    tmp_path: Path, change: Callable[..., None], message: str
):
    folder = ready(tmp_path / "comparison")
    forge(folder, trials=change)
    with pytest.raises(ValueError, match=message):
        load_comparison(folder)


def test_looks_on_the_way_may_not_be_added_to_a_log_in_which_the_order_does_not_count(
    tmp_path: Path,
):
    """Twelve wins and as many losses: with looks on the way it would be a verdict."""
    trials = paired([[0, 1]] * 12 + [[1, 0]] * 12)
    on_the_way = compare(trials, "act", "pi0", in_order=True)
    folder = save_comparison(on_the_way, trials, tmp_path / "comparison")
    assert load_comparison(folder)[0].verdict == "better"
    forge(folder, lambda record: record.update(in_order=False))
    with pytest.raises(InvalidCertificate, match=r"the lower limit .* is not proven"):
        load_comparison(folder)


def test_looks_in_the_middle_of_a_round_of_tasks_prove_nothing():
    """Act is better in the first eight tasks, and as much worse in the others."""
    table = [[0, 1]] * 8 + [[1, 0]] * 8
    record = compare(paired(table), "act", "pi0", in_order=True).to_dict()
    assert record["verdict"] == "better"
    check_comparison(record, paired(table))
    with pytest.raises(InvalidCertificate, match=r"the lower limit .* is not proven"):
        check_comparison(record, paired(table, tasks=list(range(16))))


def test_pairs_are_verified_in_the_order_of_their_completion():
    """Pi0 was tried in the environments backwards: where act wins, both were tried at first."""
    trials = paired([[1, 0]] * 12 + [[0, 1]] * 12, by_policy=True)
    backwards = [*range(24), *range(47, 23, -1)]
    fields = {name: getattr(trials, name)[backwards] for name in ("environment", "costs")}
    answer = compare(Trials(**{**vars(trials), **fields}), "act", "pi0", in_order=True)
    assert answer.verdict == "better"
    check_comparison(answer.to_dict(), Trials(**{**vars(trials), **fields}))
    with pytest.raises(InvalidCertificate, match=r"the lower limit .* is not proven"):
        check_comparison(answer.to_dict(), trials)


def test_trials_that_are_left_out_have_to_be_declared(tmp_path: Path):
    trials = paired([[0, 1]] * 8 + [[0, math.nan]] + [[0, 1]] * 4)
    answer = compare(trials, "act", "pi0", untried=True)
    folder = save_comparison(answer, trials, tmp_path / "comparison")
    forge(folder, lambda record: record.update(untried=False))
    with pytest.raises(ValueError, match="have no partner"):
        load_comparison(folder)


# ---- files that hold anything -------------------------------------------------------------------

HOSTILE = [
    10**29,
    -(10**29),
    2**63,
    10**400,
    -1,
    0,
    0.5,
    1e299,
    1e-320,
    True,
    None,
    "",
    "\ud800",
    "text\u202e\x1b[2K",
    [],
    {},
    [[[]]],
    [10**400, 10**400],
    [None, None],
    ["a", "a"],
    {"a": 10**400},
]


def test_a_comparison_with_anything_in_it_is_refused_in_an_orderly_way(tmp_path: Path):
    folder = ready(tmp_path / "comparison")
    honest = json.loads((folder / "comparison.json").read_text())
    for name, value in honest.items():
        for hostile in HOSTILE:
            if hostile == value or (name == "untried" and hostile is True):  # nothing is left out
                continue
            (folder / "comparison.json").write_text(json.dumps({**honest, name: hostile}))
            with pytest.raises((ValueError, OSError)):
                load_comparison(folder)


def test_trials_with_anything_in_them_are_refused_or_read_in_an_orderly_way(tmp_path: Path):
    folder = ready(tmp_path / "comparison", tasks=[0, 1] * 30)
    honest = [(folder / name).read_text() for name in FILES]
    refused = 0
    for name, value in json.loads(honest[1]).items():
        changed = [*HOSTILE, *([*value[:-1], h] for h in HOSTILE if isinstance(value, list))]
        for hostile in changed:
            for file, content in zip(FILES, honest, strict=True):
                (folder / file).write_text(content)
            try:
                forge(
                    folder, trials=lambda r, name=name, hostile=hostile: r.update({name: hostile})
                )
                load_comparison(folder)
            except (ValueError, OSError):
                refused += 1
    assert refused > 300


@pytest.mark.parametrize("content", ["", "[]", "null", "1", "{", '{"a": 1, "a": 1}', "NaN"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, name: str, content: str):
    folder = ready(tmp_path / "comparison")
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=name):
        load_comparison(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("value", ["1e999", "-Infinity", "[" * 900 + "]" * 900, "[" * 5000])
def test_numbers_and_lists_without_end_are_refused(tmp_path: Path, name: str, value: str):
    folder = ready(tmp_path / "comparison")
    text = (folder / name).read_text().rstrip().removesuffix("}").rstrip()
    (folder / name).write_text(f'{text}, "more": {value}}}')
    with pytest.raises(ValueError, match=r"comparison\.json|trials\.json|JSON"):
        load_comparison(folder)
    (folder / name).write_text(f'{text}, "another": {value}}}')
    with pytest.raises(ValueError, match=r"comparison\.json|trials\.json|JSON"):
        load_comparison(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing_or_a_link_is_refused(tmp_path: Path, name: str):
    folder = ready(tmp_path / "comparison")
    (folder / name).rename(tmp_path / name)
    with pytest.raises(OSError, match="is missing"):
        load_comparison(folder)
    (folder / name).symlink_to(tmp_path / name)
    with pytest.raises(ValueError, match="is not a plain file"):
        load_comparison(folder)


def test_a_record_that_is_written_in_another_way_is_the_same(tmp_path: Path):
    """Of trials the content counts, and not the spaces."""
    folder = ready(tmp_path / "comparison")
    path = folder / "trials.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert load_comparison(folder)[0].verdict == "better"


def test_trials_come_back_from_their_record_as_they_were():
    trials = unpaired([0, 0.5], [1, 1], tasks=[[0, 1], [0, 1]], links=("a", "", "", "b"))
    again = Trials.from_record(json.loads(json_bytes(trials.to_record())))
    assert again.to_record() == trials.to_record()
    assert np.array_equal(pairs_of(again, 0, 1).trials, pairs_of(trials, 0, 1).trials)
