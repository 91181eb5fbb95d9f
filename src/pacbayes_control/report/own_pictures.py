"""The pictures that a run's folder holds, for its page. A stranger's run may hold anything."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping

from pacbayes_control.report.markup import escape

# What is shown of the files that a run may hold: a description, and what to look at.
PICTURES = {
    "flights.png": (
        "Flights in a net, each from above, with its cylinders and its path.",
        "Flights through the flight loop, as the tracker saw them: blue where the drone landed "
        "without a contact, orange where it did not. The drone is simulated, and differs from its "
        "model.",
    ),
    "objects.png": (
        "A grid of objects on a table.",
        "Objects as they came to rest on the table, whose squares are 5 cm wide.",
    ),
    "views.png": (
        "Images of heights, each with a hand's two open fingers and the line between them.",
        "What policies see, from blue on the table to red at 10 cm, and the grasps they chose: "
        "both fingers to scale, green where the object was lifted and red where it was not.",
    ),
    "film.png": (
        "A robot's hand above an object, around it, and at the end of the grasp.",
        "One grasp by the arm, from its beginning to its end: of a few objects, the largest that "
        "was lifted.",
    ),
    "failures.png": (
        "Grasps that failed, each with the image that it was chosen by.",
        "Failures: the moment when each was decided, and in the corner what the policy saw.",
    ),
}
LARGEST_PICTURE = 4 << 20  # bytes


def section(pictures: Mapping[str, bytes]) -> str:
    """Those that are known and PNG, as HTML; nothing where there are none."""
    figures = []
    for name, (description, caption) in PICTURES.items():
        size = _png_size(pictures.get(name, b""))
        if size is None:
            continue
        data = base64.b64encode(pictures[name]).decode("ascii")
        figures.append(
            f'<figure class="picture"><img src="data:image/png;base64,{data}" '
            f'alt="{escape(description)}" width="{size[0]}" height="{size[1]}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )
    words = "<p>Made with the run. They illustrate the promise, which does not rest on them.</p>"
    return "\n".join([words, *figures]) if figures else ""


def _png_size(content: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG; None for anything else, or what is too large for a page."""
    opening = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    if not content.startswith(opening) or not 24 <= len(content) <= LARGEST_PICTURE:
        return None
    width, height = struct.unpack(">II", content[16:24])
    return (width, height) if 0 < width < 10_000 and 0 < height < 10_000 else None
