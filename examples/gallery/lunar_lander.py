"""LunarLander in wind and turbulence that differ from landing to landing.

    pip install 'pacbayes-control[gallery,failures,video]'
    pbc check examples/gallery/lunar_lander.py:task
    pbc learn examples/gallery/lunar_lander.py:task --environments 300 --out runs/lunar_lander
    pbc failures runs/lunar_lander

The nine policies sink more or less fast, and lean more or less against a drift.
"""

import gymnasium as gym
import numpy as np

from pacbayes_control.tasks.gym import FunctionPolicy, GymTask


class Weather(gym.Wrapper):
    def reset(self, *, seed=None, options=None):
        vars(self.unwrapped).update(options)
        return self.env.reset(seed=seed)


def make():
    return Weather(gym.make("LunarLander-v3", enable_wind=True))


def weather(rng):
    return {"wind_power": rng.uniform(0, 15), "turbulence_power": rng.uniform(0, 1.5)}


def land(gains, seen):
    x, y, vx, vy, angle, spin, *legs = seen
    turn = 0 if any(legs) else np.clip(gains[1] * (x + 2 * vx), -0.4, 0.4) - angle - 2 * spin
    lift = -vy - (0 if any(legs) else gains[0] * max(y, 0.1))
    return 2 if lift > max(abs(turn) / 2, 0.02) else 1 if turn > 0.1 else 3 if turn < -0.1 else 0


def score_below_200(episode):  # what Gymnasium does not call a solution
    return float(episode.total_reward < 200)


pilot, low = FunctionPolicy(land, parameters=2), score_below_200
gains = np.array([[sink, lean] for sink in (0.3, 0.5, 0.7) for lean in (0.5, 1.3, 2)])
task = GymTask(make, pilot, low, weather, graded=False, name="lander", policies=gains)
