"""Logs of a simulated drone whose model is known, and the commands of an experiment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from pacbayes_control.robots.swing.identification.fitting import lag_response, unit_speed_path
from pacbayes_control.robots.swing.identification.logs import FlightLog, Floats
from pacbayes_control.tasks.environments import generator

ExcitationKind = Literal["mixture", "constant", "sinusoid", "chirp"]

COMMAND_RATE = 10  # Hz (paper: Section 8)
AMPLITUDE = 25  # percent: k_u u stays within the paper's ±π/4 for k_u up to π


def excitation(
    kind: ExcitationKind = "mixture", duration: float = 60.0, amplitude: float = AMPLITUDE
) -> Floats:
    """Commands of an experiment, in whole percent of yaw, one each tenth of a second.

    constant    the amplitude throughout; alone it identifies neither gain, since the offset is free
    sinusoid    of 0.4 rad/s, the best frequency for a lag of about that rate
    chirp       from 0.05 to 1 Hz
    mixture     steps up and down, the sinusoid and the chirp, a third of the time each: steps show
                k_u in their steady state, the sinusoid k_p, and the chirp tells a lag from a delay

    >>> excitation("sinusoid", 0.5).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    if kind not in get_args(ExcitationKind):
        names = ", ".join(get_args(ExcitationKind))
        raise ValueError(f"the experiment {kind!r} is unknown: choose one of {names}")
    if not 0 < duration < math.inf:
        raise ValueError(f"a duration of {duration:g} s must be positive and finite")
    t = np.arange(max(1, round(duration * COMMAND_RATE))) / COMMAND_RATE
    third = duration / 3
    first, second = _steps(t, third), np.sin(0.4 * (t - third))
    last = _chirp(t - 2 * third, third)
    shapes = {
        "mixture": np.select([t < third, t < 2 * third], [first, second], last),
        "constant": np.ones_like(t),
        "sinusoid": np.sin(0.4 * t),
        "chirp": _chirp(t, duration),
    }
    return np.round(amplitude * shapes[kind]) + 0.0


def _steps(t: Floats, duration: float) -> Floats:
    """1 for a quarter of the duration, -1 for a half, 1 for a quarter."""
    return np.where(np.abs(t / duration - 0.5) <= 0.25, -1.0, 1.0)


def _chirp(t: Floats, duration: float, low: float = 0.05, high: float = 1.0) -> Floats:
    """A sine whose frequency (Hz) grows linearly."""
    return np.sin(2 * math.pi * (low * t + (high - low) * t**2 / (2 * duration)))


@dataclass(frozen=True)
class SyntheticDrone:
    """A drone whose model is known, and how its flights are tracked and logged.

    Of the dropped rows, in one half the tracker lost the pose; for the other half the control loop
    was late, so that there is no row and the drone kept the command that it had.
    """

    k_u: float = 3.0  # rad of steady yaw for a full command
    k_p: float = 0.4  # 1/s, rate of the yaw's lag
    speed: float = 2.0  # m/s
    latency: float = 0.08  # s from a command to its effect
    gusts: float = 0.0  # rad/√s, density of white noise that is added to the yaw rate
    offset: float = 0.1  # rad, the drone's zero of yaw in the tracker's frame
    yaw_noise: float = 0.02  # rad, standard deviation of the tracker, independent at each row
    position_noise: float = 0.01  # m, the same of x and of y
    rate: int = 50  # rows a second, each up to a tenth of a period early or late
    dropped: float = 0.05  # share of the rows that are dropped

    def __post_init__(self) -> None:
        if self.rate < COMMAND_RATE or self.rate % COMMAND_RATE:
            raise ValueError(f"{self.rate} rows a second: it must be a multiple of {COMMAND_RATE}")
        if not 0 <= self.dropped <= 0.5:
            raise ValueError(f"a share of {self.dropped:g} dropped rows is outside [0, 0.5]")

    def log(
        self,
        yaw_percent: ArrayLike | None = None,
        *,
        seed: int = 0,
        name: str = "synthetic log",
    ) -> FlightLog:
        """The log of a flight under commands at 10 Hz; by default those of `excitation()`.

        The drone flies straight before the log begins.

        >>> log = SyntheticDrone().log(excitation("chirp", 10.0), seed=1)
        >>> 480 < len(log.time) < 500
        True
        """
        percent = np.asarray(excitation() if yaw_percent is None else yaw_percent, float)
        rng = generator(seed, "swing log", of="noise")
        each = self.rate // COMMAND_RATE  # rows for each command
        rows = len(percent) * each
        fate = rng.random(rows)
        kept = (fate < 1 - self.dropped / 2) | (np.arange(rows) == 0)
        time = (np.arange(rows) + rng.uniform(-0.1, 0.1, rows)) / self.rate
        time = (time - time[0])[kept]
        commanded = np.repeat(percent, each)[kept]
        fine = np.append(np.linspace(time[:-1], time[1:], 5, axis=1)[:, :-1].ravel(), time[-1])
        since, commands = np.append(-1.0, time), np.append(0.0, commanded / 100)
        response = lag_response(fine, since, commands, self.k_p, self.latency)
        yaw = self.offset + self.k_u * response.value
        if self.gusts:
            yaw += self._gusts(fine, generator(seed, "swing gusts", of="noise"))
        path = self.speed * unit_speed_path(fine, yaw)[::4]
        measured = np.stack([path.real, path.imag, yaw[::4]])
        sd = np.array([[self.position_noise], [self.position_noise], [self.yaw_noise]])
        measured += sd * rng.standard_normal(measured.shape)
        measured[2] = np.angle(np.exp(1j * measured[2]))  # in (-π, π], as trackers report it
        measured[:, fate[kept] < self.dropped / 2] = np.nan
        return FlightLog(name, time, commanded, *measured)

    def _gusts(self, time: Floats, rng: np.random.Generator) -> Floats:
        """The yaw that gusts add: an Ornstein–Uhlenbeck process, exact at these times."""
        density, rate = self.gusts, self.k_p
        fades = np.exp(-rate * np.diff(time, prepend=time[0]))
        pushes = density * np.sqrt((1 - fades**2) / (2 * rate)) * rng.standard_normal(len(time))
        state = density / math.sqrt(2 * rate) * float(rng.standard_normal())  # stationary
        values = []
        for fade, push in zip(fades.tolist(), pushes.tolist(), strict=True):
            state = fade * state + push
            values.append(state)
        return np.array(values)
