"""The documentation says what is so: names exist, equations are all there, examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SITE = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]
DATA = ("csv", "json")  # blocks that are no code
SNIPPET = re.compile(r'^--8<-- "(.*)"$', re.M)
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


def blocks(page: Path) -> list[tuple[str, str]]:
    """The code of a page, as language and text, with the files that it includes."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.S | re.M)
    return [(language, SNIPPET.sub(included, text)) for language, text in fences]


def included(line: re.Match[str]) -> str:
    return (ROOT / line[1]).read_text()


@pytest.mark.parametrize("page", SITE, ids=lambda page: page.name)
def test_every_code_block_of_the_site_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From top to bottom, as a reader would: in one folder, and in one session of Python."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    session = {"__name__": "__main__"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page.name, "exec"), session)
        elif language == "sh":
            run_shell(text)
        else:
            assert language in DATA, f"{page.name} has a block of {language or 'nothing'}"


def run_shell(text: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", text], env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readmes_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    examples = [text for language, text in blocks(ROOT / "README.md") if language == "python"]
    assert examples
    for example in examples:
        exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})


def test_the_site_builds_without_a_warning(tmp_path: Path):
    run_shell(f"cd {ROOT} && NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --site-dir {tmp_path}")
    pages = {path.stem for path in tmp_path.glob("*.html")} - {"404"}
    assert pages == {page.stem for page in SITE}
    for page in tmp_path.glob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link)[^>]*(?:src|href)="(https?:[^"]*)', page.read_text()
        )
        assert not loaded, f"{page.name} loads {loaded}"


def test_the_readmes_commands_are_commands():
    from pacbayes_control.cli import app

    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    used = set(re.findall(r"^(?:\.venv/bin/)?pbc (\w+)", (ROOT / "README.md").read_text(), re.M))
    assert used
    assert used <= known
