"""Time that batches of episodes save where a policy is a network: vector=8 and 16 against 0."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from measuring import conclude, main
from pacbayes_control.cli.options import JsonFile, check_json
from pacbayes_control.tasks.gym import FromReturn, GymTask, PredictPolicy, TorchPolicy

POLICIES = 3
SIZES = (8, 16)


@dataclass(frozen=True)
class VectorBench:
    """Milliseconds of an episode that is run alone, and how many times as fast batches are."""

    cartpole_ms: float  # a network of 64 × 64, episodes of different lengths
    cartpole_speedup_8: float
    cartpole_speedup_16: float
    pendulum_ms: float  # a network of 64 × 64, episodes of 200 steps
    pendulum_speedup_8: float
    pendulum_speedup_16: float
    recurrent_ms: float  # a GRU of 64 units, Hopper of MuJoCo
    recurrent_speedup_8: float
    recurrent_speedup_16: float
    predict_ms: float  # a model with `predict`, a network of 64 × 64 in Pendulum
    predict_speedup_8: float
    predict_speedup_16: float


class Recurrent(nn.Module):
    """A GRU with a memory of the episode, which begins empty."""

    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(observations, 64), nn.Linear(64, actions)
        self.state = None

    def forward(self, observations: Any) -> Any:
        """Actions of one step, for a batch of observations."""
        features, self.state = self.cell(observations[None], self.state)
        return self.head(features[0])


class Model:
    """A model as Stable-Baselines3 has them: `predict` takes one observation or a batch."""

    def __init__(self, module: nn.Module) -> None:
        self.policy = module

    def predict(self, observation: NDArray, deterministic: bool = True) -> tuple[Any, None]:
        """Actions, without chance in any case, and no state."""
        del deterministic
        with torch.inference_mode():
            batch = torch.as_tensor(observation, dtype=torch.float32).reshape(-1, 3)
            actions = self.policy(batch).numpy().clip(-2, 2)
        return (actions if observation.ndim > 1 else actions[0]), None


def network(observations: int, actions: int) -> nn.Module:
    """Two hidden layers of 64 units."""
    layers = [nn.Linear(observations, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(64, actions))


def bench_vector(
    rounds: int = 5, environments: int = 32, *, steps: int | None = None
) -> VectorBench:
    """Measure side by side: rounds of the same rollouts, by turns.

    steps: the most in an episode; None for as many as it has
    """
    torch.manual_seed(0)
    cases = {
        "cartpole": ("CartPole-v1", TorchPolicy(network(4, 2))),
        "pendulum": ("Pendulum-v1", TorchPolicy(network(3, 1))),
        "recurrent": ("Hopper-v5", TorchPolicy(Recurrent(11, 3))),
        "predict": ("Pendulum-v1", PredictPolicy([Model(network(3, 1)) for _ in range(POLICIES)])),
    }
    found: dict[str, float] = {}
    for name, (env, policy) in cases.items():
        rows = policy.rows if isinstance(policy, PredictPolicy) else _drawn(policy)
        alone, *together = _times(env, policy, rows, (rounds, environments), steps)
        found[f"{name}_ms"] = 1000 * alone
        for size, seconds in zip(SIZES, together, strict=True):
            found[f"{name}_speedup_{size}"] = alone / seconds
    return VectorBench(**found)


def _drawn(policy: TorchPolicy) -> NDArray:
    """A few policies around the weights of a module."""
    return policy.weights + np.random.default_rng(0).normal(0, 0.1, (POLICIES, policy.parameters))


def _times(
    env: str, policy: Any, policies: NDArray, size: tuple[int, int], steps: int | None
) -> list[float]:
    """Seconds of an episode alone, and in batches of each size: medians over rounds."""
    rounds, environments = size
    rule = FromReturn(worst=-1e6, best=1e6)  # a range that no return leaves
    tasks = [GymTask(env, policy, rule, steps=steps, vector=n) for n in (0, *SIZES)]
    here, seconds = tasks[0].environments(environments, stream="benchmark"), [[] for _ in tasks]
    for number in range(rounds + 1):  # the first is not counted: simulators are made in it
        for each, spent in zip(tasks, seconds, strict=True):
            started = time.perf_counter()
            each.costs(policies, here)
            if number:
                spent.append((time.perf_counter() - started) / (environments * POLICIES))
    return [statistics.median(spent) for spent in seconds]


def command(json_file: JsonFile = None) -> None:
    """Measure how many times as fast episodes are in batches, where a policy is a network.

    Example: .venv/bin/python benchmarks/vector.py --json bench.json
    """
    check_json(json_file)
    torch.set_num_threads(1)
    conclude("vector", bench_vector(), json_file)


if __name__ == "__main__":
    main(command)
