"""`pbc failures`, and its section of the page: what they show, and how they fail."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commands import complaint
from pacbayes_control.certify.costs import Costs
from pacbayes_control.learn import learn_finite
from pacbayes_control.report import failure_plots, page
from pacbayes_control.study import failures as module

Pbc = Callable[..., subprocess.CompletedProcess[str]]
N = 120
FORGED = "wind</script><b>$x$ = 0"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that fails in strong wind, with names that forge."""
    rng = np.random.default_rng(0)
    described = {
        FORGED: rng.uniform(0, 10, N),
        "surface": rng.choice(["ice", "../../x", "$\\frac$"], N),
        "seed": np.arange(N),
    }
    costs = rng.random((N, 2)) < np.where(described[FORGED] > 7, 0.9, 0.05)[:, None]
    sites = [f"field {i}” <i>is verified" for i in range(N)]
    run = learn_finite(
        Costs(costs, ["a", "b"], {"graded": False}, sites=sites, described=described)
    )
    return run.save(tmp_path_factory.mktemp("saved") / "mine")


@pytest.fixture
def folder(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run in the folder of the commands, on a machine where a ranking takes no time."""
    monkeypatch.setattr(module, "rank", _no_forest)
    return shutil.copytree(saved, tmp_path / "mine")


def _no_forest(*_: object) -> None:
    raise ImportError("the ranking is left out here")


def test_the_hardest_are_shown_with_their_parameters_and_every_one_is_in_the_files(
    quick: Pbc, folder: Path
):
    result = quick(
        "failures", "mine", "--top", "3", "--csv", "e.csv", "--json", "e.json", "--plots", "figures"
    )
    assert result.returncode == 0, result.stderr
    words = result.stdout
    assert "the 3 hardest" in words
    assert "Nothing here is certified" in words
    assert "ranking is left out here" in words
    assert "\x1b" not in words
    with (folder.parent / "e.csv").open() as file:
        rows = list(csv.reader(file))
    assert len(rows) == N + 1
    record = json.loads((folder.parent / "e.json").read_text())
    assert len(record["environments"]) == N
    assert record["environments"][0]["cost"] == 1
    assert [*record["environments"][0]["parameters"]] == [FORGED, "surface", "seed"]
    assert record["certified"] is False
    files = sorted(path.name for path in (folder.parent / "figures").iterdir())
    assert files == [
        "failures-1-wind-script-b-x-0.svg",
        "failures-2-surface.svg",
        "failures-pair-1-wind-script-b-x-0-surface.svg",
    ]


@pytest.mark.usefixtures("folder")
def test_all_environments_are_shown_on_request(quick: Pbc):
    result = quick("failures", "mine", "--all", "--json", "-")
    assert result.returncode == 0
    shown = [line for line in result.stderr.splitlines() if "field " in line]
    assert len(shown) == N
    assert json.loads(result.stdout)["ranking"] is None


def test_a_run_without_parameters_shows_names_and_the_reason(quick: Pbc, tmp_path: Path):
    costs = Costs(
        np.random.default_rng(0).random((60, 2)) < 0.3, sites=[f"m{i}" for i in range(60)]
    )
    learn_finite(costs).save(tmp_path / "table")
    result = quick("failures", "table")
    assert result.returncode == 0
    assert "table of costs" in result.stdout
    assert "m" in result.stdout
    assert "Cost against" not in result.stdout


def test_a_run_without_failures_says_so(quick: Pbc, tmp_path: Path):
    described = {"wind": np.arange(60.0)}
    learn_finite(Costs(np.zeros((60, 2)), described=described)).save(tmp_path / "good")
    result = quick("failures", "good", "--plots", "figures")
    assert result.returncode == 0
    assert "failed in none of 60 environments" in result.stdout
    assert "hardest" not in result.stdout
    assert not list((tmp_path / "figures").iterdir())


@pytest.mark.parametrize("name", ["evil.py:task", "evil:task", "evil"])
def test_no_code_runs_that_a_run_names(name: str, quick: Pbc, tmp_path: Path):
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()")
    stream = {"stream": "train", "seed": 0, "start": 0, "stop": 60}
    origin = {"task": name, "settings": {"module": "evil.py"}, **stream}
    learn_finite(Costs(np.eye(60)[:, :2], origin=origin)).save(tmp_path / "strange")
    shown = quick("failures", "strange")
    assert "give its task" in shown.stdout
    assert quick("report", "strange").returncode == 0
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "there is no run at nowhere"),
        (["mine", "--csv", "mine/e.csv"], "lies in mine"),
        (["mine", "--csv", "no/e.csv"], "there is no folder no"),
        (["mine", "--csv", "e", "--json", "e"], "cannot be both"),
        (["mine", "--plots", "mine/figures"], "keep the plots elsewhere"),
        (["mine", "--plots", "f", "--format", "gif"], "svg, pdf or png"),
        (["mine", "--format", "pdf"], "give --plots too"),
        (["mine", "--top", "0"], "--top"),
        (["mine", "--task", "nothing"], "task 'nothing' is unknown"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_bad_input_is_one_line(quick: Pbc, arguments: list[str], words: str):
    assert words in complaint(quick("failures", *arguments))


def test_a_run_that_does_not_hold_is_refused(quick: Pbc, folder: Path):
    path = folder / "environments.csv"
    path.write_bytes(path.read_bytes().replace(b"ice", b"mud"))
    result = quick("failures", "mine", "--json", "e.json")
    assert result.returncode == 1
    assert json.loads((folder.parent / "e.json").read_text())["verified"] is False


def test_the_page_has_a_section_on_failures_in_which_names_are_text(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    from pacbayes_control.certify.run import Run

    monkeypatch.setattr(page, "PLOTS", dict.fromkeys(page.PLOTS, _blank))
    written = page.write_page(Run.load(folder), folder.parent / "page.html")
    text = written.path.read_text()
    section = text[text.index('<section id="failures"') :].split("</section>")[0]
    assert "Where it fails" in section
    assert "Nothing here is certified" in section
    assert "wind&lt;/script&gt;&lt;b&gt;" in section
    assert "<b>$x$" not in section
    assert section.count('<figure class="plot">') == 3
    assert "#d55e00" not in section  # colours are the page's, light and dark
    assert written.size < 1_000_000


def _blank(_: object, file: object) -> None:
    failure_plots.save_figure(failure_plots.new_figure(1.0)[0], file)  # pyright: ignore[reportArgumentType]
