"""Tables with one row a rollout, as a stranger may hand them in."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.files import json_bytes, seal
from pacbayes_control.certify.tables import rollouts
from pacbayes_control.certify.tables.campaigns import read_campaign
from pacbayes_control.certify.tables.rollout_records import record_of
from pacbayes_control.learn import learn_finite
from pacbayes_control.verify.runs import verify

WINDS = (0.5, 1.25, 2.0, 3.5)
COSTS = np.array([[0, 0.25], [1, 0.5], [0, 0.125], [1, 1 / 3]])


def rows(names: tuple[str, str] = ("slow", "fast")) -> list[str]:
    return [
        f"{10 + i},{name},{float(COSTS[i, j])!r},{wind}"
        for i, wind in enumerate(WINDS)
        for j, name in enumerate(names)
    ]


def write(folder: Path, lines: list[str], header: str = "environment,policy,cost,wind") -> Path:
    path = folder / "costs.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def costs_of(folder: Path, lines: list[str], **more: Any) -> Costs:
    return read_campaign(write(folder, lines, **more)).costs


def with_record(folder: Path, change: Callable[[dict[str, Any]], Any] | None = None) -> Path:
    """The table with its record; changed, and sealed anew as a forger would."""
    origin = {"task": "windy", "stream": "train", "seed": 0, "start": 10, "stop": 14}
    origin |= {"cost_rule": "1 where it falls", "incidents": {"retries": 2}}
    costs = Costs(COSTS, ("slow", "fast"), origin, described={"wind": WINDS})
    record = record_of(costs, {"wind": "wind"})
    if change:
        change(record)
        record["seal"] = seal(record)
    path = write(folder, rows())
    (folder / "costs.csv.json").write_bytes(json_bytes(record))
    return path


# ---- good tables --------------------------------------------------------------------------------


def test_a_plain_table_keeps_the_names_and_the_parameters_of_its_environments(tmp_path: Path):
    table = read_campaign(write(tmp_path, rows()))
    costs = table.costs
    assert costs.sites == ("10", "11", "12", "13")
    assert costs.names == ("fast", "slow")  # in an order that rows do not change
    assert costs.values.tolist() == COSTS[:, ::-1].tolist()
    assert costs.described["wind"].tolist() == [*WINDS]
    assert costs.range is None
    assert costs.cost_rule == "as recorded in costs.csv"
    assert table.reading.startswith("one row a rollout, 4 environments × 2 policies")


@pytest.mark.parametrize("record", [False, True])
def test_rows_in_another_order_give_the_same_certificate(tmp_path: Path, record: bool):
    path = with_record(tmp_path) if record else write(tmp_path, rows())
    first, lines = read_campaign(path).costs, rows()
    by_cost = sorted(lines, key=lambda line: line.split(",")[2])
    random.Random(0).shuffle(lines)
    for method in ("occam", "betting"):
        expected = learn_finite(first, 0.05, method=method).certificate.to_dict()
        for order in (lines, by_cost, rows()[::-1]):
            costs = costs_of(tmp_path, order)
            assert costs.digests == first.digests
            assert learn_finite(costs, 0.05, method=method).certificate.to_dict() == expected


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("Environment,POLICY,Cost", "{e},{p},{c}"),
        ("cost,environment,policy", "{c},{e},{p}"),
        ("environment;policy;cost", "{e};{p};{c}"),
        (",environment,policy,cost", "0,{e},{p},{c}"),  # an index of pandas
        ("environment,policy,cost,", "{e},{p},{c},"),
    ],
)
def test_headers_in_other_cases_orders_and_separators_are_read(
    tmp_path: Path, header: str, line: str
):
    cells = [row.split(",") for row in rows()]
    comma = (lambda c: c.replace(".", ",")) if ";" in header else str
    lines = [line.format(e=e, p=p, c=comma(c)) for e, p, c, _ in cells]
    costs = costs_of(tmp_path, lines, header=header)
    assert costs.values.tolist() == COSTS[:, ::-1].tolist()


def test_words_stand_for_costs_and_policies_may_be_numbers(tmp_path: Path):
    lines = [f"{e},{p},{'fail' if (e + p) % 3 else 'pass'}" for p in range(12) for e in range(3)]
    costs = costs_of(tmp_path, lines, header="environment,policy,cost")
    assert costs.names == ()  # numbered from 0, so that 10 comes after 9
    assert costs.values[2, 10] == 0
    assert costs.values.sum() == 24
    named = costs_of(tmp_path, rows(("10", "9")))
    assert named.names == ("9", "10")


def test_other_columns_are_used_if_they_describe_environments(tmp_path: Path):
    lines = [f"{row},{i},site {row[:2]},,1.50" for i, row in enumerate(rows())]
    header = "environment,policy,cost,wind,row,site,blank,mass"
    table = read_campaign(write(tmp_path, lines, header))
    assert [*table.costs.described] == ["wind", "site", "mass"]
    assert table.costs.described["mass"].tolist() == [1.5] * 4
    assert "columns not used: “row”, “blank”" in table.reading


def test_decimal_commas_are_numbers_in_parameters_too(tmp_path: Path):
    cells = [row.replace(".", ",").split(",", 3) for row in ("1,a,0,3.5", "2,a,1,4", "3,a,1,0.25")]
    lines = [f"{';'.join(row)};{'x,y' if row[0] == '1' else 'z'}" for row in cells]
    costs = costs_of(tmp_path, lines, header="environment;policy;cost;wind;note")
    assert costs.described["wind"].tolist() == [3.5, 4.0, 0.25]
    assert costs.described["note"].tolist() == ["x,y", "z", "z"]


def test_a_column_of_rollouts_that_took_too_long_is_no_parameter(tmp_path: Path):
    lines = ["1,a,0,0,3", "2,a,1,1,4"]  # one policy: it has one value for each environment
    table = read_campaign(write(tmp_path, lines, "environment,policy,cost,Timed_out,wind"))
    assert [*table.costs.described] == ["wind"]


def test_columns_of_other_types_of_a_parquet_file_are_read_or_left_out(tmp_path: Path):
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "costs.parquet"
    columns = {"environment": [1, 2], "policy": ["a", "a"], "cost": pa.array([0, 1], pa.int8())}
    columns["at"] = pa.array([1, 2], pa.timestamp("ns"))  # as pandas writes times
    columns["took"] = pa.array([1, 2], pa.duration("ns"))
    columns["sky"] = pa.array(["clear", "rain"]).dictionary_encode()
    columns["image"] = pa.array([b"\xff", b"\xfe"])
    parquet.write_table(pa.table(columns), path)
    described = read_campaign(path).costs.described
    assert [*described] == ["at", "took", "sky"]
    assert described["at"].tolist()[0].startswith("1970-01-01 00:00:00")
    ends, text = np.array([0, 1, 2], np.int32).tobytes(), b"\xff\xfe"
    broken = pa.StringArray.from_buffers(2, pa.py_buffer(ends), pa.py_buffer(text))
    parquet.write_table(pa.table(columns | {"sky": broken}), path)
    with pytest.raises(ValueError, match=r"costs\.parquet cannot be read as Parquet"):
        read_campaign(path)


def test_a_table_with_its_record_tells_where_it_comes_from(tmp_path: Path):
    table = read_campaign(with_record(tmp_path))
    costs = table.costs
    assert costs.names == ("slow", "fast")
    assert costs.sites == ()
    assert costs.range == ("train", 0, 10, 14)
    assert costs.incidents == {"retries": 2}
    assert "origin as costs.csv.json tells" in table.reading
    run = learn_finite(costs, 0.05)
    assert "had failed before they were run again" in run.certificate.sentence
    assert any("1 where it falls" in claim for claim in verify(run.save(tmp_path / "run")).told)


def test_a_prior_that_was_learnt_from_a_recorded_table_is_refused_for_its_stream(tmp_path: Path):
    costs = read_campaign(with_record(tmp_path)).costs
    posterior = learn_finite(costs, 0.05, method="kl").posterior
    with pytest.raises(ValueError, match="learnt from some of these environments"):
        learn_finite(costs, 0.05, prior=posterior)


def test_a_matrix_is_still_a_matrix(tmp_path: Path):
    path = write(tmp_path, ["a,0,1", "b,1,0"], header="environment,policy,other")
    assert read_campaign(path).costs.names == ("policy", "other")


# ---- bad tables ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r[:3] + r[4:], "policy “fast” in environment “11” has no row: 1 of 8 rollouts"),
        (lambda r: r[1:], "policy “slow” in environment “10” has no row"),
        (lambda r: r[:-1], "policy “slow” in environment “13”|policy “fast” in environment “13”"),
        (lambda r: [*r, r[2]], "policy “slow” in environment “11” is in lines 4 and 10"),
        (lambda r: [*r[:3], "11,fast,,1", *r[4:]], "line 5: the cost is missing"),
        (lambda r: [*r[:3], "11,fast,nan,1", *r[4:]], "line 5: the cost is missing"),
        (lambda r: [*r[:3], "11,fast,1.5,1", *r[4:]], "line 5: cost 1.5 is outside"),
        (lambda r: [*r[:3], "11,fast,-0.1,1", *r[4:]], "line 5: cost -0.1 is outside"),
        (lambda r: [*r[:3], "11,fast,inf,1", *r[4:]], "line 5: cost inf is outside"),
        (lambda r: [*r[:3], "11,fast,50%,1", *r[4:]], "line 5: '50%' is a percentage"),
        (lambda r: [*r[:3], "11,fast,0_1,1", *r[4:]], "line 5: '0_1' is not a cost"),
        (lambda r: [*r[:3], "11,fast,fail,1", *r[4:]], "line 5: “fail”: write all costs as words"),
        (lambda r: [*r[:3], ",fast,0,1", *r[4:]], "line 5: the environment is missing"),
        (lambda r: [*r[:3], "11,,0,1", *r[4:]], "line 5: the policy is missing"),
        (lambda r: [*r[:3], "", *r[3:]], "line 5 is blank"),
        (lambda r: [*r[:3], "11,fast,0", *r[4:]], "ragged: line 5 has 3 cells"),
        (lambda r: ["# a comment", *r], "line 2 is a comment"),
        (lambda r: [*r, "mean,slow,0.5,1", "mean,fast,0.3,1"], "“mean” is a summary"),
        (lambda r: [*r, "a,slow,0,1", "a,fast,0,1", "A,slow,0,1", "A,fast,0,1"], "is also “a”"),
        (lambda r: [*r, "013,slow,0,1", "013,fast,0,1"], "“13” is also “013”|“013” is also “13”"),
        (lambda r: [*r, "13.0,slow,0,1", "13.0,fast,0,1"], "is also “13"),
        (lambda r: [*r, "a b,slow,0,1", "a b,fast,0,1", "a  b,slow,0,1", "a  b,fast,0,1"], "is al"),
        (lambda r: [*r, "NaN,slow,0,1", "NaN,fast,0,1"], "line 10: the environment is missing"),
        (lambda r: [*r, "n/a,slow,0,1", "n/a,fast,0,1"], "line 10: the environment is missing"),
        (lambda r: r[:0], "has a header and no rollouts"),
        (lambda r: r[:2], "one environment is not a sample"),
    ],
)
def test_a_table_with_a_fault_is_refused_with_its_place(
    tmp_path: Path, change: Callable[[list[str]], list[str]], words: str
):
    with pytest.raises(ValueError, match=words) as caught:
        costs_of(tmp_path, change(rows()))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "header", ["environment,policy,cost,Cost", "environment,policy,cost,policy"]
)
def test_two_columns_of_one_name_are_refused(tmp_path: Path, header: str):
    with pytest.raises(ValueError, match="has two columns"):
        costs_of(tmp_path, rows(), header=header)


def test_a_sparse_table_is_refused_without_making_the_matrix(tmp_path: Path):
    lines = [f"e{i},p{i},0" for i in range(30_000)]  # 900 million costs
    with pytest.raises(ValueError, match="899,970,000 of 900,000,000 rollouts are missing"):
        costs_of(tmp_path, lines, header="environment,policy,cost")


def test_a_name_with_an_escape_sequence_does_not_reach_the_terminal(tmp_path: Path):
    with pytest.raises(ValueError, match="cannot be shown") as caught:
        costs_of(tmp_path, [f"{i},a\x1b[2K,0,1" for i in range(4)])
    assert "\x1b" not in str(caught.value)


def test_a_parquet_file_of_another_kind_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "costs.parquet"
    parquet.write_table(pa.table({"a": [0, 1], "b": [1, 0]}), path)
    with pytest.raises(ValueError, match="must have columns environment, policy, cost"):
        read_campaign(path)
    table = {"environment": [0, 1], "policy": ["a", "a"], "cost": [0.0, None], "x": [[1], [2]]}
    parquet.write_table(pa.table(table), path)
    with pytest.raises(ValueError, match="row 2: the cost is missing"):
        read_campaign(path)
    monkeypatch.setattr(rollouts, "MOST_CELLS", 5)
    with pytest.raises(ValueError, match="more than 5 cells"):
        read_campaign(path)
    path.write_bytes(b"PAR1 no")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read_campaign(path)


@pytest.mark.parametrize("name", ["costs.csv", "costs.parquet"])
def test_one_long_word_in_a_small_file_does_not_take_the_memory_of_many(tmp_path: Path, name: str):
    import pyarrow as pa
    from pyarrow import parquet

    path, count, long = tmp_path / name, 2000, "x" * 100_000
    table = {"environment": [*range(count)], "policy": ["a"] * count, "cost": [0.0, 1.0] * 1000}
    if name == "costs.csv":
        rows = zip(table["environment"], table["policy"], table["cost"], strict=True)
        write(tmp_path, [f"{e},{p},{c},{long if e == 0 else 'y'}" for e, p, c in rows])
    else:
        words = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [long])
        parquet.write_table(pa.table(table | {"wind": words.cast(pa.string())}), path)
        assert path.stat().st_size < 200_000
    tracemalloc.start()
    reading = read_campaign(path).reading
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "columns not used: “wind”" in reading
    assert peak < 20_000_000


# ---- altered tables and forged records ----------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[0].replace("0.0,", "1.0,"), *lines[1:]],  # a cost
        lambda lines: lines[2:],  # an environment
        lambda lines: lines[::2],  # a policy
        lambda lines: [line.replace("slow", "best") for line in lines],
        lambda lines: [line.replace(",1.25", ",1.5") for line in lines],  # a parameter
        lambda lines: [line.replace("13,", "14,") for line in lines],
        lambda lines: [*lines, "14,slow,0,1", "14,fast,0,1"],
    ],
)
def test_a_table_that_was_altered_is_refused_beside_its_record(
    tmp_path: Path, change: Callable[[list[str]], list[str]]
):
    path = with_record(tmp_path)
    write(tmp_path, change(rows()))
    words = "is not the table that costs.csv.json was written with.*delete costs.csv.json"
    with pytest.raises(ValueError, match=words):
        read_campaign(path)
    (tmp_path / "costs.csv.json").unlink()
    assert read_campaign(path).costs.range is None  # nothing is told of its origin


def test_a_deleted_row_is_missing_with_a_record_too(tmp_path: Path):
    path = with_record(tmp_path)
    write(tmp_path, rows()[1:])
    with pytest.raises(ValueError, match="has no row"):
        read_campaign(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r.update(format=2), "its format is 2"),
        (lambda r: r.pop("names"), "other fields"),
        (lambda r: r.update(more=1), "other fields"),
        (lambda r: r["origin"].update(candidates=3), "entry “candidates”"),
        (lambda r: r["origin"].update(stop=10**18), "is not the table that"),
        (lambda r: r["origin"].update(start=-1), "impossible range"),
        (lambda r: r["origin"].pop("stream"), "bad origin.stream"),
        (lambda r: r["origin"].update(stream="\x1b[2J"), "plain words"),
        (lambda r: r["origin"].update(cost_rule="\x1b[2Jfine"), "cost_rule in plain words"),
        (lambda r: r["origin"].update(noise={"of": "a\nb"}), "noise in plain words"),
        (lambda r: r["origin"].update(incidents={"luck": 1}), "incidents that are not counts"),
        (lambda r: r["origin"].update(incidents={"timeouts": 1}), "timed out"),
        (lambda r: r["origin"].update(versions=[1]), "bad origin.versions"),
        (lambda r: r["origin"].update(data_used="all"), "which environments it depends on"),
        (lambda r: r["origin"].update(graded=False), "declared to be no other"),
        (
            lambda r: r.update(parameters=[[1.0], [2.0]], dtype="object"),
            "dtype “object” is unknown",
        ),
        (lambda r: r.update(parameters=[[1.0], [2.0, 3]], dtype="float64"), "inhomogeneous|shape"),
        (lambda r: r["columns"].append(["policy", "x"]), "is not the table that"),
        (lambda r: r.update(names=["slow", "slow"]), "is not the table that"),
        (lambda r: r["digests"].pop("costs"), "is not the table that"),
    ],
)
def test_a_forged_record_is_refused_in_a_line(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], words: str
):
    path = with_record(tmp_path, change)
    with pytest.raises(ValueError, match=words) as caught:
        read_campaign(path)
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_that_was_changed_by_hand_is_refused(tmp_path: Path):
    path = with_record(tmp_path)
    file = tmp_path / "costs.csv.json"
    record = json.loads(file.read_text())
    del record["origin"]["incidents"]
    file.write_bytes(json_bytes(record))
    with pytest.raises(ValueError, match="not a record of rollouts: it was altered"):
        read_campaign(path)
    file.write_text("{}")
    with pytest.raises(ValueError, match="not a record of rollouts"):
        read_campaign(path)


def test_a_declaration_beside_a_record_may_not_contradict_it(tmp_path: Path):
    path = with_record(tmp_path, lambda r: r["origin"].update(graded=True))
    with pytest.raises(ValueError, match="declares graded = True: leave out"):
        read_campaign(path, graded=False)
    assert read_campaign(with_record(tmp_path), graded=True).costs.graded is True
