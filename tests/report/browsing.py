"""A page without a replay in a browser: how it looks on every screen, and what it asks for."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import sync_playwright

from pages import CONTRAST

LONG = 120_000  # ms: a machine may be busy
LETTERS = "p, dt, dd, li, th, td, h2, summary, a:not(.skip), svg text"


@dataclass(frozen=True)
class Seen:
    """What a browser has seen of a page."""

    complaints: list[str]  # of its console, and addresses that it asked for
    overflowing: list[int]  # widths of a screen at which it has to be moved sideways
    contrast: float  # the least of letters, on light and dark screens
    headings: list[str]


def browse(file: Path) -> Seen:
    """Open a page on light and dark screens, from a telephone's to a desk's."""
    chromium = shutil.which("chromium")
    assert chromium, "there is no Chromium: install it (apt-get install chromium)"
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"], timeout=LONG
        )
        page = browser.new_context(offline=True).new_page()
        page.set_default_timeout(LONG)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: complaints.append(request.url))
        page.goto(file.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        overflowing, contrasts = [], []
        for width in (320, 360, 768, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            if page.evaluate("document.documentElement.scrollWidth") > width:
                overflowing.append(width)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            contrasts += page.locator(LETTERS).evaluate_all(CONTRAST)
        headings = page.locator("h2").all_inner_texts()
        browser.close()
    asked = [one for one in complaints if one not in (file.as_uri(), "data:,")]
    return Seen(asked, overflowing, min(contrasts), headings)
