"""Frames of a rollout as a video: kept small for a page, or written as they come.

The same frames give the same bytes: one thread, and no date or version in the file.
"""

from __future__ import annotations

import math
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.study.one_rollout import Rollout
from pacbayes_control.tasks.task import Film, Scene, Watched

INSTALL = "pip install 'pacbayes-control[video]'"
SUFFIXES = (".mp4", ".gif")
PATH_WIDTH = 480  # pixels of a path that is drawn here
BITEXACT = ["-threads", "1", "-fflags", "+bitexact", "-flags:v", "+bitexact", "-map_metadata", "-1"]


def check_installed() -> None:
    """Raise ImportError, with the line to type, if videos cannot be written."""
    for package in ("imageio", "imageio_ffmpeg", "PIL"):
        if find_spec(package) is None:
            raise ImportError(f"videos need {package}: {INSTALL}")


class Reel:
    """A film of a bounded number of frames: of a long rollout, every second, fourth, … is kept.

    Args:
        most: frames
        widest: side of a frame in pixels, at most
        fps: at most
    """

    def __init__(self, most: int, widest: int, fps: float = math.inf) -> None:
        self.most, self.widest, self.most_fps = most, widest, fps
        self.frames: list[NDArray[np.uint8]] = []
        self.every, self.source = 1, 0.0  # frames per second of the rollout

    def take(self, frame: NDArray[np.uint8], fps: float) -> None:
        """Keep a frame; where there are too many, drop every second, and draw fewer from now on."""
        if not self.frames:
            self.source, self.every = fps, max(1, math.ceil(fps / self.most_fps))
        self.frames.append(smaller(frame, self.widest))
        if len(self.frames) > self.most:
            self.frames, self.every = self.frames[::2], 2 * self.every

    @property
    def fps(self) -> float:
        """At which it is played: that of the rollout, or faster if frames were dropped."""
        return min(self.source / max(1, math.ceil(self.source / self.most_fps)), self.most_fps)

    @property
    def speed(self) -> float:
        """How many times as fast as the rollout it is played."""
        return self.every * self.fps / self.source if self.source else 1.0

    def encoded(self, suffix: str, quality: int = 23) -> bytes:
        """The video as a file, .mp4 or .gif; empty if there were no frames."""
        if suffix == ".gif":
            return _gif(self.frames, self.fps)
        video = Video(quality)
        for frame in self.frames:
            video.take(frame, self.fps)
        return video.encoded()


class Video:
    """A film that is written as MP4 while its frames come, so that they need no memory.

    quality: x264's constant rate factor, lower for larger files.
    """

    widest = 1920  # pixels of a side: many players take no more

    every = 1

    def __init__(self, quality: int = 20) -> None:
        self.quality, self.frames = quality, 0
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name) / "video.mp4"
        self._writer: Any = None

    def take(self, frame: NDArray[np.uint8], fps: float) -> None:
        """Write a frame."""
        if self._writer is None:
            import imageio.v2

            rate = ["-crf", str(self.quality), *BITEXACT]
            self._writer = imageio.v2.get_writer(
                self._file,
                format="FFMPEG",  # type: ignore[arg-type]
                fps=fps,
                codec="libx264",
                pixelformat="yuv420p",
                quality=None,
                macro_block_size=1,
                ffmpeg_log_level="error",
                output_params=["-preset", "medium", "-movflags", "+faststart", *rate],
            )
        self._writer.append_data(np.ascontiguousarray(smaller(frame, self.widest)))
        self.frames += 1

    def encoded(self, _: str = ".mp4") -> bytes:
        """The video as a file, once all frames are taken; empty if there were none."""
        try:
            if self._writer is None:
                return b""
            self._writer.close()
            return self._file.read_bytes()
        finally:
            self._folder.cleanup()


def smaller(frame: NDArray[np.uint8], most: int) -> NDArray[np.uint8]:
    """A frame with sides of at most so many pixels, and even, as MP4 needs."""
    from PIL import Image

    high, wide = frame.shape[:2]
    scale = most / max(high, wide)
    if scale >= 1:
        return np.array(frame[: high - high % 2, : wide - wide % 2])
    size = max(2, 2 * round(scale * wide / 2)), max(2, 2 * round(scale * high / 2))
    return np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BOX))


def _gif(frames: list[NDArray[np.uint8]], fps: float) -> bytes:
    import imageio.v3

    if not frames:
        return b""
    milliseconds = max(20, round(1000 / fps))  # browsers take less for 100
    return imageio.v3.imwrite(
        "<bytes>", np.stack(frames), extension=".gif", duration=milliseconds, loop=0
    )


def play(reel: Reel, title: str) -> None:
    """Show frames in a window, until it is closed."""
    import matplotlib.pyplot as plt
    from matplotlib.animation import FuncAnimation
    from matplotlib.backends.registry import BackendFilter, backend_registry

    if plt.get_backend().lower() not in backend_registry.list_builtin(BackendFilter.INTERACTIVE):
        raise ValueError(
            f"Matplotlib cannot open a window (backend {plt.get_backend()}): use --video FILE"
        )
    figure = plt.figure(title)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_axis_off()
    image = axis.imshow(reel.frames[0])
    playing = FuncAnimation(
        figure, lambda frame: image.set_data(frame), reel.frames, interval=1000 / reel.fps
    )
    plt.show()
    del playing  # it must live as long as the window


# ---- robots in the plane ------------------------------------------------------------------------


def watch_filmed(one: Rollout, film: Film | None) -> Watched:
    """Watch a rollout; a task with `scenes` and `paths` is filmed by drawing them."""
    if film is None or one.task.scenes is None or one.task.paths is None:
        return one.watch(film)
    seen = one.watch()
    if {"x", "y"} <= seen.columns.keys():
        path = np.column_stack([seen.columns["x"], seen.columns["y"]])
        film_path(one.task.scenes(one.environments)[0], path, film)
    return seen


def film_path(scene: Scene, path: NDArray[np.float64], film: Film) -> None:
    """Draw a robot in the plane along its path, a frame for each point; shape (points, 2)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle, Rectangle

    from pacbayes_control.report.pictures import BLUE, DARK, GREY

    figure = Figure(figsize=(PATH_WIDTH / 100, PATH_WIDTH / 100), dpi=100, layout="constrained")
    canvas, axis = FigureCanvasAgg(figure), figure.add_subplot()
    for x, y, radius in scene.circles:
        axis.add_patch(Circle((x, y), radius, facecolor=GREY, edgecolor=DARK, lw=0.5))
    for left, right, bottom, top in scene.boxes:
        axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, color=DARK))
    [line] = axis.plot(*path[:1, :2].T, color=BLUE)
    robot = Circle((path[0, 0], path[0, 1]), scene.robot_radius, color=BLUE, zorder=4)
    axis.add_patch(robot)
    low, high = path[:, :2].min(axis=0), path[:, :2].max(axis=0)
    axis.update_datalim([low - scene.robot_radius, high + scene.robot_radius])
    axis.autoscale_view()
    axis.set(aspect="equal", xlabel="x (m)", ylabel="y (m)")
    for number in range(len(path)):
        if number % film.every and number < len(path) - 1:
            continue
        robot.set_center((path[number, 0], path[number, 1]))
        line.set_data(*path[: number + 1, :2].T)
        canvas.draw()
        figure.set_layout_engine("none")  # that of the first frame stays
        film.take(np.array(canvas.buffer_rgba())[:, :, :3], 1 / scene.time_step)
