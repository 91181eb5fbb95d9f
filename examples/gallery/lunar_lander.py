"""LunarLander in wind and turbulence that differ from landing to landing."""

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


def land(gains, seen):  # gains: how fast to sink for the height, and how far to lean
    x, y, vx, vy, angle, spin, *legs = seen
    turn = 0 if any(legs) else np.clip(gains[1] * (x + 2 * vx), -0.4, 0.4) - angle - 2 * spin
    lift = -vy - (0 if any(legs) else gains[0] * max(y, 0.1))
    return 2 if lift > max(abs(turn) / 2, 0.02) else 1 if turn > 0.1 else 3 if turn < -0.1 else 0


def unsolved(episode):  # by the score that Gymnasium calls a solution
    return float(episode.total_reward < 200)


pilot = FunctionPolicy(land, parameters=2)
gains = np.array([[sink, lean] for sink in (0.3, 0.4, 0.5) for lean in (0.5, 0.9, 1.3)])
task = GymTask(make, pilot, unsolved, weather, graded=False, name="lander", policies=gains)
