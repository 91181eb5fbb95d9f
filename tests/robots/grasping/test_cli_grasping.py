"""Grasping from the command line: what is learnt, reproduced, pretrained, and how it fails."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh

from commands import complaint
from here import Here
from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.certify.run import Run
from pacbayes_control.robots.grasping import Grasping, extras, learning, meshes
from pacbayes_control.robots.grasping import experiment as paper
from pacbayes_control.robots.grasping.extractors import Compact, Vgg16
from pacbayes_control.robots.grasping.labels import Grid, Labels
from pacbayes_control.robots.grasping.pictures import contact_sheet
from pacbayes_control.robots.grasping.weights import read_weights, write_weights
from pages import draw_only
from shortcuts import coarse_pictures, plain_kl
from sizes import sized

Pbc = Callable[..., subprocess.CompletedProcess[str]]
GRID = Grid(places=3, angles=4)  # 36 grasps; the command's own has 750
FEW = ("--environments", 4, "--test-environments", 3, "--draws", 2, "--steps", 2, "--out", "run")
INSTALL = 'pip install "pacbayes-control[grasping]"'
LABEL = learning.label
PAPER = ("--set", "head=paper", "--prior", "paper")
VGG16 = ("--set", "extractor=vgg16")


@pytest.fixture
def few_grasps(monkeypatch: pytest.MonkeyPatch) -> list[Labels]:
    """Labels of fewer grasps than usual; what was labelled is listed."""
    made: list[Labels] = []

    def label(task: Any, environments: Any, _: Grid, *more: Any) -> Labels:
        made.append(LABEL(task, environments, GRID, *more))
        return made[-1]

    monkeypatch.setattr(learning, "label", label)
    return made


@pytest.fixture
def no_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels take long: what is wrong must be found before."""

    def label(*_: Any) -> Labels:
        pytest.fail("objects were labelled first")

    monkeypatch.setattr(learning, "label", label)


@pytest.fixture
def one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    def pictures(task: Any, _: Any, environments: Any) -> dict[str, bytes]:
        return {"objects.png": contact_sheet(task, environments[:1], 1)}

    monkeypatch.setattr(Grasping, "pictures", pictures)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meshes are cut within this process, which spares the start of another."""
    monkeypatch.setattr(meshes, "Processes", Here)


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures with fewer rays, and pages without plots."""
    coarse_pictures(monkeypatch)
    draw_only((), monkeypatch)


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_kl(monkeypatch)


def certificate(tmp_path: Path) -> dict[str, Any]:
    return json.loads((tmp_path / "run" / "certificate.json").read_text())


def boxes(folder: Path, *sides: tuple[float, float, float]) -> Path:
    folder.mkdir()
    for number, side in enumerate(sides):
        trimesh.creation.box(side).export(folder / f"box{number}.stl")
    return folder


def sheet(file: Path) -> None:
    """A square that lies askew: a mesh without a volume."""
    corners = [[0, 0, 0], [1, 0, 1], [1, 1, 2], [0, 1, 1]]
    trimesh.Trimesh(corners, [[0, 1, 2], [0, 2, 3]]).export(file)


def altered(
    file: Path, drop: tuple[str, ...] = (), change: Mapping[str, Any] | None = None
) -> Path:
    """The weights that ship with the library, with something changed."""
    tensors, words = read_weights(Compact().file)
    kept = {name: tensor for name, tensor in tensors.items() if name not in drop}
    write_weights(file, kept | dict(change or {}), words)
    return file


# ---- learn --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("few_grasps")
def test_what_is_learnt_verifies_and_its_page_shows_pictures(
    quick: Pbc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    options = ("--environments", 4, "--test-environments", 3, "--draws", 2, "--steps", 2)
    learnt = quick("learn", "grasping", *options, "--out", "run", "--json", "learnt.json")
    assert learnt.returncode == 0, learnt.stderr
    record = certificate(tmp_path)
    expected = {"environments": 4, "draws": 2, "parameters": 10468, "method": "kl"}
    assert {key: record[key] for key in expected} == expected
    assert record["prior"].startswith("learnt on 4,096 other objects")
    result = json.loads((tmp_path / "learnt.json").read_text())
    assert result["bound"] == record["bound"]
    assert result["test_environments"] == 3
    assert 0 <= result["true_cost"] <= 1
    for name in Grasping.captions:
        assert (tmp_path / "run" / name).read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("run.checkpoint*"))
    verified = quick("verify", "run")
    assert verified.returncode == 0, verified.stderr
    assert record["sentence"] in verified.stdout.replace("\n", " ")
    plain_kl(monkeypatch)  # verified it has been
    shown = quick("report", "run")
    assert shown.returncode == 0, shown.stderr
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    images = re.findall(r'<img src="data:image/png;base64,([^"]+)"', page)
    kept = [(tmp_path / "run" / name).read_bytes() for name in Grasping.captions]
    assert [base64.b64decode(image) for image in images] == kept


@pytest.mark.slow
@pytest.mark.usefixtures("one_picture", "few_digits")
@pytest.mark.parametrize(
    ("options", "prior", "parameters"),
    [
        (("--robot", "arm"), "learnt on 4,096 other objects", 10468),
        ((*PAPER, "--set", "surrogate=distance"), "the paper's", 10435),
    ],
    ids=["arm", "paper"],
)
def test_other_robots_heads_priors_and_surrogates_can_be_learnt_too(
    quick: Pbc,
    tmp_path: Path,
    few_grasps: list[Labels],
    options: tuple,
    prior: str,
    parameters: int,
):
    learnt = quick("learn", "grasping", *FEW, *options)
    assert learnt.returncode == 0, learnt.stderr
    assert certificate(tmp_path)["prior"].startswith(prior)
    assert certificate(tmp_path)["parameters"] == parameters
    assert len(few_grasps) == 1
    assert quick("verify", "run").returncode == 0


@pytest.mark.slow
@pytest.mark.usefixtures("few_grasps", "one_picture", "here", "few_digits")
def test_objects_can_come_from_a_folder_of_meshes(quick: Pbc, tmp_path: Path):
    folder = boxes(tmp_path / "meshes", (1, 1, 2), (1, 2, 3))
    learnt = quick("learn", "grasping", *FEW, "--meshes", folder)
    assert learnt.returncode == 0, learnt.stderr
    task = Run.load(tmp_path / "run").costs.origin["task"]
    assert "MeshFolder(2 meshes" in str(task)
    assert quick("verify", "run").returncode == 0


@pytest.mark.slow
@pytest.mark.usefixtures("few_grasps", "one_picture", "here")
def test_a_mesh_without_a_volume_is_named_and_can_be_left_out(quick: Pbc, tmp_path: Path):
    folder = boxes(tmp_path / "meshes", (1, 1, 2))
    sheet(folder / "sheet.stl")
    refused = complaint(quick("learn", "grasping", *FEW, "--meshes", folder))
    assert "sheet.stl has no volume" in refused
    assert not (tmp_path / "run").exists()
    skip = ("--meshes", folder, "--set", "skip_broken=true")
    learnt = quick("learn", "grasping", *FEW, *skip)
    assert learnt.returncode == 0, learnt.stderr
    assert "MeshFolder(1 mesh," in str(Run.load(tmp_path / "run").costs.origin["task"])


@pytest.mark.usefixtures("no_labels", "here")
def test_of_a_broken_mesh_the_option_that_helps_is_named(quick: Pbc, tmp_path: Path):
    folder = boxes(tmp_path / "meshes", (1, 1, 2))
    sheet(folder / "sheet.stl")
    command = ("learn", "grasping", *FEW, "--meshes", folder)
    assert "(--set skip_broken=true)" in complaint(quick(*command))
    assert "write --set skip_broken=true" in complaint(quick(*command, "--skip-broken"))


@pytest.mark.slow
@pytest.mark.usefixtures("few_grasps", "one_picture")
def test_the_same_command_leaves_the_same_run_on_any_number_of_workers(quick: Pbc, tmp_path: Path):
    for workers, name in ((1, "one"), (2, "two")):
        options = (*FEW[:-1], name, "--workers", workers, "--test-environments", 0)
        learnt = quick("learn", "grasping", *options)
        assert learnt.returncode == 0, learnt.stderr
    for name in ("certificate.json", "posterior.json", "costs.npy"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("one_picture", "few_digits")
@pytest.mark.parametrize(
    ("options", "expected", "labelled"),
    [
        (("--draws", 2, "--set", "family=true"), {"method": "kl", "draws": 2}, 1),
        (("--draws", 2, "--set", "shared_draws=true"), {"shared_draws": True, "draws": 2}, 1),
        (("--draws", 2, "--set", "objective=pinsker"), {"objective": "pinsker"}, 1),
        (("--certify", "draw"), {"method": "single-draw", "policy": 0}, 1),
        (("--certify", "one", "--set", "candidates=2"), {"method": "occam", "policies": 2}, 0),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_all_that_continuous_policies_have_is_for_grasping_too(
    quick: Pbc,
    tmp_path: Path,
    few_grasps: list[Labels],
    options: tuple,
    expected: dict[str, Any],
    labelled: int,
):
    size = ("--environments", 4, "--test-environments", 3, "--out", "run")
    search = () if "one" in options else ("--steps", 2)
    learnt = quick("learn", "grasping", *size, *search, *options)
    assert learnt.returncode == 0, learnt.stderr
    record = certificate(tmp_path)
    assert {key: record[key] for key in expected} == expected
    assert len(few_grasps) == labelled  # where nothing is searched for, nothing is labelled
    verified = quick("verify", "run")
    assert verified.returncode == 0, verified.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("few_grasps", "one_picture", "few_digits")
def test_the_plan_of_a_run_makes_the_same_run_again(quick: Pbc, tmp_path: Path):
    learnt = quick("learn", "grasping", *FEW, *PAPER, "--robot", "arm", "--set", "step_size=0.05")
    assert learnt.returncode == 0, learnt.stderr
    again = quick("learn", "--plan", "run/plan.json", "--out", "again")
    assert again.returncode == 0, again.stderr
    for name in ("certificate.json", "posterior.json", "costs.npy", "plan.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_labels")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--robot", "crane"), "'crane' is not one of 'gripper', 'arm'"),
        (("--set", "robot=crane"), "robot = 'crane' must be gripper | arm"),
        (("--set", "extractor=resnet"), "extractor = 'resnet' must be compact | vgg16"),
        (("--set", "head=square"), "head = 'square' must be circle | paper"),
        (("--set", "surrogate=guess"), "surrogate = 'guess' must be table | distance"),
        (("--set", "skip_broken=perhaps"), "skip_broken = perhaps must be bool"),
        (("--set", "skip_broken=true"), "skip_broken is for --meshes: give that too"),
        (("--set", "head"), "--set head: write FIELD=VALUE, with a field of extractor, skip_"),
        (("--set", "had=paper"), "--set had=paper: write FIELD=VALUE, with a field of extractor"),
        (("--extractor", "vgg16"), "--extractor: write --set extractor=VALUE"),
        (("--head", "paper"), "--head: write --set head=VALUE"),
        (("--surrogate", "distance"), "--surrogate: write --set surrogate=VALUE"),
        (("--skip-broken",), "--skip-broken: write --set skip_broken=true"),
        (VGG16, "vgg16 needs its weights: give --weights FILE"),
        (("--weights", "nothing.safetensors"), "nothing.safetensors: give the path to a file of"),
        ((*VGG16, "--weights", "nothing.pth"), "nothing.pth: give the path to"),
        ((*VGG16, "--weights", str(Compact().file)), "features.0.weight"),
        (("--weights", "no-prior.safetensors"), "no-prior.safetensors holds no prior"),
        (("--weights", "short.safetensors"), "has 5 parameters and the network 10468"),
        (("--weights", "words.safetensors"), "words.safetensors cannot be read as safetensors"),
        (("--weights", "words.onnx"), "weights are read from .safetensors"),
        (
            ("--weights", "shape.safetensors"),
            "shape.safetensors: tensor extractor.0.weight is of shape (24, 3, 3, 3) and float16, "
            "but compact needs shape (24, 3, 5, 5)",
        ),
        (
            ("--weights", "missing.safetensors", "--prior", "paper"),
            "missing.safetensors: tensor extractor.4.bias is missing",
        ),
        (
            ("--set", "head=paper"),
            "for other layers or another head choose the prior paper (--prior paper)",
        ),
        (("--prior", "eslewhere"), "no prior 'eslewhere': choose elsewhere, paper, or give a file"),
        (("--prior", "split"), "no prior 'split': choose elsewhere, paper, or give a file"),
        (("--prior", "mine.safetensors"), "weights are given as such (--weights)"),
        (("--prior", str(Compact().file)), "weights are given as such (--weights)"),
        (("--objective", "pinsker"), "--objective: write --set objective=VALUE"),
        (("--set", "objective=guess"), "objective = 'guess' must be kl | kl-maurer"),
        (("--set", "objective=robust-pinsker"), "robust-pinsker averages e^C: use evolution"),
        (("--meshes", "nowhere"), "nowhere: no such folder"),
        (("--meshes", "empty"), "empty holds no mesh: expected .obj"),
        (("--meshes", "words.onnx"), "words.onnx is a file"),
        (("--method", "occam"), "method 'occam' is unknown"),
        (("--method", "guess"), "'guess' is not one of 'occam', 'kl', 'betting'"),
        (("--sampling-delta", 0.5), "--sampling-delta: write --set sampling_delta=VALUE"),
        (("--set", "sampling_delta=0.5"), "overspends"),
        (("--environments", 1), "Invalid value for '--environments'"),
        (("--policy", "network"), "No such option: --policy"),
        (("--family",), "--family: write --set family=true"),
        (("--set", "family=true", "--certify", "draw"), "a family of priors certifies the post"),
        (("--share", 0.5), "--share: write --set share=VALUE"),
        (("--set", "share=0.5"), "share is for prior = split"),
        (("--prior-steps", 5), "--prior-steps: write --set prior_steps=VALUE"),
        (("--set", "prior_steps=5"), "prior_steps is for priors that are learnt on the spot"),
        (("--wheel-slip", 0.1), "No such option: --wheel-slip"),
        (("--range-noise", 0.1), "No such option: --range-noise"),
        (("--set", "wheel_slip=0.1"), "--set wheel_slip=0.1: write FIELD=VALUE, with a field of"),
        (("--estimator", "evolution"), "--estimator: write --set estimator=VALUE"),
        (
            ("--set", "estimator=guess"),
            "estimator = 'guess' must be evolution | differences | grad",
        ),
        (("--certify", "mean"), "'mean' is not one of 'posterior', 'draw', 'one'"),
        (("--certify", "draw"), "draws is for certify = posterior"),  # which FEW has
        (("--candidates", 2), "--candidates: write --set candidates=VALUE"),
        (("--set", "candidates=2"), "candidates is for certify = one"),
        (("--shared-draws",), "--shared-draws: write --set shared_draws=true"),
        (("--policies", "some.csv"), "No such option: --policies"),
        (("--set", "policies=some.csv"), "--set policies=some.csv: write FIELD=VALUE, with a"),
        (("--allow-code-change",), "--allow-code-change: write --set allow_code_change=true"),
        (("--set", "allow_code_change=true"), "allow_code_change is for a list of policies"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_bad_input_gets_one_clear_line_before_anything_is_labelled(
    quick: Pbc, tmp_path: Path, options: tuple, message: str
):
    (tmp_path / "empty").mkdir()
    for name in ("words.onnx", "words.safetensors"):
        (tmp_path / name).write_text("no weights")
    if "--weights" in options:
        altered(tmp_path / "no-prior.safetensors", ("prior.mean", "prior.variance"))
        short: dict[str, Any] = dict.fromkeys(
            ("prior.mean", "prior.variance"), np.ones(5, np.float32)
        )
        altered(tmp_path / "short.safetensors", change=short)
        wrong = {"extractor.0.weight": np.zeros((24, 3, 3, 3), np.float16)}
        altered(tmp_path / "shape.safetensors", change=wrong)
        altered(tmp_path / "missing.safetensors", ("extractor.4.bias",))
    assert message in complaint(quick("learn", "grasping", *FEW, *options))
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_labels")
def test_the_prior_from_elsewhere_is_refused_for_vgg16(
    quick: Pbc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Vgg16, "digest", "0" * 64)  # whose weights are half a gigabyte
    options = (*VGG16, "--weights", tmp_path / "vgg16.pth")
    refused = complaint(quick("learn", "grasping", *FEW, *options))
    assert "'elsewhere' was learnt with the compact extractor: with vgg16, choose" in refused


@pytest.mark.usefixtures("no_labels")
def test_weights_that_have_seen_the_objects_are_refused(quick: Pbc, tmp_path: Path):
    file = tmp_path / "seen.safetensors"
    seen = {"seen": json.dumps([["train", 0, 2, 3]])}
    write_weights(file, read_weights(Compact().file)[0], seen)
    for prior in ("elsewhere", "paper"):
        options = ("--weights", file, "--prior", prior)
        assert "has seen some of these" in complaint(quick("learn", "grasping", *FEW, *options))


@pytest.mark.parametrize(
    "option",
    ["--robot", "--meshes", "--extractor", "--weights", "--head", "--surrogate", "--skip-broken"],
)
def test_options_of_grasping_are_refused_for_the_vehicle(quick: Pbc, tmp_path: Path, option: str):
    value = () if option == "--skip-broken" else ("x",)
    command = ("learn", "vehicle", "--environments", 4, "--out", "run")
    assert f"No such option: {option}" in complaint(quick(*command, option, *value))
    pair = f"{option[2:].replace('-', '_')}=true"
    refused = complaint(quick(*command, "--set", pair))
    assert f"--set {pair}: write FIELD=VALUE, with a field of " in refused
    assert not (tmp_path / "run").exists()


def test_the_options_of_grasping_are_few_and_its_rare_fields_are_listed(quick: Pbc):
    shown = quick("learn", "grasping", "--help").stdout
    options = set(re.findall(r"(?<![\w`])--[a-z-]+", shown.partition("Options")[2]))
    assert {"--robot", "--meshes", "--weights", "--draws", "--steps", "--certify"} < options
    assert len(options) <= 22
    listed = quick("learn", "grasping", "--fields")
    assert listed.returncode == 0, listed.stderr
    for field in ("extractor", "skip_broken", "head", "surrogate", "family", "estimator"):
        assert f" {field} " in listed.stdout
        assert f"--{field.replace('_', '-')}" not in options


# ---- reproduce, pretrain ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("one_picture", "few_digits")
def test_the_papers_experiment_prints_nothing_but_json(
    quick: Pbc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(paper, "QUICK", replace(paper.QUICK, grid=GRID, draws=2))
    for name, settings in learning.SEARCH.items():
        monkeypatch.setitem(learning.SEARCH, name, replace(settings, steps=2, pairs=1))
    size = ("--environments", 4, "--test-environments", 3)
    result = quick("reproduce", "grasping", "--quick", *size, "--json", "-")
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["paper_bound"] == 0.294
    assert record["paper_test_success"] == 0.82
    assert record["environments"] == 4
    for name in ("bound", "test_success", "baseline_test_success"):
        assert 0 <= record[name] <= 1
    assert record["grasps_per_second"] > 0
    assert [row["setting"] for row in record["rows"]] == ["ours", "paper"]
    assert all(row["certifying_grasps"] == 8 for row in record["rows"])
    assert "4 objects to learn from, 3 new ones" in result.stderr
    folder = tmp_path / "runs" / "reproduce-grasping-quick"
    assert "data:image/png;base64," in (folder / "grasping.html").read_text(encoding="utf-8")
    assert {file.name for file in folder.iterdir()} == {
        ".reproduced",
        "grasping",
        "grasping.html",
    }
    verified = quick("verify", folder / "grasping")
    assert verified.returncode == 0, verified.stderr
    saved = json.loads((folder / "grasping" / "certificate.json").read_text())
    assert saved["bound"] == record["bound"]


@pytest.mark.usefixtures("no_labels")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("grasping", "--draws", 2), "No such option: --draws"),
        (("table1", "--quick"), "No such option: --quick"),
        (("table1", "--environments", 5), "No such option: --environments"),
        (("grasping", "--environments", 1), "Invalid value for '--environments'"),
        (("grasping", "--test-environments", 1), "at least two of each are needed"),
        (("grasping", "--out", "taken"), "taken is a file: give a folder for the figures"),
        (
            ("grasp",),
            "experiment 'grasp' is unknown: choose continuous, grasping, sim-to-real, swing, "
            "table1, table2",
        ),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_reproduce_refuses_what_it_cannot_use(
    quick: Pbc, tmp_path: Path, arguments: tuple, message: str
):
    (tmp_path / "taken").write_text("")
    assert message in complaint(quick("reproduce", *arguments))


@pytest.mark.slow
@pytest.mark.usefixtures("one_picture")
def test_a_prior_can_be_pretrained_and_used(quick: Pbc, tmp_path: Path, few_grasps: list[Labels]):
    options = ("--environments", 8, "--epochs", 1, "--out", "mine.safetensors", "--json", "-")
    made = quick("grasping", "pretrain", *options)
    assert made.returncode == 0, made.stderr
    record = json.loads(made.stdout)
    origin = "learnt on 8 other objects, with its extractor"
    assert record == {"prior": "mine.safetensors", "parameters": 10468, "origin": origin}
    assert "pbc learn grasping --weights mine.safetensors" in made.stderr
    assert Compact(tmp_path / "mine.safetensors").seen == (EnvironmentRange("elsewhere", 0, 0, 8),)
    assert few_grasps[0].environments.stream == "elsewhere"
    learnt = quick("learn", "grasping", *FEW, "--weights", "mine.safetensors")
    assert learnt.returncode == 0, learnt.stderr
    assert certificate(tmp_path)["prior"] == origin


@pytest.mark.usefixtures("no_labels")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("grasping", "pretrain", "--steps", 5), "No such option: --steps"),
        (("grasping", "pretrain", "--out", "prior.json"), "a prior for grasping is a .safetensors"),
        (("grasping", "pretrain", "--out", "no/prior.safetensors"), "there is no folder no to"),
        (("vehicle", "pretrain", "--epochs", 5), "No such option: --epochs"),
        (("vehicle", "pretrain", "--environments", 5), "No such option: --environments"),
        (("vehicle", "pretrain", "--workers", 2), "No such option: --workers"),
        (("pretrain", "boat"), "write pbc grasping pretrain or pbc vehicle pretrain"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_pretrain_refuses_what_it_cannot_use(quick: Pbc, arguments: tuple, message: str):
    assert message in complaint(quick(*arguments))


# ---- what is not installed ----------------------------------------------------------------------

LIBRARIES = ("mujoco", "torch", "safetensors")
BLOCKED = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {libraries!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from pacbayes_control.cli.commands import main; main()
"""


def without(
    libraries: tuple[str, ...], folder: Path, *arguments: object
) -> subprocess.CompletedProcess[str]:
    """The command where libraries are not installed."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKED.format(libraries=libraries), *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("library", sized(["torch"], full=list(LIBRARIES)))
def test_without_a_library_the_line_to_install_it_is_given(tmp_path: Path, library: str):
    options = ("--environments", 2, "--test-environments", 0, "--draws", 1, "--steps", 1)
    refused = complaint(without((library,), tmp_path, "learn", "grasping", *options))
    assert f"needs {library}, which is missing: {INSTALL}" in refused


@pytest.mark.usefixtures("no_labels")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "command", [("learn", "grasping"), ("reproduce", "grasping"), ("grasping", "pretrain")]
)
def test_what_is_missing_is_missed_before_objects_are_labelled(
    quick: Pbc,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, str],
    library: str,
):
    def missing(name: str) -> Any:
        if name.partition(".")[0] == library:
            raise ImportError(name)
        return import_module(name)

    monkeypatch.setattr(extras, "import_module", missing)
    options = FEW if "learn" in command else ("--environments", 2)
    refused = complaint(quick(*command, *options))
    assert f"needs {library}, which is missing: {INSTALL}" in refused


@pytest.mark.parametrize("library", ["trimesh", "coacd"])
def test_without_a_library_for_meshes_the_line_to_install_it_is_given(
    quick: Pbc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
):
    find = meshes.find_spec
    monkeypatch.setattr(meshes, "find_spec", lambda name: None if name == library else find(name))
    folder = boxes(tmp_path / "meshes", (1, 1, 2))
    assert INSTALL in complaint(quick("learn", "grasping", *FEW, "--meshes", folder))


@pytest.mark.slow
def test_the_vehicle_needs_nothing_of_grasping(tmp_path: Path):
    options = ("--policy", "linear", "--environments", 10, "--test-environments", 0)
    more = ("--draws", 2, "--steps", 1, "--out", "run")
    learnt = without(
        (*LIBRARIES, "trimesh", "coacd"), tmp_path, "learn", "vehicle", *options, *more
    )
    assert learnt.returncode == 0, learnt.stderr
