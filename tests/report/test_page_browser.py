"""The page in a browser: what its controls do, how it looks, and that it asks for nothing.

A browser that is missing fails these tests: a page that nobody has opened is not tested.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, sync_playwright
from scipy.ndimage import binary_erosion

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import learn_finite
from pacbayes_control.report.page import write_page
from pacbayes_control.report.pictures import BLUE, GREY, ORANGE
from pacbayes_control.robots import Vehicle
from pacbayes_control.rollouts import evaluate
from pages import CONTRAST
from sizes import sized

pytestmark = pytest.mark.slow

ATTACK = "</script><img src=x onerror=alert(1)>"
ENVIRONMENTS, POLICIES = 60, 13
DISAGREES = (9, 6)  # environment and policy
LONG = 120_000  # ms: a machine may be busy
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def run() -> Run[Any]:
    """Every fourth of the paper's policies in 60 environments.

    The likeliest has a name that is an attack, and one cost is not that of its rollout: as where
    single and double precision disagree.
    """
    task = Vehicle()
    train = task.environments(ENVIRONMENTS, stream="train")
    names = task.policy_names[::4]
    costs = evaluate(task, task.policies[::4], train, names)
    names[int(learn_finite(costs, method="kl").posterior.probabilities.argmax())] = ATTACK
    values = costs.values.copy()
    values[DISAGREES] ^= 1
    sites = [f"field {i}" for i in range(ENVIRONMENTS)]
    return learn_finite(
        Costs(values, names, costs.origin, parameters=costs.parameters, sites=sites), method="kl"
    )


@pytest.fixture(scope="module")
def file(run: Run[Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_page(run, path, name="vehicle")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "there is no Chromium: install it (apt-get install chromium)"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"], timeout=LONG
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def complaints() -> list[str]:
    """What a page complained about, and what it asked for from elsewhere."""
    return []


@pytest.fixture(scope="module")
def window(browser: Browser, complaints: list[str]) -> Page:
    """The one window of these tests, whose clock goes on only if it is told to."""
    page = browser.new_page()
    page.set_default_timeout(LONG)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda request: complaints.append(request.url))
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    return page


@pytest.fixture
def visit(window: Page, file: Path, complaints: list[str]) -> Iterator[Open]:
    """Open a page anew; at the end, it must have complained about nothing and asked for nothing."""
    before, allowed = len(complaints), ["data:,", "about:blank"]

    def visit(link: str = "", path: Path = file, scheme: Any = "light") -> Page:
        window.set_viewport_size({"width": 1280, "height": 800})
        window.emulate_media(media="screen", color_scheme=scheme, reduced_motion="no-preference")
        allowed.append(path.as_uri())
        window.goto("about:blank")
        window.goto(path.as_uri() + link)
        window.wait_for_selector("#player[data-ready]")
        return window

    yield visit
    assert [one for one in complaints[before:] if not one.startswith(tuple(allowed))] == []


@pytest.fixture
def page(visit: Open) -> Page:
    return visit()


def state(page: Page) -> tuple[int, int]:
    """Environment and policy, by position in the page's lists."""
    return int(page.input_value("#environment")), int(page.input_value("#policy"))


def step(page: Page) -> int:
    return int(page.inner_text("#step").split(" of ")[0])


def last_step(page: Page) -> int:
    return int(page.inner_text("#step").split(" of ")[1])


def scrub(page: Page, to: int) -> None:
    page.locator("#scrub").fill(str(to))


def wait(page: Page, condition: Callable[[], bool]) -> None:
    """Until something is so; the page's own policy forbids to have it evaluate a condition."""
    for _ in range(LONG // 25):
        if condition():
            return
        page.wait_for_timeout(25)
    raise AssertionError("it did not come about within two minutes")


def pixels(page: Page) -> NDArray[np.float64]:
    """The canvas as it is shown; (height, width, 3) from 0 to 255."""
    return imread(BytesIO(page.locator("#canvas").screenshot()))[..., :3] * 255.0


def of_colour(image: NDArray, colour: str) -> NDArray:
    """Where a picture has a colour; (pixels, 2) as row, column."""
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return np.argwhere(np.abs(image - wanted).max(axis=-1) < 3)


def order(run: Run[Any]) -> NDArray:
    return np.lexsort((run.costs.means, -run.posterior.probabilities))


# ---- playing ------------------------------------------------------------------------------------


def test_it_opens_on_the_likeliest_policy_at_the_start(page: Page):
    assert state(page) == (0, 0)
    assert (step(page), page.inner_text("#time")) == (0, "0.00 s")
    assert (page.inner_text("#x"), page.inner_text("#y")) == ("0.00 m", "1.00 m")
    assert page.locator("#policy option").count() == POLICIES
    assert page.locator("#environment option").count() == ENVIRONMENTS


def test_steps_go_forward_and_back(page: Page):
    for _ in range(3):
        page.click("#forward")
    assert (step(page), page.inner_text("#time")) == (3, "0.15 s")
    page.click("#back")
    assert (step(page), page.input_value("#scrub")) == (2, "2")
    for _ in range(4):
        page.click("#back")
    assert step(page) == 0  # and no further


def test_the_slider_goes_to_a_time(page: Page):
    scrub(page, 17)
    assert step(page) == 17
    assert page.get_attribute("#scrub", "aria-valuetext") == "0.85 s"
    page.locator("#scrub").press("ArrowRight")
    assert step(page) == 18


def test_play_moves_time_until_it_is_paused(page: Page):
    page.click("#play")
    assert page.inner_text("#play") == "Pause"
    page.clock.run_for(300)
    assert 5 <= step(page) <= 6  # of 0.05 s each
    page.click("#play")
    assert page.inner_text("#play") == "Play"
    paused = step(page)
    page.clock.run_for(300)
    assert step(page) == paused


def test_play_ends_at_the_end_and_begins_again(page: Page):
    page.select_option("#speed", "4")
    scrub(page, last_step(page) - 4)
    page.click("#play")
    page.clock.run_for(30)
    assert page.inner_text("#play") == "Pause"
    page.clock.run_for(50)  # at four times the speed
    assert page.inner_text("#play") == "Play"
    assert step(page) == last_step(page)
    page.click("#play")
    assert page.inner_text("#play") == "Pause"
    assert step(page) == 0


# ---- choosing -----------------------------------------------------------------------------------


def test_the_path_is_the_one_that_python_has(page: Page, run: Run[Any]):
    task, parameters = Vehicle(), run.costs.parameters
    assert parameters is not None
    train = task.environments(ENVIRONMENTS, stream="train")
    for row, column in ((0, 0), (7, 3), (31, POLICIES - 1), (ENVIRONMENTS - 1, 0)):
        page.select_option("#policy", str(column))
        page.select_option("#environment", str(row))
        policy = order(run)[column]
        [[path]] = task.paths(parameters[policy : policy + 1], train[row : row + 1])
        assert last_step(page) == len(path) - 1
        for at in (1, len(path) // 2, len(path) - 1):
            scrub(page, at)
            shown = [float(page.inner_text(f"#{axis}").removesuffix(" m")) for axis in "xy"]
            assert shown == pytest.approx(path[at, :2], abs=0.02)
        assert page.inner_text("#cost") == str(run.costs.values[row, policy])
        assert f"Environment {row} “field {row}”," in page.inner_text("#description")


def test_failures_only_lists_failures_only(page: Page, run: Run[Any]):
    page.check("#only-failures")
    for column in (0, POLICIES - 1):
        page.select_option("#policy", str(column))
        values = page.locator("#environment option").evaluate_all("all => all.map(o => +o.value)")
        failed = np.flatnonzero(run.costs.values[:, order(run)[column]])
        assert values == failed.tolist()
        assert len(values) > 1
        for _ in range(2):
            page.click("#next")
            assert state(page)[0] in failed
            assert page.inner_text("#cost") == "1"
        page.click("#previous")
        assert state(page)[0] in failed
    for _ in range(3):
        page.click("#random")
        row, column = state(page)
        assert run.costs.values[row, order(run)[column]] == 1
    page.uncheck("#only-failures")
    assert page.locator("#environment option").count() == ENVIRONMENTS


def test_next_and_previous_go_around(page: Page):
    page.click("#previous")
    assert state(page) == (ENVIRONMENTS - 1, 0)
    page.click("#next")
    page.click("#next")
    assert state(page) == (1, 0)


def test_the_keyboard_does_the_same(page: Page):
    page.focus("#stage")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert step(page) == 3
    page.keyboard.press("n")
    page.keyboard.press("n")
    page.keyboard.press("p")
    assert state(page) == (1, 0)
    page.keyboard.press("Space")
    assert page.inner_text("#play") == "Pause"
    page.keyboard.press("Space")
    assert page.inner_text("#play") == "Play"
    page.keyboard.press("f")
    assert page.is_checked("#only-failures")
    page.focus("#play")
    page.keyboard.press("Space")  # the button's own: once, not twice
    assert page.inner_text("#play") == "Pause"


def test_links_lead_to_a_rollout(visit: Open, run: Run[Any]):
    policy = int(order(run)[4])
    page = visit(f"#env=12&policy={policy}")
    assert state(page) == (12, 4)
    page.select_option("#environment", "20")
    assert page.url.endswith(f"#env=20&policy={policy}")
    page.evaluate("location.hash = '#env=3'")
    wait(page, lambda: state(page) == (3, 0))
    lost = visit("#env=999&policy=0")
    assert "is not in this page" in lost.inner_text("#description")


def test_a_rollout_that_ends_otherwise_than_recorded_says_so(visit: Open):
    environment, policy = DISAGREES
    page = visit(f"#env={environment}&policy={policy}")
    assert "ends otherwise than the rollout that was recorded" in page.inner_text("#description")
    assert f"In 1 of {ENVIRONMENTS * POLICIES} the path ends otherwise" in page.inner_text(
        "#replay"
    )
    page.click("#next")
    assert "otherwise" not in page.inner_text("#description")


def test_a_hard_environment_is_watched_from_the_table(page: Page):
    button = page.locator("button.watch").first
    environment = int(button.get_attribute("data-environment") or -1)
    button.click()
    assert state(page)[0] == environment
    assert page.evaluate("document.activeElement.id") == "stage"
    assert page.inner_text("#play") == "Pause"


def test_nothing_moves_by_itself_for_who_wants_less_motion(page: Page):
    page.emulate_media(reduced_motion="reduce")
    page.locator("button.watch").first.click()
    assert page.evaluate("document.activeElement.id") == "stage"
    assert page.inner_text("#play") == "Play"


# ---- looks --------------------------------------------------------------------------------------


def test_obstacles_robot_and_contact_are_drawn(page: Page):
    page.check("#only-failures")
    first = pixels(page)
    assert len(of_colour(first, GREY)) > 200
    assert len(of_colour(first, BLUE)) > 100
    assert len(of_colour(first, ORANGE)) == 0
    scrub(page, last_step(page))
    end = pixels(page)
    assert len(of_colour(end, ORANGE)) > 50  # the cross and the word
    assert "ends in contact" in page.inner_text("#description")


def test_the_robot_moves_from_frame_to_frame(page: Page):
    heights = []
    for at in (0, 10, 20):
        scrub(page, at)
        image = pixels(page)
        blue = np.zeros(image.shape[:2], bool)
        blue[tuple(of_colour(image, BLUE).T)] = True
        robot = np.argwhere(binary_erosion(blue, iterations=2))  # lines are thinner
        heights.append(robot[:, 0].mean())
    assert heights[0] > heights[1] + 10 > heights[2] + 20  # up the page


def test_other_policies_are_drawn_if_asked_for(page: Page):
    before = pixels(page)
    page.check("#others")
    assert np.mean(np.abs(pixels(page) - before).max(axis=-1) > 10) > 0.005


def test_nothing_is_wider_than_the_screen(page: Page):
    for summary in page.locator("summary").all():
        summary.click()
    for width in (320, 360, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_paper_has_no_controls(page: Page):
    controls = page.locator("button, select, input, nav")
    assert controls.first.is_visible()
    page.emulate_media(media="print")
    assert not any(control.is_visible() for control in controls.all())
    assert page.locator("#canvas").is_visible()
    assert page.locator(".sentence").is_visible()


def test_the_keyboard_reaches_every_control_and_each_has_a_name(page: Page):
    wanted = page.evaluate(
        """[...document.querySelectorAll("a, button, select, input, summary, #stage")].length"""
    )
    reached = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        # Marked, since a list of links has no ids.
        reached.add(page.evaluate("(document.activeElement.dataset.tab ??= Math.random())"))
    unmarked = page.evaluate(
        """[...document.querySelectorAll("a, button, select, input, summary, #stage")]
           .filter(one => !one.dataset.tab).map(one => one.outerHTML)"""
    )
    assert unmarked == []
    nameless = page.evaluate(
        """[...document.querySelectorAll("a, button, select, input, summary, #stage")]
           .filter(one => !(one.getAttribute("aria-label") || one.labels?.length
                            || one.textContent.trim() || one.labels))
           .map(one => one.outerHTML)"""
    )
    assert nameless == []
    for control in ("#policy", "#environment", "#only-failures", "#others", "#speed"):
        assert page.locator(f"label:has({control}), label[for={control[1:]}]").count() == 1


def test_names_are_shown_as_they_are(page: Page):
    assert ATTACK in page.locator("#policy option").first.inner_text()
    assert ATTACK in page.inner_text("#description")
    assert page.locator("img").count() == 0


def test_names_of_environments_stand_in_the_list_and_in_words(visit: Open):
    page = visit("#env=12&policy=0")
    assert "12 “field 12”" in page.locator("#environment option").nth(12).inner_text()
    assert "Environment 12 “field 12”" in page.inner_text("#description")


OVERLAPPING = """plots => plots.flatMap(plot => {
  const boxes = [...plot.querySelectorAll("text")].map(one => [one, one.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], i) => boxes.slice(i + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
    .map(([other]) => `${one.textContent} lies on ${other.textContent}`));
})"""


def test_no_label_of_a_plot_lies_on_another_in_the_letters_of_a_browser(page: Page):
    plots = page.locator(".plot svg")
    assert plots.locator("text").count() > 80
    for width in (380, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert plots.evaluate_all(OVERLAPPING) == []


# ---- sections -----------------------------------------------------------------------------------


def marked(page: Page) -> list[str]:
    return page.locator("nav [aria-current=location]").all_inner_texts()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_section_that_is_read_is_marked(page: Page, width: int):
    page.set_viewport_size({"width": width, "height": 800})
    nav = page.locator("nav")
    wait(page, lambda: marked(page) == ["Promise"])
    for name in ("Methods", "Replay", "Shift", "More data", "Promise"):
        page.get_by_role("link", name=name, exact=True).click()
        wait(page, lambda name=name: marked(page) == [name])
        box = nav.bounding_box()
        assert box is not None
        assert box["y"] == 0 or name == "Promise"  # it follows, from the first section on
        link = page.locator("nav [aria-current]").bounding_box()
        assert link is not None
        assert 0 <= link["x"] < link["x"] + link["width"] <= width
        top = page.locator(f"section:has(h2[id={page.url.split('#')[1]}-title]) h2").bounding_box()
        assert top is not None
        assert width > 1000 or top["y"] >= box["height"]  # and hides no heading
    page.mouse.wheel(0, 100_000)
    wait(page, lambda: marked(page) == ["Shift"])


def test_the_sections_stand_beside_the_content_on_wide_screens_only(page: Page):
    for width, beside in ((390, False), (1024, False), (1280, True), (1600, True)):
        page.set_viewport_size({"width": width, "height": 800})
        nav, main = (page.locator(name).bounding_box() for name in ("nav", "main"))
        assert nav is not None
        assert main is not None
        assert (nav["x"] + nav["width"] <= main["x"]) == beside
        assert (nav["y"] + nav["height"] <= main["y"] + 1) == (not beside)
        assert main["x"] + main["width"] <= width


def test_sections_are_links_without_javascript(browser: Browser, file: Path):
    page = browser.new_page(java_script_enabled=False)
    page.goto(file.as_uri())
    page.locator("nav a", has_text="Shift").click()
    assert page.url.endswith("#shift")
    assert not page.locator("#theme").is_visible()  # it would do nothing
    page.close()


# ---- light and dark -----------------------------------------------------------------------------


def paper(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_letters_can_be_read_on_every_screen(page: Page):
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    names = "p, dt, dd, li, th, td, h1, h2, h3, summary, a:not(.skip), button, select, option"
    letters = page.locator(f"{names}, label, code, kbd, figcaption, small, .small, svg text")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        contrasts = letters.evaluate_all(CONTRAST)
        assert len(contrasts) > 200
        assert min(contrasts) > 4.5  # WCAG AA
        assert (paper(page) == "rgb(255, 255, 255)") == (scheme == "light")
    # The same check must fail where letters are faint.
    page.evaluate("document.documentElement.style.setProperty('--soft', '#4a525b')")
    assert min(letters.evaluate_all(CONTRAST)) < 4.5


def test_a_reader_chooses_the_colours(page: Page):
    button = page.locator("#theme")
    light, dark = "rgb(255, 255, 255)", "rgb(20, 24, 29)"
    assert (button.inner_text(), paper(page)) == ("Colours: auto", light)
    button.click()
    page.emulate_media(color_scheme="dark")
    assert (button.inner_text(), paper(page)) == ("Colours: light", light)
    button.click()
    page.emulate_media(color_scheme="light")
    assert (button.inner_text(), paper(page)) == ("Colours: dark", dark)
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    assert np.median(pixels(page)) < 50  # of the replay
    page.reload()
    page.wait_for_selector("#player[data-ready]")
    assert (button.inner_text(), paper(page)) == ("Colours: dark", dark)
    page.emulate_media(media="print")
    assert paper(page) == light
    page.emulate_media(media="screen")
    button.click()
    assert (button.inner_text(), paper(page)) == ("Colours: auto", light)


def test_colours_can_be_chosen_where_nothing_can_be_stored(browser: Browser, file: Path):
    page = browser.new_page(color_scheme="light")
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('denied'); } })"
    )
    page.goto(file.as_uri())
    page.click("#theme")
    page.click("#theme")
    assert page.inner_text("#theme") == "Colours: dark"
    assert paper(page) == "rgb(20, 24, 29)"
    assert errors == []
    page.close()


def test_the_canvas_follows_the_screen_and_paper_is_white(visit: Open):
    page = visit(scheme="dark")
    assert np.median(pixels(page)) < 50
    page.emulate_media(color_scheme="light")
    wait(page, lambda: bool(np.median(pixels(page)) > 240))
    page.emulate_media(color_scheme="dark", media="print")
    wait(page, lambda: bool(np.median(pixels(page)) > 240))
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


# ---- size ---------------------------------------------------------------------------------------


LARGE = sized(100, full=1000)


def test_a_thousand_environments_and_fifty_policies_fit_into_a_page(visit: Open, tmp_path: Path):
    task = Vehicle()
    train = task.environments(LARGE, stream="train")
    run = learn_finite(evaluate(task, task.policies, train, task.policy_names))
    written = write_page(run, tmp_path / "large.html")
    assert written.replays == 50 * LARGE
    assert written.size < 200_000 + 4_800 * LARGE  # 5 MB for a thousand
    page = visit(path=tmp_path / "large.html")
    assert len(of_colour(pixels(page), GREY)) > 200
    page.select_option("#environment", str(LARGE - 1))
    assert page.inner_text("#description").startswith(f"Environment {LARGE - 1}")
