"""Ids of Gymnasium: what is registered here, and what was where a task comes from."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from typing import Any

import cloudpickle
import gymnasium as gym
from gymnasium.envs.registration import EnvSpec


def registered_spec(name: str) -> EnvSpec:
    """The specification of an environment that is registered, or that a module registers."""
    module, _, own = name.rpartition(":")
    try:
        if module:
            import_module(module)
        return gym.spec(own)
    except (gym.error.Error, ModuleNotFoundError) as error:
        words = " ".join(str(error).split())
        raise ValueError(
            f"no Gymnasium environment {name!r} is registered ({words}): register it, or write "
            "'its_module:its_id'"
        ) from None


def packed_registrations() -> list[bytes]:
    """All registrations of this process that can be sent, each by itself."""
    sent = []
    for spec in list(gym.registry.values()):
        with suppress(Exception):  # somebody's entry point may hold anything
            sent.append(cloudpickle.dumps(spec))
    return sent


def make_registered(make: Callable[[], Any], sent: Sequence[bytes]) -> Any:
    """Make an environment for which ids mean what they do in the process that sent these."""
    with warnings.catch_warnings() if sent else nullcontext():
        if sent:  # a module that is imported now may register the same once more
            warnings.filterwarnings("ignore", ".*Overriding environment .* already in registry")
        for one in sent:
            with suppress(Exception):  # of a module that is not here, and perhaps not needed
                spec = pickle.loads(one)
                gym.registry[spec.id] = spec
        try:
            return make()
        except gym.error.UnregisteredEnv as error:
            raise gym.error.UnregisteredEnv(
                f"no such Gymnasium environment is registered in this process ({error}): have the "
                "factory import the module that registers it, or write "
                "gymnasium.make('its_module:its_id')"
            ) from error
