"""What every page must be in a browser: silent, without requests, nothing cut, nothing too small or too faint."""

from pathlib import Path
from typing import Any

# Elements that reach beyond the window. No box scrolls: what does not fit is folded, never cut.
SPILLS = """
[...document.querySelectorAll("main *")]
  .filter(e => !e.closest("svg") && e.checkVisibility())
  .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map(e => e.outerHTML.slice(0, 80))
"""
# Elements whose content is wider than they are.
CUT = """
[...document.querySelectorAll("main, main *")]
  .filter(e => !e.closest("svg") && e.checkVisibility() && getComputedStyle(e).display != "inline")
  .filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.outerHTML.slice(0, 80))
"""
# Text of charts that reaches out of its chart.
OUTSIDE = """
[...document.querySelectorAll("figure > svg")].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")]
    .filter(e => {
      const box = e.getBoundingClientRect();
      const across = box.left < frame.left - 6 || box.right > frame.right + 6;
      return across || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
    })
    .map(e => e.textContent);
})
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
# Contrast (WCAG 2.1) between two colours, and the ground behind an element.
COLOURS = """
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
  const contrast = (e, ink) => {
    const [bright, dark] = [light(parts(ink)), light(ground(e))].sort((x, y) => y - x);
    return (bright + 0.05) / (dark + 0.05);
  };
"""
# The weakest contrast of a text.
CONTRAST = f"""
(() => {{
  {COLOURS}
  return Math.min(...[...document.querySelectorAll("main *")]
    .filter(e => [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim()))
    .filter(e => !["title", "desc"].includes(e.tagName))
    .map(e => contrast(e, e.closest("svg") ? getComputedStyle(e).fill : getComputedStyle(e).color)));
}})()
"""


def assert_silent_and_readable(chromium: Any, page: Path, width: int, scheme: str) -> None:
    """Open a page in a window of this width, for a reader who prefers light or dark."""
    chromium.open(page, width, scheme=scheme)
    assert chromium.heard() == []
    chromium.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    root = "document.documentElement"
    assert chromium.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
    assert chromium.evaluate(SPILLS) == []
    assert chromium.evaluate(CUT) == []
    assert chromium.evaluate(OUTSIDE) == []
    assert chromium.evaluate(SMALLEST) >= 10
    assert chromium.evaluate(CONTRAST) >= 4.5
