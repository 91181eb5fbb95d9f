"""The documentation says what is so: names exist, equations are all there, examples run."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LAYERS = (
    "bounds tasks rollouts costs distributions learn certificate issuing run verification "
    "deployment recipes paper report families balls shifting monitor"
)
NAMES = re.compile(rf"`((?:{LAYERS.replace(' ', '|')})(?:\.\w+)+)`")


def names() -> list[str]:
    page = (ROOT / "docs" / "paper-to-code.md").read_text()
    return sorted(set(NAMES.findall(page)))


@pytest.mark.parametrize("name", names())
def test_every_name_in_the_map_of_the_paper_exists(name: str):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(["pacbayes_control", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return
    pytest.fail(f"{name} does not exist")


def test_every_numbered_equation_of_the_paper_has_a_row():
    page = (ROOT / "docs" / "paper-to-code.md").read_text()
    cells = " ".join(line.split("|")[1] for line in page.splitlines() if line.startswith("|"))
    covered: set[int] = set()
    for first, last in re.findall(r"\((\d+)\)(?:–\((\d+)\))?", cells):
        covered |= set(range(int(first), int(last or first) + 1))
    assert covered == set(range(1, 44))
    for item in ("Theorem 1", "Theorem 2", "Theorem 3", "Theorem 4", "Algorithm 1", "Algorithm 2"):
        assert item in cells


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page: Path):
    for target in re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", ["README.md", "docs/continuous.md", "docs/shift.md"])
def test_the_python_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert examples
    for example in examples:
        exec(compile(example, page, "exec"), {})


def test_the_readmes_commands_are_commands():
    from pacbayes_control.cli import app

    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    used = set(re.findall(r"^(?:\.venv/bin/)?pbc (\w+)", (ROOT / "README.md").read_text(), re.M))
    assert used
    assert used <= known
