"""Classes of policies for Gymnasium: how a row of parameters acts in an environment."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks.gym.episodes import BatchController, Controller
from pacbayes_control.tasks.identity import described
from pacbayes_control.tasks.user_task import checked_names

Floats = NDArray[np.float64]


class Policy(Protocol):
    """A class of policies. Its `repr` must tell it from others, also in another process."""

    parameters: int  # the length of a row

    def controller(self, row: NDArray, action_space: gym.Space) -> Controller:
        """A function from observation to action for one episode, which may have a memory."""
        ...


@runtime_checkable
class BatchedPolicy(Policy, Protocol):
    """A class of policies that can act in several episodes at once."""

    def batch_controller(self, row: NDArray, action_space: gym.Space, size: int) -> BatchController:
        """A function from `size` observations, of episodes that begin together, to their actions.

        An action must depend on nothing but its own episode.
        """
        ...


class FunctionPolicy:
    """A vector of parameters, and a function from it and an observation to an action.

    >>> steer = FunctionPolicy(lambda gains, observation: int(gains @ observation > 0), 4)
    >>> steer.controller(np.ones(4), gym.spaces.Discrete(2))(np.ones(4))
    1
    """

    def __init__(self, act: Callable[[NDArray, Any], Any], parameters: int) -> None:
        if parameters < 1:
            raise ValueError(f"a policy of {parameters} parameters: at least one is needed")
        self.act, self.parameters = act, parameters

    def __repr__(self) -> str:
        return f"FunctionPolicy({described(self.act)}, {self.parameters})"

    def controller(self, row: NDArray, action_space: gym.Space) -> Controller:
        """The function with its first argument filled in."""
        del action_space
        return lambda observation: self.act(row, observation)


class TorchPolicy:
    """The flattened weights of a `torch.nn.Module`, which maps observations to actions.

    The module is called with a batch of one, or of several episodes that begin together. Of its
    outputs the largest is the action where actions are discrete, and where they are continuous the
    outputs are cut to their range, unless `action` turns them into one. Other state of the module,
    such as running means, stays as it is.
    """

    def __init__(self, module: Any, action: Callable[[Floats], Any] | None = None) -> None:
        self.module = copy.deepcopy(module).eval()
        self.action = action
        self.parameters = sum(weights.numel() for weights in self.module.parameters())
        if self.parameters == 0:
            raise ValueError("the module has no weights")

    def __repr__(self) -> str:
        layers = " ".join(repr(self.module).split())
        own = described(self.action) if self.action else None
        return f"TorchPolicy({layers}, {own}, {_digest(dict(self.module.named_buffers()))})"

    @property
    def weights(self) -> Floats:
        """The weights that the module came with, as a row: for the mean of a prior."""
        from torch.nn.utils import parameters_to_vector

        row = parameters_to_vector(self.module.parameters())
        return row.detach().numpy().astype(np.float64)

    def controller(self, row: NDArray, action_space: gym.Space) -> Controller:
        """The module with a row's weights, a copy of its own."""
        import torch

        module, to_action = self._filled(row), self.action or _usual_action(action_space)

        def act(observation: Any) -> Any:
            with torch.inference_mode():
                batch = torch.as_tensor(np.asarray(observation), dtype=torch.float32)[None]
                return to_action(module(batch)[0].numpy())

        return act

    def batch_controller(self, row: NDArray, action_space: gym.Space, size: int) -> BatchController:
        """The same, called with a batch of observations."""
        import torch

        del size
        module, to_action = self._filled(row), self.action or _usual_action(action_space)

        def act(observations: Sequence[Any]) -> Sequence[Any]:
            with torch.inference_mode():
                # a copy, since the last bits may depend on where an array begins in memory
                batch = torch.tensor(np.stack(observations), dtype=torch.float32)
                return [to_action(outputs) for outputs in module(batch).numpy()]

        return act

    def _filled(self, row: NDArray) -> Any:
        """A copy of the module with a row's weights."""
        import torch
        from torch.nn.utils import vector_to_parameters

        module = copy.deepcopy(self.module)
        vector_to_parameters(
            torch.as_tensor(np.array(row), dtype=torch.float32), module.parameters()
        )
        return module


class PredictPolicy:
    """A list of trained models with `predict` as in Stable-Baselines3; a row is a model's number.

    predict(observation, state=…, episode_start=…, deterministic=True) returns an action and a
    state, which is given to it in the next step; one that takes the observation alone will do. In
    a batch, observations are stacked, and state and episode_start are those of all episodes.
    names: one for each model, for records.
    """

    parameters = 1

    def __init__(self, models: Sequence[Any], names: Sequence[str] = ()) -> None:
        if not models:
            raise ValueError("there are no models to choose from")
        for number, model in enumerate(models):
            if not callable(getattr(model, "predict", None)):
                raise TypeError(f"model {number} ({type(model).__name__}) has no method predict")
        self.models = list(models)
        self.names = checked_names(names, self.models, of="models")

    def __repr__(self) -> str:
        return f"PredictPolicy({', '.join(map(_model_words, self.models))})"

    @cached_property
    def rows(self) -> Floats:
        """One row for each model, to evaluate them all; shape (models, 1)."""
        return np.arange(len(self.models), dtype=float)[:, None]

    def controller(self, row: NDArray, action_space: gym.Space) -> Controller:
        """A model with the state that it keeps within an episode."""
        del action_space
        return self._predictor(row, 1)

    def batch_controller(self, row: NDArray, action_space: gym.Space, size: int) -> BatchController:
        """The same for stacked observations, and the state of all episodes."""
        del action_space
        predict = self._predictor(row, size)
        return lambda observations: predict(_stacked(observations))

    def _predictor(self, row: NDArray, size: int) -> Controller:
        """A model's `predict` from the beginning of so many episodes."""
        number = int(row[0])
        if number != row[0] or not 0 <= number < len(self.models):
            raise ValueError(f"{row[0]:g} is not the number of one of {len(self.models)} models")
        model = self.models[number]
        keywords = _keywords(model.predict)
        offered: dict[str, Any] = {"state": None, "deterministic": True}
        offered["episode_start"] = np.full(size, True)

        def act(observation: Any) -> Any:
            wanted = {name: offered[name] for name in keywords}
            answer = model.predict(observation, **wanted)
            offered["episode_start"] = np.full(size, False)
            if isinstance(answer, tuple):
                answer, offered["state"] = answer
            return answer

        return act


def _stacked(observations: Sequence[Any]) -> Any:
    """Observations as arrays with one row each, by name where they are dictionaries."""
    first = observations[0]
    if isinstance(first, Mapping):
        return {name: _stacked([each[name] for each in observations]) for name in first}
    return np.stack(observations)


def _keywords(predict: Callable[..., Any]) -> list[str]:
    """The keywords of Stable-Baselines3's `predict` that a model takes."""
    names = ["state", "episode_start", "deterministic"]
    try:
        parameters = inspect.signature(predict).parameters
    except (TypeError, ValueError):  # of a compiled function
        return []
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return names
    return [name for name in names if name in parameters]


def _model_words(model: Any) -> str:
    """Words that identify a model: its own `repr`, or a digest of its weights."""
    network = getattr(model, "policy", model)
    if hasattr(network, "state_dict"):
        return f"{type(model).__qualname__} {_digest(network.state_dict())}"
    return repr(model)


def _digest(tensors: Mapping[str, Any]) -> str:
    sha = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        sha.update(f"{name} {tuple(tensor.shape)}".encode())
        sha.update(tensor.detach().cpu().numpy().tobytes())
    return sha.hexdigest()[:16]


def _usual_action(space: gym.Space) -> Callable[[Floats], Any]:
    if isinstance(space, gym.spaces.Discrete):
        return lambda outputs: int(space.start + np.argmax(outputs))
    if isinstance(space, gym.spaces.Box):
        return lambda outputs: np.clip(outputs, space.low, space.high).astype(space.dtype)
    raise ValueError(f"actions of {space} need a function of their own: TorchPolicy(…, action=…)")
