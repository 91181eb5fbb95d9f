import io
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pacbayes_control.robots.grasping.weights import read_weights, write_weights

TENSORS = {
    "first.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "first.bias": np.array([0.5, -1e-30]),
    "steps": np.array(7),
}


class Trap:
    """Something that leaves a folder behind when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


def same(found, wanted):
    return list(found) == list(wanted) and all(
        found[name].dtype == wanted[name].dtype and np.array_equal(found[name], wanted[name])
        for name in wanted
    )


def torch_bytes(content, **options):
    file = io.BytesIO()
    torch.save(content, file, **options)
    return file.getvalue()


def as_torch(tensors):
    return {name: torch.from_numpy(np.array(tensor)) for name, tensor in tensors.items()}


# ---- safetensors --------------------------------------------------------------------------------


def test_tensors_and_metadata_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "mine.safetensors"
    write_weights(path, TENSORS, {"made by": "Łukasz", "seed": "0"})
    found = read_weights(path)[0]
    assert same({name: found[name] for name in TENSORS}, TENSORS)
    assert read_weights(path)[1] == {"made by": "Łukasz", "seed": "0"}
    assert os.listdir(tmp_path) == ["mine.safetensors"]


def test_files_of_safetensors_themselves_are_read(tmp_path):
    save_file(as_torch(TENSORS), tmp_path / "theirs.safetensors")
    found = read_weights(tmp_path / "theirs.safetensors")[0]
    assert same({name: found[name] for name in TENSORS}, TENSORS)
    assert read_weights(tmp_path / "theirs.safetensors")[1] == {}


@pytest.mark.parametrize(
    "turned", [np.arange(6.0).reshape(2, 3).T, np.arange(12.0)[::-2], np.arange(3.0).astype(">f8")]
)
def test_an_array_that_lies_otherwise_in_memory_keeps_its_values(tmp_path, turned):
    write_weights(tmp_path / "a.safetensors", {"a": turned})
    assert np.array_equal(read_weights(tmp_path / "a.safetensors")[0]["a"], turned)


def test_the_same_content_gives_the_same_bytes(tmp_path):
    words = {f"key {i}": str(i) for i in range(12)}
    write_weights(tmp_path / "a.safetensors", TENSORS, words)
    write_weights(tmp_path / "b.safetensors", TENSORS, dict(reversed(words.items())))
    contents = {(tmp_path / f"{name}.safetensors").read_bytes() for name in "ab"}
    assert len(contents) == 1


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "mine.safetensors"
    write_weights(path, TENSORS, {"version": "1"})

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_weights(path, TENSORS, {"version": "2"})
    assert os.listdir(tmp_path) == ["mine.safetensors"]
    assert read_weights(path)[1] == {"version": "1"}


@pytest.mark.parametrize(
    ("name", "tensors", "metadata", "words"),
    [
        ("a.pt", TENSORS, {}, "a.pt must end in .safetensors"),
        ("a.safetensors", {"a": np.array([1, np.nan])}, {}, "1 of 2 numbers in a are NaN"),
        ("a.safetensors", {"a": np.array(["x"])}, {}, "a is of type <U1 and not a tensor"),
        ("folder.safetensors", TENSORS, {}, "is a folder: name a file in it"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(tmp_path, name, tensors, metadata, words):
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(ValueError, match=words):
        write_weights(tmp_path / name, tensors, metadata)
    assert os.listdir(tmp_path) == ["folder.safetensors"]


def test_writing_into_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        write_weights(tmp_path / "nowhere" / "a.safetensors", TENSORS)


# ---- torch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".PT"])
def test_a_state_dict_of_torch_is_read(tmp_path, suffix):
    torch.save(as_torch(TENSORS), tmp_path / f"net{suffix}")
    found, words = read_weights(tmp_path / f"net{suffix}")
    assert same(found, TENSORS)
    assert words == {}


def test_a_state_dict_in_the_format_before_torch_1_6_is_read(tmp_path):
    (tmp_path / "old.pth").write_bytes(
        torch_bytes(as_torch(TENSORS), _use_new_zipfile_serialization=False)
    )
    assert same(read_weights(tmp_path / "old.pth")[0], TENSORS)


def test_a_state_dict_in_a_rare_protocol_is_read_without_a_warning(tmp_path):
    torch.save(as_torch(TENSORS), tmp_path / "net.pt", pickle_protocol=3)
    assert same(read_weights(tmp_path / "net.pt")[0], TENSORS)


def test_weights_that_require_gradients_are_read(tmp_path):
    torch.save({"a": torch.nn.Parameter(torch.ones(2))}, tmp_path / "net.pt")
    assert np.array_equal(read_weights(tmp_path / "net.pt")[0]["a"], [1, 1])


def test_a_checkpoint_gives_its_state_dict_without_the_prefix_of_data_parallel(tmp_path):
    wrapped = {f"module.{name}": tensor for name, tensor in as_torch(TENSORS).items()}
    torch.save({"epoch": 3, "state_dict": wrapped}, tmp_path / "net.pt")
    assert same(read_weights(tmp_path / "net.pt")[0], TENSORS)


def test_a_prefix_that_only_some_names_have_stays(tmp_path):
    torch.save({"module.a": torch.ones(1), "b": torch.ones(1)}, tmp_path / "net.pt")
    assert list(read_weights(tmp_path / "net.pt")[0]) == ["module.a", "b"]


# ---- files that are refused ---------------------------------------------------------------------


def traps(folder):
    trap = Trap(folder)
    tensor = torch.ones(2)
    return {
        "zip": torch_bytes({"a": tensor, "b": trap}),
        "old": torch_bytes({"a": tensor, "b": trap}, _use_new_zipfile_serialization=False),
        "checkpoint": torch_bytes({"state_dict": {"a": tensor}, "optimiser": trap}),
        "pickle": pickle.dumps(trap, protocol=2),
        "new pickle": pickle.dumps(trap),
        "pickle for torch": pickle.dumps({"a": trap}, protocol=2),
    }


@pytest.mark.parametrize("kind", list(traps("")))
@pytest.mark.parametrize("suffix", [".pt", ".bin", ".safetensors"])
def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(
    tmp_path, monkeypatch, kind, suffix
):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    path = tmp_path / f"net{suffix}"
    path.write_bytes(traps(tmp_path / "sprung")[kind])
    with pytest.raises(ValueError, match=r"holds more than tensors|cannot be read as") as error:
        read_weights(path)
    assert not (tmp_path / "sprung").exists()
    assert "\n" not in str(error.value)


def test_the_trap_would_have_sprung(tmp_path):
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))
    assert (tmp_path / "sprung").is_dir()
    (tmp_path / "net.pt").write_bytes(traps(tmp_path / "sprung too")["zip"])
    torch.load(tmp_path / "net.pt", weights_only=False)
    assert (tmp_path / "sprung too").is_dir()


def test_a_refusal_names_what_was_in_the_pickle(tmp_path):
    (tmp_path / "net.pt").write_bytes(traps(tmp_path / "sprung")["zip"])
    with pytest.raises(ValueError, match=r"was not unpickled \((posix|nt)\.mkdir could run code\)"):
        read_weights(tmp_path / "net.pt")


def test_a_whole_model_is_refused_with_what_to_save_instead(tmp_path):
    torch.save(torch.nn.Linear(2, 3), tmp_path / "net.pt")
    with pytest.raises(
        ValueError, match=r"Linear could run code\): save it with torch.save\(model"
    ):
        read_weights(tmp_path / "net.pt")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"a": torch.ones(2), "lr": 0.1}, "holds more than tensors: 'lr' is of type float"),
        ({3: torch.ones(2)}, "holds more than tensors: 3 is of type Tensor"),
        ([torch.ones(2)], "holds a list and not a state dict"),
        ({}, "holds no tensors"),
        ({"a": torch.tensor([1, np.nan, np.inf])}, "2 of 3 numbers in a are NaN or infinite"),
        ({"a": torch.ones(2, dtype=torch.bfloat16)}, "a is a tensor of a kind that NumPy lacks"),
        ({"a": torch.eye(2).to_sparse()}, "a is a tensor of a kind that NumPy lacks"),
    ],
)
def test_what_is_no_state_dict_of_numbers_is_refused(tmp_path, content, words):
    torch.save(content, tmp_path / "net.pt")
    with pytest.raises(ValueError, match=words):
        read_weights(tmp_path / "net.pt")


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.tensor([np.nan]), "net.safetensors: 1 of 1 numbers in a are NaN"),
        (torch.ones(2, dtype=torch.bfloat16), "a is a tensor of a kind that NumPy lacks"),
        (torch.ones(2, dtype=torch.float8_e4m3fn), "a is a tensor of a kind that NumPy lacks"),
    ],
)
def test_numbers_that_no_network_can_use_are_refused(tmp_path, tensor, words):
    save_file({"a": tensor}, tmp_path / "net.safetensors")
    with pytest.raises(ValueError, match=words):
        read_weights(tmp_path / "net.safetensors")


@pytest.mark.parametrize("damage", ["empty", "cut", "text"])
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, damage, suffix):
    path = tmp_path / f"net{suffix}"
    torch.save(as_torch(TENSORS), tmp_path / "net.pt")
    write_weights(tmp_path / "net.safetensors", TENSORS)
    whole = path.read_bytes()
    damaged = {"empty": b"", "cut": whole[: len(whole) - 5], "text": b"version https://git-lfs"}
    path.write_bytes(damaged[damage])
    with pytest.raises(
        ValueError, match=rf"net{suffix} cannot be read as .* is it complete, and"
    ) as e:
        read_weights(path)
    assert "\n" not in str(e.value)
    assert "weights_only" not in str(e.value)  # torch advises to unpickle it all the same


def test_a_path_without_a_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none.safetensors"):
        read_weights(tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match="is a folder: name the file of weights in it"):
        read_weights(tmp_path)


def test_formats_that_are_not_known_are_refused(tmp_path):
    (tmp_path / "net.h5").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"net.h5: weights are read from .safetensors, .pt"):
        read_weights(tmp_path / "net.h5")


@pytest.mark.parametrize(("library", "suffix"), [("torch", ".pt"), ("safetensors", ".safetensors")])
def test_a_missing_library_is_told_with_how_to_install_it(tmp_path, monkeypatch, library, suffix):
    path = Path(tmp_path / f"net{suffix}")
    path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, library, None)
    wanted = rf'needs {library}, which is missing: pip install "pacbayes-control\[grasping\]"$'
    with pytest.raises(ImportError, match=wanted):
        read_weights(path)
