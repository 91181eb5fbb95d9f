"""Videos of failures and successes: few, small, the same each time, and none that are not true."""

from __future__ import annotations

import base64
import re
import subprocess
from dataclasses import replace
from typing import Any

import imageio.v3 as imageio
import imageio_ffmpeg
import numpy as np
import pytest

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.learn import learn_finite
from pacbayes_control.report import clips as made
from pacbayes_control.report import videos
from pacbayes_control.report.page import embedded_pictures
from pacbayes_control.report.videos import Reel, Video, smaller
from pacbayes_control.rollouts import evaluate
from pacbayes_control.study.one_rollout import DRAWN, LIKELIEST, certified_column
from pacbayes_control.tasks import FunctionTask
from pacbayes_control.tasks.gym import Episode, FunctionPolicy, GymTask
from pages import words


def frames_in(video: bytes, height: int, width: int) -> Any:
    """The frames of an MP4 file, (frames, height, width, 3)."""
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    command = [ffmpeg, "-v", "error", "-i", "-", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, input=video, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def light(rng: np.random.Generator) -> dict[str, Any]:
    return {"light": round(float(rng.random()), 6), "<b>": 1}


def brightness(episode: Episode) -> float:
    return float(episode.info["cost"])


def lamp_env(render_mode: str | None = None, size: tuple[int, int] = (41, 61)) -> Any:
    """Cost 1 where the light is above the policy's; frames are as bright as the light."""
    import gymnasium as gym

    class LampEnv(gym.Env):
        metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
        observation_space = gym.spaces.Box(0, 1, (1,), np.float64)
        action_space = gym.spaces.Box(-9, 9, (1,), np.float64)

        def __init__(self) -> None:
            self.render_mode = render_mode

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.light, self.steps = options["light"], 0
            return np.array([self.light]), {}

        def step(self, action: Any) -> Any:
            self.steps += 1
            cost = float(action[0] < self.light)
            return np.array([self.light]), 0.0, self.steps == 7, False, {"cost": cost}

        def render(self) -> Any:
            return np.full((*size, 3), int(255 * self.light), np.uint8)

    return LampEnv()


def lamp(**changes: Any) -> GymTask:
    policy = FunctionPolicy(lambda row, _: row, parameters=1)
    known = {"policies": np.array([[0.1], [0.8]]), "name": "lamp"} | changes
    return GymTask(known.pop("make", lamp_env), policy, brightness, light, **known)


TASK = lamp()
TRAIN = TASK.environments(40, stream="train")
RUN = learn_finite(evaluate(TASK, TASK.policies, TRAIN), method="occam")
LIGHTS = TRAIN.arrays()["light"]


def test_the_hardest_and_the_easiest_are_shown_with_their_environments():
    shown = made.clips(TASK, RUN, TRAIN)
    costs = RUN.costs.values[:, 1]
    assert [clip.environment for clip in shown] == made.chosen_rows(costs)
    assert [clip.cost for clip in shown] == [1, 1, 0, 0]
    for clip in shown:
        assert (clip.height, clip.width) == (40, 60)
        video = frames_in(clip.content, clip.height, clip.width)
        assert len(video) == 5  # of 8 at 30 a second, every second one and the last
        assert abs(video.mean() - 255 * LIGHTS[clip.environment]) < 6
        assert f"light {LIGHTS[clip.environment]:.4g}" in clip.caption
        assert clip.differs == ""


def test_all_costs_alike_make_no_clip_twice():
    assert made.chosen_rows(np.zeros(40)) == [0, 1]
    assert made.chosen_rows(np.array([1])) == [0]


def test_a_slow_simulator_has_one_clip(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(made, "LONGEST", 0.0)
    assert len(made.clips(TASK, RUN, TRAIN)) == 1


def test_rollouts_that_timed_out_are_not_filmed():
    first, second = np.flatnonzero(RUN.costs.values[:, 1])[:2].tolist()
    told = {"rollout_timeout": 9.0, "timed_out": [[first, 1]], "incidents": {"timeouts": 1}}
    costs = replace(RUN.costs, origin={**RUN.costs.origin, **told})
    shown = made.clips(TASK, learn_finite(costs, method="occam"), TRAIN)
    assert shown[0].environment == second
    assert made.chosen_rows(np.array([1, 1, 0, 0.5]), {0, 2}) == [1, 3]


def test_a_rollout_that_raises_now_says_so_in_the_caption():
    def broken(episode: Episode) -> float:
        raise RuntimeError(f"a bug after {episode}")

    shown = made.clips(replace(TASK, cost=broken), RUN, TRAIN)
    assert shown[0].caption.startswith(
        f"Environment {shown[0].environment}: cost 1 as recorded, an error now."
    )


def test_pictures_that_do_not_fit_beside_rollouts_are_left_out():
    picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1" + bytes(7_000)
    captions = {name: (name, "to look at") for name in ("a.png", "b.png", "c.png")}
    embedded = embedded_pictures(dict.fromkeys(captions, picture), captions, 20_000)
    assert [row[3] for row in embedded] == ["a.png", "b.png"]


def test_clips_that_do_not_fit_are_left_out():
    assert made.clips(TASK, RUN, TRAIN, most_bytes=100) == []


def test_a_page_shows_them_and_is_the_same_each_time(page: Any):
    text = page(RUN, task=TASK, environments=TRAIN)
    assert text == page(RUN, task=TASK, environments=TRAIN)
    assert "media-src data:" in text
    found = re.findall(r'<video controls muted loop [^>]*src="data:video/mp4;base64,([^"]*)"', text)
    assert len(found) == 4
    assert all(b"ftyp" in base64.b64decode(one)[:12] for one in found)
    assert "&lt;b&gt;" in text
    assert "Failures and successes" in words(text)
    assert "cannot show itself" not in words(text)


def test_costs_that_are_not_recorded_are_told_in_the_caption():
    values = 1 - RUN.costs.values
    costs = type(RUN.costs)(
        values, origin=RUN.costs.origin, parameters=TASK.policies, described=RUN.costs.described
    )
    shown = made.clips(TASK, learn_finite(costs, method="occam"), TRAIN)
    assert all(clip.differs == f"{1 - clip.cost:g}" for clip in shown)
    assert "as recorded, " in shown[0].caption


def test_what_a_posterior_shows_is_called_an_illustration(page: Any):
    mixed = learn_finite(evaluate(TASK, np.array([[0.8], [0.8]]), TRAIN), method="kl")
    assert certified_column(mixed) == (0, LIKELIEST)
    assert LIKELIEST in words(page(mixed, task=TASK, environments=TRAIN))
    gaussian = RUN.__class__(
        mixed.certificate,
        mixed.costs,
        *[DiagonalGaussian([0.0], 1.0)] * 2,  # type: ignore[arg-type]
    )
    assert certified_column(gaussian) == (0, DRAWN)


@pytest.mark.parametrize("missing", [False, True])
def test_a_page_without_videos_says_why_in_a_line(
    missing: bool, page: Any, monkeypatch: pytest.MonkeyPatch
):
    task: Any = TASK
    if missing:
        monkeypatch.setattr(videos, "find_spec", lambda _: None)
    else:
        task = FunctionTask(lambda policy, env: float(env["x"] > policy[0]), draw_x, "plain")
    train = task.environments(40, stream="train")
    run = learn_finite(evaluate(task, np.array([[0.5]]), train))
    text = page(run, task=task, environments=train)
    assert "<video" not in text
    told = "pip install 'pacbayes-control[video]'" if missing else "plain cannot be filmed"
    assert told in words(text)


def draw_x(rng: np.random.Generator) -> dict[str, float]:
    return {"x": rng.random()}


def test_an_environment_that_raises_where_it_is_drawn_costs_a_line_and_not_the_page(page: Any):
    def make(render_mode: str | None = None) -> Any:
        env = lamp_env(render_mode)
        if render_mode:
            raise RuntimeError("no graphics\x1b[2K")
        return env

    text = words(page(RUN, task=lamp(make=make), environments=TRAIN))
    assert "no graphics\\x1b[2K" in text


# ---- films --------------------------------------------------------------------------------------


def frame(number: int) -> Any:
    return np.full((30, 50, 3), number % 250, np.uint8)


def test_a_long_rollout_is_played_faster_in_a_bounded_number_of_frames():
    reel, taken = Reel(most=20, widest=32, fps=15), 0
    for number in range(400):
        if number % reel.every == 0:
            reel.take(frame(number), 30.0)
            taken += 1
    assert len(reel.frames) <= 20
    assert taken < 70  # the others need not be drawn
    assert reel.frames[0].shape == (20, 32, 3)
    kept = [int(one[0, 0, 0]) for one in reel.frames]
    assert kept == [number % 250 for number in range(0, 400, reel.every)][: len(kept)]
    assert reel.fps == 15
    assert reel.speed == reel.every / 2


def test_the_same_frames_give_the_same_bytes_in_both_formats():
    def written(suffix: str) -> tuple[bytes, bytes]:
        reel, video = Reel(20, 50), Video()
        for number in range(12):
            reel.take(frame(20 * number), 10.0)
            video.take(frame(20 * number), 10.0)
        return reel.encoded(suffix), video.encoded()

    for suffix in (".gif", ".mp4"):
        assert written(suffix) == written(suffix)
    assert len(imageio.imread(written(".gif")[0], extension=".gif", index=...)) == 12
    assert Reel(20, 50).encoded(".gif") == Video().encoded() == b""


def test_sides_are_even_and_nothing_is_enlarged():
    assert smaller(np.zeros((401, 601, 3), np.uint8), 320).shape == (214, 320, 3)
    assert smaller(np.zeros((41, 61, 3), np.uint8), 320).shape[:2] == (40, 60)
    assert smaller(np.zeros((3000, 4, 3), np.uint8), 320).shape[:2] == (320, 2)


def test_a_vast_frame_is_written_at_a_size_that_players_take():
    video = Video()
    video.take(np.zeros((1080, 3841, 3), np.uint8), 10.0)
    assert frames_in(video.encoded(), 540, 1920).shape == (1, 540, 1920, 3)
