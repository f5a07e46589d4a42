"""The page in a real browser: silent, without requests, and readable on a desk and on a telephone."""

import json

import pytest

from sfumato.report import write_report

pytestmark = pytest.mark.browser

# Elements whose text is wider than their box, outside boxes that scroll on purpose.
SPILLS = """
[...document.querySelectorAll("main *")]
  .filter(e => !e.closest(".scroll, pre, svg"))
  .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map(e => e.outerHTML.slice(0, 80))
"""
# The smallest text on the screen, charts included, in CSS pixels.
SMALLEST = """
Math.min(...[...document.querySelectorAll("main *")]
  .filter(e => [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim()))
  .filter(e => e.checkVisibility() && !["title", "desc"].includes(e.tagName))
  .map(e => {
    const svg = e.closest("svg");
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    return parseFloat(getComputedStyle(e).fontSize) * scale;
  }))
"""
# The weakest contrast (WCAG 2.1) between a text and the ground behind it.
CONTRAST = """
(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = rgb => {
    const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = rgb.slice(0, 3).map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = e => {
    for (; e; e = e.parentElement) {
      const colour = parts(getComputedStyle(e).backgroundColor);
      if (colour.length == 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  return Math.min(...[...document.querySelectorAll("main *")]
    .filter(e => [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim()))
    .filter(e => !["title", "desc"].includes(e.tagName))
    .map(e => {
      const style = getComputedStyle(e);
      const ink = parts(e.closest("svg") ? style.fill : style.color);
      const [bright, dark] = [light(ink), light(ground(e))].sort((x, y) => y - x);
      return (bright + 0.05) / (dark + 0.05);
    }));
})()
"""


@pytest.fixture
def pages(make_run):
    """One page of each kind."""
    plain, bare, seeded = make_run("plain"), make_run("bare", noise=0.0), make_run("seeded", seed=7, done=12)
    long = make_run("a-very-long-name-of-a-run-" * 4, about={"data": "/a/very/long/path/" * 8, "far": [0.001]})
    folder = plain.parent
    return [
        write_report([plain], folder / "one.html"),
        write_report([plain], folder / "public.html", public=True),
        write_report([long, bare, seeded, plain], folder / "all.html"),
    ]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_silent_and_readable(chromium, pages, width):
    for page in pages:
        chromium.open(page, width)
        assert chromium.heard() == []
        assert chromium.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert chromium.evaluate(SPILLS) == []
        assert chromium.evaluate(SMALLEST) >= 10
        assert chromium.evaluate(CONTRAST) >= 4.5


def test_wide_tables_scroll_inside_their_box_on_a_telephone(chromium, pages):
    chromium.open(pages[-1], 390)
    boxes = chromium.evaluate("[...document.querySelectorAll('.scroll')].map(e => [e.scrollWidth, e.clientWidth])")
    assert any(inner > outer for inner, outer in boxes)
    assert all(outer <= 390 for _, outer in boxes)


def test_every_chart_is_drawn_with_a_size(chromium, pages):
    chromium.open(pages[0], 390)
    sizes = chromium.evaluate(
        "[...document.querySelectorAll('figure > svg')].map(e => [e.clientWidth, e.querySelectorAll('.line').length])"
    )
    assert len(sizes) >= 5
    assert all(width > 250 and lines >= 1 for width, lines in sizes)


def test_the_browser_test_would_notice_a_noisy_page(chromium, tmp_path):
    page = tmp_path / "noisy.html"
    page.write_text("<!doctype html><main><div style='width:2000px'>x</div><img src='missing.png'></main>")
    chromium.open(page, 390)
    assert json.dumps(chromium.heard()).count("missing.png") >= 1
    assert chromium.evaluate(SPILLS)
