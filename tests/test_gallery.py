"""The gallery: environments of other packages, each small, and tried from a check to a video."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from imageio.v3 import imread as read_frames

ROOT = Path(__file__).parents[1]
FILES = {path.stem: path for path in sorted((ROOT / "examples" / "gallery").glob("*.py"))}
PAGE = (ROOT / "docs" / "gallery.md").read_text()
SHOWN = "lunar_lander"  # whose commands are on the page
DECIDES = {  # the drawn parameter that goes with failure most
    "highway": "vehicles_density",
    "hopper": "foot",
    "lunar_lander": "wind_power",
    "minigrid_balls": "balls",
    "panda_reach": "depth",
}
LINES = 24
LARGEST = 5_000_000  # bytes of a page
WHEELS = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="panda-gym needs PyBullet: no wheels for Python 3.12"
)
TRIED = [pytest.param(name, marks=WHEELS) if name == "panda_reach" else name for name in DECIDES]
Pbc = Callable[..., subprocess.CompletedProcess[str]]


def parts(name: str) -> tuple[str, str]:
    """The docstring of an example, and the code after it."""
    text = FILES[name].read_text()
    tree = ast.parse(text)
    return ast.get_docstring(tree) or "", "\n".join(text.split("\n")[tree.body[0].end_lineno :])


def commands(text: str) -> list[list[str]]:
    """The commands of `pbc` in a text, without its name."""
    return [shlex.split(line)[1:] for line in re.findall(r"^ *(pbc .*)", text, re.M)]


def page_commands(name: str) -> list[list[str]]:
    """Those on the page, for another example than the one that they are shown for."""
    [block] = re.findall(r"^```sh\n(.*?)^```", PAGE, re.S | re.M)
    return commands(block.replace(SHOWN, name))


def test_the_gallery_has_five_environments_and_the_page_links_to_each():
    assert set(FILES) == set(DECIDES)
    for name in FILES:
        assert f"](../examples/gallery/{name}.py)" in PAGE


@pytest.mark.parametrize("name", FILES)
def test_an_example_has_less_than_25_lines(name: str):
    lines = [line for line in parts(name)[1].splitlines() if line.strip()]
    assert 10 < len(lines) <= LINES


@pytest.mark.parametrize("name", FILES)
def test_an_example_tells_the_commands_of_the_page_for_itself(name: str):
    told = commands(parts(name)[0])
    assert [each[0] for each in told] == ["check", "learn", "failures"]
    assert [each for each in page_commands(name) if each in told] == told


@pytest.mark.full
@pytest.mark.parametrize("name", TRIED)
def test_the_commands_of_the_page_work_for_each_example(pbc: Pbc, tmp_path: Path, name: str):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    said = {}
    for arguments in page_commands(name):
        result = pbc(*arguments)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "Warning" not in result.stderr
        said[arguments[0]] = result.stdout
    assert list(said) == ["check", "learn", "verify", "failures", "rollout", "report"]
    assert "It keeps every promise that was tried." in said["check"]
    assert "were run again, and cost what is recorded" in said["verify"]

    costs = np.load(tmp_path / "runs" / name / "costs.npy")
    assert set(np.unique(costs)) == {0, 1}
    assert np.ptp(costs.mean(axis=0)) > 0.03  # policies differ
    assert costs.mean(axis=0).min() < 0.2  # and one of them is good
    pbc("failures", f"runs/{name}", "--json", "failures.json")
    first = json.loads((tmp_path / "failures.json").read_text())["ranking"]["parameters"][0]
    assert first["name"] == DECIDES[name]
    assert first["explains"]

    film = read_frames(tmp_path / "rollout.gif", index=...)
    assert len(film) > 2
    assert film[-1].std() > 5  # not blank
    page = (tmp_path / "runs" / f"{name}.html").read_bytes()
    assert b"data:video/mp4" in page
    assert len(page) < LARGEST
