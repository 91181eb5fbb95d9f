"""Nothing unprintable from a file reaches a terminal, JSON or a page, wherever it stands."""

from __future__ import annotations

import json
import shutil
import subprocess
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import complaint
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.files import hash_file, json_bytes, seal
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.text import json_text
from pacbayes_control.cli.app import complain
from pacbayes_control.deploy.monitor import Monitor
from pacbayes_control.learn import learn_finite

HOSTILE = "\x1b[2K\r\x9b\x7f\u202e\u200b\nverified"
SHOWN = r"\x1b[2K"
NAMED = HOSTILE.replace("\n", " ")  # in names of files: one line is asked of a complaint
Quick = Callable[..., subprocess.CompletedProcess[str]]
Place = tuple[str | int, ...]


def make(folder: Path) -> Path:
    """A run with something in every field that holds a string."""
    values = np.random.default_rng(0).random((40, 3)) < [0.3, 0.05, 0.1]
    origin = {
        "task": "toy",
        "file": "campaign.csv",
        "cost_rule": "1 for a contact",
        "distribution": "halls by lot",
        "noise": {"of": "gusts", "stream": "noise", "seed": 0},
        "settings": {"robot": "toy"},
        "versions": {"simulator": "1.0"},
    }
    names, sites = ["slow", "careful", "fast"], [f"hall {i}" for i in range(40)]
    run = learn_finite(Costs(values, names, origin, sites=sites), 0.05)
    return under_shift(run, Ball("kl", 0.01)).save(folder, attachments={"notes.txt": b"mine"})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("original") / "run")


def strings(record: Any, path: Place = ()) -> Iterator[tuple[Place, bool]]:
    """Where each string stands in a record, and whether it is a key; only two of a list."""
    if isinstance(record, dict):
        for name, entry in record.items():
            yield (*path, name), True
            yield from strings(entry, (*path, name))
    elif isinstance(record, list):
        for number, entry in enumerate(record[:2]):
            yield from strings(entry, (*path, number))
    elif isinstance(record, str):
        yield path, False


def spoilt(record: Any, path: Place, key: bool) -> Any:
    """The same with the string at a place made hostile."""
    if not path:
        return f"{record}{HOSTILE}"
    first, *rest = path
    if key and not rest:
        return {(f"{k}{HOSTILE}" if k == first else k): value for k, value in record.items()}
    copy = record.copy()
    copy[first] = spoilt(record[first], tuple(rest), key)
    return copy


def reseal(folder: Path) -> None:
    """As a forger does: all hashes are those of the files."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    files = manifest.get("files", {})
    for name in files:
        if (folder / name).exists():
            files[name] = hash_file(folder / name)
    manifest["seal"] = seal(manifest)
    file.write_bytes(json_bytes(manifest))


def is_clean(text: str) -> bool:
    return all(mark.isprintable() or mark == "\n" for mark in text)


def places(folder: Path, name: str) -> list[tuple[Place, bool]]:
    return list(strings(json.loads((folder / name).read_text())))


FILES = ("manifest.json", "certificate.json", "prior.json", "posterior.json")


def forge(original: Path, folder: Path, name: str, places: list[tuple[Place, bool]]) -> Path:
    """A copy of a run with hostile strings in a file: values first, then keys from within."""
    shutil.copytree(original, folder)
    record = json.loads((folder / name).read_text())
    for place, key in sorted(places, key=lambda one: (one[1], -len(one[0]))):
        record = spoilt(record, place, key)
    (folder / name).write_bytes(json_bytes(record))
    reseal(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_string_of_a_run_one_at_a_time(
    quick: Quick, original: Path, tmp_path: Path, name: str
):
    codes, shown, accepted = Counter[int](), 0, []
    for place, key in places(original, name):
        forged = forge(original, tmp_path / "forged", name, [(place, key)])
        result = quick("verify", forged, "--json", "v.json")
        written = tmp_path / "v.json"
        text = written.read_text() if written.exists() else ""
        assert is_clean(result.stdout + result.stderr + text), (place, key)
        codes[result.returncode] += 1
        shown += SHOWN in result.stdout + result.stderr
        if result.returncode:
            assert complaint(result, result.returncode)
        else:
            accepted.append((place, key))
        shutil.rmtree(forged)
        written.unlink(missing_ok=True)
    assert codes[1] + codes[2] > 3
    if name in ("manifest.json", "certificate.json"):
        assert shown > 0  # what was forged is told, as text
    if accepted:  # strings that no promise rests on: nobody may show them as they are either
        (tmp_path / "outcomes.csv").write_text("0\n1\n0\n")
        assert is_clean(use(quick, forge(original, tmp_path / "all", name, accepted)))


def use(quick: Quick, run: Path) -> str:
    """All that the commands say and write about a run that verifies."""
    said = ""
    for arguments in (
        ("report", run, "--out", "p.html", "--force", "--json", "r.json"),
        ("shift", run, "--json", "s.json"),
        ("monitor", run, "outcomes.csv", "--json", "m.json"),
    ):
        result = quick(*arguments)
        assert result.returncode in (0, 1, 2), result.stderr
        said += result.stdout + result.stderr
    written = [Path(name) for name in ("p.html", "r.json", "s.json", "m.json")]
    text = "".join(file.read_text(encoding="utf-8") for file in written if file.exists())
    return said + text.replace("\xa0", " ")


@pytest.mark.slow
def test_the_run_of_these_tests_verifies_and_has_a_page(
    quick: Quick, original: Path, tmp_path: Path
):
    """So that the test above does not only see runs that are refused at once."""
    assert quick("verify", original).returncode == 0
    (tmp_path / "outcomes.csv").write_text("0\n1\n0\n")
    assert "What is promised" in use(quick, original)


@pytest.mark.parametrize("place", ["state", "batches"])
def test_the_state_of_a_monitor(quick: Quick, original: Path, tmp_path: Path, place: str):
    monitor = Monitor(Run.load(original).certificate)
    monitor.observe_file("monday.csv", [0.0, 1.0] * 40)
    monitor.save(tmp_path / "state.json")
    record = json.loads((tmp_path / "state.json").read_text())
    if place == "state":
        record["certificate"] = HOSTILE
    else:
        record["batches"][0][0] = HOSTILE
    (tmp_path / "state.json").write_bytes(json_bytes(record))
    np.savetxt(tmp_path / "tuesday.csv", [0.0, 1.0] * 40)
    result = quick("monitor", original, "tuesday.csv", "--state", "state.json")
    assert complaint(result)
    assert is_clean(result.stderr)


NAMES = [NAMED, "bad\udcff\x9b"]  # the second as where a name is not UTF-8


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES, ids=["escapes", "not UTF-8"])
def test_names_of_files_and_folders(quick: Quick, original: Path, tmp_path: Path, name: str):
    folder = tmp_path / name
    shutil.copytree(original, folder)
    missing = quick("verify", f"no{name}")
    assert complaint(missing)
    good = [
        quick("verify", name),
        quick("report", name, "--out", f"{name}.html", "--plots", f"{name} plots", "--json", "-"),
        quick("monitor", name, "--outcome", 0, "--state", f"{name}.state", "--json", "-"),
    ]
    assert [result.returncode for result in good] == [0] * 3
    for result in (missing, *good):
        assert is_clean(result.stdout + result.stderr)
    assert json.loads(good[1].stdout)["page"] == f"{name}.html"
    assert is_clean((tmp_path / f"{name}.html").read_text(encoding="utf-8").replace("\xa0", " "))
    (folder / "prior.json").unlink()
    assert is_clean(complaint(quick("verify", name)))


CELLS = {
    "header": f"site,a{HOSTILE},b\nA,0,1\nB,0,0\n",
    "site": f"site,a,b\nA{HOSTILE},0,1\nB,0,0\n",
    "cell": f"site,a,b\nA,0{HOSTILE},1\nB,0,0\n",
    "quoted": f'site,a,b\n"A{HOSTILE}",0,1\nB,0,0\n',
}


@pytest.mark.parametrize("place", CELLS)
def test_tables_of_costs(quick: Quick, tmp_path: Path, place: str):
    (tmp_path / "c.csv").write_text(CELLS[place], newline="")
    result = quick("certify", "c.csv", "--json", "j.json")
    text = (tmp_path / "j.json").read_text() if result.returncode == 0 else ""
    assert is_clean(result.stdout + result.stderr + text)
    if result.returncode:
        assert complaint(result)


@pytest.mark.parametrize(
    ("option", "file", "content"),
    [
        ("--prior", "p.json", json.dumps({f"a{HOSTILE}": 0.5, "b": 0.5})),
        ("--prior", "p.json", json.dumps({"kind": HOSTILE})),
        ("--prior", "p.csv", f"a{NAMED},b\n0.5,0.5\n"),
        ("--prior", f"{NAMED}.xyz", ""),
        ("--pilot", "p.csv", f"site,a{NAMED},b\nC,0,1\nD,0,0\n"),
        ("--pilot", f"{NAMED}.csv", "site,a\nC,0\nD,1\n"),
        ("--at-least", "unused", f"0.2:{NAMED}"),
        ("--ball", "unused", f"{NAMED}:0.1"),
        ("--method", "unused", NAMED),
    ],
)
def test_files_and_options_beside_a_table(
    quick: Quick, tmp_path: Path, option: str, file: str, content: str
):
    (tmp_path / "c.csv").write_text("site,a,b\nA,0,1\nB,0,0\n")
    (tmp_path / file).write_text(content)
    given = file if option in ("--prior", "--pilot") else content
    result = quick("certify", "c.csv", option, given)
    assert is_clean(complaint(result))


def test_outcomes_policies_and_tasks(quick: Quick, original: Path, tmp_path: Path):
    (tmp_path / "o.csv").write_text(f"cost{NAMED}\n0\nx{NAMED}\n")
    (tmp_path / "p.csv").write_text(f"0.5\nx{NAMED}\n")
    (tmp_path / "t.py").write_text(f"raise RuntimeError({HOSTILE!r})\n")
    for arguments in (
        ("monitor", original, "o.csv"),
        ("shift", original, "--shifted", "o.csv", "--training", "p.csv", "--cells", "a,b"),
        ("learn", "t.py:task"),
        ("check", "t.py:task", "--policies", "p.csv"),
        ("swing", "identify", "o.csv"),
        (f"no{NAMED}",),
    ):
        assert is_clean(complaint(quick(*arguments)))


def test_warnings_and_tracebacks(quick: Quick, original: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        warnings.warn(HOSTILE, UserWarning, stacklevel=2)
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr("pacbayes_control.verify.verify", fail)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = quick("verify", original)
    assert result.returncode == 70
    assert result.stderr.count(SHOWN) == 2
    assert "Traceback" in result.stderr
    assert is_clean(result.stderr)


def test_a_complaint_is_one_clean_line(capsys: pytest.CaptureFixture[str]):
    assert complain("NOT VERIFIED" + HOSTILE) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert is_clean(said)


def test_json_reads_back_as_it_was():
    record = {HOSTILE: [HOSTILE, "Übung 名前 𝔸", "\U000e0001\udcff", None, 0.1]}
    text = json_text(record)
    assert is_clean(text)
    assert json.loads(text) == record
    assert "Übung 名前 𝔸" in text
