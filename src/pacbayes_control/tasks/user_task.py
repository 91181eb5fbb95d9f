"""Fields and checks that tasks from a user's functions and simulators share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.ranges import EnvironmentRange
from pacbayes_control.tasks.environments import Environments, ranges_of
from pacbayes_control.tasks.failures import check_failures, failure_words
from pacbayes_control.tasks.task import Task
from pacbayes_control.tasks.words import LONGEST, checked_names, one_line


class DerivedText(str):
    """Words that a task derived from its other fields, and derives again after `replace`."""

    __slots__ = ()


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class UserTask(Task):
    """A task that a user makes from functions or from a simulator.

    Args:
        policies: to choose from, one a row, where there are finitely many
        prior: a DiagonalGaussian over policies, where there are infinitely many
        cost_rule: how the cost is computed, in a line for records; by default the function's name
        distribution: of the environments, in a line for records; by default the function's name
        policy_names: one for each of `policies`
        data_used: environments that every policy was made with, such as a feature extractor's
    """

    policies: NDArray | None = None
    prior: Any = None
    cost_rule: str = ""
    distribution: str = ""
    policy_names: Sequence[str] = ()
    data_used: Sequence[Environments | EnvironmentRange] = ()

    def _complete(
        self, *, cost_rule: str, distribution: str, failures: tuple[type[Exception], ...] = ()
    ) -> None:
        """Check the shared fields; the words are for records, where the user gave no others."""
        check_failures(failures)
        derived = {"cost_rule": cost_rule + failure_words(failures), "distribution": distribution}
        known: dict[str, Any] = {name: self._words(name, text) for name, text in derived.items()}
        known["policy_names"] = checked_names(self.policy_names, self.policies)
        known["data_used"] = ranges_of(self.data_used)
        for name, value in known.items():
            object.__setattr__(self, name, value)

    def _words(self, field: str, derived: str) -> str:
        given = getattr(self, field)
        if not given or isinstance(given, DerivedText):
            return DerivedText(one_line(derived))
        if not isinstance(given, str) or not given.isprintable() or len(given) > LONGEST:
            raise ValueError(
                f"{field} of task {self.name} must be one printable line of at most {LONGEST} "
                f"characters, not {str(given)[:50]!r}"
            )
        return given

    def check_policies(self, policies: NDArray) -> None:
        """An error for rows of another length than a policy has."""
        check_parameters(self.name, policies, self.parameters)


def check_parameters(name: str, policies: NDArray, parameters: int | None) -> None:
    """An error for policies that are not rows of so many numbers."""
    if policies.ndim not in (2, 3):
        raise ValueError(f"policies need one row each, not an array of shape {policies.shape}")
    if parameters is not None and policies.shape[-1] != parameters:
        raise ValueError(
            f"policies of {policies.shape[-1]} parameters were given to task {name}, whose "
            f"policies have {parameters}"
        )


def cost_number(value: Any) -> float:
    """A cost as a plain number; an error for any other type."""
    if type(value) is float:
        return value
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "biuf":
        raise TypeError(f"a rollout came to {value!r}, and a cost is a number from 0 to 1")
    return float(array)
