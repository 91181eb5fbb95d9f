from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pacbayes_control.costs import Costs
from pacbayes_control.reading import read_campaign, read_prior


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def costs_of(tmp_path: Path, text: str) -> Costs:
    return read_campaign(write(tmp_path / "c.csv", text)).costs


# ---- what is read -------------------------------------------------------------------------------


def test_a_bare_csv_is_read(tmp_path: Path):
    campaign = read_campaign(write(tmp_path / "c.csv", "0,1\n1,0\n0,0\n"))
    assert campaign.costs.values.tolist() == [[0, 1], [1, 0], [0, 0]]
    assert campaign.costs.names == ()
    assert campaign.prior is None
    assert campaign.reading == "no header, every column is a policy, no prior in the file"


def test_a_csv_with_header_sites_and_prior_is_read(tmp_path: Path):
    text = "site,slow,fast\nprior,0.75,0.25\nA,0,1\nB,0.5,0\n"
    campaign = read_campaign(write(tmp_path / "c.csv", text))
    assert campaign.costs.names == ("slow", "fast")
    assert campaign.costs.values.tolist() == [[0, 1], [0.5, 0]]
    assert campaign.prior is not None
    assert campaign.prior.probabilities.tolist() == [0.75, 0.25]
    assert "line 1 is the header" in campaign.reading
    assert "prior from the file" in campaign.reading


@pytest.mark.parametrize("heading", ["site", "Site", "Nr", "id", "seed"])
def test_numbered_sites_are_no_costs(tmp_path: Path, heading: str):
    assert costs_of(tmp_path, f"{heading},a,b\n1,0,1\n2,0,0\n3,1,1\n").values.shape == (3, 2)


def test_policies_may_be_numbered_in_the_header(tmp_path: Path):
    costs = costs_of(tmp_path, "site,0,1\nA,0,1\nB,1,1\n")
    assert costs.names == ("0", "1")
    assert costs.values.shape == (2, 2)


def test_a_single_column_is_one_policy(tmp_path: Path):
    costs = costs_of(tmp_path, "slow\n0\n1\n0\n")
    assert costs.names == ("slow",)
    assert costs.values.shape == (3, 1)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_usual_separators_are_recognised(tmp_path: Path, separator: str):
    text = "site,a,b\nA,0,1\nB,1,1\n".replace(",", separator)
    assert costs_of(tmp_path, text).values.tolist() == [[0, 1], [1, 1]]


def test_decimal_commas_are_read_between_semicolons(tmp_path: Path):
    assert costs_of(tmp_path, "site;a;b\nA;0,25;1\nB;0,5;0\n").values[0, 0] == 0.25


def test_pass_and_fail_are_read_and_told(tmp_path: Path):
    campaign = read_campaign(write(tmp_path / "c.csv", "site,a,b\nA,Pass,FAIL\nB,pass,pass\n"))
    assert campaign.costs.values.tolist() == [[0, 1], [0, 0]]
    assert "pass = 0 and fail = 1" in campaign.reading


def test_a_spreadsheets_habits_do_no_harm(tmp_path: Path):
    text = "\ufeffsite, a ,b,\r\n\r\nA, 0,1,\r\nB,1, 1,\r\n"
    costs = costs_of(tmp_path, text)
    assert costs.names == ("a", "b")
    assert costs.values.tolist() == [[0, 1], [1, 1]]


def test_npy_and_npz_are_read(tmp_path: Path):
    values = np.random.default_rng(0).random((4, 3))
    np.save(tmp_path / "c.npy", values)
    assert np.array_equal(read_campaign(str(tmp_path / "c.npy")).costs.values, values)
    np.savez(tmp_path / "c.npz", costs=values, prior=[0.5, 0.25, 0.25], policies=["a", "b", "c"])
    campaign = read_campaign(tmp_path / "c.npz")
    assert campaign.costs.names == ("a", "b", "c")
    assert campaign.prior is not None
    assert campaign.prior.probabilities.tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv", "0.5,0.3,0.2"),
        ("p.csv", "b,a,c\n0.3,0.5,0.2"),
        ("p.csv", "0.5\n0.3\n0.2"),
        ("p.json", "[0.5, 0.3, 0.2]"),
        ("p.json", '{"c": 0.2, "a": 0.5, "b": 0.3}'),
        ("p.json", '{"kind": "categorical", "probabilities": [0.5, 0.3, 0.2]}'),
    ],
)
def test_a_prior_is_read_from_each_kind_of_file(tmp_path: Path, name: str, content: str):
    prior = read_prior(write(tmp_path / name, content), ["a", "b", "c"])
    assert prior.probabilities.tolist() == [0.5, 0.3, 0.2]


def test_a_prior_is_read_from_numpy(tmp_path: Path):
    np.save(tmp_path / "p.npy", [0.5, 0.5])
    assert read_prior(tmp_path / "p.npy", 2).probabilities.tolist() == [0.5, 0.5]


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0,1\n1\n", "ragged: line 2 has 1 cells, line 1 has 2"),
        ("", "empty"),
        ("a,b\n", "empty"),
        ("site,a,b\nA,0,1\nB,0,x\n", "line 3, column b: 'x' is not a number"),
        ("site,a,b\nA,0,1\nB,,0\n", "line 3, column a: the cost is missing"),
        ("site,a,b\nA,0,1\nB,n/a,0\n", "line 3, column a: the cost is missing"),
        ("s0,n/a,n/a\ns1,0,1\ns2,0,1\n", "line 1, policy 0: the cost is missing"),
        ("site,a,b\nA,0,1\nB,11%,0\n", "'11%' is a percentage"),
        ("site,a,b\nA,True,False\nB,True,True\n", "write 0 for success and 1 for failure"),
        ("site,a,b\nA,0_1,0\nB,0,0\n", "'0_1' is not a number"),
        ("site,a,b\nA,0,1\nB,0,11\n", r"cost 11 at environment 1, policy 1 \(line 3\) is outside"),
        ("count,a,b\n1,0,1\n2,0,0\n", "head the column 'site'"),
        ("site,a,b\nA,0,1\nB,0,0\nMean,0,0.5\n", r"line 4 \(Mean\) is no environment"),
        ("site,a,b\nA,0,1\nB,0,0\n,0,0.5\n", "line 4 has no name"),
        ("site,a,b\nA,0,1\nB,0,0\nA,0,1\n", "'A' stands on lines 2 and 4"),
        ("id,b\n0,1\n0,0\n1,1\n", "'0' stands on lines 2 and 3"),
        ("site,a,b\nprior,0.5,0.5\nprior,0.4,0.6\nA,0,1\nB,1,1\n", "'prior' stands on lines"),
        ("site,a,b\nprior,0.5,0.5\nPrior,0.4,0.6\nA,0,1\nB,1,1\n", "'Prior' stands on lines"),
        ("a,b\n0,0\n,\n0,1\n", "line 3, column a: the cost is missing"),
        ("site,a,a\nA,0,1\nB,1,1\n", "two policies are named 'a'"),
        ("site,a,\nA,0,1\nB,1,1\n", "policy 1 has an empty name"),
    ],
)
def test_what_is_not_plainly_a_cost_is_refused(tmp_path: Path, content: str, message: str):
    with pytest.raises(ValueError, match=message):
        read_campaign(write(tmp_path / "c.csv", content))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.npy", b"not an array", "cannot be read"),
        ("c.npz", b"not an archive", "cannot be read"),
        ("c.txt", b"0,1", "are read from .npy, .npz or .csv"),
        ("c.csv", "0,1\n0,ü\n".encode("latin-1"), "save it as 'CSV UTF-8'"),
    ],
)
def test_bad_files_get_a_clear_error(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_campaign(tmp_path / name)


def test_pickled_arrays_are_refused(tmp_path: Path):
    np.save(tmp_path / "c.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read"):
        read_campaign(tmp_path / "c.npy")


def test_an_archive_without_costs_says_what_it_has(tmp_path: Path):
    np.savez(tmp_path / "c.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match=r"no array named costs .*other"):
        read_campaign(tmp_path / "c.npz")


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_campaign(tmp_path / "none.csv")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_prior(tmp_path / "none.csv", 2)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.csv", "0.5,x", "'x' is not a number"),
        ("p.csv", "a,z\n0.5,0.5", "names do not match"),
        ("p.json", "nonsense", "is not JSON"),
        ("p.json", json.dumps({"a": 1.0}), "names do not match"),
        ("p.json", json.dumps({"a": "x", "b": 1.0}), "every policy needs a number"),
        ("p.json", json.dumps("x"), "holds no prior"),
        ("p.csv", "0.5,0.3,0.2", "3 entries for 2 policies"),
        ("p.csv", "0.5,0.4", "sums to 0.9"),
        ("p.txt", "0.5,0.5", "read from .npy, .csv or .json"),
    ],
)
def test_bad_priors_get_a_clear_error(tmp_path: Path, name: str, content: str, message: str):
    with pytest.raises(ValueError, match=message):
        read_prior(write(tmp_path / name, content), ["a", "b"])


def test_only_line_ends_end_lines(tmp_path: Path):
    with pytest.raises(ValueError, match="is not a number"):
        read_campaign(write(tmp_path / "c.csv", "0,0\x0c0,1\n1,1,1\n"))
