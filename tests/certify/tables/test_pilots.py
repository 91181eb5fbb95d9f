"""Pilots are read from tables and from runs, and refused if they are of other policies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.priors import pilot_prior
from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.certify.run import AlteredRun
from pacbayes_control.certify.tables.pilots import pilot_file, read_pilot
from pacbayes_control.learn import Plan, learn_finite, learn_task
from pacbayes_control.tasks.demo import Stopping

VALUES = np.random.default_rng(0).random((40, 3)).round(6) * [1, 0.4, 0.5]
NAMES = ["slow", "careful", "fast"]


def written(path: Path, names: list[str] = NAMES, values: np.ndarray = VALUES) -> Path:
    rows = [",".join([f"hall {i}", *map(str, row)]) for i, row in enumerate(values.tolist())]
    path.write_text("\n".join([",".join(["site", *names]), *rows]) + "\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The run of a task whose policies have no names."""
    run = learn_task(Stopping(), Plan(environments=30, test_environments=0, seed=1))
    return run.save(tmp_path / "run")


def test_a_table_gives_the_prior_of_its_costs(tmp_path: Path):
    path = written(tmp_path / "pilot.csv")
    expected = pilot_prior(Costs(VALUES)).probabilities
    np.save(tmp_path / "pilot.npy", VALUES)
    np.savez(tmp_path / "pilot.npz", costs=VALUES)
    for file in (path, tmp_path / "pilot.npy", tmp_path / "pilot.npz"):
        np.testing.assert_array_equal(read_pilot(file, 3).probabilities, expected)
    prior = read_pilot(path, NAMES)
    np.testing.assert_array_equal(prior.probabilities, expected)
    assert "from a pilot of 40 other environments" in prior.words
    assert {row[0] for row in prior.rows} == {"n", "v"}


def test_columns_are_ordered_by_the_names_of_the_policies(tmp_path: Path):
    order = ["fast", "slow", "careful"]
    prior = read_pilot(written(tmp_path / "pilot.csv"), order)
    turned = VALUES[:, [2, 0, 1]]
    np.testing.assert_array_equal(prior.probabilities, pilot_prior(Costs(turned)).probabilities)
    with pytest.raises(ValueError, match="learnt from environments with the same costs"):
        learn_finite(Costs(turned, order), prior=prior)  # rows are compared in this order


def test_the_parameters_tell_which_policies_are_equal(tmp_path: Path):
    np.save(tmp_path / "pilot.npy", np.ones((5, 3)))
    prior = read_pilot(tmp_path / "pilot.npy", 3, parameters=np.array([[1.0], [2.0], [2.0]]))
    np.testing.assert_allclose(prior.probabilities, [0.5, 0.25, 0.25], rtol=1e-12)


def test_the_costs_of_a_run_know_their_environments(folder: Path):
    parameters = Stopping().policies
    for path in (folder, folder / "costs.npy"):
        assert pilot_file(path) == folder / "costs.npy"
        prior = read_pilot(path, 5, parameters=parameters)
        assert prior.seen == (EnvironmentRange("train", 1, 0, 30),)
        assert {row[0] for row in prior.rows} == {"s"}
    copy = folder.parent / "copy.npy"
    copy.write_bytes((folder / "costs.npy").read_bytes())
    assert read_pilot(copy, 5).seen == ()


# ---- bad input ----------------------------------------------------------------------------------


def test_another_number_of_policies_is_refused(tmp_path: Path):
    path = written(tmp_path / "pilot.csv")
    for policies in (4, [*NAMES, "fourth"]):
        with pytest.raises(
            ValueError, match=r"pilot\.csv has costs of 3 policies, and there are 4"
        ):
            read_pilot(path, policies)


def test_other_names_are_refused(tmp_path: Path):
    path = written(tmp_path / "pilot.csv")
    with pytest.raises(
        ValueError, match=r"“careful” is a policy of one table and not of the other"
    ):
        read_pilot(path, ["slow", "caring", "fast"])


def test_other_parameters_are_refused(folder: Path):
    with pytest.raises(ValueError, match="run has costs of other policies: their parameters diff"):
        read_pilot(folder, 5, parameters=Stopping().policies + 0.1)


def test_a_run_that_was_altered_is_refused(folder: Path):
    np.save(folder / "costs.npy", np.zeros((30, 5), np.uint8))
    with pytest.raises(AlteredRun):
        read_pilot(folder, 5)


def test_files_that_are_no_pilot_get_a_clear_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.csv"):
        read_pilot(tmp_path / "none.csv", 3)
    with pytest.raises(ValueError, match="is not the folder of a run: give a run, or a table"):
        read_pilot(tmp_path, 3)
    path = written(tmp_path / "pilot.csv")
    header, rest = path.read_text().split("\n", 1)
    path.write_text(f"{header}\nprior,0.2,0.3,0.5\n{rest}")
    with pytest.raises(ValueError, match=r"pilot\.csv has a prior of its own: a pilot has costs"):
        read_pilot(path, 3)


def test_the_way_to_read_a_table_is_that_of_the_costs(tmp_path: Path):
    values = np.zeros((30, 3))
    values[4, 1] = 0.5
    path = written(tmp_path / "pilot.csv", values=values)
    with pytest.raises(ValueError, match="say --graded"):
        read_pilot(path, 3)
    assert len(read_pilot(path, 3, graded=True, header=True)) == 3
    np.save(tmp_path / "pilot.npy", VALUES)
    assert len(read_pilot(tmp_path / "pilot.npy", 3, header=True)) == 3  # it has no header
