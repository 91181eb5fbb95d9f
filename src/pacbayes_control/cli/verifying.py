"""`pbc sign` and `pbc verify`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacbayes_control.certify.files import hash_file
from pacbayes_control.certify.run import SIGNATURE, AlteredRun, Run
from pacbayes_control.certify.tables.campaigns import read_campaign
from pacbayes_control.certify.text import quoted
from pacbayes_control.certify.trials import COMPARISON
from pacbayes_control.cli import options
from pacbayes_control.cli.app import app
from pacbayes_control.report.console import say, working
from pacbayes_control.tasks.options import option
from pacbayes_control.tasks.registry import load_task, recorded_environments, recorded_task

if TYPE_CHECKING:
    from pacbayes_control.rollouts.again import Again


@app.command()
def sign(
    run: options.RunFolder,
    key: Annotated[
        Path,
        typer.Option(
            metavar="KEY", help="SSH private key, or the public key of one that ssh-agent holds."
        ),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the signature that is there.")
    ] = False,
    json_file: options.JsonFile = None,
) -> None:
    """Sign a run with an SSH key, after verifying it.

    The signature is kept in the run, as manifest.json.sig. Exit code 1 if the run does not hold.

    Example: pbc sign runs/braking --key ~/.ssh/id_ed25519
    """
    from pacbayes_control.verify.signing import needs_touch
    from pacbayes_control.verify.signing import sign as sign_run

    folder = options.run_folder(run)
    options.check_json(json_file, folder)
    options.verified(folder, json_file)
    if needs_touch(key):
        say("Touch the security key when it blinks.")
    signature = sign_run(folder, key, overwrite=force)
    say(f"{run} is {signature}.")
    say(f"To check it: pbc verify {run} --key PUBLIC_KEY")
    options.write_json(json_file, {"signature": vars(signature)})


@dataclass(frozen=True)
class VerifyOptions:
    """A run, and what to check beside its files."""

    run: options.RunFolder
    again: int | None = option(
        None,
        "Also run K of its rollouts again, picked at random, and compare their costs; 0 for as "
        "many as take a few seconds.",
        metavar="K",
        least=0,
        most=options.MOST,
    )
    task: str | None = option(
        None, "--again: the task of yours that it is of.", metavar="MODULE:TASK"
    )
    costs_file: Path | None = option(
        None, "Also check that it rests on this table.", flag="--costs", metavar="FILE"
    )
    key: Path | None = option(
        None,
        "SSH public key that must have signed it, or an allowed_signers file.",
        metavar="KEY",
    )
    signer: str | None = option(
        None, "Who must have signed it, in the allowed_signers file.", metavar="IDENTITY"
    )
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def verify(asked: VerifyOptions) -> None:
    """Recompute a certificate from its files, and list what no file can prove.

    Exit code 0 if it holds, 1 if it does not, a file was altered, the key did not sign it, or
    rollouts or a table are not those that it rests on; 2 if the run cannot be read.

    Example: pbc verify runs/braking

    Example: pbc verify runs/braking --again 100

    Example: pbc verify runs/campaign --costs examples/campaign.csv
    """
    from pacbayes_control.verify import InvalidCertificate
    from pacbayes_control.verify import verify as verify_run

    folder, json_file, costs_file = options.run_folder(asked.run), asked.json_file, asked.costs_file
    options.check_json(json_file, folder, *([costs_file] if costs_file else []))
    if (folder / COMPARISON).exists():
        _verify_comparison(asked, folder)
        return
    if asked.task is not None and asked.again is None:
        raise ValueError("--task is for rollouts to run again: give --again K too")
    repeated: Again | None = None
    try:
        with working("verifying"):
            verification = verify_run(folder)
            signed, signature = _signature(folder, asked.key, asked.signer)
            resting = _check_table(verification.run, costs_file) if costs_file else None
        if asked.again is not None:
            with working("running rollouts again"):
                repeated = _rolled_out_again(verification.run, asked.task, asked.again)
    except (AlteredRun, InvalidCertificate) as error:
        raise options.not_verified(json_file, error) from None
    record: dict[str, Any] = verification.certificate.to_dict() | {
        "verified": True,
        "recomputed": verification.recomputed,
        "told": list(verification.told),
        "signature": signature,
        "again": asdict(repeated) if repeated else None,
        "costs_file": str(costs_file) if costs_file else None,
    }
    counted = f"{repeated.tried:,} rollouts" if repeated else None
    if repeated and not repeated.explained:
        words = f"{repeated.different} of {counted} that were run again"
        reason = f"{words} do not cost what is recorded: {repeated.first}"
        raise options.not_verified(json_file, reason, record)
    again = f"{counted} were run again, and cost what is recorded." if repeated else None
    if repeated and repeated.devices:
        again = f"{repeated.remark}."
    told = "Taken as told, since no file can prove it:"
    facts = [f"- {words}" for words in verification.told]
    for line in (str(verification), signed, again, resting, told, *facts):
        if line:
            say(line)
    options.write_json(json_file, record)


def _verify_comparison(asked: VerifyOptions, folder: Path) -> None:
    """Recompute a comparison from its trials."""
    from pacbayes_control.trials.comparing import load_comparison
    from pacbayes_control.verify import InvalidCertificate
    from pacbayes_control.verify.words import EPISODES, UNFINISHED

    problem = "is for a run, and this is a comparison"
    if asked.costs_file is not None:
        raise ValueError(f"--costs {problem}")
    options.refuse_set(asked, dict.fromkeys(("again", "task", "key", "signer"), problem))
    try:
        comparison, trials = load_comparison(folder)
    except (AlteredRun, InvalidCertificate) as error:
        raise options.not_verified(asked.json_file, error) from None
    say(f"verified: {comparison.verdict}, recomputed from its trials")
    say(comparison.sentence)
    say("Taken as told, since no file can prove it:")
    pairs = comparison.pairs
    claims = [
        (True, "that the outcomes in trials.json are those of the trials"),
        (True, "that the environments are independent of each other, and like new ones"),
        (comparison.in_order, "that the trials were carried out in random order"),
        (not pairs.in_same_environment, "that the order of recording does not depend on outcomes"),
        (pairs.left_out, "that trials without a partner are not missing because of their outcomes"),
        (trials.episodes != 1, EPISODES),
        (True, UNFINISHED),
        (trials.understood, f"how the log was read: {quoted(trials.understood, 1000)}"),
    ]
    told = [words for applies, words in claims if applies]
    for words in told:
        say(f"- {words}")
    options.write_json(asked.json_file, comparison.to_dict() | {"verified": True, "told": told})


def _signature(
    folder: Path, key: Path | None, signer: str | None
) -> tuple[str | None, dict[str, Any] | None]:
    """The signature of a run, in words and for JSON, or None; an error if it is not by the key."""
    from pacbayes_control.verify.signing import check_signature

    if key is not None:
        signature = check_signature(folder, key, signer)
        return str(signature), {"checked": True, **vars(signature)}
    if signer is not None:
        raise ValueError("--signer is an identity in an allowed_signers file: give that as --key")
    if not (folder / SIGNATURE).exists():
        return None, None
    words = "signed, by a key that was not checked: give the signer's public key as --key"
    return words, {"checked": False}


def _rolled_out_again(run: Run[Any], place: str | None, count: int) -> Again:
    """Some of a run's rollouts, run again with the given task or the recorded one."""
    from pacbayes_control.rollouts.again import roll_out_again

    if place is not None:
        task = load_task(place)
    else:
        try:
            task = recorded_task(run.costs)
        except ValueError as error:
            raise ValueError(
                f"{error}: name the task that it is of (--task MODULE:TASK) to run rollouts again"
            ) from None
    environments = recorded_environments(run.costs, task)
    return roll_out_again(run, task, environments, count=count or None)


def _check_table(run: Run[Any], file: Path) -> str:
    """Raise InvalidCertificate unless a run rests on this table: bytes, costs and names."""
    import numpy as np

    from pacbayes_control.verify import InvalidCertificate

    costs, recorded = run.costs, run.costs.origin.get("sha256")
    how: Any = costs.origin.get("reading", {})
    if not isinstance(how, dict) or not all(
        name in ("header", "graded") and isinstance(value, bool) for name, value in how.items()
    ):
        raise InvalidCertificate("the run does not say plainly how its table was read")
    table = read_campaign(file, **how).costs
    if recorded is not None and recorded != hash_file(file):
        raise InvalidCertificate(f"the run rests on another file than {file}: the SHA-256 differs")
    same = table.values.shape == costs.values.shape and np.array_equal(table.values, costs.values)
    if not same or table.names != costs.names or table.sites != costs.sites:
        raise InvalidCertificate(f"the costs or names of the run are not those of {file}")
    if costs.described and table.digests.get("environments") != costs.digests["environments"]:
        raise InvalidCertificate(f"environments.csv of the run is not what {file} tells")
    words = f"It rests on {file}: every cost and every name is the same"
    return words + (", and every byte." if recorded is not None else "; it tells no SHA-256.")
