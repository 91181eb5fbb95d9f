"""The weights of neural networks in files, read without running code that is in them.

A pickle can hold commands as well as numbers. Files of torch are therefore read by its unpickler
for weights, which knows tensors and plain values and refuses everything else, and files of
safetensors hold nothing but numbers: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.files import write_atomic
from pacbayes_control.robots.grasping.extras import needed

SAFETENSORS = ".safetensors"
TORCH = (".pt", ".pth", ".bin")
PARALLEL = "module."  # the prefix that torch.nn.DataParallel adds to every name
HOW_TO_SAVE = "save it with torch.save(model.state_dict(), …)"

Tensors = dict[str, NDArray]


def read_weights(path: str | Path) -> tuple[Tensors, dict[str, str]]:
    """The tensors of a file by their names, and the words that were saved with them.

    `.safetensors`, or a state dict of torch in `.pt`, `.pth` or `.bin`, which may lie under the key
    `state_dict` of a checkpoint and comes without words. Tensors keep their shapes and types. A
    prefix `module.` that all names share is taken off.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_weights(f"{folder}/mine.safetensors", {"bias": np.arange(3)}, {"seed": "7"})
    ...     read_weights(f"{folder}/mine.safetensors")
    ({'bias': array([0, 1, 2])}, {'seed': '7'})
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name the file of weights in it")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: give the path to a file of weights")
    readers = {SAFETENSORS: _from_safetensors, **dict.fromkeys(TORCH, _from_torch)}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path.name}: weights are read from {', '.join(readers)} files")
    found, words = readers[path.suffix.lower()](path)
    if not found:
        raise ValueError(f"{path.name} holds no tensors: save the network's state dict")
    prefix = PARALLEL if all(name.startswith(PARALLEL) for name in found) else ""
    tensors = {name.removeprefix(prefix): _in_numpy(name, found[name]) for name in found}
    _check_numbers(path, tensors)
    return tensors, words


def write_weights(
    path: str | Path, tensors: Mapping[str, NDArray], words: Mapping[str, str] | None = None
) -> None:
    """Write tensors, and words about them, to a `.safetensors` file.

    The same content gives the same bytes. A file of that name stays until the new one is whole.
    """
    path, library = Path(path), needed("safetensors.numpy", "writing weights")
    if path.suffix.lower() != SAFETENSORS:
        raise ValueError(f"{path.name} must end in {SAFETENSORS}: no other format is written")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    _check_numbers(path, tensors)
    # The library copies memory as it lies: a transposed array would come out in another order.
    plain = {
        name: np.asarray(tensor, tensor.dtype.newbyteorder("<"), order="C")
        for name, tensor in tensors.items()
    }
    write_atomic(path, _sorted_header(library.save(plain, dict(words or {}))))


def _from_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    library = needed("safetensors", f"reading {path.name}")
    needed("torch", f"reading {path.name}")
    try:
        with library.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, dict(file.metadata() or {})
    except library.SafetensorError as error:
        raise _unreadable(path, "safetensors", error) from None


def _sorted_header(content: bytes) -> bytes:
    """A safetensors file with its header sorted: the library's order of the words is random."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the numbers begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text + content[start:]


def _from_torch(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    torch = needed("torch", f"reading {path.name}")
    try:
        with warnings.catch_warnings():  # of rare protocols and archives, which end in an error
            warnings.simplefilter("ignore")
            state = torch.load(path, weights_only=True, map_location="cpu")
    except OSError:
        raise
    except Exception as error:  # a damaged file can raise any exception in torch
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused:
            raise ValueError(
                f"{path.name} holds more than tensors and was not unpickled "
                f"({refused[1]} could run code): {HOW_TO_SAVE}"
            ) from None
        raise _unreadable(path, "a state dict of torch", error) from None
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict):
        kind = type(state).__name__
        raise ValueError(f"{path.name} holds a {kind} and not a state dict: {HOW_TO_SAVE}")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise ValueError(
                f"{path.name} holds more than tensors: {name!r} is of type {kind}: {HOW_TO_SAVE}"
            )
    return state, {}


def _in_numpy(name: str, tensor: Any) -> NDArray:
    try:
        return np.array(tensor.detach().numpy(), order="C")
    except (TypeError, RuntimeError):  # bfloat16; sparse, quantised or without numbers
        words = f"{name} is a tensor of a kind that NumPy lacks: save it as dense float32"
        raise ValueError(words) from None


def _check_numbers(path: Path, tensors: Mapping[str, NDArray]) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype.kind not in "biufc":
            raise ValueError(
                f"{path.name}: {name} is of type {tensor.dtype} and not a tensor of numbers: "
                "leave it out"
            )
        wrong = tensor.size - np.count_nonzero(np.isfinite(tensor))
        if wrong:
            raise ValueError(
                f"{path.name}: {wrong} of {tensor.size} numbers in {name} are NaN or infinite: "
                "use weights from before the training diverged"
            )


def _unreadable(path: Path, kind: str, error: Exception) -> ValueError:
    told = str(error).rpartition("WeightsUnpickler error:")[2]  # torch advises unsafe ways first
    words = " ".join(told.partition("\n\nCheck the doc")[0].split())[:80] or type(error).__name__
    return ValueError(
        f"{path.name} cannot be read as {kind} ({words}): is it complete, and in that format?"
    )
