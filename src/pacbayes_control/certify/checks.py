"""Checks of what reaches a theorem: costs in [0, 1], and names that tell things apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

AT_A_TIME = 1 << 20  # costs that are checked at a time


def check_declaration(graded: object, values: NDArray) -> bool | None:
    """Whether costs are declared to be graded; an error if that is contradicted by the costs."""
    if graded is not None and type(graded) is not bool:
        raise ValueError(f"graded is {graded!r}: it must be True, False, or None if it is not said")
    if graded is False and values.dtype != np.uint8:
        row, column = np.argwhere((values != 0) & (values != 1))[0]
        raise ValueError(
            f"cost {values[row, column]:g} at environment {row}, policy {column} is neither 0 nor "
            "1, and the costs were declared to be no other: declare them as graded"
        )
    return graded


def check_names(names: Sequence[str], count: int, of: str = "policy") -> None:
    """An error unless there are no names, or `count` different ones."""
    many = {"policy": "policies"}.get(of, f"{of}s")
    if names and len(names) != count:
        raise ValueError(f"{len(names)} names for {count} {many}")
    seen = set()
    for number, name in enumerate(names):
        if not name.strip():
            raise ValueError(f"{of} {number} has an empty name")
        if not name.isprintable():
            raise ValueError(f"the name of {of} {number} has characters that cannot be shown")
        if name in seen:
            raise ValueError(f"two {many} are named {name!r}: names must be unique")
        seen.add(name)


def checked_costs(
    values: ArrayLike, first: int = 0, first_policy: int = 0
) -> NDArray[np.float64 | np.uint8]:
    """A copy, after a check that every cost is in [0, 1]; as uint8 if all are 0 or 1.

    An error names the first environment and policy that is wrong, counting from `first` and
    `first_policy`. An array mapped from a read-only file is not copied.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError("the costs are masked: every rollout needs a cost")
    try:
        array = values if isinstance(values, np.memmap) else np.asarray(values)
    except ValueError:
        raise ValueError(
            "the costs are ragged: every environment needs one cost for each policy"
        ) from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"the costs are not numbers (dtype {array.dtype})")
    if array.ndim != 2:
        raise ValueError(f"costs need two dimensions, environments × policies, not {array.ndim}")
    if array.dtype not in (np.uint8, np.bool_):
        array = array.astype(np.float64, copy=False)
    binary, rows = True, max(1, AT_A_TIME // max(1, array.shape[1]))
    plain = array.dtype == np.uint8 and array.max(initial=0) <= 1  # soon seen, of very many
    for start in range(0, 0 if plain else len(array), rows):
        part = array[start : start + rows]
        inside = (part >= 0) & (part <= 1)
        if not inside.all():
            i, j = np.argwhere(~inside)[0]
            where = f"at environment {first + start + i}, policy {first_policy + j}"
            if np.isnan(part[i, j]):
                raise ValueError(f"the cost {where} is NaN: every rollout needs a cost")
            raise ValueError(
                f"cost {part[i, j]:g} {where} is outside [0, 1]: rescale the costs by limits known "
                "beforehand"
            )
        binary = binary and bool(np.all((part == 0) | (part == 1)))
    dtype = np.uint8 if binary else np.float64
    if isinstance(array, np.memmap) and not array.flags.writeable:
        return array.astype(dtype, copy=False)
    return array.astype(np.uint8) if binary else array + 0.0  # turns -0.0 into 0.0
