"""`pbc learn`: one command for each task, with the options that have an effect on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from pacbayes_control.cli.app import app
from pacbayes_control.cli.dynamic import as_command, parameter_of
from pacbayes_control.cli.options import Force, JsonFile, check_json, write_json
from pacbayes_control.tasks.options import Option, from_values, options_of, plain
from pacbayes_control.tasks.registry import installed_tasks

if TYPE_CHECKING:
    from pacbayes_control.cli.executing import ExecutionOptions
    from pacbayes_control.learn import Plan
    from pacbayes_control.tasks import Task

HELP = f"""Learn a policy for a task and certify it: pbc learn TASK.

    TASK is one that is installed ({", ".join(installed_tasks())}), or MODULE:TASK of yours, such as
    robot.py:task. Its own options: pbc learn TASK --help. Interrupted at any moment, the same
    command goes on where it was.

    Example: pbc learn examples/braking.py:task --environments 500 --out runs/braking

    Example: pbc learn --plan runs/braking/plan.json --out runs/again
    """

OutFolder = Annotated[
    Path | None, typer.Option("--out", help="Folder of the run; default runs/TASK.")
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, max=4096, help="Processes to roll out in; default all cores."),
]


class Tasks(TyperGroup):
    """A command for each task, made when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - asked for by Typer
        """An empty list: loading tasks is slow, and the help names the installed ones."""
        return []

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - asked for by Typer
        """The command of a task."""
        return task_command(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the task to the front: options may also come before it."""
        known = installed_tasks()
        for place, word in enumerate(args):
            if word in known or (":" in word and not word.startswith("-") and ".json" not in word):
                args = [word, *args[:place], *args[place + 1 :]]
                break
        return super().parse_args(ctx, args)


learn_app = typer.Typer(cls=Tasks, help=HELP, no_args_is_help=True)
app.add_typer(learn_app, name="learn")


@learn_app.callback(invoke_without_command=True)
def learn(
    context: typer.Context,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Carry out the plan of a run: its plan.json."),
    ] = None,
    workers: Workers = None,
    out_folder: OutFolder = None,
    force: Force = False,
    json_file: JsonFile = None,
) -> None:
    """Carry out a plan; the help of this command is HELP."""
    if context.invoked_subcommand is not None:
        return
    if plan is None:
        raise ValueError("name the task to learn for, or give --plan FILE: see pbc learn --help")
    from pacbayes_control.certify.files import read_json
    from pacbayes_control.cli.executing import ExecutionOptions
    from pacbayes_control.learn import Plan
    from pacbayes_control.tasks.loading import load_task

    chosen = Plan.from_dict(read_json(plan))
    if chosen.task is None:
        raise ValueError(f"{plan} names no task: the run was made in Python")
    target = Target(out_folder, force, json_file)
    target.check(chosen.task, [plan])
    task = load_task(chosen.task, chosen.options)
    _learn(task, chosen, ExecutionOptions(workers=workers), target)


# ---- the command of a task ----------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """Where a run is written."""

    out: Path | None
    force: bool
    json: Path | None

    def folder(self, task: str) -> Path:
        """The folder of the run."""
        place = task.rpartition(":")[0] or task
        name = Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]
        return self.out or Path("runs") / name

    def check(self, task: str, inputs: list[Path]) -> None:
        """Raise an error before the work if a file or folder cannot be written."""
        from pacbayes_control.certify.run import check_free

        check_free(self.folder(task), self.force)
        check_json(self.json, *inputs)


def task_command(name: str) -> Any:
    """The command that learns for a task, with the common options and the task's own."""
    from pacbayes_control.cli.executing import ExecutionOptions
    from pacbayes_control.learn import Plan, SearchSettings
    from pacbayes_control.tasks.loading import found

    target = found(name)  # a class of tasks with options, or a task
    own = name not in installed_tasks()
    shown = {None, *target.learns, *(("own",) if own else ())}
    groups = {
        f"Options of {name}": options_of(target.Options) if target.Options else {},
        "Plan": {n: o for n, o in options_of(Plan).items() if o.space in shown},
        "Search": {n: replace(o, default=None) for n, o in options_of(SearchSettings).items()},
        "Execution": dict(options_of(ExecutionOptions)),
    }
    if "continuous" not in target.learns:
        del groups["Search"]
    if target.uses_all_cores:
        del groups["Execution"]["workers"]
    fields = {n: (title, o) for title, known in groups.items() for n, o in known.items()}

    def call(**values: Any) -> None:
        if values.pop("fields"):
            _show_fields({n: o for n, (_, o) in fields.items() if o.rare})
            return
        where = Target(values.pop("out_folder"), values.pop("force"), values.pop("json_file"))
        given = _given(fields, values)
        by_group = {t: {n: given[n] for n in known if n in given} for t, known in groups.items()}
        _learn_named(name, target, by_group, where)

    parameters = [parameter_of(o, title) for title, o in fields.values() if not o.rare]
    rare = [option for _, option in fields.values() if option.rare]
    moved = {o.name: f"write --set {o.name}={'true' if o.kind is bool else 'VALUE'}" for o in rare}
    return as_command(name, call, [*parameters, *_common()], _words(name, own), moved)


def _common() -> list[Parameter]:
    """Options that set fields, and that say where the run is written."""
    several = typer.Option("--set", metavar="FIELD=VALUE", help="Set a field (repeatable).")
    listed = typer.Option("--fields", help="List the fields that --set knows, and end.")
    wanted: Mapping[str, tuple[Any, Any]] = {
        "set_fields": (Annotated[list[str] | None, several], None),
        "fields": (Annotated[bool, listed], False),
        "out_folder": (OutFolder, None),
        "force": (Force, False),
        "json_file": (JsonFile, None),
    }
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in wanted.items()
    ]


def _words(name: str, own: bool) -> str:
    chooses = (
        "It chooses from the task's `policies`, or --policies; where there are none, it learns "
        "from the task's `prior`, or --prior.\n\n"
        if own
        else ""
    )
    return (
        f"Learn a policy for {name} and certify it.\n\nInterrupted at any moment, the same command "
        f"goes on where it was. {chooses}Rare choices are fields: --set FIELD=VALUE, listed by "
        f"--fields.\n\nExample: pbc learn {name} --environments 500 --out runs/new"
    )


def _given(fields: Mapping[str, tuple[str, Option]], values: dict[str, Any]) -> dict[str, Any]:
    """The values that differ from the defaults, from options and from --set."""
    pairs = values.pop("set_fields") or []
    given = {}
    for name, value in values.items():
        option = fields[name][1]
        listed = isinstance(option.default, tuple) and isinstance(value, str)
        given[name] = option.read(value) if listed else value
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name not in fields:
            known = ", ".join(n for n, (_, option) in fields.items() if option.rare)
            raise ValueError(f"--set {pair}: write FIELD=VALUE, with a field of {known}")
        given[name] = fields[name][1].read(value)
    return {
        name: value
        for name, value in given.items()
        if value is not None and value != fields[name][1].default
    }


def _show_fields(fields: Mapping[str, Option]) -> None:
    from rich.table import Table

    from pacbayes_control.report.console import show

    table = Table("field", "type", "default", "")
    for name, option in fields.items():
        table.add_row(name, option.kind_words, str(option.default), option.facts["help"])
    show(table)


def _learn_named(name: str, target: Any, given: dict[str, dict[str, Any]], where: Target) -> None:
    """Make the task, the plan and the execution from the given values, and learn."""
    from pacbayes_control.cli.executing import ExecutionOptions
    from pacbayes_control.learn import Plan
    from pacbayes_control.learn.planned import usual_search
    from pacbayes_control.tasks.loading import with_options

    where.check(name, [])
    own, plan_values, search, how = (
        given.get(group, {}) for group in (f"Options of {name}", "Plan", "Search", "Execution")
    )
    plan = from_values(Plan, plan_values)
    execution = from_values(ExecutionOptions, how)
    task = with_options(target, name, own)
    options = plain(from_values(target.Options, own)) if own else {}
    if search:
        plan = replace(plan, search=replace(usual_search(task, plan.prior), **search))
    _learn(task, replace(plan, task=name, options=options), execution, where)


def _learn(task: Task, plan: Plan, how: ExecutionOptions, where: Target) -> None:
    """Carry out a plan; save and show the run."""
    from pacbayes_control.cli.executing import executing, remove_store
    from pacbayes_control.learn import learn_task
    from pacbayes_control.report.console import say, warn
    from pacbayes_control.report.terminal import show_certificate
    from pacbayes_control.rollouts.evaluation import equal_costs

    name = plan.task or task.name
    folder = where.folder(name)
    store = folder.with_name(f"{folder.name}.checkpoint")
    store.parent.mkdir(parents=True, exist_ok=True)
    with executing(task, how, store) as execution:
        run = learn_task(task, plan, execution)
    shown = task.environments(
        max(3, (run.plan or {}).get("test_environments", 0)), "test", plan.seed
    )
    run.save(folder, where.force, task.pictures(run, shown))
    remove_store(store)  # not needed once the run is saved
    show_certificate(run)
    certificate, installed = run.certificate, name in installed_tasks()
    result = {**certificate.to_dict(), "run": str(folder)}
    if not installed and certificate.policy is not None and run.costs.parameters is not None:
        say(f"Its parameters: {run.costs.parameters[certificate.policy].tolist()}")
    if certificate.test_estimate is not None:
        result["true_cost"] = certificate.test_estimate.cost
        result["test_environments"] = certificate.test_estimate.environments
    if warning := equal_costs(run.costs.values):
        warn(warning)
    picture = folder / "picture.svg"
    say(f"\nThe run is in {folder}" + (f" (picture: {picture})." if picture.exists() else "."))
    say(f"Anybody can check it: pbc verify {folder}")
    say(f"To look at: pbc report {folder}" + ("" if installed else f" --task {name}"))
    write_json(where.json, result)
