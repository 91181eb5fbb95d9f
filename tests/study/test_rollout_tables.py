"""Tables of rollouts as they are written: exact, complete, and read back as the same costs."""

from __future__ import annotations

import csv
import json
import sys
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.tables.campaigns import read_campaign
from pacbayes_control.learn import learn_finite
from pacbayes_control.rollouts import evaluate
from pacbayes_control.study import rollout_tables
from pacbayes_control.study.rollout_tables import check_table, column_names, write_rollouts
from pacbayes_control.tasks import Environments, Task
from pacbayes_control.tasks.environments import first_environments

FORMATS = ("costs.csv", "costs.parquet")


@dataclass
class Windy(Task):
    """Graded costs, and parameters of each type, two of which have names of other columns."""

    name: str = "windy"
    policies: Any = None
    policy_names: tuple[str, ...] = ()
    cost_rule: str = "wind times gain"
    distribution: str = "uniform winds"

    def environments(self, n: int, stream: str, seed: int = 0) -> Environments:
        return first_environments(_draw, "windy draw", n, stream=stream, seed=seed)

    def costs(self, policies: Any, environments: Environments, *_: Any) -> Any:
        wind = environments.arrays()["wind"][:, None]
        return np.clip(wind * policies[..., 0], 0, 1)


def _draw(rng: np.random.Generator, n: int) -> dict[str, Any]:
    return {
        "wind": rng.random(n),
        "seed": rng.integers(2**31, size=n),
        "sky": rng.choice(["clear", "low clouds, rain"], n),
        "cost": rng.random(n).astype(np.float32),
        "policy": rng.integers(3, size=n),
        "ice": rng.random(n) < 0.5,
    }


GAINS = np.array([[0.3], [1 / 3], [0.7]])


def written(path: Path, task: Windy | None = None, n: int = 40, **more: Any) -> Costs:
    task = task or Windy(policies=GAINS)
    environments = task.environments(n, "train", 3)[2:]
    costs = evaluate(task, task.policies, environments, task.policy_names, **more)
    write_rollouts(path, costs, task, environments)
    return costs


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("names", [(), ("a, b", "10", "-2")])
def test_a_table_is_read_back_as_the_same_costs_bit_for_bit(
    tmp_path: Path, name: str, names: tuple[str, ...]
):
    costs = written(tmp_path / name, Windy(policies=GAINS, policy_names=names))
    again = read_campaign(tmp_path / name).costs
    assert again.values.tobytes() == costs.values.tobytes()
    assert again.names == costs.names == names
    assert again.digests == costs.digests
    assert again.origin.items() >= costs.origin.items()
    assert {*again.origin} - {*costs.origin} == {"file", "sha256"}
    assert [*again.described] == ["wind", "seed", "sky", "cost", "policy", "ice"]
    one, other = (learn_finite(each, 0.05, method="kl").certificate for each in (costs, again))
    assert one.to_dict() == other.to_dict()


def test_a_table_has_one_row_a_rollout_with_the_parameters_of_its_environment(tmp_path: Path):
    costs = written(tmp_path / "costs.csv")
    with (tmp_path / "costs.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[:3] == ["environment", "policy", "cost"]
    assert header[3:] == ["wind", "seed", "sky", "environment.cost", "environment.policy", "ice"]
    assert len(rows) == costs.environments * costs.policies
    assert rows[4][:2] == ["3", "1"]  # numbers in the stream
    assert float(rows[4][2]) == costs.values[1, 1]
    assert float(rows[4][3]) == costs.described["wind"][1]


def test_a_parquet_file_keeps_the_types_of_its_columns(tmp_path: Path):
    from pyarrow import parquet

    written(tmp_path / "costs.parquet")
    types = {each.name: str(each.type) for each in parquet.read_schema(tmp_path / "costs.parquet")}
    assert types["environment"] == types["policy"] == types["seed"] == "int64"
    assert types["cost"] == types["wind"] == "double"
    assert types["sky"] == "string"
    assert not (tmp_path / "costs.parquet.json").exists()


def test_equal_policies_count_once_as_they_do_for_a_learner(tmp_path: Path):
    costs = written(tmp_path / "c.csv", Windy(policies=GAINS[[0, 1, 1]]))
    one, other = (learn_finite(c, 0.05) for c in (costs, read_campaign(tmp_path / "c.csv").costs))
    assert one.certificate.to_dict() == other.certificate.to_dict()
    assert one.prior.probabilities.tolist() == [0.5, 0.25, 0.25]


def test_large_policies_are_not_listed_in_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pacbayes_control.certify.tables.rollout_records.MOST_PARAMETERS", 2)
    written(tmp_path / "c.csv")
    assert json.loads((tmp_path / "c.csv.json").read_text())["parameters"] is None
    assert read_campaign(tmp_path / "c.csv").costs.parameters is None


@pytest.mark.parametrize("name", FORMATS)
def test_environments_of_a_long_campaign_are_described_chunk_by_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    for module in ("rollouts.evaluation", "certify.tables.rollout_records"):
        monkeypatch.setattr(f"pacbayes_control.{module}.MOST_ROWS", 1500)
    monkeypatch.setattr(rollout_tables, "AT_A_TIME", 1000)
    costs = written(tmp_path / name, n=2500)
    assert not costs.described
    again = read_campaign(tmp_path / name)
    assert again.costs.digests == costs.digests
    assert "not used" not in again.reading
    if name == "costs.csv":
        header, *rows = csv.reader((tmp_path / name).read_text().splitlines())
        winds = Windy().environments(2500, "train", 3).arrays()["wind"]
        assert [float(row[header.index("wind")]) for row in rows[::3]] == winds[2:].tolist()


def test_writing_takes_no_more_memory_for_more_rollouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rollout_tables, "AT_A_TIME", 3000)
    task, peaks = Windy(policies=GAINS), []
    for n in (1024, 1024, 4 * 1024):  # once for imports and caches
        environments = task.environments(n, "train")
        costs = evaluate(task, task.policies, environments)
        assert costs.digests
        tracemalloc.start()
        write_rollouts(tmp_path / "costs.csv", costs, task, environments)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1]


@pytest.mark.parametrize("name", ["=1+1", "+a", "-a", "@SUM(A1)", "-1+cmd|' /C calc'!A0", "\t=1"])
def test_a_name_that_a_spreadsheet_would_run_is_refused_before_any_rollout(
    tmp_path: Path, name: str
):
    with pytest.raises(ValueError, match=r"formula in a spreadsheet.*--names"):
        check_table(tmp_path / "c.csv", [name])
    check_table(tmp_path / "c.parquet", [name])


@pytest.mark.parametrize("name", ["-2", "+1.5", "-1e-3", "a=b", "x0=0.1 y0=-2"])
def test_numbers_and_ordinary_names_are_not_refused(tmp_path: Path, name: str):
    check_table(tmp_path / "c.csv", [name])


def test_names_and_words_that_a_csv_file_would_alter_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="begins or ends with a blank"):
        check_table(tmp_path / "c.csv", ["act "])
    costs = Costs(np.zeros((4, 1)), described={"sky": ["=A1", "a", "b", "c"]})
    task = Windy()
    with pytest.raises(ValueError, match=r"word of “sky” “=A1” would be a formula.*\.parquet"):
        write_rollouts(tmp_path / "c.csv", costs, task, task.environments(4, "train"))
    assert not (tmp_path / "c.csv").exists()


def test_a_table_that_cannot_be_completed_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written(tmp_path / "c.csv")
    before = (tmp_path / "c.csv").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rollout_tables, "_rows", full)
    with pytest.raises(OSError, match=r"No space left on device: .*c\.csv"):
        written(tmp_path / "c.csv", n=50)
    assert (tmp_path / "c.csv").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"c.csv", "c.csv.json"}
    assert read_campaign(tmp_path / "c.csv").costs.environments == 38


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"=A1": [1, 2]}, "parameter “=A1” would be a formula"),
        ({"sky": ["clear", "=A1"]}, "word of “sky” “=A1” would be a formula"),
        ({"sky": ["clear", "rain "]}, "word of “sky” “rain” begins or ends with a blank"),
        ({"Wind": [1, 2], "wind": [1, 2]}, "two parameters"),
    ],
)
def test_parameters_that_a_table_cannot_hold_are_refused_before_any_rollout(
    tmp_path: Path, described: dict[str, Any], words: str
):
    known = Costs([[0], [1]], described=described).described
    with pytest.raises(ValueError, match=words):
        check_table(tmp_path / "c.csv", described=known)


@pytest.mark.parametrize("name", FORMATS)
def test_rollouts_that_took_too_long_are_marked(tmp_path: Path, name: str):
    task, late = Windy(policies=GAINS), [[1, 0], [2, 2]]
    environments = task.environments(4, "train", 3)
    done = evaluate(task, task.policies, environments)
    values = np.array(done.values)
    values[tuple(zip(*late, strict=True))] = 1
    more = {"rollout_timeout": 2.0, "timed_out": late, "incidents": {"timeouts": 2}}
    costs = Costs(values, (), {**done.origin, **more}, parameters=GAINS, described=done.described)
    write_rollouts(tmp_path / name, costs, task, environments)
    table = read_campaign(tmp_path / name)
    assert table.costs.timed_out == costs.timed_out == {(1, 0), (2, 2)}
    assert table.costs.digests == costs.digests
    assert "not used" not in table.reading
    if name == "costs.csv":
        rows = [*csv.DictReader((tmp_path / name).read_text().splitlines())]
        assert [row["timed_out"] for row in rows] == [*"000100001000"]


def test_parameters_whose_columns_would_be_confused_are_refused():
    assert column_names(["cost", "environment.cost"]) == {
        "cost": "environment.environment.cost",
        "environment.cost": "environment.cost",
    }
    assert column_names(["Timed_out"]) == {"Timed_out": "environment.Timed_out"}
    with pytest.raises(ValueError, match="two parameters"):
        column_names(["Wind", "wind"])


def test_a_table_without_pyarrow_gets_the_line_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "pacbayes-control\[tables\]"'):
        check_table(tmp_path / "c.parquet")
    with pytest.raises(ValueError, match=r"a \.csv or a \.parquet file"):
        check_table(tmp_path / "c.xlsx")
