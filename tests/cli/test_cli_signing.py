"""`pbc sign` and `pbc verify --key`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import complaint
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.files import hash_file, json_bytes, read_json, seal
from pacbayes_control.certify.run import SIGNATURE
from pacbayes_control.learn import learn_finite

Quick = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path, binary_costs: Costs) -> Path:
    """A run, beside the keys of alice and mallory."""
    for name in ("alice", "mallory"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name]
        subprocess.run(command, check=True)
    return learn_finite(binary_costs).save(tmp_path / "run")


def test_sign_then_verify_with_the_key(quick: Quick, run: Path):
    signed = quick("sign", "run", "--key", "alice", "--json", "s.json")
    assert signed.returncode == 0, signed.stderr
    signature = json.loads((run.parent / "s.json").read_text())["signature"]
    assert signature["fingerprint"] in signed.stdout

    verified = quick("verify", "run", "--key", "alice.pub", "--json", "v.json")
    assert verified.returncode == 0, verified.stderr
    line = f"signed by alice.pub (ED25519 key, fingerprint {signature['fingerprint']})"
    assert line in " ".join(verified.stdout.split())
    record = json.loads((run.parent / "v.json").read_text())
    assert record["verified"] is True
    assert record["signature"] == {**signature, "by": "alice.pub", "checked": True}

    certificate = run / "certificate.json"  # as verify takes it
    assert quick("verify", certificate, "--key", "alice.pub").returncode == 0


def test_a_signature_that_was_not_checked_is_told_from_one_that_was(quick: Quick, run: Path):
    plain = quick("verify", "run", "--json", "v.json")
    assert "signed" not in plain.stdout
    assert json.loads((run.parent / "v.json").read_text())["signature"] is None
    quick("sign", "run", "--key", "mallory")
    told = quick("verify", "run", "--json", "v.json")
    assert told.returncode == 0
    assert "signed, by a key that was not checked" in told.stdout
    assert json.loads((run.parent / "v.json").read_text())["signature"] == {"checked": False}


def test_verify_with_a_key_that_did_not_sign_is_no_verdict_of_verified(quick: Quick, run: Path):
    for expected in ("not signed", "another key"):
        result = quick("verify", "run", "--key", "alice.pub", "--json", "v.json")
        assert expected in complaint(result, 1)
        assert complaint(result, 1).startswith("pbc: NOT VERIFIED: ")
        assert result.stdout == ""
        record = json.loads((run.parent / "v.json").read_text())
        assert record["verified"] is False
        assert expected in record["reason"]
        quick("sign", "run", "--key", "mallory", "--force")


def test_an_allowed_signers_file_needs_a_signer(quick: Quick, run: Path):
    quick("sign", "run", "--key", "alice")
    public = (run.parent / "alice.pub").read_text()
    (run.parent / "allowed").write_text(f"alice@example.com {public}")
    options = ("verify", "run", "--key", "allowed")
    assert "--signer" in complaint(quick(*options))
    assert "does not allow" in complaint(quick(*options, "--signer", "bob@example.com"), 1)
    good = quick(*options, "--signer", "alice@example.com")
    assert good.returncode == 0
    assert "signed by alice@example.com" in good.stdout
    assert "--key" in complaint(quick("verify", "run", "--signer", "alice@example.com"))


def test_a_run_that_does_not_hold_is_not_signed(quick: Quick, run: Path):
    """One whose files are as listed, under a new seal: only verification can tell."""
    certificate = read_json(run / "certificate.json")
    certificate["bound"] /= 2
    (run / "certificate.json").write_bytes(json_bytes(certificate))
    manifest = read_json(run / "manifest.json")
    manifest["files"]["certificate.json"] = hash_file(run / "certificate.json")
    manifest["seal"] = seal(manifest)
    (run / "manifest.json").write_bytes(json_bytes(manifest))
    result = quick("sign", "run", "--key", "alice", "--json", "s.json")
    assert complaint(result, 1).startswith("pbc: NOT VERIFIED: ")
    assert json.loads((run.parent / "s.json").read_text())["verified"] is False
    assert not (run / SIGNATURE).exists()


def test_sign_asks_before_it_replaces_and_names_a_key_that_is_not_there(quick: Quick, run: Path):
    assert "no run" in complaint(quick("sign", run / "nowhere", "--key", "alice"))
    assert "no key file" in complaint(quick("sign", "run", "--key", "absent"))
    assert quick("sign", "run", "--key", "alice").returncode == 0
    assert "--force" in complaint(quick("sign", "run", "--key", "mallory"))
    assert quick("sign", "run", "--key", "mallory", "--force").returncode == 0
