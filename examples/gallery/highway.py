"""highway-env: 20 seconds without a crash, in traffic that is denser on some roads.

    pip install 'pacbayes-control[gallery,failures,video]'
    pbc check examples/gallery/highway.py:task
    pbc learn examples/gallery/highway.py:task --environments 300 --out runs/highway
    pbc failures runs/highway

The four policies keep more or less room to the car ahead, and change the lane or brake to have it.
"""

import gymnasium as gym
import numpy as np

from pacbayes_control.tasks.gym import FromInfo, FunctionPolicy, GymTask


class Traffic(gym.Wrapper):
    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed, options={"config": {"duration": 20, **options}})


def make():
    return Traffic(gym.make("highway_env:highway-fast-v0"))


def traffic(rng):
    return {"vehicles_density": rng.uniform(0.5, 2)}


def drive(least, seen):
    x, y, speed = seen[1:][seen[1:, 0] > 0, 1:4].T  # of other cars, as seen from this one
    room = []  # where each car will be soon: to the left, ahead, to the right
    for side in (-1, 0, 1):
        there = (np.abs(y - side / 3) < 0.2) & (x > -0.1 * abs(side))
        road = -0.1 < seen[0, 2] + side / 3 < 0.8
        room.append(np.min((x + speed)[there], initial=1) if road else -1)
    return 3 if room[1] > least else (0, 4, 2)[np.argmax(room)]


crash, car = FromInfo("crashed", worst=1, best=0), FunctionPolicy(drive, parameters=1)
rooms = np.array([[0.1], [0.2], [0.3], [0.4]])
task = GymTask(make, car, crash, traffic, graded=False, name="highway", policies=rooms)
