"""The page in a real browser: silent, without requests, readable on a desk and a telephone, by day and by night."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from report.browser import COLOURS, CONTRAST, CUT, SPILLS, assert_silent_and_readable
from sfumato.report import write_report
from slow import slow_but

pytestmark = pytest.mark.browser
HEIGHTS = {1280: 800, 390: 844}  # of a desk's screen and of a telephone's, by its width
LOOKS = [(width, scheme) for width in HEIGHTS for scheme in ("light", "dark")]

# The box around the first text that begins with a sign, where it stands on the screen.
WHERE = """
(() => {
  const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node; node = texts.nextNode();) {
    const place = node.data.indexOf("SIGN");
    if (place < 0 || !node.parentElement.checkVisibility()) continue;
    const range = document.createRange();
    range.setStart(node, place);
    range.setEnd(node, node.data.length);
    const box = range.getBoundingClientRect();
    return [box.left, box.top, box.right, box.bottom];
  }
})()
"""
# The contrast of each line of a chart, and of each stroke of a legend.
STROKES = f"""
(() => {{
  {COLOURS}
  return [...document.querySelectorAll("g.line > path, svg.swatch path")]
    .map(e => contrast(e, getComputedStyle(e).stroke));
}})()
"""


@pytest.fixture(scope="module")
def pages(make_shared_run):
    """One page of each kind."""
    make_run = make_shared_run
    plain, bare, seeded = make_run("plain"), make_run("bare", noise=0.0), make_run("seeded", seed=7, done=12)
    long = make_run("a-very-long-name-of-a-run-" * 4, about={"data": "/a/very/long/path/" * 8, "far": [0.001]})
    folder = plain.parent
    return [
        write_report([plain], folder / "one.html"),
        write_report([plain], folder / "public.html", public=True),
        write_report([long, bare, seeded, plain], folder / "all.html"),
    ]


@pytest.mark.parametrize(("width", "scheme"), slow_but(LOOKS, (390, "light")))
def test_the_page_is_silent_and_readable(chromium, pages, width, scheme):
    for page in pages:
        assert_silent_and_readable(chromium, page, width, scheme)


@pytest.mark.parametrize(("width", "scheme"), slow_but(LOOKS, (390, "light")))
def test_epsilon_and_delta_are_whole_on_the_first_screen_of_a_screenshot(chromium, pages, width, scheme, tmp_path):
    """Pictures to look at are kept in the folder of SFUMATO_SCREENSHOTS, if it is set."""
    height = HEIGHTS[width]
    chromium.open(pages[0], width, height, scheme=scheme)
    for sign in ("ε = ", "δ = "):
        left, top, right, bottom = chromium.evaluate(WHERE.replace("SIGN", sign))
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    folder = Path(os.environ.get("SFUMATO_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"page-{width}-{scheme}.png"
    chromium.screenshot(picture)
    drawn = Image.open(picture).convert("L")
    assert width - 20 <= drawn.width <= width  # a bar for scrolling
    assert drawn.height > height  # the whole page, of which the first screen is the top
    first = np.asarray(drawn)[:height]
    assert (np.median(first) < 60) == (scheme == "dark")
    assert np.ptp(first) > 150  # something is written there


@pytest.mark.parametrize(("width", "height"), HEIGHTS.items())
def test_verdict_epsilon_result_and_trouble_are_on_the_first_screen(chromium, pages, width, height):
    for page in pages[:2]:
        chromium.open(page, width, height)
        for what in (".verdict .word", ".verdict .sentence", ".summary .figure-value", ".summary .figure-note"):
            low = f"[...document.querySelectorAll({what!r})].map(e => e.getBoundingClientRect().bottom)"
            assert all(0 < bottom <= height for bottom in chromium.evaluate(low))
        assert "ε = " in chromium.evaluate("document.querySelector('.number').innerText")
        links = "[...document.querySelectorAll('nav a')]"
        assert chromium.evaluate(f"{links}.length") >= 8
        assert chromium.evaluate(f"{links}.every(e => document.querySelector(e.getAttribute('href')))")


@pytest.mark.slow
def test_the_page_is_dark_in_the_dark_and_light_on_paper(chromium, pages):
    ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    for scheme, darkest, lightest in (("light", 240, 255), ("dark", 0, 40)):
        chromium.open(pages[0], 1280, scheme=scheme)
        assert all(darkest <= part <= lightest for part in chromium.evaluate(ground))
    chromium.print_on("print")
    assert chromium.evaluate(ground) == [255, 255, 255]
    assert chromium.evaluate(CONTRAST) >= 4.5
    chromium.print_on("screen")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_lines_of_a_chart_stand_out_from_the_ground(chromium, pages, scheme):
    chromium.open(pages[2], 1280, scheme=scheme)
    strokes = chromium.evaluate(STROKES)
    assert len(strokes) >= 20
    assert min(strokes) >= 3.0  # WCAG 2.1, 1.4.11: graphics


@pytest.mark.slow
def test_a_column_keeps_its_name_on_a_telephone(chromium, pages):
    chromium.open(pages[-1], 390)
    names = "[...document.querySelectorAll('.stacks td')].map(e => getComputedStyle(e, '::before').content)"
    found = chromium.evaluate(names)
    assert '"Protection"' in found
    assert '"ε"' in found
    assert "none" not in found


@pytest.mark.slow
def test_a_table_of_many_columns_scrolls_on_a_telephone_and_the_page_does_not(chromium, pages, tmp_path):
    cells = "".join(f"<td>{1000.5 + i}</td>" for i in range(9))
    table = f"<div class='wide'><table><tr>{cells}</tr></table></div>"
    page = tmp_path / "wide.html"
    page.write_text(pages[0].read_text("utf-8").replace("<main>", f"<main>{table}", 1), "utf-8")
    assert_silent_and_readable(chromium, page, 390, "light")
    wide = (
        "(e => [e.scrollWidth > e.clientWidth + 100, getComputedStyle(e).overflowX])(document.querySelector('.wide'))"
    )
    assert chromium.evaluate(wide) == [True, "auto"]
    assert chromium.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.slow
def test_every_chart_is_drawn_with_a_size(chromium, pages):
    chromium.open(pages[0], 390)
    sizes = chromium.evaluate(
        "[...document.querySelectorAll('figure > svg')].map(e => [e.clientWidth, e.querySelectorAll('.line').length])"
    )
    assert len(sizes) >= 6
    assert all(width > 250 and lines >= 1 for width, lines in sizes)


def test_the_browser_test_would_notice_a_noisy_page(chromium, tmp_path):
    page = tmp_path / "noisy.html"
    page.write_text("<!doctype html><main><div style='width:2000px'>x</div><img src='missing.png'></main>")
    chromium.open(page, 390)
    assert json.dumps(chromium.heard()).count("missing.png") >= 1
    assert chromium.evaluate(SPILLS)
    assert chromium.evaluate(CUT)
