from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from commands import files
from origins import certifying, single_draw
from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.files import locked, read_json
from pacbayes_control.certify.issuing import Basis, Provenance, issue_sampled, issue_single_draw
from pacbayes_control.certify.run import SIGNATURE, AlteredRun, Run
from pacbayes_control.learn import learn_finite


@pytest.fixture
def saved(tmp_path: Path, binary_costs: Costs) -> Path:
    costs = Costs(
        binary_costs.values,
        list("abcdef"),
        {"task": "test"},
        parameters=np.arange(12.0).reshape(6, 2),
    )
    return learn_finite(costs, method="kl").save(
        tmp_path / "run", attachments={"picture.svg": b"<svg/>"}
    )


def test_a_run_comes_back_as_it_was_saved(saved: Path, binary_costs: Costs):
    run = Run.load(saved)
    assert np.array_equal(run.costs.values, binary_costs.values)
    assert run.costs.names == tuple("abcdef")
    assert run.costs.origin == {"task": "test"}
    assert run.costs.parameters is not None
    assert np.array_equal(run.costs.parameters, np.arange(12.0).reshape(6, 2))
    again = learn_finite(run.costs, method="kl")
    assert again.certificate == run.certificate


def test_the_same_run_is_the_same_folder_byte_for_byte(saved: Path, tmp_path: Path):
    copy = Run.load(saved).save(tmp_path / "copy", attachments={"picture.svg": b"<svg/>"})
    assert files(saved) == files(copy)


def test_nothing_in_a_run_is_pickled(saved: Path):
    for path in saved.iterdir():
        if path.suffix == ".npy":
            np.load(path, allow_pickle=False)
        elif path.suffix == ".json":
            json.loads(path.read_text())


def test_what_is_in_a_folder_is_not_overwritten_by_accident(saved: Path):
    run = Run.load(saved)
    with pytest.raises(ValueError, match="not empty"):
        run.save(saved)
    run.save(saved, overwrite=True)


def test_a_file_in_the_way_is_an_error(saved: Path):
    with pytest.raises(ValueError, match="is a file"):
        Run.load(saved).save(saved / "costs.npy")


@pytest.mark.parametrize(
    "name",
    [
        "certificate.json",
        "costs.npy",
        "prior.json",
        "posterior.json",
        "policies.npy",
        "picture.svg",
    ],
)
def test_a_run_with_an_altered_file_is_refused(saved: Path, name: str):
    path = saved / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(AlteredRun, match=f"{name} was altered"):
        Run.load(saved)


def test_an_altered_manifest_is_refused(saved: Path):
    path = saved / "manifest.json"
    path.write_text(path.read_text().replace('"task": "test"', '"task": "best"'))
    with pytest.raises(AlteredRun, match="seal"):
        Run.load(saved)


def test_a_missing_file_is_named(saved: Path):
    (saved / "prior.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"incomplete: prior.json is missing"):
        Run.load(saved)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no run"):
        Run.load(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"manifest.json is missing"):
        Run.load(tmp_path)


def test_a_manifest_may_not_point_outside_its_folder(saved: Path, tmp_path: Path):
    from pacbayes_control.certify.files import hash_file, json_bytes, seal

    (tmp_path / "outside.json").write_text("{}")
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["files"]["../outside.json"] = hash_file(tmp_path / "outside.json")
    manifest["seal"] = seal(manifest)
    (saved / "manifest.json").write_bytes(json_bytes(manifest))
    with pytest.raises(AlteredRun, match="not in the run's folder"):
        Run.load(saved)


def test_overwriting_leaves_nothing_of_the_old_run(saved: Path, graded_costs: Costs):
    learn_finite(graded_costs, method="kl").save(saved, overwrite=True)
    assert not (saved / "policies.npy").exists()
    assert not (saved / "picture.svg").exists()
    assert np.array_equal(Run.load(saved).costs.values, graded_costs.values)


@pytest.mark.slow
def test_a_run_is_read_whatever_the_locale(tmp_path: Path, binary_costs: Costs):
    import os
    import subprocess
    import sys

    costs = Costs(binary_costs.values, names=["vorsichtig-ü", *"bcdef"])
    folder = learn_finite(costs, method="kl").save(tmp_path / "run")
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = subprocess.run(
        [sys.executable, "-m", "pacbayes_control", "verify", str(folder)],
        env=os.environ | plain,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_runs_and_costs_say_what_they_are_in_one_line(binary_costs: Costs):
    run = learn_finite(binary_costs, method="kl")
    assert repr(binary_costs) == "Costs(200 environments × 6 policies, 0/1)"
    assert repr(run).startswith("Run(kl, bound 0.")
    assert "\n" not in repr(run)


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {"policy_names": None},
        {"policy_names": [1]},
        {"origin": 3},
        {"seal": None},
        {"draws": 3},
        {"draws": True},
        {"draws": ["fresh"]},
        {"format": 1},
        {"format": None},
    ],
)
def test_a_manifest_of_other_types_is_refused(saved: Path, change: dict):
    path = saved / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match="is not a manifest"):
        Run.load(saved)


def test_a_folder_of_other_things_is_never_taken_for_a_run(tmp_path: Path, binary_costs: Costs):
    (tmp_path / "policies.npy").write_text("mine")
    with pytest.raises(ValueError, match="holds other things"):
        learn_finite(binary_costs, method="kl").save(tmp_path, overwrite=True)
    assert (tmp_path / "policies.npy").read_text() == "mine"


def test_an_interrupted_run_can_be_written_again(tmp_path: Path, binary_costs: Costs):
    folder = learn_finite(binary_costs, method="kl").save(tmp_path / "run")
    (folder / "manifest.json").unlink()
    with pytest.raises(FileNotFoundError, match="incomplete"):
        Run.load(folder)
    learn_finite(binary_costs, method="kl").save(folder, overwrite=True)
    Run.load(folder)


def test_a_file_that_the_manifest_does_not_know_is_refused(tmp_path: Path, binary_costs: Costs):
    folder = learn_finite(binary_costs, method="kl").save(tmp_path / "run")
    np.save(folder / "policies.npy", np.zeros((6, 2)))
    with pytest.raises(AlteredRun, match=r"policies.npy was added"):
        Run.load(folder)


@pytest.mark.parametrize("name", ["manifest.json", "costs.npy"])
def test_links_and_pipes_are_not_followed(saved: Path, tmp_path: Path, name: str):
    import os

    (saved / name).rename(tmp_path / "elsewhere")
    (saved / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="not a plain file"):
        Run.load(saved)
    (saved / name).unlink()
    os.mkfifo(saved / name)
    with pytest.raises(ValueError, match="not a plain file"):
        Run.load(saved)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "null", "1", "{", '{"a": NaN}'])
@pytest.mark.parametrize("name", ["manifest.json", "certificate.json", "prior.json"])
def test_any_json_at_all_gets_a_clear_error(saved: Path, name: str, text: str):
    from pacbayes_control.certify.files import hash_file, json_bytes, seal

    (saved / name).write_text(text)
    if name != "manifest.json":
        manifest = json.loads((saved / "manifest.json").read_text())
        manifest["files"][name] = hash_file(saved / name)
        manifest["seal"] = seal(manifest)
        (saved / "manifest.json").write_bytes(json_bytes(manifest))
    with pytest.raises(ValueError, match=r"corrupt|not a|holds no"):
        Run.load(saved)


@pytest.mark.parametrize("name", ["manifest.json", "certificate.json", "posterior.json"])
def test_a_key_that_stands_twice_is_refused(saved: Path, name: str):
    from pacbayes_control.certify.files import hash_file, json_bytes, seal

    path, manifest = saved / name, json.loads((saved / "manifest.json").read_text())
    key = next(iter(json.loads(path.read_text())))
    path.write_text(path.read_text().replace("{", f'{{"{key}": 1, ', 1))
    if name != "manifest.json":
        manifest["files"][name] = hash_file(path)
        manifest["seal"] = seal(manifest)
        (saved / "manifest.json").write_bytes(json_bytes(manifest))
    with pytest.raises(ValueError, match="corrupt"):
        Run.load(saved)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        b"\x93NUMPY\x01\x00\x0a\x00{'descr': (",
        b"\x93NUMPY\x01\x00\x08\x00{{}:1}\n ",
    ],
)
def test_any_bytes_at_all_for_an_array_get_a_clear_error(tmp_path: Path, content: bytes):
    from pacbayes_control.certify.files import read_npy

    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ValueError, match="not a NumPy array"):
        read_npy(tmp_path / "a.npy")


# ---- one run in place of another ----------------------------------------------------------------

WRITER = """
import os, resource, signal, sys
from pathlib import Path
from pacbayes_control.certify.run import Run

folder, other, how = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
run, PICTURE = Run.load(other), {"new.svg": b"<svg/>"}


def killed_at(step):
    '''Whether a process was killed before this access to the file system while it saved.'''
    if child := os.fork():
        return os.waitpid(child, 0)[1] == signal.SIGKILL
    count = 0

    def hook(event, _):
        nonlocal count
        if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            count += 1
            if count > step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    run.save(folder, True, PICTURE)
    os._exit(0)


if how == "killed":
    print("ready", flush=True)
    for line in sys.stdin:
        print(killed_at(int(line)), flush=True)
elif how == "often":
    for _ in range(10):
        try:
            run.save(folder, True, PICTURE)
        except ValueError as error:
            print(error)
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(how), -1))
    run.save(folder, True, PICTURE)
"""


@pytest.fixture
def other(tmp_path: Path, graded_costs: Costs) -> Path:
    return learn_finite(graded_costs, method="kl").save(
        tmp_path / "other", attachments={"new.svg": b"<svg/>"}
    )


def writer(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, *map(str, arguments)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, text=True, **pipes)


def same_run(folder: Path, run: Run) -> bool:
    return Run.load(folder).certificate == run.certificate


@pytest.mark.slow
def test_a_process_killed_at_any_moment_leaves_a_whole_run(saved: Path, other: Path):
    """The old one, the new one, or the new one in a place that the error names."""
    old, new, step, found = Run.load(saved), Run.load(other), 0, []
    (saved / "notes.txt").write_text("mine")
    (saved / SIGNATURE).write_text("signed")
    signed = shutil.copytree(saved, saved.parent / "signed")
    with writer(saved, other, "killed") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        killed = True
        while killed:
            shutil.rmtree(saved)
            shutil.copytree(signed, saved)
            process.stdin.write(f"{step}\n")
            process.stdin.flush()
            killed = process.stdout.readline() == "True\n"
            step += 1
            try:
                found.append("old" if same_run(saved, old) else "new")
            except ValueError as error:
                found.append(str(error).replace(str(saved), "RUN"))
                for path in (saved / ".run.whole").iterdir():
                    path.replace(saved / path.name)
                for name in ("picture.svg", "policies.npy", SIGNATURE):
                    (saved / name).unlink(missing_ok=True)
            assert found[-1] == "old" or same_run(saved, new)
            assert (saved / SIGNATURE).exists() == (found[-1] == "old")
        process.stdin.close()
    assert list(dict.fromkeys(found)) == [
        "old",
        "the process that replaced the run at RUN has not finished: if it was killed, move the "
        "files in RUN/.run.whole up into RUN",
        "new",
    ]
    assert files(saved) == files(other) | {"notes.txt": b"mine"}


def test_a_replacement_that_was_killed_is_completed_by_the_next(saved: Path, other: Path):
    (saved / "manifest.json").unlink()
    (saved / "notes.txt").write_text("mine")
    shutil.copytree(other, saved / ".run.whole")
    with pytest.raises(ValueError, match=r"has not finished: if it was killed, move the files"):
        Run.load(saved)
    with pytest.raises(ValueError, match="is not empty"):
        Run.load(other).save(saved)
    assert (saved / "picture.svg").exists()  # without `overwrite` nothing is completed either
    full = {"new.svg": cast(Any, "not bytes")}
    with pytest.raises(TypeError):
        Run.load(other).save(saved, overwrite=True, attachments=full)
    assert same_run(saved, Run.load(other))
    assert (saved / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("limit", [100, 1000])
def test_a_full_disk_loses_nothing(saved: Path, other: Path, limit: int):
    before = files(saved)
    process = writer(saved, other, limit)
    _, error = process.communicate()
    assert f"OSError: {saved} cannot be written (" in error
    assert "): it is as it was" in error
    assert files(saved) == before
    process = writer(saved.parent / "new", other, limit)
    assert "): it is as it was" in process.communicate()[1]
    assert not (saved.parent / "new").exists()


@pytest.mark.slow
def test_two_processes_do_not_mix_their_runs(saved: Path, other: Path, tmp_path: Path):
    mine = Run.load(saved).save(tmp_path / "mine")
    two = [writer(saved, each, "often") for each in (mine, other)]
    refused = "".join(process.communicate()[0] for process in two)
    assert [process.returncode for process in two] == [0, 0]
    assert set(refused.splitlines()) <= {
        f"{saved} is being written by another process: try again, or choose another folder"
    }
    assert same_run(saved, Run.load(mine)) or same_run(saved, Run.load(other))
    assert not [path for path in saved.iterdir() if path.name.startswith(".")]


def test_a_run_is_not_written_while_another_is(saved: Path, other: Path):
    before = files(saved)
    busy = pytest.raises(ValueError, match="is being written by another process")
    with locked(saved / ".run.lock", ""), busy:
        Run.load(other).save(saved, overwrite=True)
    assert files(saved) == before


def test_a_run_may_be_written_to_the_current_folder_or_through_a_link(
    saved: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, before = Run.load(other), saved.stat()
    (tmp_path / "link").symlink_to(saved)
    monkeypatch.chdir(saved)
    assert same_run(run.save(".", overwrite=True), run)
    assert same_run(run.save(tmp_path / "link", overwrite=True), run)
    assert (tmp_path / "link").is_symlink()
    assert saved.stat().st_ino == before.st_ino  # and so a shell may stand in it
    assert Path.cwd().samefile(saved)


@pytest.mark.parametrize("manifest", ['{"name": "app", "icons": []}', "{", "[]"])
def test_a_manifest_of_something_else_is_never_taken_for_a_run(
    tmp_path: Path, binary_costs: Costs, manifest: str
):
    (tmp_path / "manifest.json").write_text(manifest)
    (tmp_path / "icon.png").write_bytes(b"mine")
    with pytest.raises(ValueError, match="holds other things than a run"):
        learn_finite(binary_costs, method="kl").save(tmp_path, overwrite=True)
    assert (tmp_path / "manifest.json").read_text() == manifest
    assert (tmp_path / "icon.png").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["mine.png", "plan.json", "picture.svg"])
def test_files_that_are_not_of_the_run_are_not_replaced(saved: Path, name: str):
    run = Run.load(saved)
    (saved / name).unlink(missing_ok=True)
    if name == "picture.svg":
        (saved / name).mkdir()
    else:
        (saved / name).write_bytes(b"mine")
    with pytest.raises(ValueError, match=f"{name} is not of the run in .*: move it elsewhere"):
        run.save(saved, overwrite=True)
    assert (saved / name).exists()


# ---- runs over Gaussian posteriors --------------------------------------------------------------


def sampled_run(shared: bool = False) -> Run[DiagonalGaussian]:
    prior, posterior = DiagonalGaussian([0.0, 0.0], 1.0), DiagonalGaussian([1 / 3, 0.1], [0.7, 0.2])
    budget = Budget(0.05)
    budget.spend("sampling", 0.01)
    budget.spend("kl")
    origin = certifying(posterior) | {
        "task": "test",
        "noise": {"stream": "certify noise", "seed": 1, "of": "wind"},
    }
    values = np.random.default_rng(0).random((30, 3)) < 0.1
    costs = Costs(values, origin=origin, draws="shared" if shared else "fresh")
    certificate = issue_sampled(Basis(costs, prior, posterior, budget, Provenance("kl")), "kl")
    return Run(certificate, costs, prior, posterior)


def single_draw_run() -> Run[DiagonalGaussian]:
    prior, posterior = DiagonalGaussian([0.0, 0.0], 1.0), DiagonalGaussian([1 / 3, 0.1], [0.7, 0.2])
    budget = Budget(0.05)
    budget.spend("single-draw")
    costs = Costs(np.eye(30, 1), origin=single_draw(posterior), parameters=np.array([[0.2, 1 / 7]]))
    certificate = issue_single_draw(Basis(costs, prior, posterior, budget, Provenance("kl")))
    return Run(certificate, costs, prior, posterior)


@pytest.mark.parametrize("make", [sampled_run, lambda: sampled_run(True), single_draw_run])
def test_a_gaussian_run_comes_back_as_it_was_saved(tmp_path: Path, make):
    before = make()
    after = Run.load(before.save(tmp_path / "run"))
    assert after.certificate == before.certificate
    assert (after.prior.to_bytes(), after.posterior.to_bytes()) == (
        before.prior.to_bytes(),
        before.posterior.to_bytes(),
    )
    assert after.costs.draws == before.costs.draws
    assert after.costs.noise == before.costs.noise
    assert after.costs.digests == before.costs.digests
    again = after.save(tmp_path / "again")
    assert files(tmp_path / "run") == files(again)


@pytest.mark.parametrize("name", ["certificate.json", "costs.npy", "prior.json", "posterior.json"])
def test_a_gaussian_run_with_an_altered_file_is_refused(tmp_path: Path, name: str):
    folder = sampled_run().save(tmp_path / "run")
    content = bytearray((folder / name).read_bytes())
    content[-3] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(AlteredRun, match=f"{name} was altered"):
        Run.load(folder)


def test_a_manifest_that_does_not_say_what_the_draws_were_is_refused(tmp_path: Path):
    from pacbayes_control.certify.files import json_bytes, seal

    path = sampled_run().save(tmp_path / "run") / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["draws"]
    manifest["seal"] = seal(manifest)
    path.write_bytes(json_bytes(manifest))
    with pytest.raises(ValueError, match="is not a manifest of format 1 to 3"):
        Run.load(tmp_path / "run")
    manifest["draws"] = "stale"
    manifest["seal"] = seal(manifest)
    path.write_bytes(json_bytes(manifest))
    with pytest.raises(ValueError, match="draws are fresh or shared, not 'stale'"):
        Run.load(tmp_path / "run")


def test_a_gaussian_run_says_what_it_is_in_one_line():
    assert repr(sampled_run().costs) == "Costs(30 environments × 3 fresh draws, 0/1)"
    assert repr(single_draw_run()).startswith("Run(single-draw, bound 0.")


@pytest.mark.parametrize("part", [b"[],", b"{},", b"0.1,", b'"a",'])
def test_a_file_that_would_fill_the_memory_is_not_parsed(tmp_path: Path, part: bytes):
    path = tmp_path / "prior.json"
    path.write_bytes(b"[" + part * 8_000_001 + b"0]")
    tracemalloc.start()
    with pytest.raises(ValueError, match="has more parts than any record"):
        read_json(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * path.stat().st_size
