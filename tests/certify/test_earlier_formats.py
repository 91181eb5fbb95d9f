"""Runs that earlier versions saved are read and verified as they were written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import LATER, Certificate
from pacbayes_control.certify.files import hash_file, json_bytes, seal
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.verify import InvalidCertificate, verify

RUNS = sorted((Path(__file__).parent / "earlier_runs").iterdir())


def named(path: Path) -> str:
    return path.name


@pytest.fixture(params=RUNS, ids=named)
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(request.param, tmp_path / "run"))


def forge(folder: Path, **changes: object) -> None:
    """Change the certificate, and the hashes with it."""
    record = json.loads((folder / "certificate.json").read_text()) | changes
    (folder / "certificate.json").write_bytes(json_bytes(record))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["certificate.json"] = hash_file(folder / "certificate.json")
    manifest["seal"] = seal(manifest)
    (folder / "manifest.json").write_bytes(json_bytes(manifest))


def test_every_earlier_format_is_there():
    formats = {json.loads((run / "certificate.json").read_text())["format"] for run in RUNS}
    assert formats == {1, 2, 3}


def test_it_is_verified_and_written_again_as_it_was(earlier: Path):
    verification = verify(earlier)
    record = json.loads((earlier / "certificate.json").read_text())
    assert verification.certificate.to_dict()["sentence"] == record["sentence"]
    assert verification.told[0].startswith("all that format")
    assert json_bytes(Certificate.from_dict(record).to_dict()) == json_bytes(record)
    assert verification.told


def test_its_sentence_is_compared(earlier: Path):
    record = json.loads((earlier / "certificate.json").read_text())
    forge(earlier, sentence=record["sentence"].replace("at most", "at most 0.01 % or"))
    with pytest.raises(InvalidCertificate, match="the sentence does not say"):
        verify(earlier)


def test_a_lower_bound_is_refused(earlier: Path):
    record = json.loads((earlier / "certificate.json").read_text())
    certificate = Certificate.from_dict(record | {"bound": record["bound"] - 1e-8})
    forge(earlier, bound=certificate.bound, sentence=certificate.to_dict()["sentence"])
    with pytest.raises(InvalidCertificate, match=r"below what|does not hold|is stated"):
        verify(earlier)


def test_fields_of_a_later_format_are_refused(earlier: Path):
    record = json.loads((earlier / "certificate.json").read_text())
    later = [fields for since, fields in LATER.items() if since > record["format"]]
    for fields in later:
        for name, value in fields.items():
            with pytest.raises(ValueError, match=f"format {record['format']} has no {name}"):
                Certificate.from_dict(record | {name: value})


def test_a_shift_of_it_is_verified(earlier: Path, tmp_path: Path):
    run = Run.load(earlier)
    if run.certificate.ball is None:
        shifted = under_shift(run, Ball("kl", 0.05)).save(tmp_path / "shifted")
        assert verify(shifted).certificate.bound > run.certificate.bound


@pytest.mark.parametrize("version", [6, 7, 8])
def test_a_run_of_a_format_before_simulation_is_verified_and_written_as_it_was(version: int):
    folder = Path(__file__).parent / f"format_{version}"
    record = json.loads((folder / "certificate.json").read_text())
    assert record["format"] == version
    assert not {*LATER[version + 1]} & record.keys()
    assert json_bytes(Certificate.from_dict(record).to_dict()) == json_bytes(record)
    assert verify(folder).certificate.bound == record["bound"]
