"""Signatures of a run with an SSH key, made and checked by OpenSSH's `ssh-keygen -Y`.

The manifest of a run holds the SHA-256 of every other file, so a signature of the manifest covers
the run. It shows which key signed the files, not that the files are true.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess, run
from tempfile import TemporaryDirectory
from typing import BinaryIO

from pacbayes_control.certify.files import write_atomic
from pacbayes_control.certify.run import SIGNATURE, AlteredRun, read_manifest
from pacbayes_control.certify.text import printable

NAMESPACE = "pacbayes-control"  # other signatures of a key, such as of commits, do not count here
LARGEST = 1 << 20  # bytes of a signature or a file of keys
KEY_TYPE = re.compile(r"(?:sk-)?(?:ssh|ecdsa)-[a-z0-9-]+(?:@openssh\.com)?")
GOOD = re.compile(
    rf'Good "{NAMESPACE}" signature(?: for \S+)? with (\S+) key (SHA256:[A-Za-z0-9+/]{{43}})\n'
)


class InvalidSignature(AlteredRun):
    """A run that the key did not sign, or whose files changed after the signature."""


@dataclass(frozen=True)
class Signature:
    """A signature that was checked."""

    by: str  # the identity, or the name of the key's file
    key_type: str  # such as ED25519
    fingerprint: str  # SHA256:…

    def __str__(self) -> str:
        return f"signed by {self.by} ({self.key_type} key, fingerprint {self.fingerprint})"


def sign(folder: str | Path, key: str | Path, overwrite: bool = False) -> Signature:
    """Sign a run, and keep the signature beside its manifest. Verify the run first.

    Args:
        folder: the run.
        key: file of an SSH private key, or of the public key if ssh-agent holds the private one.
            ssh-keygen asks for a passphrase or a touch of a security key.
        overwrite: replace an existing signature.
    """
    folder, key = Path(folder), Path(key).expanduser()
    read_manifest(folder)
    if (folder / SIGNATURE).exists() and not overwrite:
        raise ValueError(f"{folder} has a signature: allow replacing it (--force)")
    if not key.is_file():
        raise FileNotFoundError(f"there is no key file {key}")
    with TemporaryDirectory() as scratch:
        copy = Path(scratch, "manifest.json")
        copy.write_bytes((folder / "manifest.json").read_bytes())
        made = _ssh_keygen("-Y", "sign", "-n", NAMESPACE, "-f", key, copy)
        if made.returncode:
            raise ValueError(f"ssh-keygen did not sign with {key}: {_reason(made)}")
        file = Path(scratch, SIGNATURE)
        signature = _checked("check-novalidate", "-s", file, manifest=copy, by=key.name)
        if signature is None:
            raise ValueError(f"ssh-keygen made a signature with {key} that does not hold")
        write_atomic(folder / SIGNATURE, file.read_bytes())  # never through a link
    return signature


def needs_touch(key: str | Path) -> bool:
    """Whether a key is on a security key, which waits for a touch without a message."""
    shown = _ssh_keygen("-l", "-f", Path(key).expanduser())
    return shown.stdout.rstrip().endswith(b"-SK)")


def check_signature(folder: str | Path, key: str | Path, signer: str | None = None) -> Signature:
    """Check that a run is signed by a key, and that its files are those that were signed.

    Args:
        folder: the run.
        key: file of one SSH public key (.pub), or an OpenSSH allowed_signers file.
        signer: the identity that must have signed, for an allowed_signers file.

    Raises:
        InvalidSignature: there is no signature, or it is of other files or by another key.
    """
    folder, key = Path(folder), Path(key).expanduser()
    allowed, identity = _allowed_signers(key, signer)
    read_manifest(folder)
    by, manifest, file = signer or key.name, folder / "manifest.json", folder / SIGNATURE
    if not file.exists():
        raise InvalidSignature(f"the run is not signed: it has no {SIGNATURE}")
    if file.stat().st_size > LARGEST:
        raise InvalidSignature(f"{SIGNATURE} is larger than any signature")
    with TemporaryDirectory() as scratch:
        signers = Path(scratch, "allowed_signers")
        signers.write_bytes(allowed)
        made = _checked("check-novalidate", "-s", file, manifest=manifest, by=by)
        if made is None:
            raise InvalidSignature(
                f"{SIGNATURE} is not a signature of this manifest.json for {NAMESPACE}"
            )
        options = ("-f", signers, "-I", identity, "-s", file)
        signature = _checked("verify", *options, manifest=manifest, by=by)
    if signature is not None:
        return signature
    if signer is None:
        raise InvalidSignature(f"the run is signed by another key ({made.fingerprint})")
    raise InvalidSignature(
        f"the run is signed by {made.fingerprint}, which {key.name} does not allow for "
        f"{signer}: another key, an expired one, or one for other purposes"
    )


def _allowed_signers(key: Path, signer: str | None) -> tuple[bytes, str]:
    """An allowed_signers file for a public key, or the one given, and the identity to look for."""
    if not key.is_file():
        raise FileNotFoundError(f"there is no key file {key}")
    if key.stat().st_size > LARGEST:
        raise ValueError(f"{key} is larger than any file of keys")
    content = key.read_bytes()
    lines = [line.split() for line in content.decode("utf-8-sig", "replace").split("\n")]
    lines = [words for words in lines if words and not words[0].startswith("#")]
    if any("PRIVATE" in words for words in lines[:1]):
        raise ValueError(f"{key} is a private key: give the public one, as in {key.name}.pub")
    public = any(KEY_TYPE.fullmatch(words[0]) for words in lines)
    if public and signer is None:
        return _line_of(key, lines), NAMESPACE
    if public:
        raise ValueError(f"{key} is a public key: --signer belongs to an allowed_signers file")
    if not lines or signer is None:
        raise ValueError(
            f"{key} is not a public key of one line: give a .pub file, or an allowed_signers file "
            "and --signer"
        )
    if not signer.isprintable() or not re.fullmatch(r"[^-\s\"'*?!,#][^\s\"'*?!,]*", signer):
        raise ValueError(f"{signer!r} is not one identity, such as alice@example.com")
    return content, signer


def _line_of(key: Path, lines: list[list[str]]) -> bytes:
    """The line that allows the key of a .pub file, without its comment, which proves nothing."""
    if len(lines) != 1:
        raise ValueError(f"{key} holds several lines: expected one public key")
    kind, *rest = lines[0]
    if "-cert-" in kind:
        raise ValueError(f"{key} is a certificate: give the public key that it is for")
    if not rest or not re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", rest[0]):
        raise ValueError(f"{key} is not a public key: its second word is not base64")
    if _ssh_keygen("-l", "-f", key).returncode:
        raise ValueError(f"{key} is not a public key that ssh-keygen can read: copy it again")
    return f'{NAMESPACE} namespaces="{NAMESPACE}" {kind} {rest[0]}\n'.encode()


def _checked(action: str, *options: str | Path, manifest: Path, by: str) -> Signature | None:
    """The signature of a manifest, if ssh-keygen confirms it."""
    with manifest.open("rb") as content:
        done = _ssh_keygen("-Y", action, "-n", NAMESPACE, *options, given=content)
    good = GOOD.fullmatch(done.stdout.decode("utf-8", "replace"))
    return Signature(by, *good.groups()) if good and done.returncode == 0 else None


def _ssh_keygen(*arguments: str | Path, given: BinaryIO | None = None) -> CompletedProcess[bytes]:
    """Run ssh-keygen; its output is captured, as it must not reach the terminal unescaped."""
    try:
        return run(["ssh-keygen", *arguments], stdin=given, capture_output=True, check=False)
    except FileNotFoundError:
        raise ValueError(
            "ssh-keygen is missing: install OpenSSH (openssh-client on Debian and Ubuntu)"
        ) from None


def _reason(done: CompletedProcess[bytes]) -> str:
    """The error of ssh-keygen in one line, without lines of @ and control characters."""
    lines = done.stderr.decode("utf-8", "replace").splitlines()
    text = " ".join(line.strip() for line in lines if not line.startswith("@"))
    return printable(text, 300)
