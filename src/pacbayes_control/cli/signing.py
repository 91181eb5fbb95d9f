"""`pbc sign`, and the signature's part of `pbc verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from pacbayes_control.cli.app import app
from pacbayes_control.cli.options import JsonFile, check_json, run_folder, verified, write_json

KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="SSH public key that must have signed it, or an allowed_signers file.",
    ),
]
SignerOption = Annotated[
    str | None,
    typer.Option(
        "--signer", metavar="IDENTITY", help="Who must have signed it, in the allowed_signers file."
    ),
]


@app.command()
def sign(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    key: Annotated[
        Path,
        typer.Option(
            metavar="KEY", help="SSH private key, or the public key of one that ssh-agent holds."
        ),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the signature that is there.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Sign a run with an SSH key, after verifying it.

    The signature is kept in the run, as manifest.json.sig. Exit code 1 if the run does not hold.

    Example: pbc sign runs/braking --key ~/.ssh/id_ed25519
    """
    from pacbayes_control.report.console import say
    from pacbayes_control.verify.signing import needs_touch
    from pacbayes_control.verify.signing import sign as sign_run

    folder = run_folder(run)
    check_json(json_file, folder)
    verified(folder, json_file)
    if needs_touch(key):
        say("Touch the security key when it blinks.")
    signature = sign_run(folder, key, overwrite=force)
    say(f"{run} is {signature}.")
    say(f"To check it: pbc verify {run} --key PUBLIC_KEY")
    write_json(json_file, {"signature": vars(signature)})


class Signed(NamedTuple):
    """The signature of a run, in words and for JSON; both empty where there is no signature."""

    words: str | None
    record: dict[str, Any] | None


def signature_of(folder: Path, key: Path | None, signer: str | None) -> Signed:
    """The signature of a run, checked where a key is given; an error if it is not by that key."""
    from pacbayes_control.certify.run import SIGNATURE
    from pacbayes_control.verify.signing import check_signature

    if key is not None:
        signature = check_signature(folder, key, signer)
        return Signed(str(signature), {"checked": True, **vars(signature)})
    if signer is not None:
        raise ValueError("--signer is an identity in an allowed_signers file: give that as --key")
    if not (folder / SIGNATURE).exists():
        return Signed(None, None)
    words = "signed, by a key that was not checked: give the signer's public key as --key"
    return Signed(words, {"checked": False})
