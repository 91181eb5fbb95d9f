"""Signatures with SSH keys, against those who would forge one. OpenSSH itself makes and checks."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.files import hash_file, json_bytes, read_json, seal
from pacbayes_control.certify.run import SIGNATURE, AlteredRun, Run
from pacbayes_control.learn import learn_finite
from pacbayes_control.verify.signing import (
    LARGEST,
    NAMESPACE,
    InvalidSignature,
    check_signature,
    needs_touch,
    sign,
)


def ssh_keygen(*arguments: object) -> str:
    command = ["ssh-keygen", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    ssh_keygen("-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", path)
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the keys of alice and mallory."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("alice", "mallory"):
        make_key(folder / name)
    return folder


@pytest.fixture
def run(tmp_path: Path, binary_costs: Costs) -> Path:
    return learn_finite(binary_costs).save(tmp_path / "run")


@pytest.fixture
def signed(run: Path, keys: Path) -> Path:
    sign(run, keys / "alice")
    return run


def allow(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def public(key: Path) -> str:
    """Type and base64 of a key, without the comment."""
    return " ".join(key.with_name(f"{key.name}.pub").read_text().split()[:2])


# ---- what works ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ed25519", pytest.param("rsa", marks=pytest.mark.slow), "ecdsa"])
def test_a_signature_is_good_for_its_key_and_names_its_fingerprint(
    run: Path, tmp_path: Path, kind: str
):
    key = make_key(tmp_path / "key", kind)
    made = sign(run, key)
    found = check_signature(run, f"{key}.pub")
    fingerprint = ssh_keygen("-l", "-f", key).split()[1]
    assert made.fingerprint == found.fingerprint == fingerprint
    assert (found.by, found.key_type) == ("key.pub", kind.upper())
    assert str(found) == f"signed by key.pub ({kind.upper()} key, fingerprint {fingerprint})"
    assert Run.load(run)  # a signature is no file that was added


def test_the_signature_is_one_that_others_can_check_with_openssh(signed: Path, keys: Path):
    allowed = allow(keys / "by_hand", f"alice {public(keys / 'alice')}")
    command = ["ssh-keygen", "-Y", "verify", "-f", allowed, "-I", "alice"]
    command += ["-n", NAMESPACE, "-s", signed / SIGNATURE]
    manifest = (signed / "manifest.json").read_bytes()
    assert subprocess.run(command, input=manifest, capture_output=True).returncode == 0


@pytest.mark.slow
def test_a_key_with_a_passphrase_lets_ssh_keygen_ask(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    key = make_key(tmp_path / "key", passphrase="sesame")
    answer = tmp_path / "answer"
    answer.write_text("#!/bin/sh\necho sesame\n")
    answer.chmod(0o700)
    monkeypatch.setenv("SSH_ASKPASS", str(answer))
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    sign(run, key)
    check_signature(run, f"{key}.pub")
    answer.write_text("#!/bin/sh\necho wrong\n")
    with pytest.raises(ValueError, match=r"did not sign .*incorrect passphrase"):
        sign(run, key, overwrite=True)
    check_signature(run, f"{key}.pub")  # the one before is still there


def test_the_public_key_signs_where_an_agent_holds_the_private_one(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    key = make_key(tmp_path / "key")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.PIPE)
    try:
        assert agent.stdout
        agent.stdout.readline()  # it listens
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        subprocess.run(["ssh-add", "-q", key], check=True, capture_output=True)
        key.unlink()
        sign(run, f"{key}.pub")
    finally:
        agent.terminate()
        agent.communicate()
    check_signature(run, f"{key}.pub")
    with pytest.raises(ValueError, match="No private key found"):
        sign(run, f"{key}.pub", overwrite=True)


def test_an_allowed_signers_file_says_who_may_sign(signed: Path, keys: Path, tmp_path: Path):
    allowed = allow(
        tmp_path / "allowed",
        "# the team",
        "",
        f"*@example.com {public(keys / 'alice')}",
        f"mallory@example.org {public(keys / 'mallory')}",
    )
    assert check_signature(signed, allowed, "alice@example.com").by == "alice@example.com"
    for other in ("mallory@example.org", "bob@example.net"):
        with pytest.raises(InvalidSignature, match=f"does not allow for {other}"):
            check_signature(signed, allowed, other)


def test_a_security_key_is_recognised(keys: Path, tmp_path: Path):
    parts = (b"sk-ssh-ed25519@openssh.com", bytes(32), b"ssh:")
    blob = b"".join(len(part).to_bytes(4) + part for part in parts)
    key = tmp_path / "sk.pub"
    key.write_text(f"sk-ssh-ed25519@openssh.com {base64.b64encode(blob).decode()}\n")
    assert needs_touch(key)
    assert not needs_touch(keys / "alice")
    assert not needs_touch(tmp_path / "nothing")


# ---- signatures that do not hold ----------------------------------------------------------------


def test_a_run_without_a_signature_is_not_signed(run: Path, keys: Path):
    with pytest.raises(InvalidSignature, match=r"not signed: it has no manifest\.json\.sig"):
        check_signature(run, keys / "alice.pub")


def test_a_signature_by_another_key_is_refused_with_its_fingerprint(signed: Path, keys: Path):
    fingerprint = ssh_keygen("-l", "-f", keys / "alice").split()[1]
    with pytest.raises(InvalidSignature) as caught:
        check_signature(signed, keys / "mallory.pub")
    assert f"another key ({fingerprint})" in str(caught.value)


def test_a_comment_cannot_pretend_to_be_another_key(run: Path, keys: Path, tmp_path: Path):
    sign(run, keys / "mallory")
    forged = tmp_path / "alice.pub"
    forged.write_text(f"{public(keys / 'alice')} {public(keys / 'mallory')}\n")
    with pytest.raises(InvalidSignature, match="another key"):
        check_signature(run, forged)


def test_a_signature_of_another_run_is_refused(signed: Path, keys: Path, graded_costs: Costs):
    other = learn_finite(graded_costs).save(signed.parent / "other")
    shutil.copy(signed / SIGNATURE, other)
    with pytest.raises(InvalidSignature, match=r"not a signature of this manifest\.json"):
        check_signature(other, keys / "alice.pub")


def test_a_file_changed_under_a_new_seal_is_refused(signed: Path, keys: Path):
    """What the seal cannot show and the signature is for: anybody can compute a new seal."""
    (signed / "posterior.json").write_bytes((signed / "prior.json").read_bytes())
    with pytest.raises(AlteredRun, match=r"posterior\.json was altered"):
        check_signature(signed, keys / "alice.pub")
    manifest = read_json(signed / "manifest.json")
    manifest["files"]["posterior.json"] = hash_file(signed / "posterior.json")
    manifest["seal"] = seal(manifest)
    (signed / "manifest.json").write_bytes(json_bytes(manifest))
    Run.load(signed)
    with pytest.raises(InvalidSignature, match="not a signature of this manifest"):
        check_signature(signed, keys / "alice.pub")


def test_a_signature_for_another_purpose_is_refused(run: Path, keys: Path):
    ssh_keygen("-Y", "sign", "-f", keys / "alice", "-n", "git", run / "manifest.json")
    assert (run / SIGNATURE).exists()
    with pytest.raises(InvalidSignature, match=f"for {NAMESPACE}"):
        check_signature(run, keys / "alice.pub")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x1b[2Jverified",
        b"-----BEGIN SSH SIGNATURE-----\n!!!\n-----END SSH SIGNATURE-----\n",
        f'Good "{NAMESPACE}" signature with ED25519 key SHA256:{"A" * 43}\n'.encode(),
        bytes(LARGEST + 1),
    ],
)
def test_a_file_that_is_no_signature_is_refused(run: Path, keys: Path, content: bytes):
    (run / SIGNATURE).write_bytes(content)
    with pytest.raises(InvalidSignature) as caught:
        check_signature(run, keys / "alice.pub")
    assert str(caught.value).isprintable()


@pytest.mark.slow
def test_a_signature_with_a_changed_bit_is_refused(signed: Path, keys: Path):
    head, *lines, foot = (signed / SIGNATURE).read_text().splitlines()
    blob = base64.b64decode("".join(lines))
    (signed / SIGNATURE).write_text(f"{head}\n{base64.encodebytes(blob).decode()}{foot}\n")
    check_signature(signed, keys / "alice.pub")  # written in this way it is good
    for index in range(0, len(blob), 7):
        forged = blob[:index] + bytes([blob[index] ^ 1]) + blob[index + 1 :]
        body = base64.encodebytes(forged).decode()
        (signed / SIGNATURE).write_text(f"{head}\n{body}{foot}\n")
        with pytest.raises(InvalidSignature):
            check_signature(signed, keys / "alice.pub")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_signature_must_be_a_plain_file(run: Path, keys: Path, make):
    make(run / SIGNATURE)
    for attempt in (
        lambda: Run.load(run),
        lambda: check_signature(run, keys / "alice.pub"),
        lambda: sign(run, keys / "alice", overwrite=True),
    ):
        with pytest.raises(ValueError, match="not a plain file"):
            attempt()


def test_a_dangling_link_is_not_signed_through(run: Path, keys: Path, tmp_path: Path):
    (run / SIGNATURE).symlink_to(tmp_path / "victim")
    with pytest.raises(ValueError, match="not a plain file"):
        sign(run, keys / "alice", overwrite=True)
    assert not (tmp_path / "victim").exists()


# ---- allowed_signers files ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        ('valid-before="20010101"', False),
        ('valid-after="20990101"', False),
        ('valid-after="20010101"', True),
        ('namespaces="git"', False),
        (f'namespaces="git,{NAMESPACE}"', True),
        ("cert-authority", False),  # the key of an authority is not itself a signer
    ],
)
def test_the_options_of_allowed_signers_are_obeyed(
    signed: Path, keys: Path, tmp_path: Path, options: str, holds: bool
):
    allowed = allow(tmp_path / "allowed", f"alice {options} {public(keys / 'alice')}")
    if holds:
        check_signature(signed, allowed, "alice")
    else:
        with pytest.raises(InvalidSignature, match="does not allow for alice"):
            check_signature(signed, allowed, "alice")


def test_an_authority_vouches_for_those_that_its_certificates_name(run: Path, tmp_path: Path):
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "key")
    ssh_keygen("-q", "-s", authority, "-I", "id", "-n", "alice", f"{key}.pub")
    ssh_keygen("-Y", "sign", "-f", f"{key}-cert.pub", "-n", NAMESPACE, run / "manifest.json")
    allowed = allow(tmp_path / "allowed", f"alice,bob cert-authority {public(authority)}")
    assert check_signature(run, allowed, "alice").key_type == "ED25519-CERT"
    with pytest.raises(InvalidSignature, match="does not allow for bob"):
        check_signature(run, allowed, "bob")
    with pytest.raises(ValueError, match="is a certificate"):
        check_signature(run, f"{key}-cert.pub")


@pytest.mark.parametrize(
    "signer", ["", "*", "al?ce", "alice,bob", "!mallory", "a b", "-I", "alice\n", "a\x1b[1m", '"a"']
)
def test_an_identity_is_one_name(signed: Path, keys: Path, tmp_path: Path, signer: str):
    allowed = allow(tmp_path / "allowed", f"* {public(keys / 'alice')}")
    with pytest.raises(ValueError, match="is not one identity") as caught:
        check_signature(signed, allowed, signer)
    assert str(caught.value).isprintable()


# ---- key files that are not keys ----------------------------------------------------------------


def test_key_files_that_are_not_one_public_key_are_refused(
    signed: Path, keys: Path, tmp_path: Path
):
    key = public(keys / "alice")
    for content, complaint in {
        "": "not a public key",
        "# nothing": "not a public key",
        f"{key}\n{public(keys / 'mallory')}": "several lines",
        f"{key}\nalice cert-authority {key}": "several lines",
        f"cert-authority {key}": "not a public key of one line",
        f'command="x" {key}': "not a public key of one line",
        f"* {key}": "not a public key of one line",
        "ssh-ed25519": "not base64",
        'ssh-ed25519 AAAA"namespaces="git"': "not base64",
        f"{key[:40]}": "copy it again",
        f"{key.replace('ssh-ed25519', 'ssh-rsa', 1)}": "copy it again",
        "x" * (LARGEST + 1): "larger than any file of keys",
    }.items():
        with pytest.raises(ValueError, match=complaint):
            check_signature(signed, allow(tmp_path / "key.pub", content))
    with pytest.raises(ValueError, match=r"private key: give the public one, as in alice\.pub"):
        check_signature(signed, keys / "alice")
    with pytest.raises(ValueError, match="--signer belongs to an allowed_signers file"):
        check_signature(signed, keys / "alice.pub", "alice")
    for absent in (tmp_path / "absent", tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no key file"):
            check_signature(signed, absent)


def test_a_public_key_may_have_a_comment_and_windows_line_ends(
    signed: Path, keys: Path, tmp_path: Path
):
    path = tmp_path / "key.pub"
    key = (keys / "alice.pub").read_bytes().rstrip()
    path.write_bytes(b"\xef\xbb\xbf# mine\r\n" + key + b"\r\n\r\n")
    check_signature(signed, path)


# ---- signing ------------------------------------------------------------------------------------


def test_a_signature_is_not_replaced_by_accident(signed: Path, keys: Path):
    before = (signed / SIGNATURE).read_bytes()
    with pytest.raises(ValueError, match="has a signature"):
        sign(signed, keys / "mallory")
    assert (signed / SIGNATURE).read_bytes() == before
    sign(signed, keys / "mallory", overwrite=True)
    check_signature(signed, keys / "mallory.pub")


def test_an_altered_run_is_not_signed(run: Path, keys: Path):
    (run / "prior.json").write_text("{}")
    with pytest.raises(AlteredRun):
        sign(run, keys / "alice")
    assert not (run / SIGNATURE).exists()


def test_a_key_that_cannot_sign_is_an_error_of_one_printable_line(run: Path, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no key file"):
        sign(run, tmp_path / "absent")
    key = make_key(tmp_path / "key")
    key.chmod(0o644)
    with pytest.raises(ValueError, match=r"Permissions 0644 for .* are too open") as caught:
        sign(run, key)
    assert str(caught.value).isprintable()
    assert "@" not in str(caught.value)


def test_nothing_that_ssh_keygen_prints_passes_unescaped(
    run: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "ssh-keygen"
    fake.write_text("#!/bin/sh\nprintf 'no\\033[2J\\r\\302\\233verified\\n' >&2\nexit 1\n")
    fake.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ValueError, match=r"no\\x1b\[2J") as caught:
        sign(run, keys / "alice")
    assert str(caught.value).isprintable()


def test_a_missing_ssh_keygen_says_what_to_install(
    signed: Path, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    for attempt in (
        lambda: sign(signed, keys / "alice", overwrite=True),
        lambda: check_signature(signed, keys / "alice.pub"),
    ):
        with pytest.raises(ValueError, match="install OpenSSH"):
            attempt()


# ---- a signature is part of a run's folder ------------------------------------------------------


def test_a_new_run_in_the_folder_removes_the_signature_of_the_old(signed: Path):
    Run.load(signed).save(signed, overwrite=True)  # even of the same content
    assert not (signed / SIGNATURE).exists()


def test_an_interrupted_folder_with_a_signature_can_be_overwritten(signed: Path):
    run = Run.load(signed)
    (signed / "manifest.json").unlink()
    run.save(signed, overwrite=True)
    assert Run.load(signed)
    assert not (signed / SIGNATURE).exists()
