"""A rover that drives past a rock: a robot in a package of its own.

pip install examples/rover
pbc learn rover --rock 0.5 --out runs/rover
pbc report runs/rover
pbc reproduce rover-table
pbc rover describe
"""

from dataclasses import dataclass
from io import BytesIO

import numpy as np
import typer
from matplotlib.figure import Figure

import pacbayes_control as pbc
from pacbayes_control.report.console import say
from pacbayes_control.tasks import Scene, Task
from pacbayes_control.tasks.environments import first_environments
from pacbayes_control.tasks.options import option

app = typer.Typer()  # `pbc rover`


@dataclass(frozen=True)
class RoverOptions:
    """Each field is an option of `pbc learn rover`."""

    rock: float = option(0.4, "Radius of the rock, in m.")


@dataclass(frozen=True)
class Rover(Task):
    """A rock is drawn ahead; a policy is how far to swerve, and costs 1 where it hits the rock."""

    rock: float = 0.4  # m

    name = "rover"
    Options = RoverOptions
    parameters = 1
    policies = np.linspace(-1.5, 1.5, 7)[:, None]  # m to the right
    policy_names = tuple(f"swerve {metres:g} m" for metres in np.linspace(-1.5, 1.5, 7))
    policy_class = "swerve"
    cost_rule = "1 where the rover hits the rock, 0 otherwise"
    test_environments = 1000
    captions = {"rocks.png": ("Rocks ahead of the rover.", "Where the rocks of new fields lie.")}

    def environments(self, n, stream, seed=0):
        return first_environments(self.draw, f"rover rock={self.rock}", n, stream=stream, seed=seed)

    @staticmethod
    def draw(rng, n):
        return {"x": rng.normal(0.3, 0.4, n), "y": rng.uniform(3, 7, n)}

    def costs(self, policies, environments, *_):
        return np.abs(policies[..., 0] - environments.arrays()["x"][:, None]) < self.rock

    # ---- made from options, and again from the record of a run ----------------------------------

    @classmethod
    def from_options(cls, options):
        return cls(options.rock)

    @property
    def settings(self):
        return {"rock": self.rock}

    @classmethod
    def from_settings(cls, settings):
        if set(settings) != {"rock"} or type(settings["rock"]) is not float:
            raise ValueError("the record describes no rover")
        return cls(settings["rock"])

    # ---- replays and a picture, for `pbc report` ------------------------------------------------

    def scenes(self, environments):
        fields = environments.arrays()
        rocks = np.stack([fields["x"], fields["y"], np.full(len(environments), self.rock)], axis=1)
        return [Scene(rock[None], np.empty((0, 4)), 0.05, 0.1) for rock in rocks]

    def paths(self, policies, environments, noise=None):
        ahead = np.linspace(0, 10, 50)
        ways = [np.stack([np.full(50, float(swerve)), ahead], axis=1) for swerve in policies[:, 0]]
        return [ways for _ in range(len(environments))]

    def pictures(self, run, environments):
        fields, picture, figure = environments.arrays(), BytesIO(), Figure(figsize=(4, 3))
        figure.subplots().scatter(fields["x"], fields["y"])
        figure.savefig(picture, format="png")
        return {"rocks.png": picture.getvalue()}


@app.command()
def describe() -> None:
    """Say what the rover does."""
    say(Rover.__doc__)


@app.callback()
def rover() -> None:
    """Commands of the rover."""


def rover_table(folder, *, draws: int = 2):
    """The bound for several draws of 200 rocks."""
    task, bounds = Rover(), []
    for draw in range(draws):
        train = task.environments(200, stream=f"table {draw}")
        costs = pbc.evaluate(task, task.policies, train)
        bounds.append(pbc.learn_finite(costs).certificate.bound)
    (folder / "bounds.txt").write_text("\n".join(f"{bound:.4f}" for bound in bounds))
    say(f"{draws} draws: bounds {min(bounds):.4f} to {max(bounds):.4f}")
    return {"bounds": bounds}
