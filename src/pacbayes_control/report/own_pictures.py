"""The pictures that a run's folder holds, for its page. A stranger's run may hold anything."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping

from pacbayes_control.report.markup import escape

LARGEST_PICTURE = 4 << 20  # bytes
MOST_PICTURES = 12


def section(pictures: Mapping[str, bytes], captions: Mapping[str, tuple[str, str]]) -> str:
    """Those that have a caption and are PNG, as HTML; nothing where there are none."""
    figures = []
    for name, (description, caption) in captions.items():
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
