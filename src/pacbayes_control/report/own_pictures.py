"""The pictures that a run's folder holds, for its page. A stranger's run may hold anything."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass

LARGEST_PICTURE = 4 << 20  # bytes
MOST_PICTURES = 12


@dataclass(frozen=True)
class EmbeddedPicture:
    """A PNG picture as text within a page."""

    base64: str
    width: int  # pixels
    height: int
    description: str
    caption: str


def embedded_pictures(
    pictures: Mapping[str, bytes], captions: Mapping[str, tuple[str, str]]
) -> list[EmbeddedPicture]:
    """The pictures that have a caption, are PNG, and are not too large for a page.

    captions: for each file name, a description of the picture and its caption.
    """
    embedded = []
    for name, words in captions.items():
        content = pictures.get(name, b"")
        opening = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
        if not content.startswith(opening) or not 24 <= len(content) <= LARGEST_PICTURE:
            continue
        width, height = struct.unpack(">II", content[16:24])
        if 0 < width < 10_000 and 0 < height < 10_000:
            text = base64.b64encode(content).decode("ascii")
            embedded.append(EmbeddedPicture(text, width, height, *words))
    return embedded
