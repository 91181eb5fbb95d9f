"""Reading what happened in deployment, as people write it down."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from pacbayes_control.certify.tables.columns import checked_outcomes, read_feature, read_outcomes
from sizes import sized


def written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "flights.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ---- what is read -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("0\n1\n0\n", [0, 1, 0]),
        ("0\n1\n0", [0, 1, 0]),
        ("1", [1]),
        ("0\n0.25\n1e-3\n1.0\n", [0, 0.25, 0.001, 1]),
        ("cost\n0\n1\n", [0, 1]),
        ("Outcome\n0\n1\n", [0, 1]),
        ("costs\n0\n1\n", [0, 1]),
        ("OUTCOMES\n0\n1\n", [0, 1]),
        ("result\n0\n1\n", [0, 1]),
        ("pass\nfail\nPASSED\nFailed\nsuccess\nfailure\n", [0, 1, 0, 1, 0, 1]),
        ("outcome\npass\nfail\n", [0, 1]),
        ("failed\npassed\n", [1, 0]),
        ("site,cost\nA,0\nB,0.5\n", [0, 0.5]),
        ("cost,site\n0,A\n0.5,B\n", [0, 0.5]),
        ("site;cost;wind\nA;0;3,5\nB;1;4\n", [0, 1]),
        ("site\tresult\nA\tpass\nB\tfail\n", [0, 1]),
        ("site|cost\nA|0\nB|1\n", [0, 1]),
        ("site;cost\nA;0,5\nB;1\n", [0.5, 1]),
        ("cost;\n0;\n1;\n", [0, 1]),
        ('"cost"\n"0"\n"1"\n', [0, 1]),
        ('cost\n"0"\n"0.5"\n', [0, 0.5]),
        ('site,cost\nA,"0"\n"B",1\n', [0, 1]),
        ('"site","cost"\n"A, north","0"\n"B ""x""","1"\n', [0, 1]),
        ("site,cost\n\"A\nnorth\",0\nB,1\n", [0, 1]),
        (b"\xef\xbb\xbf0\n1\n", [0, 1]),
        (b"\xef\xbb\xbfcost\r\n0\r\n1\r\n", [0, 1]),
        (b"\xef\xbb\xbfsite,cost\r\nA,0\r\nB,1\r\n", [0, 1]),
        ("0\r\n1\r\n", [0, 1]),
        ("site,cost\r\nA,0\r\nB,1\r\n", [0, 1]),
        ("\n\nsite,cost\nA,0\nB,1\n\n \n", [0, 1]),
        ("sep=;\nsite;cost\nA;0,5\nB;1\n", [0.5, 1]),
        ("sep=;\n0,5\n1\n", [0.5, 1]),
        ("  cost \n 0\n1  \n\t0.5\n", [0, 1, 0.5]),
        (" site , cost \n A , 0 \n B , 1 \n", [0, 1]),
        ("Zürich – Nord,cost\nä,0\nö,1\n", [0, 1]),
    ],
)  # fmt: skip
def test_outcomes_are_read_as_they_are_written(tmp_path: Path, content, expected):
    values = read_outcomes(written(tmp_path, content))
    assert values.dtype == np.float64
    assert values.tolist() == expected


def test_a_column_is_read_by_its_name(tmp_path: Path):
    path = written(tmp_path, "cost,late, Landing \n0,1,0.5\n1,0,0.25\n")
    assert read_outcomes(path).tolist() == [0, 1]
    assert read_outcomes(path, "cost").tolist() == [0, 1]
    assert read_outcomes(path, "late").tolist() == [1, 0]
    assert read_outcomes(str(path), "Landing").tolist() == [0.5, 0.25]


def test_a_column_of_one_is_read_by_its_name_too(tmp_path: Path):
    assert read_outcomes(written(tmp_path, "late\n0\n1\n"), "late").tolist() == [0, 1]
    assert read_outcomes(written(tmp_path, "did it crash\n0\n1\n"), "did it crash").size == 2
    assert read_outcomes(written(tmp_path, "failed\n0\n1\n"), "failed").tolist() == [0, 1]
    assert read_outcomes(written(tmp_path, "failed\nfailed\n"), "failed").tolist() == [1]
    assert read_outcomes(written(tmp_path, "site|failed\nA|0\nB|1\n"), "failed").size == 2


def test_a_column_is_read_by_its_number_from_one(tmp_path: Path):
    path = written(tmp_path, "site,late,cost\nA,1,0.5\nB,0,0.25\n")
    with pytest.raises(ValueError, match=r"'late' is not a cost.*if 'late' is the header, say"):
        read_outcomes(path, "2")
    assert read_outcomes(path, "3").tolist() == [0.5, 0.25]
    without_header = written(tmp_path, "A,1,0.5\nB,0,0.25\n")
    assert read_outcomes(without_header, "2").tolist() == [1, 0]
    assert read_outcomes(without_header, "3").tolist() == [0.5, 0.25]
    assert read_outcomes(written(tmp_path, "A,pass\nB,fail\n"), "2").tolist() == [0, 1]
    assert read_outcomes(written(tmp_path, "0\n1\n"), "1").tolist() == [0, 1]
    for number in ("0", "3"):
        with pytest.raises(ValueError, match=f"flights.csv has 2 columns, and no column {number}"):
            read_outcomes(written(tmp_path, "0,1\n"), number)


@pytest.mark.parametrize("header", ["success", "Passed", "pass"])
def test_a_column_of_successes_is_not_read_as_one_of_costs(tmp_path: Path, header: str):
    """Its ones are no failures."""
    for content in (f"{header}\n1\n0\n", f"site,{header}\nA,1\nB,0\n"):
        with pytest.raises(ValueError, match=r"flights\.csv: give costs, 1 for failure"):
            read_outcomes(written(tmp_path, content), header)


def test_many_outcomes_are_read_right(tmp_path: Path):
    values = np.random.default_rng(0).random(sized(10_000, full=100_000))
    plain = "\n".join(map(repr, values.tolist()))
    assert np.array_equal(read_outcomes(written(tmp_path, plain)), values)
    assert np.array_equal(read_outcomes(written(tmp_path, "cost\r\n" + plain)), values)
    table = "site,cost\n" + "\n".join(f"{i},{value!r}" for i, value in enumerate(values.tolist()))
    assert np.array_equal(read_outcomes(written(tmp_path, table)), values)


def test_the_line_of_one_bad_outcome_among_many_is_told(tmp_path: Path):
    lines = ["cost", *["0"] * sized(10_000, full=100_000)]
    lines[7_777] = "-0.5"
    with pytest.raises(ValueError, match=r"flights.csv, line 7778: a cost of -0.5 is outside"):
        read_outcomes(written(tmp_path, "\n".join(lines)))


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0\n1.5\n", "line 2: a cost of 1.5 is outside [0, 1]"),
        ("1.5\n0\n", "line 1: a cost of 1.5 is outside [0, 1]"),
        ("cost\n0\n-0.01\n", "line 3: a cost of -0.01 is outside [0, 1]"),
        ("\n\nsite,cost\nA,0\nB,7\n", "line 5: a cost of 7 is outside [0, 1]"),
        ("site,cost\r\nA,0\r\nB,7\r\n", "line 3: a cost of 7 is outside [0, 1]"),
        ('site,cost\n"A\nnorth",0\nB,7\n', "line 4: a cost of 7 is outside [0, 1]"),
        ("0\ninf\n", "line 2: a cost of inf is outside [0, 1]"),
        ("0\n1e999\n", "line 2: a cost of inf is outside [0, 1]"),
        ("0\nmaybe\n", "line 2: 'maybe' is not a cost: write 0 for success, 1 for failure"),
        ("cost\ncrash\n", "line 2: 'crash' is not a cost: write 0 for success, 1 for failure"),
        ("cost\n0\ncost\n1\n", "line 3: 'cost' is not a cost: write 0 for success, 1 for failure"),
        ("cost\n50%\n", "line 2: '50%' is a percentage: write costs between 0 and 1"),
        ("cost\n0,5\n", "is ragged: line 2 has 2 cells, line 1 has 1"),
        ("0\n1\x00\n", "line 2: '1\\x00' is not a cost: write 0 for success, 1 for failure"),
        ("", "flights.csv has no rows"),
        ("\n \n\t\n", "flights.csv has no rows"),
        (b"\xef\xbb\xbf", "flights.csv has no rows"),
        ("cost\n", "there are no outcomes below the header"),
        ("site,cost\n", "there are no outcomes below the header"),
        ("site,cost\nA,0\nMean:,0.5\n", "line 3, “Mean:”, is a summary: remove it"),
        ("PK\x03\x04", "flights.csv is a spreadsheet: save it as 'CSV UTF-8'"),
        ("# flights\n0\n", "line 1 is a comment"),
        ("site,cost\nA,0\nB\n", "is ragged: line 3 has 1 cells, line 1 has 2"),
        ("site,cost\nA,0\n\nB,1,1\n", "is ragged: line 4 has 3 cells, line 1 has 2"),
        ('site,cost\nA,0\n"B,1\nC,1\n', "is not a CSV file (unexpected end of data)"),
        ("0,1\n1,0\n", "(--column); the first row is 0, 1"),
        ("cost,outcome\n0,1\n", "(--column); the first row is cost, outcome"),
        ("failures,trials\n2,20\n", "(--column); the first row is failures, trials"),
        ("site,failed\nA,0\nB,1\n", "(--column); the first row is site, failed"),
        (bytes(range(256)), "flights.csv is not UTF-8 text"),
        ("0\n1\n".encode("utf-16"), "flights.csv is not UTF-8 text"),
    ],
)  # fmt: skip
def test_what_is_no_outcome_is_refused_in_one_line_that_says_where(
    tmp_path: Path, content, message
):
    with pytest.raises(ValueError, match=r"flights\.csv") as error:
        read_outcomes(written(tmp_path, content))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("0\n\n1\n", 2),
        ("\n0\n1\n", 1),
        ("0\n1\n\n", 3),
        ("0\n1\n\n\n\n", 3),
        ("0\r\n1\r\n\r\n", 3),
        ("0\n1\n ", 3),
        ("cost\n\n0\n", 2),
        ("cost\n0\n   \n1\n", 3),
        ("cost\n0\n\u00a0\n1\n", 3),
        ("\ncost\n\n", 1),
        ('"0"\n""\n"1"\n', 2),
        ("site,cost\nA,0\n\nB,1\n", 3),
        ("site,cost\n\nA,0\nB,1\n", 2),
        ("site,cost\nA,0\nB,\n", 3),
        ("site,cost\nA,0\nB,\u00a0\n", 3),
        ("site,cost\nA,0\n,\nB,1\n", 3),
        ("0\nnan\n", 2),
        ("NaN\n0\n", 1),
        ("cost\n0\nNA\n", 3),
        ("cost\n0\n#DIV/0!\n", 3),
        ("site,cost\nA,NaN\n", 2),
        ("site,cost\nA,.\n", 2),
    ],
)
def test_a_missing_trial_is_refused_with_its_line(tmp_path: Path, content: str, line: int):
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=rf"line {line}\b.*a missing trial is often a failed one"):
        read_outcomes(path)


def test_a_word_for_an_outcome_is_not_taken_for_a_summary(tmp_path: Path):
    assert read_outcomes(written(tmp_path, "word,cost\npassed,0\nfailed,1\n")).tolist() == [0, 1]
    assert read_outcomes(written(tmp_path, "mode,cost\nall,0\nall,1\n")).tolist() == [0, 1]


@pytest.mark.parametrize("first", ["inf", "-inf"])
def test_a_first_outcome_that_is_no_finite_number_is_not_taken_for_a_header(
    tmp_path: Path, first: str
):
    with pytest.raises(ValueError, match=r"flights.csv, line 1: a cost of \S+ is outside"):
        read_outcomes(written(tmp_path, f"{first}\n0\n1\n"))


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ("crashed", "not a cost"),
        ("did it crash", "not a cost"),
        ("failures", "not a cost"),
        ("Kosten", "not a cost"),
        ("cost?", "not a cost"),
        ("True", "ambiguous"),
    ],
)
def test_a_first_line_that_may_be_an_outcome_is_not_taken_for_a_header(
    tmp_path: Path, first: str, problem: str
):
    expected = rf"flights.csv, line 1: .* is {problem}: write 0 for success, 1 for failure"
    with pytest.raises(ValueError, match=expected):
        read_outcomes(written(tmp_path, f"{first}\n0\n1\n"))


@pytest.mark.parametrize("first", ["failed", "failure", "Failed", "fail"])
def test_a_failure_on_the_first_line_counts(tmp_path: Path, first: str):
    values = read_outcomes(written(tmp_path, f"{first}\npassed\npassed\n"))
    assert values.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("content", "word", "line"),
    [
        ("failure\n0\n1\n", "failure", 1),  # an outcome, or a header?
        ("success\n1\n1\n0\n", "success", 1),  # its ones are no failures
        ("pass\n0\n", "pass", 1),
        ("outcome\npass\n0.5\nfail\n", "pass", 2),
        ("0\n1\nFailed\n", "Failed", 3),
        ("site,cost\nA,0\nB,fail\n", "fail", 3),
    ],
)
def test_words_among_numbers_are_refused(tmp_path: Path, content: str, word: str, line: int):
    with pytest.raises(ValueError, match=r"flights\.csv") as error:
        read_outcomes(written(tmp_path, content))
    hint = f"; if {word!r} is the header, say --column {word}" if line == 1 else ""
    expected = f"line {line}: {word!r} is among numbers: write either words or numbers{hint}"
    assert str(error.value).endswith(expected)
    assert "\n" not in str(error.value)


def test_a_word_that_is_none_of_those_for_outcomes_is_refused_among_them(tmp_path: Path):
    with pytest.raises(ValueError, match=r"flights\.csv"):
        read_outcomes(written(tmp_path, "pass\nfail\ncrash\n"))


@pytest.mark.parametrize("cell", ["0_1", "0_0.5", "0_0"])
@pytest.mark.parametrize("before", ["", "0\n", "cost\n", "0\n1\n"])
def test_what_only_python_takes_for_a_number_is_refused(tmp_path: Path, before: str, cell: str):
    line = before.count("\n") + 1
    with pytest.raises(ValueError, match=f"line {line}: '{cell}' is not a cost"):
        read_outcomes(written(tmp_path, f"{before}{cell}\n1\n"))


@pytest.mark.parametrize(
    "content",
    ['site,cost\n"A,0\n' + "B,1\n" * 50_000, "site,cost\nA," + "0" * 200_000 + "\n"],
    ids=["a quote that is never closed", "a cell without end"],
)
def test_what_is_no_csv_file_is_refused(tmp_path: Path, content: str):
    with pytest.raises(ValueError, match=r"flights\.csv is not a CSV file") as error:
        read_outcomes(written(tmp_path, content))
    assert "\n" not in str(error.value)


def test_a_column_that_is_not_there_is_an_error_that_names_those_that_are(tmp_path: Path):
    path = written(tmp_path, "site,cost\nA,0\n")
    with pytest.raises(ValueError, match="no column 'late': its first row is site, cost"):
        read_outcomes(path, "late")
    with pytest.raises(ValueError, match="no column 'late'"):
        read_outcomes(written(tmp_path, "0\n1\n"), "late")
    with pytest.raises(ValueError, match="several columns 'cost': its first row is cost, cost"):
        read_outcomes(written(tmp_path, "cost,cost\n0,1\n"), "cost")


def test_a_file_that_is_not_there_and_a_folder_are_errors(tmp_path: Path):
    for read in (read_outcomes, read_feature):
        with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.csv"):
            read(tmp_path / "none.csv")
        with pytest.raises(ValueError, match="is a folder: give a file"):
            read(tmp_path)


# ---- outcomes that are given, not read ----------------------------------------------------------


@pytest.mark.parametrize("value", [1.0000001, -1e-12, math.nan, math.inf])
def test_a_given_outcome_that_is_no_cost_is_told_by_its_place(value: float):
    with pytest.raises(ValueError, match=r"the outcomes, outcome 3: .* is outside \[0, 1\]"):
        checked_outcomes([0, 1, value, 7])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "give one cost for each mission, not shape"),
        ([[0, 1]], "give one cost for each mission, not shape"),
        (0.5, "give one cost for each mission, not shape"),
        (["crash"], "they are not all numbers"),
        ([0, None, 1], r"outcome 2: a cost of nan is outside|not all numbers"),
        ([[0], [0, 1]], "they are not all numbers"),
    ],
)
def test_outcomes_are_a_list_of_numbers_that_is_not_empty(values, message):
    with pytest.raises(ValueError, match=message):
        checked_outcomes(values)


def test_outcomes_may_be_numbers_or_truths():
    assert checked_outcomes([True, False, 0.5]).tolist() == [1, 0, 0.5]
    assert checked_outcomes(np.array([0, 1], np.uint8)).dtype == np.float64


# ---- features -----------------------------------------------------------------------------------


def test_a_feature_is_a_column_of_words_or_numbers(tmp_path: Path):
    path = written(tmp_path, "site,weather,wind\nA,rain,3.5\nB,sun,2\n")
    assert read_feature(path, "weather") == ["rain", "sun"]
    assert read_feature(path, "wind", numeric=True) == [3.5, 2]
    assert read_feature(written(tmp_path, "rain\nsun\n")) == ["rain", "sun"]
    assert read_feature(written(tmp_path, "wind\n3.5\n2\n"), "wind", numeric=True) == [3.5, 2]


@pytest.mark.parametrize("first", ["feature", "weather", "cost", "outcome", "result"])
def test_a_feature_has_no_header_unless_it_is_named(tmp_path: Path, first: str):
    """Whatever stands first may be what one environment is like."""
    path = written(tmp_path, f"{first}\nrain\nsun\n")
    assert read_feature(path) == [first, "rain", "sun"]
    assert read_feature(path, first) == ["rain", "sun"]
    with pytest.raises(
        ValueError, match=f"flights.csv: '{first}', entry 1, is not a finite number"
    ):
        read_feature(written(tmp_path, f"{first}\n3.5\n2\n"), numeric=True)


def test_the_column_of_a_feature_may_be_given_by_its_number(tmp_path: Path):
    """Then there is no header either: the first row is an environment like the others."""
    path = written(tmp_path, "A,rain,3.5\nB,sun,2\n")
    assert read_feature(path, "2") == ["rain", "sun"]
    assert read_feature(path, "3", numeric=True) == [3.5, 2]


def test_the_column_of_a_feature_is_named_where_there_are_several(tmp_path: Path):
    path = written(tmp_path, "site,cost\nA,0\nB,1\n")
    with pytest.raises(
        ValueError, match=r"say which column .*\(--column\); the first row is site, cost"
    ):
        read_feature(path)
    with pytest.raises(ValueError, match="no column 'weather': its first row is site, cost"):
        read_feature(path, "weather")


def test_a_number_that_is_none_is_told_by_its_place(tmp_path: Path):
    with pytest.raises(ValueError, match=r"flights.csv: 'sun', entry 2, is not a finite number"):
        read_feature(written(tmp_path, "3.5\nsun\n"), numeric=True)


@pytest.mark.parametrize("cell", ["inf", "0_1"])
def test_a_feature_that_is_no_finite_number_is_refused(tmp_path: Path, cell: str):
    content = f"wind;site\n2;A\n{cell};B\n"
    with pytest.raises(ValueError, match=f"flights.csv: '{cell}', entry 2, is not a finite number"):
        read_feature(written(tmp_path, content), "wind", numeric=True)


@pytest.mark.parametrize(
    ("content", "column", "message"),
    [
        ('cost,note\n0,"fine\n1,bad\n1,ok\n', None, "is not a CSV file"),  # a quote left open
        ('"0"1\n0\n', None, "is not a CSV file"),
        ("crashed\n0\n1\n", "1", "'crashed' is not a cost"),
        ("A,n/a\nB,0\nC,1\n", "2", "line 1: the cost is missing"),
        ("pass\nfail\ncrash\n", None, "line 3: 'crash' is not a cost"),
        ("0\u00a01\n0\n", None, "line 1: '0\\xa01' is not a cost"),
    ],
)
def test_no_outcome_goes_missing(tmp_path: Path, content: str, column: str | None, message: str):
    path = tmp_path / "flights.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(message)):
        read_outcomes(path, column)


@pytest.mark.parametrize(
    ("content", "column", "line"),
    [
        ("rain\n\nsun\n", None, 2),
        ("rain\nsun\n\n", None, 3),
        ("site,weather\nA,rain\nB,\n", "weather", 3),
        ("site,weather\nA,rain\nB,n/a\n", "weather", 3),
        ("2\nnan\n", None, 2),
        ("site,wind\nA,2\n\nB,3\n", "wind", 3),
        ("site,wind\nA,2\nB,None\n", "wind", 3),
    ],
)
def test_a_missing_feature_is_refused_with_its_line(tmp_path: Path, content, column, line):
    numeric = "2" in content
    with pytest.raises(ValueError, match=rf"line {line}\b.*a missing trial is often a failed one"):
        read_feature(written(tmp_path, content), column, numeric)


def test_no_rain_is_a_feature_and_a_mean_is_not(tmp_path: Path):
    path = written(tmp_path, "site,rain\nA,none\nB,heavy\n")
    assert read_feature(path, "rain") == ["none", "heavy"]
    with pytest.raises(ValueError, match="line 3, “Mean”, is a summary"):
        read_feature(written(tmp_path, "site,wind\nA,2\nMean,2\n"), "wind", numeric=True)


def test_decimal_commas_are_read_where_commas_do_not_separate(tmp_path: Path):
    path = tmp_path / "widths.csv"
    path.write_text("site;width\nA;0,5\nB;1,25\n")
    assert read_feature(path, "width", numeric=True) == [0.5, 1.25]
