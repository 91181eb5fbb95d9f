"""What was drawn for each environment, in the files of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.descriptions import (
    checked_descriptions,
    read_descriptions,
    to_bytes,
)
from pacbayes_control.certify.run import AlteredRun, Run
from pacbayes_control.learn import Plan, learn_finite, learn_task
from pacbayes_control.tasks import FunctionTask
from pacbayes_control.verify import InvalidCertificate, verify

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=9).filter(str.isprintable)
COLUMNS = st.one_of(
    st.lists(st.floats(allow_nan=False), min_size=3, max_size=3),
    st.lists(st.integers(-(2**60), 2**60), min_size=3, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.lists(words, min_size=3, max_size=3),
)


@given(column=COLUMNS)
def test_a_column_has_the_same_values_and_type_after_it_was_read(column, tmp_path_factory):
    described = checked_descriptions({"x": np.array(column)}, 3)
    path = tmp_path_factory.mktemp("columns") / "environments.csv"
    path.write_bytes(to_bytes(described))
    again = read_descriptions(path, 3)["x"]
    assert again.dtype.kind == described["x"].dtype.kind
    assert again.tolist() == described["x"].tolist()
    if isinstance(column[0], float):
        assert again.tolist() == column


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"environment,x\n0,1\n",  # a row too few
        b"environment,x\n0,1\n1,2\n2,3\n",
        b"environment,x\n1,1\n0,2\n",
        b"environment,x,x\n0,1,1\n1,2,2\n",
        b"environment,x\n0,1\n1\n",
        b"environment,x\n0,1\n1,\xff\n",
        b"environment,x\r\n0,1\r\n1,2\r\n",
        b'environment,x\n0,"1\n1,2\n',
        b"environment,x\n0,a\x1b[31m\n1,b\n",
        b"x,environment\n1,0\n2,1\n",
        b"environment,x\n0,\n1,2\n",
    ],
)
def test_another_table_is_refused(content: bytes, tmp_path: Path):
    file = tmp_path / "environments.csv"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"environments.csv|parameter"):
        read_descriptions(file, 2)


@pytest.mark.parametrize(
    "values",
    [
        {"x": [1, 2, 3]},
        {"x": [[1], [2]]},
        {"x": [None, None]},
        {"": [1, 2]},
        {"environment": [1, 2]},
        {"a\nb": [1, 2]},
        {"x": ["a\nb", "c"]},
        {f"x{i}": [1, 2] for i in range(65)},
    ],
)
def test_parameters_that_no_table_can_hold_are_refused(values):
    with pytest.raises(ValueError, match="parameter"):
        Costs([[0, 1], [1, 1]], described=values)


def draw(rng):
    return {"wind": rng.uniform(0, 10), "goal": rng.normal(size=2), "ground": "ice"}


def rollout(policy, environment):
    return float(environment["wind"] > policy[0])


TASK = FunctionTask(rollout, draw, "windy", policies=np.array([[5.0], [9.0]]), graded=False)


def test_a_run_holds_what_was_drawn(tmp_path: Path):
    run = learn_task(TASK, Plan(environments=30))
    loaded = Run.load(run.save(tmp_path / "run"))
    assert list(loaded.costs.described) == ["wind", "goal[0]", "goal[1]", "ground"]
    fails = loaded.costs.described["wind"] > 9
    assert np.array_equal(loaded.costs.values[:, 1], fails)
    assert verify(tmp_path / "run").certificate.hashes["environments"]


def test_a_table_that_was_exchanged_is_noticed(tmp_path: Path):
    folder = learn_task(TASK, Plan(environments=30)).save(tmp_path / "run")
    file = folder / "environments.csv"
    file.write_text(file.read_text().replace("ice", "mud"))
    with pytest.raises(AlteredRun, match=r"environments.csv was altered"):
        verify(folder)
    other = Costs(run_costs := [[0, 1], [1, 1]], described={"wind": [1, 2]})
    run = learn_finite(other)
    forged = Run(
        run.certificate,
        Costs(run_costs, described={"wind": [1, 3]}),
        run.prior,
        run.posterior,
    )
    with pytest.raises(InvalidCertificate, match="other environments"):
        verify(forged.save(tmp_path / "forged"))


def test_a_task_that_cannot_describe_is_told_before_any_rollout():
    class Silent(FunctionTask):
        def describe(self, environments):  # noqa: ARG002
            raise RuntimeError("no words")

    silent = Silent(rollout, draw, "windy", policies=np.array([[5.0]]))
    with pytest.raises(ValueError, match="cannot describe environments: RuntimeError: no words"):
        learn_task(silent, Plan(environments=5))
