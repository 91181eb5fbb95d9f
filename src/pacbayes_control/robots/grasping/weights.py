"""The weights of neural networks in files, read without running anything that is in them.

A pickle can hold commands as well as numbers. Files of torch are therefore read by its unpickler
for weights, which knows tensors and plain values and refuses all else, and files of safetensors
hold nothing but numbers to begin with: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.grasping.extras import needed

SAFETENSORS = ".safetensors"
TORCH = (".pt", ".pth", ".bin")
PARALLEL = "module."  # what torch.nn.DataParallel puts before every name
RESERVED = "__metadata__"  # the one name that the format keeps for itself


def read_tensors(path: str | Path) -> dict[str, NDArray]:
    """The tensors of a file by their names, with the shapes and types that they were saved with.

    `.safetensors`, or a state dict of torch in `.pt`, `.pth` or `.bin`, which may lie under the key
    `state_dict` of a checkpoint. A prefix `module.` that all names share is taken off.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_tensors(f"{folder}/mine.safetensors", {"bias": np.arange(3)})
    ...     read_tensors(f"{folder}/mine.safetensors")
    {'bias': array([0, 1, 2])}
    """
    path = _existing(path)
    suffix = path.suffix.lower()
    if suffix == SAFETENSORS:
        tensors = _opened(path, _all_tensors)
    elif suffix in TORCH:
        tensors = _from_torch(path)
    else:
        raise ValueError(
            f"{path.name}: weights are read from {SAFETENSORS}, {', '.join(TORCH)} files"
        )
    if not tensors:
        raise ValueError(f"{path.name} holds no tensors: save the network's state dict")
    for name, tensor in tensors.items():
        _check_numbers(path, name, tensor)
    if all(name.startswith(PARALLEL) for name in tensors):
        return {name.removeprefix(PARALLEL): tensor for name, tensor in tensors.items()}
    return tensors


def read_metadata(path: str | Path) -> dict[str, str]:
    """The words that came with the tensors of a `.safetensors` file; empty if there are none."""
    path = _existing(path)
    _check_suffix(path)
    return _opened(path, lambda file: dict(file.metadata() or {}))


def write_tensors(
    path: str | Path, tensors: Mapping[str, NDArray], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors, and words about them, to a `.safetensors` file.

    The same content gives the same bytes. A file of that name stays until the new one is whole.
    """
    path, metadata = Path(path), dict(metadata or {})
    library = needed("safetensors.numpy", "writing weights")
    _check_suffix(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    for words in [*metadata, *metadata.values()]:
        if not isinstance(words, str):
            kind = type(words).__name__
            raise ValueError(f"{path.name}: metadata are words, and {words!r} is of type {kind}")
    arrays = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == RESERVED:
            raise ValueError(f"{path.name}: {name!r} is no name for a tensor: choose another")
        array = np.asarray(tensor)
        _check_numbers(path, name, array)
        # The library copies the memory as it lies: of a transposed array that is in another order.
        arrays[name] = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    content = _in_order(library.save(arrays, metadata))
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


# ---- safetensors --------------------------------------------------------------------------------


def _opened(path: Path, read: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    library = needed("safetensors", f"reading {path.name}")
    try:
        with library.safe_open(path, framework="numpy") as file:
            return read(file)
    except library.SafetensorError as error:
        raise _unreadable(path, "safetensors", error) from None


def _all_tensors(file: Any) -> dict[str, NDArray]:
    tensors = {}
    for name in file.keys():  # noqa: SIM118, no dictionary
        try:
            tensors[name] = file.get_tensor(name)
        except (TypeError, AttributeError):  # the library asks NumPy for a type that it has not
            raise _strange(name) from None
    return tensors


def _in_order(content: bytes) -> bytes:
    """A safetensors file with its header sorted: the library orders metadata by chance."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    words = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    words += b" " * (-len(words) % 8)  # the numbers begin at a multiple of 8 bytes
    return len(words).to_bytes(8, "little") + words + content[start:]


# ---- torch --------------------------------------------------------------------------------------


def _from_torch(path: Path) -> dict[str, NDArray]:
    torch = needed("torch", f"reading {path.name}")
    state = _loaded(torch, path)
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict):
        kind = type(state).__name__
        raise ValueError(f"{path.name} holds a {kind}, and no state dict: {_how_to_save()}")
    tensors = {}
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise ValueError(
                f"{path.name} holds more than tensors: {name!r} is of type {kind}: {_how_to_save()}"
            )
        try:
            tensors[name] = np.array(tensor.detach().numpy(), order="C")
        except (TypeError, RuntimeError):  # bfloat16; sparse, quantised or without numbers
            raise _strange(name) from None
    return tensors


def _loaded(torch: Any, path: Path) -> Any:
    try:
        with warnings.catch_warnings():  # of rare protocols and archives, which end in an error
            warnings.simplefilter("ignore")
            return torch.load(path, weights_only=True, map_location="cpu")
    except OSError:
        raise
    except Exception as error:  # whatever a damaged file leads torch into
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused:
            raise ValueError(
                f"{path.name} holds more than tensors and was not unpickled "
                f"({refused[1]} could run code): {_how_to_save()}"
            ) from None
        raise _unreadable(path, "a state dict of torch", error) from None


def _how_to_save() -> str:
    return "save it with torch.save(model.state_dict(), …)"


# ---- checks -------------------------------------------------------------------------------------


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name the file of weights in it")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: give the path to a file of weights")
    return path


def _check_suffix(path: Path) -> None:
    if path.suffix.lower() != SAFETENSORS:
        raise ValueError(f"{path.name} must end in {SAFETENSORS}: no other format has metadata")


def _check_numbers(path: Path, name: str, tensor: NDArray) -> None:
    if tensor.dtype.kind not in "biufc":
        raise ValueError(f"{path.name}: {name} is of type {tensor.dtype}, and no tensor of numbers")
    wrong = tensor.size - np.count_nonzero(np.isfinite(tensor))
    if wrong:
        raise ValueError(
            f"{path.name}: {wrong} of {tensor.size} numbers in {name} are NaN or infinite: "
            "use weights from before the training diverged"
        )


def _strange(name: str) -> ValueError:
    return ValueError(f"{name} is a tensor of a kind that NumPy lacks: save it as dense float32")


def _unreadable(path: Path, kind: str, error: Exception) -> ValueError:
    told = str(error).rpartition("WeightsUnpickler error:")[2]  # torch advises unsafe ways first
    words = " ".join(told.partition("\n\nCheck the doc")[0].split())[:80] or type(error).__name__
    return ValueError(
        f"{path.name} cannot be read as {kind} ({words}): is it complete, and in that format?"
    )
