"""`pbc learn`: one command for each task, with the options that have an effect on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacbayes_control.certify.files import read_json
from pacbayes_control.certify.run import check_free
from pacbayes_control.certify.text import round_up
from pacbayes_control.cli import options
from pacbayes_control.cli.app import app
from pacbayes_control.cli.task_commands import (
    FieldOptions,
    TaskCommands,
    execution_options,
    given_values,
    own_options,
    rare_options,
    show_fields,
    task_command,
    task_with,
    usual_folder,
)
from pacbayes_control.report.console import say, warn
from pacbayes_control.report.terminal import show_certificate
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.options import Option, from_values, options_of
from pacbayes_control.tasks.registry import installed_tasks, load_task

if TYPE_CHECKING:
    from pacbayes_control.learn import Plan

HELP = f"""Learn a policy for a task and certify it: pbc learn TASK.

    TASK is one that is installed ({", ".join(installed_tasks())}), or MODULE:TASK of yours, such as
    robot.py:task. Its own options: pbc learn TASK --help. Interrupted at any moment, the same
    command goes on where it was.

    Example: pbc learn examples/braking.py:task --environments 500 --out runs/braking

    Example: pbc learn --plan runs/braking/plan.json --out runs/again
    """
SHOWN = 20  # parameters of a policy that are shown

OutFolder = Annotated[
    Path | None, typer.Option("--out", help="Folder of the run; default runs/TASK.")
]


@dataclass(frozen=True)
class RunOptions(FieldOptions):
    """Options of the command of every task: fields to set, and where the run is written."""

    out_folder: OutFolder = None
    force: options.Force = False
    json_file: options.JsonFile = None


RUN_PARAMETERS = options.parameters_of(RunOptions)


class Tasks(TaskCommands):
    """A command that learns for each task."""

    def command_for(self, target: Any, name: str) -> Any:
        """The command that learns for a task, with the common options and the task's own."""
        from pacbayes_control.learn import Plan, SearchSettings

        own = name not in installed_tasks()
        shown = {None, *target.learns, *(("own",) if own else ())}
        searched = options_of(SearchSettings) if "continuous" in target.learns else {}
        groups = {
            f"Options of {name}": own_options(target),
            "Plan": {n: each for n, each in options_of(Plan).items() if each.space in shown},
            "Search": {n: replace(each, default=None) for n, each in searched.items()},
            "Execution": execution_options(target),
        }
        chooses = (
            "It chooses from the task's `policies`, or --policies; where there are none, it learns "
            "from the task's `prior`, or --prior.\n\n"
        )
        words = (
            f"Learn a policy for {name} and certify it.\n\nInterrupted at any moment, the same "
            f"command goes on where it was. {chooses if own else ''}Rare choices are fields: --set "
            "FIELD=VALUE, listed by --fields.\n\n"
            f"Example: pbc learn {name} --environments 500 --out runs/new"
        )
        call = partial(_call, target, name)
        command = task_command(name, call, groups, RUN_PARAMETERS, words=words)
        if searched:
            command.moved["population"] = "write --pairs N, for 2N policies in each step"
        return command


learn_app = typer.Typer(cls=Tasks, help=HELP, no_args_is_help=True)
app.add_typer(learn_app, name="learn")


@learn_app.callback(invoke_without_command=True)
def learn(
    context: typer.Context,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Carry out the plan of a run: its plan.json."),
    ] = None,
    workers: options.WorkersOption = None,
    device: options.DeviceOption = None,
    out_folder: OutFolder = None,
    force: options.Force = False,
    json_file: options.JsonFile = None,
) -> None:
    """Carry out a plan; the help of this command is HELP."""
    if context.invoked_subcommand is not None:
        return
    if plan is None:
        raise ValueError("name the task to learn for, or give --plan FILE: see pbc learn --help")
    from pacbayes_control.learn import Plan

    chosen = Plan.from_dict(read_json(plan))
    if chosen.task is None:
        raise ValueError(f"{plan} names no task: the run was made in Python")
    asked = RunOptions(out_folder=out_folder, force=force, json_file=json_file)
    task = load_task(chosen.task, chosen.options)
    _learn(task, chosen, options.ExecutionOptions(workers=workers, device=device), asked, plan)


def _call(target: Any, name: str, groups: list[Mapping[str, Option]], /, **values: Any) -> None:
    """Learn with the values of a task's options.

    Args:
        target: as `found` has found it
        name: of the task
        groups: the options of the task, of the plan, of the search and of the execution
        values: of all options of the command, by name
    """
    from pacbayes_control.learn import Plan
    from pacbayes_control.learn.planned import usual_search

    where = RunOptions(**{each.name: values.pop(each.name) for each in fields(RunOptions)})
    if where.fields:
        return show_fields(rare_options(groups))
    chosen, planned, search, how = given_values(groups, values, where.set_fields)
    plan, execution = from_values(Plan, planned), from_values(options.ExecutionOptions, how)
    task, chosen = task_with(target, name, chosen)
    if search:
        plan = replace(plan, search=replace(usual_search(task, plan.prior), **search))
    return _learn(task, replace(plan, task=name, options=chosen), execution, where)


def _learn(
    task: Task, plan: Plan, how: options.ExecutionOptions, where: RunOptions, *inputs: Path
) -> None:
    """Carry out a plan; save and show the run. It must not replace one of the inputs."""
    from pacbayes_control.learn import learn_task
    from pacbayes_control.rollouts.evaluation import equal_costs

    name = plan.task or task.name
    folder = where.out_folder or usual_folder(name)
    check_free(folder, where.force)
    if plan.campaign is not None:
        options.check_apart(Path(plan.campaign), folder)
    options.check_json(where.json_file, *inputs)
    store = folder.with_name(f"{folder.name}.checkpoint")
    with options.executing(task, how, store) as execution:
        store.parent.mkdir(parents=True, exist_ok=True)
        run = learn_task(task, plan, execution)
    shown = task.environments(
        max(3, (run.plan or {}).get("test_environments", 0)), "test", plan.seed
    )
    run.save(folder, where.force, task.pictures(run, shown))
    options.remove_store(store)  # not needed once the run is saved
    show_certificate(run, task.words)
    certificate, installed = run.certificate, name in installed_tasks()
    if not installed and certificate.policy is not None and run.costs.parameters is not None:
        row = run.costs.parameters[certificate.policy]
        words = f"{row.tolist()}" if row.size <= SHOWN else f"in {folder / 'policies.npy'}"
        say(f"Its parameters: {words}")
    if warning := equal_costs(run.costs.values):
        warn(warning)
    if not certificate.reached and certificate.until is not None:
        most = f"{certificate.at_most:,} environments, the most that were allowed"
        target = f"it did not come down to {certificate.until:.12g}"
        warn(f"the bound is {round_up(certificate.bound)} after {most}: {target}")
    if certificate.until is not None:
        say(
            f"The costs have chosen how many environments there are: for a certificate by another "
            f"method, draw others (--seed {plan.seed + 1})."
        )
    picture = folder / "picture.svg"
    say(f"\nThe run is in {folder}" + (f" (picture: {picture})." if picture.exists() else "."))
    say(f"Anybody can check it: pbc verify {folder}")
    say(f"To look at: pbc report {folder}" + ("" if installed else f" --task {name}"))
    if where.json_file:
        test, known = certificate.test_estimate, {}
        if test is not None:
            known = {"true_cost": test.cost, "test_environments": test.environments}
        record = {**certificate.to_dict(), "run": str(folder), **known}
        options.write_json(where.json_file, record)
