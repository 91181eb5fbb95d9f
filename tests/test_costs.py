from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pacbayes_control.costs import Costs, read_costs, read_prior


def test_zero_one_costs_of_any_type_are_kept_as_bytes():
    for dtype in (bool, np.uint8, np.int64, np.float32, np.float64):
        costs = Costs(np.eye(3).astype(dtype))
        assert costs.binary
        assert costs.values.dtype == np.uint8
        assert costs.failures.tolist() == [1, 1, 1]


def test_the_record_does_not_follow_changes_of_the_array_it_was_made_from():
    values = np.full((2, 2), 0.5)
    costs = Costs(values)
    values[0, 0] = 0.9
    assert costs.values[0, 0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        costs.values[0, 0] = 0


def test_means_are_those_of_the_columns(graded_costs: Costs):
    assert np.allclose(graded_costs.means, graded_costs.values.mean(axis=0), rtol=1e-14)


def test_the_digest_is_that_of_the_saved_file(tmp_path: Path, graded_costs: Costs):
    import hashlib

    np.save(tmp_path / "costs.npy", graded_costs.values)
    assert graded_costs.digest == hashlib.sha256((tmp_path / "costs.npy").read_bytes()).hexdigest()


def test_graded_costs_have_no_failures_to_count(graded_costs: Costs):
    with pytest.raises(ValueError, match="0 or 1"):
        _ = graded_costs.failures


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[0.5, np.nan], [0, 0]], "the cost at environment 0, policy 1 is NaN"),
        ([[0, 0], [0, 1.115]], r"cost 1.115 at environment 1, policy 1 is outside \[0, 1\]"),
        ([[0, 0], [-0.1, 1]], "cost -0.1 at environment 1, policy 0"),
        ([[0, np.inf], [0, 1]], "cost inf at environment 0, policy 1"),
        (np.array([[0, 2], [0, 1]], np.uint8), "cost 2 at environment 0, policy 1"),
        (np.empty((0, 5)), "empty"),
        (np.empty((5, 0)), "empty"),
        ([[0, 1]], "at least two rows"),
        ([0, 1], "two dimensions"),
        ([[0, 1], [1]], "ragged"),
        ([["a", "b"], ["c", "d"]], "not numbers"),
    ],
)
def test_bad_costs_are_rejected_at_the_door(values: object, message: str):
    with pytest.raises(ValueError, match=message):
        Costs(values)  # type: ignore[arg-type]


def test_names_must_match_the_policies():
    with pytest.raises(ValueError, match="3 names for 2 policies"):
        Costs([[0, 1], [1, 0]], names=["a", "b", "c"])


# ---- files --------------------------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_bare_csv_is_read(tmp_path: Path):
    costs, prior = read_costs(write(tmp_path / "c.csv", "0,1\n1,0\n0,0\n"))
    assert costs.values.tolist() == [[0, 1], [1, 0], [0, 0]]
    assert costs.names == ()
    assert prior is None


def test_a_csv_with_header_sites_and_prior_is_read(tmp_path: Path):
    text = "site,slow,fast\nprior,0.75,0.25\nA,0,1\nB,0.5,0\n"
    costs, prior = read_costs(write(tmp_path / "c.csv", text))
    assert costs.names == ("slow", "fast")
    assert costs.values.tolist() == [[0, 1], [0.5, 0]]
    assert prior is not None
    assert prior.probabilities.tolist() == [0.75, 0.25]


def test_numbered_sites_are_no_costs(tmp_path: Path):
    costs, _ = read_costs(write(tmp_path / "c.csv", "site,a,b\n1,0,1\n2,0,0\n3,1,1\n"))
    assert costs.values.shape == (3, 2)


def test_a_single_column_is_one_policy(tmp_path: Path):
    costs, _ = read_costs(write(tmp_path / "c.csv", "slow\n0\n1\n0\n"))
    assert costs.names == ("slow",)
    assert costs.values.shape == (3, 1)


def test_npy_and_npz_are_read(tmp_path: Path):
    values = np.random.default_rng(0).random((4, 3))
    np.save(tmp_path / "c.npy", values)
    assert np.array_equal(read_costs(tmp_path / "c.npy")[0].values, values)
    np.savez(tmp_path / "c.npz", costs=values, prior=[0.5, 0.25, 0.25], policies=["a", "b", "c"])
    costs, prior = read_costs(tmp_path / "c.npz")
    assert costs.names == ("a", "b", "c")
    assert prior is not None
    assert prior.probabilities.tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".json"])
def test_a_prior_is_read_from_each_kind_of_file(tmp_path: Path, suffix: str, binary_costs: Costs):
    p = np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    path = tmp_path / f"prior{suffix}"
    if suffix == ".csv":
        path.write_text(",".join(map(str, p)))
    elif suffix == ".npy":
        np.save(path, p)
    else:
        path.write_text(f'{{"kind": "categorical", "probabilities": {p.tolist()}}}')
    assert read_prior(path, binary_costs).probabilities.tolist() == p.tolist()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.csv", "0,1\n1\n", "ragged: row 2 has 1 cells"),
        ("c.csv", "0,1\n1,x\n", "'x' at environment 1, policy 1 is not a number"),
        ("c.csv", "", "empty"),
        ("c.csv", "a,b\n", "empty"),
        ("c.npy", "not an array", "cannot be read"),
        ("c.npz", "not an archive", "cannot be read"),
        ("c.txt", "0,1", "are read from .npy, .npz or .csv"),
    ],
)
def test_bad_files_get_a_clear_error(tmp_path: Path, name: str, content: str, message: str):
    with pytest.raises(ValueError, match=message):
        read_costs(write(tmp_path / name, content))


def test_pickled_arrays_are_refused(tmp_path: Path):
    np.save(tmp_path / "c.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read"):
        read_costs(tmp_path / "c.npy")


def test_an_archive_without_costs_says_what_it_has(tmp_path: Path):
    np.savez(tmp_path / "c.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match=r"no array named costs .*other"):
        read_costs(tmp_path / "c.npz")


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_costs(tmp_path / "none.csv")
