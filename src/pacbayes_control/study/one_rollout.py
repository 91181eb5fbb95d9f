"""One rollout to look at: which policy, in which environment, and with which noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import quoted
from pacbayes_control.learn import GaussianPrior
from pacbayes_control.rollouts.again import as_recorded, recorded_rollout
from pacbayes_control.rollouts.evaluation import checked_policies
from pacbayes_control.tasks import Environments, Noise, Task
from pacbayes_control.tasks.environments import generator
from pacbayes_control.tasks.registry import recorded_environments
from pacbayes_control.tasks.task import Film, Watched, noise_of

BEST, MEAN = "best", "mean"
STREAM = "train"  # of environments, if no other is named
LISTED = 5  # names of policies that an error lists
LIKELIEST = "The certificate is for a policy drawn afresh each time: this is the likeliest of them."
DRAWN = (
    "One draw from the posterior, as an illustration: the certificate is for a policy drawn afresh "
    "each time."
)
TIMED_OUT = "In the run this rollout was ended by its time limit, and cost 1."
MEAN_NOTE = "No certificate is about the mean of a distribution over policies: an illustration."


@dataclass(frozen=True, eq=False)
class Rollout:
    """One rollout: its policy, its environment and its noise."""

    task: Task
    environments: Environments  # one
    policy: NDArray  # (parameters,)
    noise: Noise | None
    name: str  # of the policy
    note: str = ""  # on what it is, in a sentence
    recorded: float | None = None  # its cost in the run, if the run has this rollout
    devices: str = ""  # where it was recorded and is run again, if these differ

    @cached_property
    def excused(self) -> bool:
        """Whether it may cost something else than in the run: on another device, by rounding."""
        given = self.policy[None], self.environments, *((self.noise,) if self.noise else ())
        return bool(self.devices) and self.task.rounding_decides(*given)

    @property
    def number(self) -> int:
        """Of the environment, in its stream."""
        return self.environments.start

    def watch(self, film: Film | None = None) -> Watched:
        """Run it."""
        policy = self.policy.view()
        policy.setflags(write=False)  # as in an evaluation
        return self.task.watch(policy, self.environments, self.noise, film)


def listed_rollout(
    task: Task,
    environments: Environments,
    policy: str,
    listed: tuple[Any, Sequence[str]] | None = None,
) -> Rollout:
    """A rollout of one of a task's policies, with the noise of the training rollout.

    Args:
        task: the task
        environments: one of them
        policy: a number or a name; `best` if there is only one; `mean` of the task's prior
        listed: policies and their names, if they are not the task's own

    >>> from pacbayes_control.tasks.demo import Stopping
    >>> task = Stopping()
    >>> environments = task.environments(20, stream="train")[18:]
    >>> listed_rollout(task, environments[:1], "2").watch().cost
    0.0
    """
    rows, names = listed or (task.policies, task.policy_names)
    if policy == MEAN and policy not in names:
        noise = noise_of(task, environments, None)
        return Rollout(task, environments, _prior_mean(task), noise, MEAN, MEAN_NOTE)
    if rows is None:
        raise ValueError(
            f"the task {task.name} lists no policies: give --run RUN, --policies FILE, or "
            "--policy mean for the mean of its prior"
        )
    rows = checked_policies(task, rows)
    column = policy_number(policy, names, len(rows))
    noise = noise_of(task, environments, None)
    shifted = noise.shifted(column) if noise else None
    return Rollout(task, environments, rows[column], shifted, _name(names, column))


def rollout_of(
    run: Run[Any], task: Task, number: int, policy: str, *, stream: tuple[str, int] | None = None
) -> Rollout:
    """A rollout of one of a run's policies: the recorded one, if the run has it.

    Args:
        run: verified
        task: of the run
        number: of the environment: its row in the run, or its place in another stream
        policy: `best` for the certified one, `mean` of a Gaussian posterior, a number or a name
        stream: of the environments, and its seed; by default those of the run
    """
    costs = run.costs
    if costs.draws is None and costs.parameters is None:
        raise ValueError("the run was made from a table of costs: it holds no policies to roll out")
    counted = recorded_environments(costs, task)
    own = counted.stream, counted.seed
    stream, first = stream or own, 0
    if stream == own:  # numbers are those of the run's rows, as in its report
        first = counted.start
    known = stream == own and number < len(counted)
    one = task.environments(first + number + 1, *stream)[first + number :]
    if policy == MEAN and not isinstance(run.posterior, Categorical):
        noise = noise_of(task, one, None)
        return Rollout(task, one, np.asarray(run.posterior.mean), noise, MEAN, MEAN_NOTE)
    column, note = certified_column(run)
    names = [f"draw {draw}" for draw in range(costs.policies)] if costs.draws else costs.names
    if policy != BEST:
        column = policy_number(policy, names, costs.policies)
        note = DRAWN if costs.draws else ""
    name = _name(names, column)
    if known:
        chosen, noise = recorded_rollout(run, task, counted, (number, column))
        if (number, column) in costs.timed_out:
            return Rollout(task, one, chosen, noise, name, f"{note} {TIMED_OUT}".strip())
        before, (task, devices) = float(costs.values[number, column]), as_recorded(task, costs)
        return Rollout(task, one, chosen, noise, name, note, before, devices)
    whose = "" if stream == own else f" of {quoted(own[0])}, seed {own[1]}"
    counts = f"it counts environments 0 to {len(counted) - 1}{whose}"
    note = f"{note} The run does not have this rollout: {counts}.".strip()
    noise = noise_of(task, one, None)
    if costs.parameters is None:
        draws = run.posterior.sample(generator(stream[1], "watched", of="policies"), column + 1)
        return Rollout(task, one, draws[column], noise, "a draw from the posterior", note)
    shifted = noise.shifted(column) if noise else None
    return Rollout(task, one, costs.parameters[column], shifted, name, note)


def certified_column(run: Run[Any]) -> tuple[int, str]:
    """The policy that a certificate is about, and a note if it is about more than this one."""
    if run.certificate.policy is not None:
        return run.certificate.policy, ""
    if not isinstance(run.posterior, Categorical):
        return 0, DRAWN
    return int(np.lexsort((run.costs.means, -run.posterior.probabilities))[0]), LIKELIEST


def policy_number(policy: str, names: Sequence[str], count: int) -> int:
    """The number of a policy, from a user's number or name."""
    names = names or [f"policy {number}" for number in range(count)]  # as they are shown
    if policy in names:
        return list(names).index(policy)
    if policy.isdecimal() and int(policy) < count:
        return int(policy)
    if policy == BEST and count == 1:
        return 0
    some = f", or one of {', '.join(map(quoted, names[:LISTED]))}"
    more = ", …" if len(names) > LISTED else ""
    numbers = f"write a number from 0 to {count - 1}{some}{more}"
    if policy == BEST:
        raise ValueError(
            f"--policy best is the certified one: learn it, give its run (--run RUN), or {numbers}"
        )
    raise ValueError(f"there is no policy {quoted(policy)}: {numbers}")


def _name(names: Sequence[str], column: int) -> str:
    return names[column] if names else f"policy {column}"


def _prior_mean(task: Task) -> NDArray[np.float64]:
    if task.prior is None:
        raise ValueError(f"the task {task.name} has no prior that --policy mean could be of")
    return np.asarray(GaussianPrior.of(task.prior).distribution.mean, float)
