"""A certified policy on the robot, drawn once per episode, as the certificate assumes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.tasks import Task, as_task
from pacbayes_control.verify import verify


class DeployedPolicy:
    """The certified policy of a run, with a method `predict` as in Stable-Baselines3.

    A certificate for a posterior is about policies drawn from it, one for each environment: call
    `reset` when an episode begins to draw a policy, which is used until the next reset. The mean of
    the posterior is another policy, for which nothing is certified.

    By default the draws come from a seed of the operating system, a new one after each restart, as
    the certificate is about fresh draws. It is kept as `seed`: pass it again to repeat the draws.

    >>> import pacbayes_control as pbc
    >>> from pacbayes_control.tasks.demo import Stopping
    >>> task = Stopping()
    >>> costs = pbc.evaluate(task, task.policies, task.environments(100, stream="train"))
    >>> robot = DeployedPolicy(pbc.learn_finite(costs), task)
    >>> robot.reset()
    >>> action, _ = robot.predict(np.array([0.3]))  # how far it has come: how far to go on
    """

    def __init__(self, run: Run[Any] | str | Path, task: Task, seed: int | None = None) -> None:
        """Deploy a run, or the run in a folder; the seed of an earlier one repeats its draws."""
        self.run = run if isinstance(run, Run) else verify(run).run
        self.task = as_task(task, needed=())
        if self.task.act is None and self.task.actor is None:
            raise ValueError("to be deployed, a task needs act(policy, observation)")
        mine = self.task.policy_class
        trained = self.run.costs.origin.get("policy_class", mine)
        if mine is not None and trained != mine:
            raise ValueError(f"the run is about {trained} policies, and the task has {mine} ones")
        if isinstance(self.run.posterior, Categorical) and self.run.costs.parameters is None:
            raise ValueError("the run has no parameters of its policies: nothing can be deployed")
        self.seed: Any = np.random.SeedSequence().entropy if seed is None else seed
        self._rng = np.random.default_rng(self.seed)
        self._policy: NDArray | None = None
        self._act: Callable[[Any], Any] = lambda _: None
        if self.deterministic:
            self.reset()

    @property
    def deterministic(self) -> bool:
        """Whether the certificate is for one policy, the same in every episode."""
        return self.run.certificate.policy is not None

    @property
    def policy(self) -> NDArray:
        """The parameters of the policy of this episode."""
        if self._policy is None:
            raise ValueError("no episode has begun: call reset(), or predict with episode_start")
        return self._policy

    def reset(self) -> None:
        """Begin an episode: draw a policy from the posterior, and use it until the next reset."""
        run, number = self.run, self.run.certificate.policy
        if number is None and isinstance(run.posterior, Categorical):
            number = run.posterior.sample(self._rng)
        if number is not None:
            self._policy = run.costs.parameters[number]  # type: ignore[index]
        else:
            self._policy = run.posterior.sample(self._rng, 1)[0]
        if self.task.actor is not None:
            self._act = self.task.actor(self._policy)
        elif self.task.act is not None:
            self._act = partial(self.task.act, self._policy)

    def predict(
        self,
        observation: NDArray,
        state: None = None,  # noqa: ARG002 - as in Stable-Baselines3; policies have no state
        episode_start: bool = False,
        deterministic: bool = False,
    ) -> tuple[NDArray, None]:
        """The action for an observation.

        Args:
            observation: of the robot.
            state: ignored.
            episode_start: draw a new policy first.
            deterministic: raise an error unless the certificate is for one policy.
        """
        if deterministic and not self.deterministic:
            raise ValueError(
                "the certificate is for policies drawn from the posterior, not for one of them: "
                "certify one policy (method occam or single-draw) to act without chance"
            )
        if episode_start:
            self.reset()
        _ = self.policy  # an error where no episode has begun
        seen = np.asarray(observation) if isinstance(observation, list | tuple) else observation
        return np.asarray(self._act(seen)), None
