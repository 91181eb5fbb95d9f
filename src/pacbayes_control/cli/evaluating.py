"""`pbc evaluate`: the costs of a task's policies as a table, one command for each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from numpy.typing import NDArray

from pacbayes_control.certify.costs import incidents_in_words
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
)
from pacbayes_control.report.console import say, warn
from pacbayes_control.tasks import Environments, Task
from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.options import Option, from_values, option, options_of
from pacbayes_control.tasks.registry import installed_tasks

HELP = f"""Write the costs of a task's policies as a table: pbc evaluate TASK --out costs.csv.

    TASK is one that is installed ({", ".join(installed_tasks())}), or MODULE:TASK of yours, such as
    robot.py:task. Its own options: pbc evaluate TASK --help. The table has one row a rollout, with
    the parameters of its environment. Nothing is certified: pbc certify reads the table.

    Example: pbc evaluate examples/braking.py:task --environments 500 --out costs.csv
    """

SOME = 1000  # environments whose parameters are tried before any rollout


@dataclass(frozen=True)
class RolloutOptions:
    """What is rolled out."""

    environments: int = option(1000, "Environments.", least=2, most=options.MOST)
    policies: str | None = option(
        None,
        "Policies, one a row: .npy, or .csv, with names first; default: the task's.",
        metavar="FILE",
    )
    names: tuple[str, ...] = option(
        (), "Names of the policies, in their order, for the table.", metavar="A,B,…"
    )
    stream: str = option(
        "train", "Stream that environments are drawn from; pbc learn trains on train."
    )
    seed: int = option(0, "Seed of every random stream.", least=0, most=2**64 - 1)


@dataclass(frozen=True)
class TableOptions(FieldOptions):
    """Options of the command of every task: fields to set, and where the table is written."""

    out_file: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The table: a .csv or a .parquet file."),
    ] = None
    force: bool = option(False, "Replace the table that is there.")
    json_file: options.JsonFile = None


TABLE_PARAMETERS = options.parameters_of(TableOptions)


class EvaluatedTasks(TaskCommands):
    """A command that evaluates each task."""

    def command_for(self, target: Any, name: str) -> Any:
        """The command that evaluates a task, with the common options and the task's own."""
        groups = {
            f"Options of {name}": own_options(target),
            "Rollouts": options_of(RolloutOptions),
            "Execution": execution_options(target),
        }
        words = (
            f"Roll out policies of {name}, and write their costs as a table.\n\nOne row a rollout: "
            "environment, policy, cost, and the parameters of the environment. A CSV file has a "
            "record of its origin beside it, FILE.json, by which pbc certify tells where the costs "
            "come from. Interrupted at any moment, the same command goes on where it was. Nothing "
            "is certified.\n\n"
            f"Example: pbc evaluate {name} --environments 500 --out costs.csv"
        )
        call = partial(_call, target, name)
        return task_command(name, call, groups, TABLE_PARAMETERS, words=words)


evaluate_app = typer.Typer(cls=EvaluatedTasks, help=HELP, no_args_is_help=True)
app.add_typer(evaluate_app, name="evaluate")


@evaluate_app.callback()
def evaluate() -> None:
    """Evaluate a task; the help of this command is HELP."""


def _call(target: Any, name: str, groups: list[Mapping[str, Option]], /, **values: Any) -> None:
    """Evaluate with the values of a task's options.

    Args:
        target: as `found` has found it
        name: of the task
        groups: the options of the task, of the rollouts and of the execution
        values: of all options of the command, by name
    """
    where = TableOptions(**{each.name: values.pop(each.name) for each in fields(TableOptions)})
    if where.fields:
        return show_fields(rare_options(groups))
    chosen, asked, how = given_values(groups, values, where.set_fields)
    task, _ = task_with(target, name, chosen)
    rolled, execution = from_values(RolloutOptions, asked), options.ExecutionOptions
    return _evaluate(name, task, rolled, from_values(execution, how), where)


def _evaluate(
    name: str,
    task: Task,
    asked: RolloutOptions,
    how: options.ExecutionOptions,
    where: TableOptions,
) -> None:
    """Roll out, and write the table; finished rollouts are kept beside it until it is complete."""
    from pacbayes_control.learn.planned import warn_of_faults
    from pacbayes_control.rollouts import evaluate as roll_out
    from pacbayes_control.rollouts.evaluation import described_by, equal_costs
    from pacbayes_control.study.rollout_tables import check_table, write_rollouts

    policies, names = _policies(name, task, asked)
    file = _checked_file(where, names, asked)
    environments = _drawn(name, task, asked)
    check_table(file, names, described_by(task, environments[:SOME]))
    store = file.with_name(f"{file.name}.checkpoint")
    fast = name in installed_tasks() and task.uses_all_cores  # keeping would take longer
    with options.executing(task, how, None if fast else store) as execution:
        kept = execution.keeping("rollouts")
        begun = kept.store is not None and Path(kept.store).exists()
        if name not in installed_tasks() and not begun:
            warn_of_faults(task, policies, execution)
        costs = roll_out(task, policies, environments, names, execution=kept)
    write_rollouts(file, costs, task, environments)
    options.remove_store(store)  # not needed once the table is complete
    if warning := equal_costs(costs.values):
        warn(warning)
    told = f"{file}.json tells where they come from: keep it beside the table"
    if file.suffix.lower() == ".parquet":
        told = "its metadata tell where they come from"
    say(f"{costs.environments * costs.policies:,} rollouts are in {file}, one a row; {told}.")
    for words in incidents_in_words(costs.incidents):
        say(f"Note that {words}.")
    say(f"Nothing is certified. To certify these policies: pbc certify {file}")
    say(
        "Policies, parts of the world, a method or a delta chosen by a look at these costs need "
        f"other environments (--seed {asked.seed + 1})."
    )
    means = {costs.name(j): float(mean) for j, mean in enumerate(costs.means)}
    size = {"environments": costs.environments, "policies": costs.policies}
    told = {"origin": dict(costs.origin), "mean_costs": means, "certified": False}
    options.write_json(where.json_file, {"table": str(file), **size, **told})


def _policies(name: str, task: Task, asked: RolloutOptions) -> tuple[NDArray, Sequence[str]]:
    """The policies to roll out, and their names, which may be empty."""
    from pacbayes_control.certify.checks import check_names
    from pacbayes_control.certify.tables.campaigns import read_policies
    from pacbayes_control.rollouts.evaluation import checked_policies

    policies, names = task.policies, task.policy_names
    if asked.policies is not None:
        policies, names = read_policies(Path(asked.policies))
    if policies is None:
        raise ValueError(f"{name} has no list of policies: give one (--policies FILE)")
    names = asked.names or names
    check_names(names, len(policies))
    return checked_policies(task, policies), names


def _checked_file(where: TableOptions, names: Sequence[str], asked: RolloutOptions) -> Path:
    """The table's file, once it is clear that it can be written."""
    from pacbayes_control.certify.tables.rollout_records import record_path
    from pacbayes_control.study.rollout_tables import check_table

    file, inputs = where.out_file, [Path(asked.policies)] if asked.policies else []
    if file is None:
        raise ValueError("name the table to write: --out costs.csv, or --out costs.parquet")
    options.check_json(where.json_file, *inputs, file, record_path(file))
    options.check_writable(file, *inputs)
    options.check_writable(record_path(file), *inputs)
    check_table(file, names)
    if file.exists() and not where.force:
        raise ValueError(f"{file} is there: choose another name, or replace it (--force)")
    return file


def _drawn(name: str, task: Task, asked: RolloutOptions) -> Environments:
    try:
        return task.environments(asked.environments, stream=asked.stream, seed=asked.seed)
    except Exception as error:  # a user's task may raise anything
        raise ValueError(f"task {name} cannot draw environments: {in_a_line(error)}") from error
