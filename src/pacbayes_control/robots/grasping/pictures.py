"""Pictures of grasping, as PNG: objects, chosen grasps, one grasp step by step, and failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from PIL import Image

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.report.pictures import DARK, GREEN, GREY
from pacbayes_control.robots.grasping import Arm, Camera, Grasping, Hand
from pacbayes_control.robots.grasping.camera import shaded
from pacbayes_control.robots.grasping.models import Floats, build, data_at
from pacbayes_control.robots.grasping.policy import jet
from pacbayes_control.robots.grasping.robots import Robot
from pacbayes_control.robots.grasping.simulator import ENDINGS, LIFTED, Playback, play
from pacbayes_control.tasks.environments import Arrays, Environments, generator

Box = tuple[int, int, int, int]  # left, top, width and height, in pixels of the sheet

DOTS = 100  # pixels in an inch
GAP, LINE = 8, 20  # pixels between pictures, and of a line of words
RED = "#d62728"
POLICIES = 4  # drawn from a posterior
OBJECTS = 40  # shown
FILMED = 8  # objects that are tried, for a film of one that is lifted
FAILED = 8  # grasps shown that failed
SEARCHED = 300  # objects that are searched for failures: a good policy has few

# For each phase its share of a film, and words for its begin, its course and its end.
FILM = {
    "approach": (1, "above the object", "coming down", "down"),
    "close": (2, "down", "closing", "closed"),
    "lift": (2, "closed", "lifting", "at the end"),
}


def contact_sheet(task: Grasping, environments: Environments, columns: int = 8) -> bytes:
    """Objects as they lie on the table."""
    arrays, size = environments.arrays(), (144, 144)
    sheet = PictureSheet(len(environments), columns, size)
    for row in range(len(environments)):
        model = build(task.tabletop.body(arrays, row))
        data = data_at(model, arrays["rest"][row])
        at = np.array([*arrays["centroid"][row], arrays["top"][row] / 3])
        image = shaded(model, data, at + np.array([0.05, -0.3, 0.25]), at, size, 0.34)
        sheet.panel(sheet.box(row), image)
    return sheet.png()


def views(task: Grasping, policies: NDArray, environments: Environments, columns: int = 6) -> bytes:
    """Images of heights with the grasps that policies choose; each object has the next policy."""
    n, size = len(environments), (192, 192)
    arrays, own = environments.arrays(), np.array([policies[[i % len(policies)]] for i in range(n)])
    endings = task.endings(own, environments)[:, 0]
    sheet = PictureSheet(n, columns, size, LINE)
    for row in range(n):
        words, colour = "lifted" if endings[row] == LIFTED else "not lifted", _colour(endings[row])
        axis = sheet.panel(sheet.box(row), title=words, colour=colour)
        _draw_view(axis, task, own[row, 0], arrays=arrays, row=row, colour=colour)
    return sheet.png()


def film(
    task: Grasping, robot: Robot, environments: Environments, *, policy: NDArray, frames: int = 6
) -> bytes:
    """One policy's grasp of the first object, from its beginning to its end."""
    playback, grasp = _played(task, robot, environments.arrays(), row=0, policy=policy)
    moments = _moments(playback, frames)
    titles = [fill(f"{playback.seconds(m):.2f} s: {words}", 38) for m, words in moments]
    columns, size, lines = 3, (264, 208), LINE * max(text.count("\n") + 1 for text in titles)
    rows = -(-len(moments) // columns)
    beside = _overview(playback, (392, rows * (size[1] + lines + GAP) - lines - GAP))
    left = 0 if beside is None else beside.shape[1] + GAP
    sheet = PictureSheet(len(moments), columns, size, lines, left)
    if beside is not None:
        box = GAP, GAP + lines, beside.shape[1], beside.shape[0]
        sheet.panel(box, beside, "the whole robot, with its hand down")
    for number, (moment, _) in enumerate(moments):
        image, last = _close_up(playback, moment, grasp, size), moment == len(playback.states) - 1
        colour = _colour(playback.ending) if last else DARK
        sheet.panel(sheet.box(number), image, titles[number], colour)
    return sheet.png()


def failures(task: Grasping, policies: NDArray, environments: Environments) -> bytes:
    """Grasps that failed, some of every kind, each at its end and with the image of the object."""
    endings, arrays = task.endings(policies, environments), environments.arrays()
    chosen = _of_every_kind(endings, FAILED)
    sheet = PictureSheet(len(chosen), 4, (284, 212), 2 * LINE, above=LINE)
    failed = f"{int((endings != LIFTED).sum())} of {endings.size} grasps failed"
    by = "one policy" if len(policies) == 1 else f"each of {len(policies)} policies"
    whole = f"{failed}: {len(environments)} objects, by {by}"
    wide, tall = sheet.figure.get_size_inches() * DOTS
    sheet.figure.text(GAP / wide, 1 - (GAP + 2) / tall, whole, fontsize=9, color=DARK, va="top")
    for number, (row, column) in enumerate(chosen):
        policy = policies[column]
        playback, grasp = _played(task, task.robot, arrays, row=row, policy=policy)
        image = _close_up(playback, len(playback.states) - 1, grasp, sheet.size)
        left, top, width, _ = box = sheet.box(number)
        text = f"object {environments.start + row}: {ENDINGS[playback.ending]}"
        sheet.panel(box, image, fill(text, 42))
        inset = sheet.panel((left + width - 86, top + 6, 80, 80))
        _draw_view(inset, task, policy, arrays=arrays, row=row, colour=RED)
    return sheet.png()


def attachments(task: Grasping, run: Run[Any], environments: Environments) -> dict[str, bytes]:
    """The pictures of a run, of policies that are drawn for them alone; the film is of the arm."""
    policies, few, arm = _drawn(run), environments[:OBJECTS], Arm(task.robot.hand)
    filmed = _worth_a_film(task, arm, few[:FILMED], policies[0])
    return {
        "objects.png": contact_sheet(task, few),
        "views.png": views(task, policies, few[:12]),
        "film.png": film(task, arm, few[filmed : filmed + 1], policy=policies[0]),
        "failures.png": failures(task, policies[:1], environments[:SEARCHED]),
    }


def _drawn(run: Run[Any]) -> NDArray:
    """A few of the policies that a run certifies."""
    rng, single = generator(0, "pictures", of="policies"), run.certificate.policy
    if single is None and isinstance(run.posterior, DiagonalGaussian):
        return run.posterior.sample(rng, POLICIES)
    parameters = run.costs.parameters
    if parameters is None:
        raise ValueError("the run holds no policies to draw from: give one that was learnt here")
    return parameters[run.posterior.sample(rng, POLICIES) if single is None else [single]]


# ---- grasps -------------------------------------------------------------------------------------


def _played(
    task: Grasping, robot: Robot, arrays: Arrays, *, row: int, policy: NDArray
) -> tuple[Playback, Floats]:
    """A policy's grasp of the object in a row: its playback, and the grasp, (3,)."""
    grasp = task.grasps(policy[None], arrays["heights"][row], arrays["centroid"][row])[0]
    return play(robot, *task.tabletop.at_rest(arrays, row), grasp), grasp


def _worth_a_film(task: Grasping, robot: Robot, environments: Environments, policy: NDArray) -> int:
    """The row of the object that is lifted and looks largest; the first if none is lifted."""
    endings = replace(task, robot=robot).endings(policy[None], environments)[:, 0]
    sizes = environments.arrays()["mask"].sum(axis=(1, 2))
    return int(np.argmax(np.where(endings == LIFTED, sizes, 0)))


def _of_every_kind(endings: NDArray, count: int) -> list[tuple[int, int]]:
    """Failed grasps as rows and columns: of many objects, and of every ending in turn."""
    ranked, objects, kinds = [], Counter(), Counter()
    for column, row in np.argwhere(endings.T != LIFTED).tolist():
        ending = int(endings[row, column])
        objects[row] += 1
        kinds[ending, objects[row]] += 1
        ranked.append((objects[row], kinds[ending, objects[row]], ending, row, column))
    return [(row, column) for *_, row, column in sorted(ranked)[:count]]


def _moments(playback: Playback, frames: int) -> list[tuple[int, str]]:
    """Moments of a film, each with words; a phase without motion is left out."""
    moving = [part for part in playback.phases if part[2] - part[1] > 1] or playback.phases
    ends = np.cumsum([0] + [FILM[phase][0] for phase, _, _ in moving])
    found = {}
    for place in np.linspace(0, ends[-1], frames):
        number = max(0, int(np.searchsorted(ends, place)) - 1)
        phase, first, last = moving[number]
        share = (place - ends[number]) / FILM[phase][0]
        words = FILM[phase][1 if share == 0 else 3 if share == 1 else 2]
        found[first + round(share * (last - first))] = words
    found[len(playback.states) - 1] = ENDINGS[playback.ending]
    return list(found.items())


def _close_up(
    playback: Playback, moment: int, grasp: Floats, size: tuple[int, int]
) -> NDArray[np.uint8]:
    """A picture of the hand from the side, with both fingers in sight."""
    x, y, angle = grasp
    across = np.array([-np.sin(angle), np.cos(angle)])
    across = across if across @ [0.4, -1] > 0 else -across
    turned = np.array([[0.92, 0.39], [-0.39, 0.92]]) @ across  # a little to the side
    aside = 0.012 * np.array([-turned[1], turned[0]])  # leaves room at the right
    target = np.array([x + aside[0], y + aside[1], 0.07])
    eye = target + np.array([*(0.43 * turned), 0.21])
    data = playback.at(moment)
    return shaded(playback.model, data, playback.place(eye), playback.place(target), size, 0.43)


def _overview(playback: Playback, size: tuple[int, int]) -> NDArray[np.uint8] | None:
    """A picture of the whole robot when it has come down; None if it is only a hand."""
    data = playback.at(playback.phases[0][2])
    places = data.geom_xpos[1:]  # without the table
    low, high = places.min(axis=0), places.max(axis=0)
    span = float((high - low).max())
    if span < 0.4:
        return None
    target = (low + high) / 2
    eye = target + span * np.array([1.55, -1.6, 0.75])
    return shaded(playback.model, data, eye, target, size, 0.55)


# ---- images of heights --------------------------------------------------------------------------


def _draw_view(
    axis: Axes, task: Grasping, policy: NDArray, *, arrays: Arrays, row: int, colour: str
) -> None:
    """Draw the heights of the object in a row, and a policy's grasp of it."""
    camera, heights = task.tabletop.camera, arrays["heights"][row]
    corner = image_corner(camera, heights, arrays["mask"][row], arrays["centroid"][row])
    end = corner + camera.crop * camera.pixel
    colours = np.moveaxis(jet(heights), 0, -1)
    axis.imshow(colours, origin="lower", extent=(corner[0], end[0], corner[1], end[1]))
    grasp = task.grasps(policy[None], heights, arrays["centroid"][row])[0]
    hand = task.robot.hand
    tip = float(hand.tip_height(arrays["top"][row]))
    fingers, line = outlines(grasp, hand)
    scale = camera.height / (camera.height - tip)  # the fingers are nearer than the table
    for finger in fingers:
        axis.add_patch(Polygon(scale * finger, closed=True, fc=colour, ec="white", lw=1.2))
    (line,) = axis.plot(*(scale * line).T, color=colour, lw=1.8, solid_capstyle="butt")
    line.set_path_effects([withStroke(linewidth=3.6, foreground="white")])
    axis.set_xlim(corner[0], end[0])
    axis.set_ylim(corner[1], end[1])


def image_corner(camera: Camera, heights: NDArray, mask: NDArray, centroid: NDArray) -> Floats:
    """The place on the table of the first corner of an image of heights, (2,) in m.

    The image is centred on a pixel that is not recorded, but the centroid is: the mean of the
    points that are seen, each nearer to the middle than its pixel by its height as a share of the
    camera's height.
    """
    rows, columns = np.nonzero(mask)
    nearer = 1 - heights[rows, columns].astype(float) / camera.height
    pixels = np.stack([columns, rows], axis=1) + 0.5
    corner = (centroid - (camera.pixel * pixels * nearer[:, None]).mean(axis=0)) / nearer.mean()
    return np.round((corner + camera.reach) / camera.pixel) * camera.pixel - camera.reach


def outlines(grasp: Floats, hand: Hand) -> tuple[list[Floats], Floats]:
    """The corners of both open fingers from above, (4, 2) in m, and the line between, (2, 2).

    >>> _, line = outlines(np.array([0.01, 0.0, 0.0]), Hand())
    >>> line.round(3)
    array([[-0.025,  0.   ],
           [ 0.045,  0.   ]])
    """
    x, y, angle = grasp
    along = np.array([np.cos(angle), np.sin(angle)])
    across = np.array([-along[1], along[0]])
    inner, outer, half = hand.opening / 2, hand.opening / 2 + hand.thickness, hand.width / 2
    at = np.array([x, y])
    corners = np.array([(inner, -half), (outer, -half), (outer, half), (inner, half)])
    fingers = [at + side * (corners @ [along, across]) for side in (-1, 1)]
    return fingers, np.array([at - inner * along, at + inner * along])


def _colour(ending: int) -> str:
    return GREEN if ending == LIFTED else RED


# ---- sheets -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PictureSheet:
    """Rows of pictures of one size, with room for words; lengths in pixels."""

    count: int  # pictures
    columns: int
    size: tuple[int, int]  # width and height of a picture
    words: int = 0  # height of the words over each picture
    left: int = 0  # of all pictures
    above: int = 0  # all pictures

    @cached_property
    def figure(self) -> Figure:
        """The whole sheet."""
        rows = -(-self.count // self.columns)
        width = self.left + GAP + self.columns * (self.size[0] + GAP)
        height = self.above + GAP + rows * (self.size[1] + self.words + GAP)
        return Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS)

    def box(self, number: int) -> Box:
        """The place of a picture."""
        row, column = divmod(number, self.columns)
        top = self.above + GAP + row * (self.size[1] + self.words + GAP) + self.words
        return self.left + GAP + column * (self.size[0] + GAP), top, *self.size

    def panel(
        self, box: Box, image: NDArray[np.uint8] | None = None, title: str = "", colour: str = DARK
    ) -> Axes:
        """Axes at a place of the sheet, with an image pixel by pixel, and words over it."""
        (left, top, width, height), (whole, tall) = box, self.figure.get_size_inches() * DOTS
        place = (left / whole, 1 - (top + height) / tall, width / whole, height / tall)
        axis = self.figure.add_axes(place, xticks=[], yticks=[])
        axis.set_title(title, fontsize=9, color=colour, pad=4)
        for spine in axis.spines.values():
            spine.set_color(GREY)
            spine.set_linewidth(0.6)
        if image is not None:
            axis.imshow(image, aspect="auto", interpolation="none")
        return axis

    def png(self) -> bytes:
        """A small file; the same picture gives the same bytes."""
        canvas = FigureCanvasAgg(self.figure)
        canvas.draw()
        whole = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())
        stream = BytesIO()
        whole.save(stream, "png", optimize=True)
        return stream.getvalue()
