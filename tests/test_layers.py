"""The core knows no robot: no source outside `robots/` names one."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pacbayes_control

PACKAGE = Path(pacbayes_control.__file__).parent
ROBOTS = sorted({"planar", *entry_points(group="pacbayes_control.tasks").names} - {"rover"})
NAMES = re.compile(rf"(?<![a-z])({'|'.join(ROBOTS)}|drone|parrot|gripper)(?![a-z])", re.IGNORECASE)


def named_in(folder: Path) -> list[str]:
    """Lines outside `robots/` that name a robot."""
    found = []
    for file in sorted(folder.rglob("*")):
        if file.suffix in (".py", ".html", ".js", ".css") and "robots" not in file.parts:
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                if NAMES.search(line):
                    found.append(f"{file.relative_to(folder)}:{number}: {line.strip()}")
    return found


def test_no_source_outside_robots_names_one():
    assert ROBOTS == ["grasping", "planar", "swing", "vehicle"]
    assert named_in(PACKAGE) == []


def test_a_name_would_be_found(tmp_path: Path):
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "learning.py").write_text('if task == "swing":\n    pass\n')
    (tmp_path / "robots").mkdir()
    (tmp_path / "robots" / "swing.py").write_text("swing = 1\n")
    assert named_in(tmp_path) == ['cli/learning.py:1: if task == "swing":']


def test_there_are_no_loose_modules_and_as_many_folders_as_layers():
    inside = {path.name for path in PACKAGE.iterdir() if not path.name.startswith("__pycache__")}
    core = (
        "bounds",
        "certify",
        "verify",
        "tasks",
        "rollouts",
        "learn",
        "deploy",
        "trials",
        "study",
        "report",
    )
    assert inside == {"__init__.py", "__main__.py", "py.typed", *core, "robots", "cli"}


def test_a_type_checker_knows_the_names_that_are_imported_when_first_used():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    told = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {each.names[0].name: each.module for each in told}
    assert sorted(homes) == pacbayes_control.__all__
    for name, module in homes.items():
        assert module == f"pacbayes_control.{pacbayes_control._HOMES[name]}"
        assert hasattr(import_module(module), name)
