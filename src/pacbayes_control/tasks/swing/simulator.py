"""The Swing task: a drone whose yaw follows its commands with a lag, run by the compiled kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.tasks.base import Environments, Noise, noise_of
from pacbayes_control.tasks.planar.kernel import F, turn_cos, turn_sin
from pacbayes_control.tasks.planar.obstacles import Distribution, ObstacleField
from pacbayes_control.tasks.planar.policies import Controller, GainGrid, Gains
from pacbayes_control.tasks.planar.robot import Planar, Trajectory, Walls
from pacbayes_control.tasks.swing.environments import Net
from pacbayes_control.tasks.swing.gains import DrawnGains, WorstGains

RAYS = 40
GRID = GainGrid(x0=(0.1, 5, 5), y0=(0, 60, 20), rays=RAYS)  # the paper's 100 policies

# The paper says "large, cylindrical obstacles" and no more. Chosen here: 3 to 6 of them, as wide as
# a person to twice that, anywhere across the net, from 4 m ahead of the start to where a flight
# ends. Flying straight on then fails in every second environment.
CYLINDERS = ObstacleField(fewest=3, most=6, x=(-3.5, 3.5), y=(5.0, 13.0), radius=(0.25, 0.5))


@dataclass(frozen=True)
class Swing(Planar):
    """A Parrot Swing at constant height and speed among large cylinders (paper: Section 8, eq. 43).

    ẋ = -u₀ sin ψ, ẏ = u₀ cos ψ, ψ̇ = k_p (k_u u_ψ - ψ), with k_u u_ψ within ±`largest_yaw`. A policy
    answers 40 depths with u_ψ, a fraction of the drone's full yaw. After `steps` steps it lands: it
    flies straight on, slowing evenly to a stop over `landing_steps` more. The cost is 1 if it
    touches a cylinder or the net in flight or while landing, and 0 otherwise.

    `uncertainty` says what is not known about the gains and the speed: see `DrawnGains` and
    `WorstGains`.

    >>> task = Swing()
    >>> task.costs(task.gain_grid(), task.environments(4, stream="example")).shape
    (4, 100)
    """

    obstacles: Distribution = CYLINDERS
    arena: Walls = field(default_factory=Net, kw_only=True)
    controller: Controller = field(default_factory=lambda: Gains(RAYS))
    steps: int = 50
    time_step: float = 0.1  # s: commands go out at 10 Hz
    robot_radius: float = 0.2  # m; the wings reach 0.17 m to either side
    landing_steps: int = 10  # to come to rest
    speed: float = 2.0  # m/s, u₀
    k_u: float = 3.0  # rad of yaw for full command, once it is reached
    k_p: float = 0.4  # 1/s, how fast it is approached
    largest_yaw: float = np.pi / 4  # rad
    uncertainty: DrawnGains | WorstGains | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("speed", "k_u", "k_p", "largest_yaw", "time_step"):
            if not 0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} = {getattr(self, name)}: a positive number is needed")
        if self.largest_yaw > 0.95:
            raise ValueError(f"a yaw of {self.largest_yaw:g} rad is beyond the kernel's 0.95")
        if self.k_p * self.time_step > 1:
            raise ValueError(f"k_p = {self.k_p} is too fast for steps of {self.time_step} s")
        if self.steps < 1 or self.landing_steps < 1:
            raise ValueError("a flight and its landing take at least a step each")

    @staticmethod
    def move(state, control, draws, step, model):  # noqa: ARG004 - as the kernel calls it
        """One step of explicit Euler with the old yaw; straight on and slower once it lands.

        model: speed, k_p and k_u, largest yaw, seconds a step, steps of flight, of landing.
        """
        x, y, sin, cos, yaw = state
        speed, k_p, k_u, largest, seconds = model[0], model[1], model[2], model[3], model[4]
        landing = F(step) >= model[5]
        left = F(1) - (F(step) - model[5] + F(0.5)) / model[6] if landing else F(1)
        wanted = min(max(k_u * control, -largest), largest)
        after = yaw if landing else yaw + seconds * k_p * (wanted - yaw)
        length = speed * seconds * left
        return x - length * sin, y + length * cos, turn_sin(after), turn_cos(after), after

    @property
    def constants(self) -> tuple[float, ...]:
        """What `move` needs."""
        rates = (self.speed, self.k_p, self.k_u, self.largest_yaw, self.time_step)
        return *rates, self.steps, self.landing_steps

    @property
    def all_steps(self) -> int:
        """Of flight and landing."""
        return self.steps + self.landing_steps

    @property
    def largest_control(self) -> float:
        """|u_ψ|, so that the yaw asked for stays within its limit."""
        return self.largest_yaw / self.k_u

    def gain_grid(self) -> NDArray[np.float64]:
        """The paper's finite policy space; shape (100, rays)."""
        return GRID.policies

    def gain_names(self) -> list[str]:
        """The names of its members."""
        return GRID.names

    # ---- gains that are not known ---------------------------------------------------------------

    @property
    def noise_kind(self) -> str:
        """What is random in a rollout; empty where nothing is."""
        kinds = [super().noise_kind] if super().noise_kind else []
        if isinstance(self.uncertainty, DrawnGains):
            u = self.uncertainty
            kinds.append(
                f"gains of s.d. {u.k_u_sd!r} and {u.k_p_sd!r}, correlation {u.correlation!r}, "
                f"speed of s.d. {u.speed_sd!r}"
            )
        return ", ".join(kinds)

    def models(self, environments: Environments, policies: int, noise: Noise | None) -> NDArray:
        """`constants` for each rollout; gains of its own where they are drawn."""
        noise = noise_of(self, environments, noise)
        if noise is None or not isinstance(self.uncertainty, DrawnGains):
            return super().models(environments, policies, noise)
        keys = noise.keys(environments, policies)
        found = np.repeat(super().models(environments, policies, noise), len(environments), axis=0)
        k_u, k_p, speed = self.uncertainty.draw((self.k_u, self.k_p, self.speed), keys)
        found[:, 0], found[:, 1], found[:, 2] = speed, k_p, k_u
        return found

    def _drones(self, worst: WorstGains) -> list[Swing]:
        """Those that the cost is the worst of."""
        members = worst.members((self.k_u, self.k_p, self.speed))
        plain = replace(self, uncertainty=None)
        return [replace(plain, k_u=k_u, k_p=k_p, speed=speed) for k_u, k_p, speed in members]

    def _roll_out(
        self,
        policies: NDArray,
        environments: Environments,
        noise: Noise | None,
        dtype: type[np.floating],
        measure: bool,
    ) -> tuple[NDArray[np.uint8], NDArray]:
        if not isinstance(self.uncertainty, WorstGains):
            return super()._roll_out(policies, environments, noise, dtype, measure)
        drones = self._drones(self.uncertainty)
        collided, closest = drones[0]._roll_out(policies, environments, noise, dtype, measure)
        for drone in drones[1:]:
            found = drone._roll_out(policies, environments, noise, dtype, measure)
            np.maximum(collided, found[0], out=collided)
            np.minimum(closest, found[1], out=closest)
        return collided, closest

    def trajectories(
        self, policy: NDArray, environments: Environments, noise: Noise | None = None
    ) -> list[Trajectory]:
        """One rollout in each environment; of several drones, the first that fails."""
        if not isinstance(self.uncertainty, WorstGains):
            return super().trajectories(policy, environments, noise)
        drones = self._drones(self.uncertainty)
        flown = zip(*(d.trajectories(policy, environments, noise) for d in drones), strict=True)
        return [next((each for each in row if each.collided), row[0]) for row in flown]

    # ---- in a record ----------------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """All that tells this drone, its net and its cylinders from others, as plain values."""
        if not isinstance(self.obstacles, ObstacleField) or not isinstance(self.arena, Net):
            return {}
        record: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        record |= {"start": list(self.start), "net": asdict(self.arena)}
        record["obstacles"] = asdict(self.obstacles)
        if self.uncertainty is not None:
            kind = "drawn" if isinstance(self.uncertainty, DrawnGains) else "worst"
            record["uncertainty"] = {"kind": kind, **asdict(self.uncertainty)}
        return record

    @classmethod
    def from_settings(cls, record: Mapping[str, Any]) -> Swing:
        """The drone that a record describes; an error for one that describes none."""
        try:
            known = {"start", "net", "obstacles", "uncertainty", *_NUMBERS}
            if set(record) - known or not known - {"uncertainty"} <= set(record):
                raise ValueError("other fields than a drone has")
            kinds = {"drawn": DrawnGains, "worst": WorstGains}
            doubt = dict(record.get("uncertainty") or {})
            made = cls(
                obstacles=_made(ObstacleField, record["obstacles"]),
                arena=_made(Net, record["net"]),
                start=_made(tuple, record["start"]),
                uncertainty=_made(kinds[doubt.pop("kind")], doubt) if doubt else None,
                **{name: record[name] for name in _NUMBERS},
            )
            if _plain(made.settings) != _plain(dict(record)):
                raise ValueError("values of other kinds than a drone's")
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            words = " ".join(str(error).split())
            raise ValueError(f"the record describes no Swing: {words}") from None
        return made


_OTHERS = ("obstacles", "arena", "controller", "start", "uncertainty")
_NUMBERS = tuple(each.name for each in fields(Swing) if each.name not in _OTHERS)


def _made(kind: Any, record: Any) -> Any:
    """A dataclass from a record in which tuples have become lists."""
    if kind is tuple:
        return tuple(float(entry) for entry in record)
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in record.items()}
    return kind(**values)


def _plain(value: Any) -> Any:
    """As it is after a way through JSON, with every number of its own kind."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return type(value).__name__, value
