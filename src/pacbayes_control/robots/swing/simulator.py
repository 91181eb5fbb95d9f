"""The Swing task: a drone whose yaw follows its commands with a lag, run by the compiled kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.robots.planar.kernel import F, turn_cos, turn_sin
from pacbayes_control.robots.planar.obstacles import ObstacleField
from pacbayes_control.robots.planar.policies import Controller, GainGrid, Gains
from pacbayes_control.robots.planar.records import Kinds
from pacbayes_control.robots.planar.robot import MOST_STEPS, Planar, Trajectory, check_range
from pacbayes_control.robots.swing.gains import LARGEST, SMALLEST, DrawnGains, WorstGains
from pacbayes_control.tasks.environments import Environments, Noise
from pacbayes_control.tasks.options import option
from pacbayes_control.tasks.task import noise_of

RAYS = 40
STEEPEST = 1.5  # rad, of a yaw: the kernel's sine and cosine are exact to 1e-7 up to there
GRID = GainGrid(x0=(0.1, 5, 5), y0=(0, 60, 20), rays=RAYS)  # the paper's 100 policies

# The paper says "large, cylindrical obstacles" and no more. Chosen here, to be about as hard as
# there: 3 to 6 of them, as wide as a person to twice that, anywhere across the net, from 4 m ahead
# of the start to where a flight ends. Flying straight on fails in every second environment.
CYLINDERS = ObstacleField(fewest=3, most=6, x=(-3.5, 3.5), y=(5.0, 13.0), radius=(0.25, 0.5))


@dataclass(frozen=True)
class Net:
    """The netted area of Section 8: a net on all four sides, which counts as a wall."""

    half_width: float = 3.5  # m
    length: float = 18.0  # m

    def __post_init__(self) -> None:
        check_range("half_width", self.half_width, 1e-3, 1e6)
        check_range("length", self.length, 1e-3, 1e6)

    @property
    def view(self) -> tuple[float, float, float, float]:
        """The part that pictures show: left, right, bottom, top in m."""
        return (-self.half_width - 0.3, self.half_width + 0.3, -0.3, self.length + 0.3)

    @property
    def walls(self) -> NDArray[np.float64]:
        """Left, right, near and far side, (4, 4) as left, right, bottom, top in m.

        Each is half a metre deep, so that nothing passes it between two steps.
        """
        w, length, deep = self.half_width, self.length, 0.5
        along, across = (-deep, length + deep), (-w - deep, w + deep)
        left, right = (-w - deep, -w, *along), (w, w + deep, *along)
        return np.array([left, right, (*across, -deep, 0), (*across, length, length + deep)])

    @property
    def open_areas(self) -> NDArray[np.float64]:
        """The area inside the net, (1, 4)."""
        return np.array([[-self.half_width, self.half_width, 0, self.length]])


@dataclass(frozen=True)
class SwingOptions:
    """Options of the drone."""

    model: Path | None = option(
        None, "Gains and speed as `pbc swing identify --json` fitted them.", metavar="FILE"
    )
    gains: Literal["fixed", "drawn", "worst"] = option(
        "fixed",
        "With --model: fixed (as if exact), drawn (anew for each rollout, as uncertain as the fit) "
        "or worst (of the corners of the intervals).",
    )
    points: int | None = option(
        None, "Drones along each interval, for the worst of them; default 2.", rare=True, least=2
    )
    range_noise: float = option(0.0, "Noise of the depths, relative.")


@dataclass(frozen=True)
class Swing(Planar):
    """A Parrot Swing at constant height and speed among large cylinders (paper: Section 8, eq. 43).

    ẋ = -u₀ sin ψ, ẏ = u₀ cos ψ, ψ̇ = k_p (k_u u_ψ - ψ), with k_u u_ψ within ±`largest_yaw`. A policy
    answers 40 depths with u_ψ, a fraction of the drone's full yaw, in whole percents, which is what
    its radio takes. After `steps` steps it lands: it flies straight on, slowing evenly to a stop
    over `landing_steps` more. The cost is 1 if it touches a cylinder or the net in flight or while
    landing, and 0 otherwise.

    `uncertainty` says what is not known about the gains and the speed: see `DrawnGains` and
    `WorstGains`. Commands are held within the limits of the task's own k_u, since no other
    is known in flight: a drone whose k_u is larger turns further.

    >>> task = Swing()
    >>> task.costs(task.policies, task.environments(4, stream="example")).shape
    (4, 100)
    """

    obstacles: ObstacleField = CYLINDERS
    arena: Net = field(default_factory=Net, kw_only=True)
    controller: Controller = field(default_factory=lambda: Gains(RAYS))
    steps: int = 50
    time_step: float = 0.1  # s: commands go out at 10 Hz
    robot_radius: float = 0.2  # m; the wings reach 0.17 m to either side
    landing_steps: int = 10  # type: ignore[override]  # to come to rest
    speed: float = 2.0  # m/s, u₀
    k_u: float = 3.0  # rad of yaw for full command, once it is reached
    k_p: float = 0.4  # 1/s, how fast it is approached
    largest_yaw: float = np.pi / 4  # rad
    resolution: float = 0.01  # of u_ψ; 0 for any number
    largest_command: float | None = None  # of u_ψ; by default what k_u takes to the largest yaw
    uncertainty: DrawnGains | WorstGains | None = None

    grid = GRID
    Options = SwingOptions
    learns = ("finite",)
    test_environments = 20_000
    parts: ClassVar[dict[str, Kinds]] = Planar.parts | {
        "arena": {"": Net},
        "uncertainty": {"drawn": DrawnGains, "worst": WorstGains},
    }
    called: ClassVar[dict[str, str]] = {"arena": "net"}
    captions: ClassVar[dict[str, tuple[str, str]]] = {
        "flights.png": (
            "Flights in a net, each from above, with its cylinders and its path.",
            "Flights through the flight loop, as the tracker saw them: blue where the drone landed "
            "without a contact, orange where it did not. The drone is simulated, and differs from "
            "its model.",
        )
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("speed", "k_u", "k_p"):
            check_range(name, getattr(self, name), SMALLEST, LARGEST)
        check_range("largest_yaw", self.largest_yaw, SMALLEST, STEEPEST)
        check_range("the heading at the start", self.start[2], -STEEPEST, STEEPEST)
        check_range("resolution", self.resolution, 0, 0.1)
        if self.largest_command is not None:
            check_range("largest_command", self.largest_command, SMALLEST, 1)
        check_range("landing_steps", self.landing_steps, 1, MOST_STEPS, whole=True)

    @staticmethod
    def move(state, control, draws, step, model):  # noqa: ARG004 - as the kernel calls it
        """One step, the command held: the yaw exactly, the place by the mean of both headings.

        Once it lands, straight on and slower. model: metres a step, the share of the way to the
        yaw asked for that a step goes, k_u, largest command, its resolution, steps of flight, of
        landing.
        """
        x, y, sin, cos, yaw = state
        length, share, k_u, limit, unit = model[0], model[1], model[2], model[3], model[4]
        landing = F(step) >= model[5]
        slower = F(1) - (F(step) - model[5] + F(0.5)) / model[6] if landing else F(1)
        command = min(max(control, -limit), limit)
        if unit > F(0):
            command = unit * np.floor(command / unit + F(0.5))
        wanted = min(max(k_u * command, F(-STEEPEST)), F(STEEPEST))
        after = yaw if landing else yaw + share * (wanted - yaw)
        after_sin, after_cos = turn_sin(after), turn_cos(after)
        half = length * slower / F(2)
        ahead_x, ahead_y = half * (sin + after_sin), half * (cos + after_cos)
        return x - ahead_x, y + ahead_y, after_sin, after_cos, after

    @property
    def constants(self) -> tuple[float, ...]:
        """The constants of `move`."""
        share = -np.expm1(-self.k_p * self.time_step)
        length = self.speed * self.time_step
        command = (self.largest_control, self.resolution)
        return length, share, self.k_u, *command, self.steps, self.landing_steps

    @property
    def own_start(self) -> float:  # type: ignore[override]
        """The yaw."""
        return self.start[2]

    @property
    def largest_control(self) -> float:  # type: ignore[override]
        """|u_ψ|, so that the yaw asked for stays within its limit, and no more than there is."""
        limit = self.largest_command or min(self.largest_yaw / self.k_u, 1.0)
        return math.floor(limit / self.resolution) * self.resolution if self.resolution else limit

    def act(self, policy: NDArray, observation: NDArray) -> float:
        """u_ψ of a policy for depths along the rays, as it is sent."""
        command, unit = super().act(policy, observation), self.resolution
        return unit * math.floor(command / unit + 0.5) if unit else command

    @property
    def cost_rule(self) -> str:
        """How a rollout is scored, in one line."""
        worst = f"; the worst of {len(self.drones)} drones" if self.drones else ""
        return (
            f"1 where the drone touches a cylinder or the net in {self.steps} steps of flight and "
            f"{self.landing_steps} of landing, 0 otherwise{worst}"
        )

    @classmethod
    def from_options(cls, options: SwingOptions) -> Swing:  # type: ignore[override]
        """The drone, with a model that was fitted where one is given."""
        from pacbayes_control.robots.swing.identification.identified import fitted_swing, read_model

        model = read_model(options.model) if options.model else None
        drone = fitted_swing(model, options.gains, options.points)
        return replace(drone, range_noise=options.range_noise)

    # ---- gains that are not known ---------------------------------------------------------------

    @property
    def noise_kind(self) -> str:
        """The randomness of a rollout, in words; empty if there is none."""
        own, doubt = super().noise_kind, self.uncertainty
        if not isinstance(doubt, DrawnGains):
            return own
        drawn = (
            f"gains of s.d. {doubt.k_u_sd:.4g} and {doubt.k_p_sd:.4g}, correlation "
            f"{doubt.correlation:.4g}, speed of s.d. {doubt.speed_sd:.4g}"
        )
        return f"{own}, {drawn}" if own else drawn

    def models(self, environments: Environments, policies: int, noise: Noise | None) -> NDArray:
        """`constants` for each rollout; gains of its own where they are drawn."""
        noise = noise_of(self, environments, noise)
        if noise is None or not isinstance(self.uncertainty, DrawnGains):
            return super().models(environments, policies, noise)
        found = np.repeat(super().models(environments, policies, noise), len(environments), axis=0)
        keys = noise.keys(environments, policies)
        k_u, k_p, speed = self.uncertainty.draw((self.k_u, self.k_p, self.speed), keys)
        found[:, 0], found[:, 2] = speed * self.time_step, k_u
        found[:, 1] = -np.expm1(-k_p * self.time_step)
        return found

    @cached_property
    def drones(self) -> list[Swing]:
        """Those that the cost is the worst of; none if it is that of one drone."""
        if not isinstance(self.uncertainty, WorstGains):
            return []
        members = self.uncertainty.members((self.k_u, self.k_p, self.speed))
        plain = replace(self, uncertainty=None, largest_command=self.largest_control)
        return [replace(plain, k_u=k_u, k_p=k_p, speed=speed) for k_u, k_p, speed in members]

    def costs(
        self, *rollouts: Any, closest: NDArray | None = None, **how: Any
    ) -> NDArray[np.uint8]:
        """As for one drone; of several, the largest costs and the smallest distances."""
        if not self.drones:
            return super().costs(*rollouts, closest=closest, **how)
        collided = self.drones[0].costs(*rollouts, closest=closest, **how)
        own = None if closest is None else np.empty_like(closest)
        for drone in self.drones[1:]:
            np.maximum(collided, drone.costs(*rollouts, closest=own, **how), out=collided)
            if closest is not None and own is not None:
                np.minimum(closest, own, out=closest)
        return collided

    def trajectories(
        self, policy: NDArray, environments: Environments, noise: Noise | None = None
    ) -> list[Trajectory]:
        """One rollout in each environment; of several drones, the first that fails."""
        if not self.drones:
            return super().trajectories(policy, environments, noise)
        flown = [drone.trajectories(policy, environments, noise) for drone in self.drones]
        rows = zip(*flown, strict=True)
        return [next((each for each in row if each.collided), row[0]) for row in rows]

    @property
    def words(self) -> str:  # type: ignore[override]
        """Which drone a certificate is about, in one line."""
        own = f"k_u = {self.k_u:.4g} rad, k_p = {self.k_p:.4g} 1/s, {self.speed:.4g} m/s"
        doubt = self.uncertainty
        if doubt is None:
            return f"a drone of exactly {own}"
        if isinstance(doubt, DrawnGains):
            return (
                f"drones drawn around {own}, with standard deviations {doubt.k_u_sd:.2g} rad, "
                f"{doubt.k_p_sd:.2g} 1/s and {doubt.speed_sd:.2g} m/s"
            )
        sure = f"{doubt.confidence:.0%} " if doubt.confidence is not None else ""
        ranges = ", ".join(
            f"{name} {low:.4g} to {high:.4g}" for name, (low, high) in doubt.intervals.items()
        )
        return (
            f"each of {len(self.drones)} drones: one of {own}, and those at the ends of the "
            f"{sure}intervals {ranges}"
        )
