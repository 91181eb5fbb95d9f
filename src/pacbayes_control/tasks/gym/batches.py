"""Does a policy act in a batch of episodes as it does in one?"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks.environments import in_a_line
from pacbayes_control.tasks.gym.episodes import BatchController
from pacbayes_control.tasks.gym.policies import BatchedPolicy, Floats, TorchPolicy

TRIED = 4  # steps for which a batch is tried


def check_batches(
    policy: BatchedPolicy, row: NDArray, spaces: tuple[gym.Space, gym.Space], size: int
) -> None:
    """Raise ValueError unless a policy acts in a batch as it does alone, whatever the other rows.

    It is tried with observations drawn from their space. Rows must not depend on others in any
    bit; what a policy does alone may differ by rounding.

    Args:
        policy: the class of policies
        row: the parameters of one
        spaces: of observations and of actions
        size: of a batch
    """
    if isinstance(policy, TorchPolicy):  # compare outputs, which an action may hide
        policy = copy.copy(policy)
        policy.action = np.array
    space = copy.deepcopy(spaces[0])
    space.seed(0)
    first, second = (
        [[_moderate(space.sample()) for _ in range(size)] for _ in range(TRIED)] for _ in range(2)
    )
    wrong = ""
    try:
        together = _actions(policy.batch_controller(row, spaces[1], size), first)
        for odd in (0, 1):  # every other episode is replaced
            mixed = [
                [(a, b)[slot % 2 == odd] for slot, (a, b) in enumerate(zip(*both, strict=True))]
                for both in zip(first, second, strict=True)
            ]
            again = _actions(policy.batch_controller(row, spaces[1], size), mixed)
            if not np.array_equal(
                again[:, 1 - odd :: 2], together[:, 1 - odd :: 2], equal_nan=True
            ):
                wrong = "an action depends on the observations of other episodes"
        for slot in (0, size - 1):
            act = policy.controller(row, spaces[1])
            alone = np.array([_numbers(act(batch[slot])) for batch in first])
            near = 0.01 * np.abs(alone).max(initial=0.0, where=np.isfinite(alone))
            if not np.allclose(together[:, slot], alone, rtol=0, atol=near, equal_nan=True):
                wrong = wrong or "an action is another than without a batch"
    except Exception as error:  # of a policy that takes no batch
        raise _no_batch(size, in_a_line(error)) from error
    if wrong:
        raise _no_batch(size, wrong)


def _no_batch(size: int, why: str) -> ValueError:
    return ValueError(
        f"the policy cannot act in a batch of {size}: {why}; with vector=0 it acts in one episode "
        "at a time"
    )


def _actions(act: BatchController, batches: list[list[Any]]) -> Floats:
    """The numbers of all actions; shape (steps, episodes, numbers)."""
    given = [act(batch) for batch in batches]
    for actions, batch in zip(given, batches, strict=True):
        if len(actions) != len(batch):
            raise ValueError(f"{len(batch)} observations gave {len(actions)} actions")
    return np.array([[_numbers(action) for action in actions] for actions in given])


def _moderate(value: Any) -> Any:
    """An observation without numbers that overflow in a network: a space may allow them all."""
    if isinstance(value, Mapping):
        return {name: _moderate(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_moderate, value))
    large = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return np.clip(value, -10, 10) if large else value


def _numbers(action: Any) -> Floats:
    """All numbers of an action in a row."""
    if isinstance(action, Mapping):
        action = [action[name] for name in sorted(action)]
    if isinstance(action, list | tuple):
        return np.concatenate([_numbers(part) for part in action])
    return np.ravel(np.asarray(action, float))
