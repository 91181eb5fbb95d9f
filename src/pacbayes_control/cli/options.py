"""Options that several commands share, their checks and effects, and commands from records."""

from __future__ import annotations

import functools
import inspect
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.run import AlteredRun, Run
from pacbayes_control.certify.text import json_text
from pacbayes_control.certify.trials import COMPARISON
from pacbayes_control.cli.app import complain
from pacbayes_control.report.console import out, progress_bars, warn, working
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.options import option

if TYPE_CHECKING:
    from pacbayes_control.rollouts import Execution

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for the terminal."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of every random stream.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the run that is in the folder.")]
PROCESSES = "Processes to roll out in; default all cores; 0: this one."
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=0,
        max=4096,
        help=PROCESSES,
    ),
]
BallOption = Annotated[
    str | None,
    typer.Option(
        "--ball",
        metavar="DIVERGENCE:B",
        help="Certify for every distribution this close to the training's, such as kl:0.08.",
    ),
]
SWEEP = "sweep.json"  # the main file of a sweep
MOST = 1_000_000_000  # largest number of environments, trials or rollouts
SimulatedOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The same policies in simulation of the same environments, found by their names or "
        "seeds: the promise is then about the robot, from fewer trials there.",
    ),
]
MoreSimulatedOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="And in simulation of many further environments, drawn like those of the trials, in "
        "which no policy was learnt or chosen.",
    ),
]
DEVICE = "Where rollouts run: cpu, cuda (an NVIDIA GPU) or auto; default: cpu."
Device = Literal["cpu", "cuda", "auto"]
DeviceOption = Annotated[Device | None, typer.Option(help=DEVICE)]
DrawsOption = Annotated[
    int,
    typer.Option(
        min=1,
        max=MOST,
        help="Draws of the training set; tables: of the largest, and more of smaller ones.",
    ),
]
TestEnvironments = Annotated[
    int, typer.Option(min=1, max=MOST, help="Environments to estimate the true cost on.")
]


def check_writable(file: Path | None, *inputs: Path) -> None:
    """Raise ValueError, before the work, if a file cannot be written or is an input."""
    if file is None:
        return
    for path in inputs:
        if file.resolve() == path.resolve():
            raise ValueError(f"{file} is the input: write to another file")
        if path.is_dir() and path.resolve() in file.resolve().parents:
            raise ValueError(f"{file} lies in {path}, which is the input: write elsewhere")
    if not file.absolute().parent.is_dir():
        raise ValueError(f"there is no folder {file.parent} to write {file.name} in")
    if file.is_dir():
        raise ValueError(f"{file} is a folder, not a file to write JSON to")


def check_simulated(simulated: Path | None, more: Path | None, *outputs: Path | None) -> None:
    """Raise ValueError unless simulation is of the environments of the trials first.

    outputs: files to be written, which must not be among the inputs
    """
    if more is not None and simulated is None:
        raise ValueError("--more-simulated needs --simulated: the environments of the trials")
    inputs = [file for file in (simulated, more) if file is not None]
    for file in outputs:
        if str(file) != "-":
            check_writable(file, *inputs)


def check_json(json_file: Path | None, *inputs: Path) -> None:
    """As `check_writable`; if JSON goes to standard output, all other text goes to stderr."""
    out.stderr = str(json_file) == "-"
    if json_file is not None:
        check_writable(json_file, *inputs)


def check_outputs(json_file: Path | None, picture: Path | None, *inputs: Path) -> None:
    """As `check_json`, and the same for a picture; the suffix of its name is its format."""
    if picture and json_file and picture.resolve() == json_file.resolve():
        raise ValueError(f"{picture} cannot be both the picture and the JSON")
    if picture and picture.suffix.lower() not in (".svg", ".pdf", ".png"):
        raise ValueError(f"{picture}: a picture is an .svg, a .pdf or a .png file")
    check_json(json_file, *inputs)
    check_writable(picture, *inputs)


def check_apart(campaign: Path, folder: Path) -> None:
    """Raise ValueError if a campaign and a run would be in each other's folder."""
    one, other = campaign.resolve(), folder.resolve()
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise ValueError(f"the campaign {campaign} and the run {folder} need folders of their own")


def beside(folder: Path, suffix: str) -> Path:
    """A path next to a run's folder, also if that is given as `.` or `..`."""
    whole = folder.resolve()
    plain = folder.name not in ("", "..")
    return (folder if plain else whole).with_name(f"{whole.name}{suffix}")


def refuse_set(asked: Any, unused: Mapping[str, str]) -> None:
    """Raise ValueError if an option differs from its default and has no effect."""
    usual = {each.name: each.default for each in fields(asked)}
    for name, reason in unused.items():
        if getattr(asked, name) != usual[name]:
            raise ValueError(f"--{name.replace('_', '-')} {reason}")


def write_json(json_file: Path | None, record: Any) -> None:
    """Write the result of a command as JSON, if a file was given."""
    if json_file is None:
        return
    text = json_text(record) + "\n"
    if str(json_file) == "-":
        sys.stdout.write(text)
    else:
        write_output(json_file, text.encode())


def run_folder(path: Path) -> Path:
    """The folder of a run, from its path or that of its certificate.json."""
    folder = path.parent if path.name == "certificate.json" and path.is_file() else path
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no run at {path}")
    if holds(folder, SWEEP):
        raise ValueError(f"{path} is a sweep, and no run: pbc export writes its table and figure")
    return folder


def holds(folder: Path, main: str) -> bool:
    """Whether a folder holds a comparison or a sweep, by the name of its main file, and no run."""
    return (folder / main).is_file() and not (folder / "certificate.json").exists()


def certified_folder(path: Path) -> Path:
    """The folder of a run; an error for one of a comparison, which has no certificate."""
    folder = run_folder(path)
    if (folder / COMPARISON).exists():
        raise ValueError(
            f"{path} is a comparison, which promises no cost: give a run, as of pbc choose --out"
        )
    return folder


def verified(
    folder: Path,
    json_file: Path | None,
    known: Mapping[str, str] | None = None,
    *,
    one_of_several: bool = False,
) -> Run[Any]:
    """A verified run; if verification fails, print the reason and exit with code 1.

    Args:
        folder: of the run
        json_file: where the reason goes too
        known: the fingerprint of a run that was verified before; its bound is not recomputed
        one_of_several: whether the reason has to name the folder
    """
    from pacbayes_control.deploy.monitor.state import fingerprint
    from pacbayes_control.verify import InvalidCertificate, verify

    try:
        if known is not None:
            run = Run.load(folder)  # first: it checks that the files are regular and complete
            if known == fingerprint(folder):
                return run
        with working("verifying"):
            return verify(folder).run
    except (AlteredRun, InvalidCertificate) as error:
        reason = f"{folder}: {error}" if one_of_several else error
        raise not_verified(json_file, reason) from None


def not_verified(
    json_file: Path | None, reason: object, record: Mapping[str, Any] | None = None
) -> typer.Exit:
    """The end of a command whose run does not hold, after the reason was printed and written."""
    write_json(json_file, {**(record or {}), "verified": False, "reason": str(reason)})
    complain(f"NOT VERIFIED: {reason}")
    return typer.Exit(1)


# ---- where rollouts run --------------------------------------------------------------------------


@dataclass(frozen=True)
class ExecutionOptions:
    """The options of an execution."""

    workers: int | None = option(None, PROCESSES, least=0, most=4096)
    scheduler: str | None = option(
        None, "Address of a Dask scheduler, to roll out on its cluster.", rare=True
    )
    device: Device | None = option(None, DEVICE)
    rollout_timeout: float | None = option(
        None,
        "Seconds after which a rollout is ended and costs 1, the worst: the certificate tells it.",
        metavar="S",
    )
    retries: int = option(
        0,
        "How often a rollout that failed may be run again and still count, where machines fail and "
        "not the task: the certificate tells how many did.",
        rare=True,
        least=0,
    )
    allow_code_change: bool = option(
        False,
        "Go on although the task's code has changed: finished rollouts are kept, and the "
        "certificate tells it.",
        rare=True,
    )


@contextmanager
def executing(
    task: Task, how: ExecutionOptions | int | None = None, store: Path | None = None
) -> Iterator[Execution]:
    """An execution on a cluster, or with a number of workers, by default one for each core."""
    from pacbayes_control.rollouts import Execution, cluster, pool
    from pacbayes_control.rollouts.processes import cores

    asked = how if isinstance(how, ExecutionOptions) else ExecutionOptions(workers=how)
    if asked.workers is not None and asked.scheduler is not None:
        raise ValueError("give --workers or a scheduler, not both")
    number, timeout = asked.workers, asked.rollout_timeout
    if number is None and not task.uses_all_cores:
        number = cores()
    if asked.scheduler is None:
        workers = pool(task, number, timeout)
    elif timeout is None:
        workers = cluster(asked.scheduler)
    else:
        raise ValueError("rollout-timeout is for processes of this machine, not for a scheduler's")
    with workers as executor, progress_bars() as tell:
        yield Execution(
            executor,
            store,
            progress=tell,
            warning=warn,
            retries=asked.retries,
            rollout_timeout=timeout,
            allow_code_change=asked.allow_code_change,
            device=asked.device,
        )


def remove_store(store: Path) -> None:
    """Delete the checkpoint files of a run that is complete."""
    for path in store.parent.iterdir():
        if path.name.startswith(f"{store.name}."):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


# ---- commands whose options are the fields of records -------------------------------------------


def as_command(name: str, call: Any, parameters: Iterable[Parameter], words: str) -> Any:
    """A command that calls a function with the values of its options, by name.

    Args:
        name: of the command
        call: takes every parameter as a keyword
        parameters: from which Typer makes arguments and options
        words: the help
    """
    by_keyword = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
    call.__signature__, call.__annotations__ = Signature(by_keyword), {}
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name, help=words)(call)
    return typer.main.get_command(alone)


def takes_record(function: Callable[[Any], None]) -> Callable[..., None]:
    """A function of one dataclass, as Typer needs it: with a parameter for each field."""
    [asked] = inspect.signature(function, eval_str=True).parameters.values()
    record: Any = asked.annotation

    @functools.wraps(function)
    def call(**values: Any) -> None:
        function(record(**values))

    call.__signature__ = Signature(parameters_of(record))  # type: ignore[attr-defined]
    call.__annotations__ = {}
    return call


def parameters_of(record: type) -> list[Parameter]:
    """A parameter for each field of a dataclass, annotated for Typer or made with `option`.

    Its own come first, and then those of the record it extends, under that record's title.
    """
    hints, own = get_type_hints(record, include_extras=True), inspect.get_annotations(record)
    found = sorted(fields(record), key=lambda field: field.name not in own)
    return [
        parameter(
            f.name,
            hints[f.name],
            f.default,
            f.metadata,
            None if f.name in own else getattr(record, "TITLE", None),
        )
        for f in found
    ]


def parameter(
    name: str,
    kind: Any,
    default: Any = None,
    facts: Mapping[str, Any] | None = None,
    panel: str | None = None,
) -> Parameter:
    """A parameter for Typer to make an argument or an option from.

    Args:
        name: of the parameter
        kind: its type, annotated for Typer if there are no facts
        default: its value if it is not given; MISSING if it must be
        facts: of a field that was made with `option`
        panel: a title to list the option under
    """
    if facts:
        flag = facts.get("flag") or (f"--{name.replace('_', '-')}" if kind is bool else None)
        if isinstance(default, tuple):
            kind, default = str | None, None
        annotation = typer.Option(
            *([flag] if flag else []),
            help=facts["help"],
            metavar=facts.get("metavar"),
            min=facts.get("least"),
            max=facts.get("most"),
            hidden=facts.get("hidden", False),
            rich_help_panel=panel,
        )
        kind = Annotated[kind, annotation]
    usual = Parameter.empty if default is MISSING else default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=usual, annotation=kind)
