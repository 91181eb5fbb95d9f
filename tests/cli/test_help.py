"""Help pages: short, with an example, and with no option that has no effect."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer

from commands import complaint
from pacbayes_control.cli.commands import app
from pacbayes_control.cli.learning import Tasks

MOST = 22  # options of a page, --help among them
ROOT = Path(__file__).parents[2]


def pages() -> dict[str, Any]:
    """All commands but those of `pbc learn`, by what is typed."""
    found: dict[str, Any] = {}

    def visit(words: str, command: Any) -> None:
        names = command.list_commands(None) if hasattr(command, "list_commands") else []
        found[words] = command
        for name in names:
            visit(f"{words} {name}", command.get_command(None, name))

    whole = typer.main.get_command(app)
    visit("pbc", whole)
    reproduce = whole.get_command(None, "reproduce")
    for name in sorted(entry_points(group="pacbayes_control.experiments").names):
        found[f"pbc reproduce {name}"] = reproduce.get_command(None, name)
    return found


PAGES = pages()
TASKS = ("vehicle", "swing", "grasping", f"{ROOT / 'examples' / 'braking.py'}:task")


def options_of(command: Any) -> list[str]:
    shown = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    return [p.opts[0] for p in shown] + ["--help"]


@pytest.mark.parametrize("words", PAGES)
def test_a_help_page_has_an_example_and_few_options(words: str):
    command = PAGES[words]
    assert len(options_of(command)) <= MOST
    assert command.help
    group = hasattr(command, "list_commands") and words not in ("pbc learn", "pbc reproduce")
    assert group or "Example: pbc " in command.help or "Example: pbc " in (command.callback.__doc__)


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_its_own_options_and_those_that_have_an_effect_on_it(task: str):
    names = options_of(Tasks().get_command(None, task))
    assert len(names) <= MOST
    assert {"--environments", "--delta", "--set", "--fields", "--out", "--json"} < set(names)
    own = {"vehicle": "--policy", "swing": "--gains", "grasping": "--robot"}
    for robot, option in own.items():
        assert (option in names) == (robot == task)
    assert ("--steps" in names) == (task != "swing")
    assert ("--policies" in names) == (":" in task)


def test_fields_are_listed_with_their_types_and_defaults(quick: Any):
    words = quick("learn", "vehicle", "--fields").stdout
    for field in ("family", "objective", "prior_steps", "estimator", "retries", "scheduler"):
        assert field in words
    assert "kl | kl-maurer | pinsker | quadratic | lambda | robust-pinsker" in words
    assert "│ delta " not in words  # which is an option


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("fly", "runs/x"), "write pbc swing fly"),
        (("identify", "swing", "log.csv"), "write pbc swing identify"),
        (("pretrain", "vehicle"), "write pbc grasping pretrain or pbc vehicle pretrain"),
        (("bench", "vehicle"), "write .venv/bin/python benchmarks/NAME.py"),
        (("monitor", "--bound", 0.1), "write --promise 0.1"),
        (("learn", "vehicle", "--family"), "write --set family=true"),
        (("learn", "vehicle", "--prior-steps", 3), "write --set prior_steps=VALUE"),
        (("learn", "swing", "--scheduler", "x"), "write --set scheduler=VALUE"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_spelling_of_before_says_how_it_is_written_now(quick: Any, old: tuple, new: str):
    assert new in complaint(quick(*old))
