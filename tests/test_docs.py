"""The documentation says what is so: names exist, equations are all there, examples run."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile

import pytest
import typer

from commands import examples_forgotten, run_here
from pacbayes_control.cli.app import RobotCommands
from pacbayes_control.cli.commands import app
from pacbayes_control.tasks.task import HOOKS
from polling import wait_until_gone
from shortcuts import coarse_pictures, plain_kl
from sizes import FULL, sized

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SITE = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]
DATA = ("csv", "json", "toml", "yaml")  # blocks that are no code
LAYERS = "bounds certify verify tasks rollouts learn deploy trials study report robots"
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


# ---- the code on the pages ----------------------------------------------------------------------

NOTE = "<!-- smaller:"  # before a block: what `make test` puts for what, which no reader sees
BLOCK = re.compile(rf"(?:^{NOTE} ([^\n]*) -->\n\s*)?^```(\w*)\n(.*?)^```", re.S | re.M)
ALONE = re.compile(r"[\w\s./:,@=-]*")  # words of a command, and nothing that is a shell's


def blocks(page: Path) -> list[tuple[str, str]]:
    """The code of a page, as language and text."""
    text = page.read_text()
    found = BLOCK.findall(text)
    assert text.count(NOTE) == sum(bool(note) for note, *_ in found), f"{page.name}: a lost note"
    return [(kind, smaller(note, code)) for note, kind, code in found]


def smaller(note: str, code: str) -> str:
    """The code with what a note puts for what, as in "steps=50 → 2; seed=0 → 1"; else as it is."""
    after = code
    for change in note.split("; ") if note else ():
        before, then = change.split(" → ")
        assert before in after, f"{before} is not in the block that a note is for"
        after = after.replace(before, then)
    return code if FULL else after


def test_a_note_changes_what_it_names_and_one_that_names_nothing_is_an_error():
    assert smaller("", "learn(steps=50)") == "learn(steps=50)"
    changed = smaller("steps=50 → 2; learn → try", "learn(steps=50)")
    assert changed == sized("try(2)", full="learn(steps=50)")
    with pytest.raises(AssertionError, match="steps=60 is not in the block"):
        smaller("steps=60 → 2", "learn(steps=50)")


def test_a_note_that_is_before_no_block_is_an_error(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"{NOTE} 500 → 5 -->\n\n```sh\npbc learn vehicle --environments 500\n```\n")
    assert blocks(page)[0][1].split()[-1] == sized("5", full="500")
    page.write_text(f"{NOTE} 500 → 5 -->\n\nWords.\n\n```sh\npbc learn --environments 500\n```\n")
    with pytest.raises(AssertionError, match="a lost note"):
        blocks(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_code_that_can_be_run_or_data(page: Path):
    """And each note finds what it is for."""
    for language, _ in blocks(page):
        known = ("python", "sh", *DATA)
        assert language in known, f"{page.name} has a block of {language or 'nothing'}"


def test_every_example_is_shown_as_it_is():
    """Pages have copies, which GitHub shows: a block that begins as an example is all of it."""
    shown = {}
    for page in PAGES:
        for _, _, code in BLOCK.findall(page.read_text()):
            shown[code.partition("\n")[0]] = code
    examples = [*EXAMPLES.rglob("*.py"), EXAMPLES / "rover" / "pyproject.toml"]
    assert len(examples) > 5
    for example in examples:
        text = example.read_text()
        assert shown.get(text.partition("\n")[0]) == text, f"{example.name} is not on a page"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_reads_as_well_on_github(page: Path):
    """No lines that only the site's generator understands."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    assert not re.findall(r"^\s*(?:--8<--|:::|!!! |\?\?\? |=== ).*|\{:.*\}$", text, re.M)


def test_the_page_on_python_names_what_exists():
    page = (ROOT / "docs" / "api.md").read_text()
    items = re.findall(r"^- \[(.*)\]\(\.\./src/(.*)\.py\)$", page, re.M)
    assert len(items) == page.count("\n- ")
    for words, path in items:
        module = import_module(path.replace("/", "."))
        for name in re.findall(r"`(\w+)`", words):
            assert getattr(module, name).__doc__, f"{name} of {path}"


RUN = [page for page in SITE if "```" in page.read_text()]
RUN.remove(ROOT / "docs" / "gallery.md")  # tests/test_gallery.py runs it, with what it needs


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_every_code_block_of_the_site_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From top to bottom, as a reader would: in one folder, and in one session of Python."""
    monkeypatch.chdir(tmp_path)
    coarse_pictures(monkeypatch)
    plain_kl(monkeypatch)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    session = {"__name__": "__main__"}
    with examples_forgotten():
        for language, text in blocks(page):
            if language == "python":
                exec(compile(text, page.name, "exec"), session)
            elif language == "sh":
                run_shell(text)


def run_shell(text: str) -> None:
    """In bash; but lines that are a plain command of `pbc` here, which spares a process each."""
    if FULL or re.search(r"\$|\\$|(?<!&)&(?!&)", text, re.M):  # what a line leaves to the next
        return run_bash(text)
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["pbc"] and ALONE.fullmatch(" ".join(words)):
            assert run_here(*words[1:]) == 0, words
        else:
            run_bash(line)
    return None


def run_bash(text: str) -> None:
    """What is still running at the end is ended: Dask's worker may not, without its scheduler."""
    with socket.socket() as free:  # Dask's own port may be another's
        free.bind(("127.0.0.1", 0))
        text = text.replace("8786", str(free.getsockname()[1]))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with TemporaryFile("w+") as said:  # no pipe, which would be waited for
        bash = subprocess.Popen(
            ["bash", "-euc", text], env=os.environ | {"PATH": path}, stdin=subprocess.DEVNULL,
            stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
        try:
            code = bash.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(bash.pid, signal.SIGKILL)
        said.seek(0)
        assert code == 0, said.read()


def test_a_block_is_not_waited_for_when_it_leaves_a_process_behind(tmp_path: Path):
    run_bash(f"sleep 1000 & echo $! > {tmp_path}/left")
    left = int((tmp_path / "left").read_text())
    wait_until_gone(left)


def test_the_readmes_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    examples = [text for language, text in blocks(ROOT / "README.md") if language == "python"]
    assert examples
    for example in examples:
        exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_shows_no_note(tmp_path: Path):
    run_bash(f"cd {ROOT} && NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --site-dir {tmp_path}")
    pages = {path.stem for path in tmp_path.glob("*.html")} - {"404"}
    assert pages == {page.stem for page in SITE}
    for page in tmp_path.glob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|link)[^>]*(?:src|href)="(https?:[^"]*)', page.read_text()
        )
        assert not loaded, f"{page.name} loads {loaded}"
        assert "smaller:" not in re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.S)
    assert "smaller:" not in (tmp_path / "search" / "search_index.json").read_text()
    python = (tmp_path / "api.html").read_text()
    assert "pacbayes_control.learn.finite.learn_best" in python  # from its docstring
    assert "src/pacbayes_control/" not in python


def test_the_readmes_commands_are_commands():
    pages = [ROOT / "README.md", *SITE]
    text = "\n".join(code for page in pages for kind, code in blocks(page) if kind == "sh")
    used = set(re.findall(r"^(?:\.venv/bin/)?pbc (\w+)(?: (\w+))?", text, re.M))
    assert used
    for name, verb in used:
        command = typer.main.get_command(app).get_command(None, name)
        assert command is not None, name
        if isinstance(command, RobotCommands):
            assert command.get_command(None, verb) is not None, f"{name} {verb}"


def test_the_page_on_packages_lists_every_hook_of_a_task():
    page = (ROOT / "docs" / "own-package.md").read_text()
    assert [hook for hook in HOOKS if f"`{hook}" not in page] == []
