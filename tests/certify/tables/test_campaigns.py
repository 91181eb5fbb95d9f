from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commands import complaint
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.tables.campaigns import read_campaign, read_policies, read_prior
from pacbayes_control.learn import compare_methods, learn_best, learn_finite

Pbc = Callable[..., subprocess.CompletedProcess[str]]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def costs_of(tmp_path: Path, text: str) -> Costs:
    return read_campaign(write(tmp_path / "c.csv", text)).costs


# ---- what is read -------------------------------------------------------------------------------


def test_a_bare_csv_is_read(tmp_path: Path):
    campaign = read_campaign(write(tmp_path / "c.csv", "1,0\n0,1\n0,0\n"))
    assert campaign.costs.values.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert campaign.costs.names == campaign.costs.sites == ()
    assert campaign.prior is None
    assert campaign.reading == (
        "no header, every column is a policy, no prior in the file, policies numbered from 0"
    )


def test_a_csv_with_header_sites_and_prior_is_read(tmp_path: Path):
    text = "site,slow,fast\nprior,0.75,0.25\nA,0,1\nB,0.5,0\n"
    campaign = read_campaign(write(tmp_path / "c.csv", text))
    assert campaign.costs.names == ("slow", "fast")
    assert campaign.costs.values.tolist() == [[0, 1], [0.5, 0]]
    assert campaign.prior is not None
    assert campaign.prior.probabilities.tolist() == [0.75, 0.25]
    assert "line 1 is the header" in campaign.reading
    assert "prior from the file" in campaign.reading
    assert "policies “slow”, “fast”" in campaign.reading
    assert campaign.costs.sites == ("A", "B")


@pytest.mark.parametrize("heading", ["site", "Site", "Nr", "id", "seed"])
def test_numbered_sites_are_no_costs(tmp_path: Path, heading: str):
    costs = costs_of(tmp_path, f"{heading},a,b\n1,0,1\n2,0,0\n#03,1,1\n")
    assert costs.values.shape == (3, 2)
    assert costs.sites == ("1", "2", "#03")


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
    text = '\ufeff\r\nsite, a ,"b\n",,\r\nA, 0,1,,\r\nB\u200b,1,\u00a01,,\r\n\r\n \r\n'
    costs = costs_of(tmp_path, text)
    assert costs.names == ("a", "b")
    assert costs.sites == ("A", "B")
    assert costs.values.tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize("first", ["sep=;", "SEP=;", '"sep=;"'])
def test_the_line_of_excel_that_tells_the_separator_is_understood(tmp_path: Path, first: str):
    costs = costs_of(tmp_path, f"{first}\nsite;a\nA;0,25\nB;0,5\n")
    assert (costs.names, costs.values.tolist()) == (("a",), [[0.25], [0.5]])
    with pytest.raises(ValueError, match="line 4, column “a”: the cost is missing"):
        costs_of(tmp_path, f"{first}\nsite;a\nA;0,25\nB;\n")
    with pytest.raises(ValueError, match="use a comma, a semicolon, a tab or a bar"):
        costs_of(tmp_path, "sep=:\nsite:a\nA:0\n")


def test_a_tsv_is_read_with_tabs(tmp_path: Path):
    campaign = read_campaign(write(tmp_path / "c.tsv", "site\ta, b\nA,B\t0,5\nC\t1\nD\t0,1\n"))
    assert campaign.costs.sites == ("A,B", "C", "D")
    assert campaign.costs.values.tolist() == [[0.5], [1], [0.1]]


def test_a_campaign_tells_where_its_costs_come_from(tmp_path: Path):
    path = write(tmp_path / "c\x1b[2K.csv", "site,a\nA,0\nB,1\n")
    assert read_campaign(path).costs.origin == {
        "file": "c\\x1b[2K.csv",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "rows": 2,
        "cost_rule": "as recorded in c\\x1b[2K.csv",
        "distribution": "as the environments of c\\x1b[2K.csv were chosen",
    }
    again = read_campaign(path, header=True, graded=True).costs.origin
    assert again["reading"] == {"header": True, "graded": True}


def test_the_names_of_many_policies_are_told_in_part(tmp_path: Path):
    names = [f"p{i}" for i in range(20)]
    text = ",".join(names) + "\n" + f"{','.join('01' * 10)}\n" * 2
    reading = read_campaign(write(tmp_path / "c.csv", text)).reading
    assert reading.endswith("“p10”, “p11” and 8 more")


def test_npy_and_npz_are_read(tmp_path: Path):
    values = np.random.default_rng(0).random((4, 3))
    np.save(tmp_path / "c.npy", values)
    assert np.array_equal(read_campaign(str(tmp_path / "c.npy")).costs.values, values)
    np.savez(
        tmp_path / "c.npz",
        costs=values,
        prior=[0.5, 0.25, 0.25],
        policies=["a", "b", "c"],
        sites=[4, 3, 2, 1],
    )
    campaign = read_campaign(tmp_path / "c.npz")
    assert campaign.costs.names == ("a", "b", "c")
    assert campaign.costs.sites == ("4", "3", "2", "1")
    assert campaign.reading.endswith("policies “a”, “b”, “c”")
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
        ("p.json", '{"kind":"categorical","probabilities":[0.5,0.3,0.2],"seen":[],"rows":[]}'),
    ],
)
def test_a_prior_is_read_from_each_kind_of_file(tmp_path: Path, name: str, content: str):
    prior = read_prior(write(tmp_path / name, content), ["a", "b", "c"])
    assert prior.probabilities.tolist() == [0.5, 0.3, 0.2]


def test_a_prior_is_read_from_numpy(tmp_path: Path):
    np.save(tmp_path / "p.npy", [0.5, 0.5])
    assert read_prior(tmp_path / "p.npy", 2).probabilities.tolist() == [0.5, 0.5]


# ---- the header ---------------------------------------------------------------------------------

CLEAR = [  # text, names of policies, names of sites
    ("gain,1,5,9\nA,0,1,0\nB,1,1,0\n", ("1", "5", "9"), ("A", "B")),
    ("gain,-0.5,0.5\nA,0,1\nB,1,1\n", ("-0.5", "0.5"), ("A", "B")),
    ("A,0,1,0\nB,1,1,0\nC,1,1,1\n", (), ("A", "B", "C")),
    ("A,0.5,0.5\nB,0.1,1\n", (), ("A", "B")),
    ("s-01,0,1\ns-02,1,1\ns-03,1,0\n", (), ("s-01", "s-02", "s-03")),
    ("A,pass,fail\nB,fail,fail\n", (), ("A", "B")),
    ("pass\nfail\npass\n", (), ()),
    ("0,1,2\n0,1,1\n1,1,0\n", ("0", "1", "2"), ()),  # pandas
    ("0\n0.0\n1.0\n0.0\n", ("0",), ()),
    ("0;1\n0,0;1,0\n1,0;1,0\n", ("0", "1"), ()),
    (",0\n0,0\n1,1\n2,1\n", ("0",), ("0", "1", "2")),
    (",0,1\n0,0,1\n1,1,1\n2,0,0\n", ("0", "1"), ("0", "1", "2")),
    (",0,1\nA,0,1\nB,1,1\n", ("0", "1"), ("A", "B")),
    (",slow,fast\n0,0,1\n1,1,1\n2,1,1\n", ("slow", "fast"), ("0", "1", "2")),
]
UNCLEAR = [
    "gain,0.1,0.5,0.9\nA,0,1,0\nB,1,1,0\nC,1,1,0\nD,1,1,0\n",
    "gain,0,1\nA,0,1\nB,1,1\n",
    "gain,0.1\nA,0.5\nB,0.25\n",
    ",0.1,0.5\nA,0,1\nB,1,1\n",
    "flight,failure\nA,0\nB,1\n",
    "0\n1\n0\n",
    "0\n0.5\n0.25\n",  # may be written so that a cost of 0 is 0
    "0,1\n1,1\n0,0\n",
]


@pytest.mark.parametrize(("text", "names", "sites"), CLEAR)
def test_a_header_is_told_from_an_environment(tmp_path: Path, text: str, names, sites):
    costs = costs_of(tmp_path, text)
    assert (costs.names, costs.sites) == (names, sites)
    assert costs.environments == text.count("\n") - bool(names)


@pytest.mark.parametrize("text", UNCLEAR)
def test_a_line_that_may_be_a_header_or_an_environment_is_asked_about(tmp_path: Path, text: str):
    path = write(tmp_path / "c.csv", text)
    with pytest.raises(ValueError, match=r"c.csv: line 1, “.*”, may be the header or an env"):
        read_campaign(path)
    costs = read_campaign(path, header=True).costs
    assert costs.names == tuple(text.split("\n")[0].split(","))[-costs.policies :]
    assert costs.environments == text.count("\n") - 1


def test_an_answer_about_the_header_is_heeded(tmp_path: Path):
    path = write(tmp_path / "c.csv", "0,1\n1,1\n0,0\n")
    assert read_campaign(path, header=False).costs.values.tolist() == [[0, 1], [1, 1], [0, 0]]
    path = write(tmp_path / "c.csv", "gain,0,1\nA,0,1\nB,1,1\n")
    assert read_campaign(path, header=False).costs.sites == ("gain", "A", "B")
    np.save(tmp_path / "c.npy", np.eye(3))
    with pytest.raises(ValueError, match=r"c.npy: only .csv and .tsv files have a header"):
        read_campaign(tmp_path / "c.npy", header=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gain,0.1,0.5\n1,0,1\n0,1,1\n", "line 1, policy 0: 'gain' is not a cost.*--header"),
        ("0.1,0.5\n1,0\n0,1\n1,1\n", "line 1: a row with fractions.*header.*--graded"),
        ("1,2,3\n1,0,1\n0,1,1\n", "cost 2 at environment 0, policy 1 .*say --header"),
        (",0,1\n0.5,0.1,1\n0.25,0,0.1\n", "line 1, policy 0: the cost is missing"),
        ("success\n1\n1\n0\n", "line 1: 'success' is among numbers.*say --header"),
        ("w,success,failure\nA,0,1\nB,1,1\n", "line 1: 'success' is among numbers"),
        ("site,success\nA,0\nB,1\n", "1 for failure: column “success” counts successes"),
        ("site,a,b\nA,pass,0\nB,1,1\n", "line 2: 'pass' is among numbers"),
        ("site,0,1\nA,1,1\nsite,0,1\nB,1,0\n", "“site” is on lines 1 and 3"),
        ("True\n0\n1\n", "line 1, policy 0: 'True' is ambiguous"),
    ],
)
def test_a_line_that_is_no_environment_is_not_counted(tmp_path: Path, text: str, message: str):
    with pytest.raises(ValueError, match=message):
        read_campaign(write(tmp_path / "c.csv", text))


# ---- summaries ----------------------------------------------------------------------------------

TRIALS = "site,a,b\nA,0,1\nB,0,0\nC,0,1\n"


@pytest.mark.parametrize(
    "label",
    [
        *("Mean", "Mean:", "MEAN (3)", "Ø", "⌀", "σ", "Std. Dev.", "S.D.", "n =", "%", "Summe"),
        *("failure rate", "Success-Rate [%]", "total failures", "Grand Total", "max.", "Weights"),
        *("average of all", "Mittelwert", "moyenne"),
    ],
)
@pytest.mark.parametrize("cells", ["0,1", "0,0.5"])
def test_a_summary_is_no_environment(tmp_path: Path, label: str, cells: str):
    path = write(tmp_path / "c.csv", f"{TRIALS}{label},{cells}\n")
    for graded in (False, True):
        with pytest.raises(ValueError, match=r"line 5, “.*”, is a summary and not an environment"):
            read_campaign(path, graded=graded)


@pytest.mark.parametrize("label", ["prior:", "prior weights", "Priors", "uniform prior"])
def test_a_prior_under_another_name_is_no_environment(tmp_path: Path, label: str):
    with pytest.raises(ValueError, match=r"line 5 is called “.*”: call the row prior"):
        costs_of(tmp_path, f"{TRIALS}{label},1,0\n")


@pytest.mark.parametrize("label", ["mean street", "Maxburg", "run 12", "north", "priory", "7"])
def test_a_name_that_only_looks_like_a_summary_is_an_environment(tmp_path: Path, label: str):
    assert costs_of(tmp_path, f"{TRIALS}{label},1,0\n").sites[-1] == label


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{TRIALS}Ergebnisse,0,0.5\n", r"c.csv, line 5 \(“Ergebnisse”\): a row with fractions"),
        ("1,0\n0,0\n1,1\n0.66,0.33\n", "c.csv, line 4: a row with fractions"),
        ("crash\n1\n0\n0.5\n", "c.csv, line 4: a row with fractions"),
        ("a\n" + "1\n0\n" * 9 + "0.5\n0.25\n0.75\n", "c.csv, line 20: a row with fractions"),
    ],
)
def test_a_few_rows_with_fractions_in_a_table_of_0_and_1_are_asked_about(
    tmp_path: Path, text: str, message: str
):
    path = write(tmp_path / "c.csv", text)
    with pytest.raises(ValueError, match=message):
        read_campaign(path)
    body = text.count("\n") - (not text.startswith("1"))
    assert read_campaign(path, graded=True).costs.environments == body


def test_rows_with_fractions_are_asked_about_in_arrays_too(tmp_path: Path):
    values = np.vstack([np.eye(4), np.full(4, 0.25)])
    np.save(tmp_path / "c.npy", values)
    with pytest.raises(ValueError, match=r"c.npy, row 4: a row with fractions"):
        read_campaign(tmp_path / "c.npy")
    np.savez(tmp_path / "c.npz", costs=values, sites=[*"abcd", "Ø!"])
    with pytest.raises(ValueError, match=r"c.npz, row 4 \(“Ø!”\): a row with fractions"):
        read_campaign(tmp_path / "c.npz")
    assert read_campaign(tmp_path / "c.npz", graded=True).costs.environments == 5


def test_many_rows_with_fractions_are_environments(tmp_path: Path):
    text = "a\n" + "1\n0\n" * 9
    assert costs_of(tmp_path, text + "0.5\n" * 8).environments == 26
    assert costs_of(tmp_path, "a\n0.5\n1\n").environments == 2


@pytest.mark.parametrize("label", ["Gesamtergebnis", "x̄", "mean over sites", "=AVERAGE(B2:B9)"])
def test_a_last_row_of_means_is_told_by_its_numbers(tmp_path: Path, label: str):
    values = np.random.default_rng(0).random((8, 3)).round(2)
    rows = [f"s{i},{a:g},{b:g},{c:g}" for i, (a, b, c) in enumerate(values)]
    text = "site,a,b,c\n" + "\n".join(rows)
    means = values.mean(axis=0)
    for digits in (2, 4, 12):
        last = ",".join(f"{mean:.{digits}f}" for mean in means)
        path = write(tmp_path / "c.csv", f"{text}\n{label},{last}\n")
        with pytest.raises(ValueError, match=r"line 10: it has the means of the rows above"):
            read_campaign(path)
        assert read_campaign(path, graded=True).costs.environments == 9
    other = ",".join(f"{mean + 0.02:.2f}" for mean in means)
    assert costs_of(tmp_path, f"{text}\n{label},{other}\n").environments == 9


def test_subtotals_of_blocks_are_asked_about(tmp_path: Path):
    block = "\n".join(["1,0", "0,0"] * 5)
    with pytest.raises(ValueError, match="a row with fractions in a table of 0 and 1"):
        costs_of(tmp_path, "a,b\n" + f"{block}\n0.5,0\n" * 4)


@pytest.mark.parametrize("name", ["success?", "Success rate", "Pass/Fail", "OK", "reward"])
def test_a_column_that_counts_up_is_no_cost(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match="counts successes"):
        costs_of(tmp_path, f"{name},b\n0,1\n1,1\n")


# ---- missing trials -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n0\n\n1\n", 3),
        ("a\n\n0\n1\n", 2),
        ("\na\n0\n1\n", 1),
        ("a\n0\n1\n\n", 4),
        ("a\r\n0\r\n1\r\n\r\n", 4),
        ("a\n0\n1\n ", 4),
        ("a\n0\n \t\n1\n", 3),
        ("a\n0\n\u00a0\n1\n", 3),
        ("a\n0\n\u200b\n1\n", 3),
        ('a\n0\n""\n1\n', 3),
        ('a\n0\n"  "\n1\n', 3),
        ("a,\n0,\n1,\n\n", 4),  # one column, and a separator
        ("a,b\n0,1\n\n1,1\n", 3),
        ("a,b\n\n0,1\n1,1\n", 2),
        ("a,b\n0,1\n  \n1,1\n", 3),
        ("sep=;\na;b\n0;1\n\n1;1\n", 4),
    ],
)
def test_a_blank_line_is_refused_with_its_number(tmp_path: Path, text: str, line: int):
    with pytest.raises(ValueError, match=rf"c.csv: line {line} is blank: a missing trial is often"):
        costs_of(tmp_path, text)


@pytest.mark.parametrize(
    "cell",
    [
        *(
            "",
            " ",
            '""',
            '" "',
            "\u00a0",
            "nan",
            "NaN",
            "-nan",
            "NA",
            "<NA>",
            "n/a",
            "None",
            "null",
        ),
        *("#N/A", "#DIV/0!", "#VALUE!", ".", "-", "–", "?", "…"),
    ],
)
def test_a_missing_cost_is_refused_with_its_line(tmp_path: Path, cell: str):
    with pytest.raises(ValueError, match="line 3, column “a”: the cost is missing; a missing"):
        costs_of(tmp_path, f"site,a,b\nA,0,1\nB,{cell},1\nC,0,1\n")
    with pytest.raises(ValueError, match=r"line 3.*a missing trial is often a failed one"):
        costs_of(tmp_path, f"a\n0\n{cell}\n1\n")
    with pytest.raises(ValueError, match=r"line 1.*a missing trial is often a failed one"):
        costs_of(tmp_path, f"{cell}\n0\n1\n")


@pytest.mark.parametrize("text", ["# a\n0\n1\n", "# by hand; twice\na;b\n0;1\n", "# a,b\n1,1\n"])
def test_a_comment_is_refused_with_its_line(tmp_path: Path, text: str):
    with pytest.raises(ValueError, match=r"c.csv: line 1 is a comment"):
        costs_of(tmp_path, text)
    with pytest.raises(ValueError, match=r"c.csv: line 3 is a comment, “#1,0”: remove it"):
        costs_of(tmp_path, "a,b\n0,1\n'#1,0'\n1,1\n".replace("'", '"'))


@pytest.mark.parametrize("name", ["c.npy", "c.npz"])
def test_nan_in_an_array_is_refused(tmp_path: Path, name: str):
    values = np.array([[0, 1], [0, np.nan]])
    with (tmp_path / name).open("wb") as file:
        np.save(file, values) if name == "c.npy" else np.savez(file, costs=values)
    with pytest.raises(ValueError, match="environment 1, policy 1 is NaN"):
        read_campaign(tmp_path / name)


# ---- what else is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1,1\n1\n", "ragged: line 2 has 1 cells, line 1 has 2"),
        ("Tests of May\n\nsite,a\nA,0\n", "ragged: line 3 has 2 cells, line 1 has 1"),
        ("", "empty"),
        ("a,b\n", "empty"),
        ("site,a,b\nA,0,1\nB,0,x\n", "line 3, column “b”: 'x' is not a cost"),
        ("s0,n/a,n/a\ns1,0,1\ns2,0,1\n", "line 1, policy 0: the cost is missing"),
        ("site,a,b\nA,0,1\nB,11%,0\n", "'11%' is a percentage"),
        (
            "site,a,b\nA,True,False\nB,True,True\n",
            "is ambiguous: write 0 for success, 1 for failure",
        ),
        ("site,a,b\nA,0_1,0\nB,0,0\n", "'0_1' is not a cost"),
        ("site,a,b\nA,0,1\nB,0,11\n", r"cost 11 at environment 1, policy 1 \(line 3\) is outside"),
        ("count,a,b\n1,0,1\n2,0,0\n", "head the column 'site'"),
        ("site,a,b\nA,0,1\nB,0,0\n,0,0.5\n", "line 4 has no name"),
        ("site,a,b\nA,0,1\nB,0,0\nn/a,0,0\n", "line 4 has no name"),
        ('site,a,b\nA,0,1\n"B,0,0\nC",0,0\n', "line 4: the name “B,0,0 C” has several lines"),
        ("site,a,b\nA,0,1\nB,0,0\nA,0,1\n", "“A” is on lines 2 and 4"),
        ("id,b\n0,1\n0,0\n1,1\n", "“0” is on lines 2 and 3"),
        ("site,a,b\nprior,0.5,0.5\nprior,0.4,0.6\nA,0,1\nB,1,1\n", "“prior” is on lines"),
        ("site,a,b\nprior,0.5,0.5\nPrior,0.4,0.6\nA,0,1\nB,1,1\n", "“Prior” is on lines"),
        ("a,b\n0,0\n,\n0,1\n", "line 3, column “a”: the cost is missing"),
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
        ("c.npy", b"not an array", "is corrupt: it is not a NumPy array"),
        ("c.npz", b"not an archive", "cannot be read"),
        ("c.txt", b"0,1", "are read from .npy, .npz, .csv or .tsv"),
        ("c.xlsx", b"PK", "c.xlsx is a spreadsheet: save it as 'CSV UTF-8'"),
        ("c.ods", b"PK", "c.ods is a spreadsheet: save it as 'CSV UTF-8'"),
        ("c.csv", b"PK\x03\x04\x14", "c.csv is a spreadsheet: save it as 'CSV UTF-8'"),
        ("c.csv", "0,1\n0,ü\n".encode("latin-1"), "save it as 'CSV UTF-8'"),
    ],
)
def test_bad_files_get_a_clear_error(tmp_path: Path, name: str, content: bytes, message: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_campaign(tmp_path / name)


def test_pickled_arrays_are_refused(tmp_path: Path):
    np.save(tmp_path / "c.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="is corrupt: it is not a NumPy array"):
        read_campaign(tmp_path / "c.npy")


def test_an_archive_without_costs_says_what_it_has(tmp_path: Path):
    np.savez(tmp_path / "c.npz", other=np.zeros(3))
    with pytest.raises(ValueError, match=r"no array named costs .*other"):
        read_campaign(tmp_path / "c.npz")


def test_a_summary_may_be_repaired_as_the_error_says(tmp_path: Path):
    path = write(tmp_path / "c.csv", "0.1,0.5\n1,0\n0,1\n1,1\n")
    assert read_campaign(path, header=True).costs.names == ("0.1", "0.5")


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
        ("p.csv", "a,a,b\n0.2,0.5,0.5", "two policies are named 'a'"),
        ("p.csv", "pass,fail", "'pass' is not a number"),
        ("p.csv", "0.5\n\n0.5", "line 2 is blank"),
        ("p.xlsx", "", "p.xlsx is a spreadsheet: save it as 'CSV UTF-8'"),
        ("p.json", json.dumps({"a": 10**400, "b": 1}), "every policy needs a number"),
        ("p.json", '{"kind": "categorical", "probabilities": [1, 0]}', "p.json does not say which"),
        ("p.json", '{"probabilities": [1, 0]}', "holds no categorical distribution"),
        ("p.json", '{"kind": "diagonal gaussian"}', "holds no categorical distribution"),
        ("p.txt", "0.5,0.5", "read from .npy, .csv or .json"),
    ],
)
def test_bad_priors_get_a_clear_error(tmp_path: Path, name: str, content: str, message: str):
    with pytest.raises(ValueError, match=message):
        read_prior(write(tmp_path / name, content), ["a", "b"])


def test_a_policy_may_be_called_kind(tmp_path: Path):
    path = write(tmp_path / "p.json", '{"kind": 0.25, "rude": 0.75}')
    assert read_prior(path, ["kind", "rude"]).probabilities.tolist() == [0.25, 0.75]


# ---- a posterior that is given back as a prior ---------------------------------------------------

ROWS = [f"{i % 2},{i % 3 % 2},{i % 5 % 2}" for i in range(30)]


def table(path: Path, rows: list[str], sites: list[str] | None = None) -> Costs:
    lines = ["a,b,c", *rows]
    if sites:
        lines = [f"{s},{line}" for s, line in zip(["site", *sites], lines, strict=True)]
    return read_campaign(write(path, "\n".join(lines) + "\n")).costs


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("change", ["same", "added", "renamed", "reordered", "fewer", "unnamed"])
def test_a_posterior_is_no_prior_for_the_table_that_it_was_learnt_from(
    tmp_path: Path, named: bool, change: str
):
    sites = [f"s{i}" for i in range(30)] if named else None
    costs = table(tmp_path / "c.csv", ROWS, sites)
    learn_finite(costs, 0.05).save(tmp_path / "run")
    prior = read_prior(tmp_path / "run" / "posterior.json", costs.names)
    rows = ROWS + ["1,0,1"] * 4 if change == "added" else ROWS[:9] if change == "fewer" else ROWS
    others = sites and [*sites, "new", "newer", "more", "most"][: len(rows)]
    if change == "reordered":
        rows, others = rows[::-1], others and others[::-1]
    if change == "renamed" and others:
        others[0] = "other"
    again = table(tmp_path / "d.csv", rows, None if change == "unnamed" else others)
    for learn in (learn_finite, learn_best):
        with pytest.raises(ValueError, match="the prior was learnt from environments"):
            learn(again, 0.05, prior=prior)
    with pytest.raises(ValueError, match="the prior was learnt from environments"):
        compare_methods(again, 0.05, prior=prior)


def test_a_posterior_is_a_prior_for_other_sites(tmp_path: Path):
    costs = table(tmp_path / "c.csv", ROWS, [f"s{i}" for i in range(30)])
    learn_finite(costs, 0.05).save(tmp_path / "run")
    prior = read_prior(tmp_path / "run" / "posterior.json", costs.names)
    others = table(tmp_path / "d.csv", ROWS, [f"t{i}" for i in range(30)])
    posterior = learn_finite(others, 0.05, prior=prior).posterior
    assert posterior.rows >= {*costs.rows, *others.rows}  # and no prior for either
    assert read_prior(tmp_path / "run" / "prior.json", costs.names).rows == frozenset()


# ---- the command --------------------------------------------------------------------------------


def test_the_command_asks_about_the_header_and_about_fractions(quick: Pbc, tmp_path: Path):
    write(tmp_path / "c.csv", "gain,0.1,0.5\nA,0,1\nB,1,1\nC,1,0\n")
    assert "say --header or --no-header" in complaint(quick("certify", "c.csv"))
    assert "say --graded" in complaint(quick("certify", "c.csv", "--no-header"))
    done = quick("certify", "c.csv", "--header")
    assert "policies “0.1”, “0.5”" in " ".join(done.stdout.split())
    assert "3 environments × 2 policies" in done.stdout
    done = quick("certify", "c.csv", "--no-header", "--graded", "--out", "run")
    assert "4 environments × 2 policies" in done.stdout


def test_the_command_certifies_one_policy_unless_constraints_ask_for_a_mixture(
    quick: Pbc, tmp_path: Path
):
    write(tmp_path / "c.csv", "crash\n" + "0\n1\n0\n0\n" * 9)
    write(tmp_path / "d.csv", "crash,late\n" + "0,1\n1,1\n0,1\n0,0\n" * 9)
    mixed = ("--at-least", "0.2:late")
    for file, options, method in (
        ("c.csv", (), "occam"),
        ("d.csv", (), "occam"),
        ("d.csv", mixed, "kl"),
    ):
        assert quick("certify", file, *options, "--json", "c.json").returncode == 0
        assert json.loads((tmp_path / "c.json").read_text())["chosen"]["method"] == method


def test_the_command_refuses_the_posterior_of_the_same_table(quick: Pbc, tmp_path: Path):
    table(tmp_path / "c.csv", ROWS, [f"s{i}" for i in range(30)])
    assert quick("certify", "c.csv", "--out", "run").returncode == 0
    refusal = complaint(quick("certify", "c.csv", "--prior", "run/posterior.json"))
    assert "the prior was learnt from environments of the same names, such as “s" in refusal


# ---- policies -----------------------------------------------------------------------------------


def test_policies_may_have_names(tmp_path: Path):
    rows, names = read_policies(write(tmp_path / "p.csv", "early.pt,1,2\nfail,3,4\n"))
    assert (rows.tolist(), names) == ([[1, 2], [3, 4]], ["early.pt", "fail"])
    rows, names = read_policies(write(tmp_path / "p.csv", "1,2\n3,4\n"))
    assert (rows.tolist(), names) == ([[1, 2], [3, 4]], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,k\na,1\nb,2\n", "p.csv: policies are rows of numbers, each after its name"),
        ("a,1\n2,2\n", "p.csv: policies are rows of numbers"),
        ("a\nb\n", "p.csv: policies are rows of numbers"),
        ("a,1\n,2\n", "policy 1 has an empty name"),
        ("a,1\na,2\n", "two policies are named 'a'"),
        ("1,2\n\n3,4\n", "line 2 is blank"),
    ],
)
def test_bad_policies_get_a_clear_error(tmp_path: Path, text: str, message: str):
    with pytest.raises(ValueError, match=message):
        read_policies(write(tmp_path / "p.csv", text))


def test_only_line_ends_end_lines(tmp_path: Path):
    with pytest.raises(ValueError, match="is not a cost"):
        read_campaign(write(tmp_path / "c.csv", "0,0\x0c0,1\n1,1,1\n"))
