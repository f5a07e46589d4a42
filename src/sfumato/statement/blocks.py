"""A statement as blocks of facts, sentences and tables, and how they are written: as plain text and as Markdown.

Terminal, page and Markdown show the same blocks, so that they cannot disagree.

>>> block = Block("Guarantee", facts=(("Delta", "1e-06"),), lines=("It holds.",), bullets=("One condition.",))
>>> print(plain([block]))
Guarantee
  Delta: 1e-06
  It holds.
  - One condition.
>>> print(markdown([block]))
**Guarantee**
<BLANKLINE>
- Delta: 1e-06
<BLANKLINE>
It holds.
<BLANKLINE>
- One condition.
"""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_WIDTH = 100
_NUMERIC = "0123456789∞–"


@dataclass(frozen=True)
class Block:
    """One part of a statement; a part that is empty is not shown.

    Attributes:
        title: its heading.
        facts: (name, value) pairs.
        lines: sentences.
        bullets: one sentence or a few each.
        table: rows of cells, the header first.
        after: a sentence that follows the bullets.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    lines: tuple[str, ...] = ()
    bullets: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    after: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.facts or self.lines or self.bullets or self.table or self.after)


def plain(blocks: Iterable[Block], width: int = _WIDTH) -> str:
    """Text for a terminal or a file, at most so many columns wide; the rows of a wider table are bullets."""
    return "\n\n".join("\n".join(_plain(block, width)) for block in blocks if not block.empty)


def _plain(block: Block, width: int) -> list[str]:
    def wrapped(text: str, first: str = "  ", others: str = "  ") -> list[str]:
        return textwrap.wrap(
            text, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
        )

    lines = [block.title]
    for name, value in block.facts:
        lines += wrapped(f"{name}: {value}", others="    ")
    for line in block.lines:
        lines += wrapped(line)
    for bullet in block.bullets:
        lines += wrapped(bullet, "  - ", "    ")
    lines += wrapped(block.after) if block.after else []
    columns = [f"  {line}" for line in _columns(block.table)]
    if max(map(len, columns), default=0) <= width:
        return [*lines, *columns]
    header, *rows = block.table
    for row in rows:
        cells = (f"{name} {cell}" if cell[0] in _NUMERIC else cell for name, cell in zip(header[1:], row[1:]))
        lines += wrapped(f"{row[0]}: {', '.join(cells)}", "  - ", "    ")
    return lines


def _columns(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def markdown(blocks: Iterable[Block]) -> str:
    """The same for a page in Markdown: a bold title, lists and a table."""
    return "\n\n".join("\n\n".join(_markdown(block)) for block in blocks if not block.empty)


def _markdown(block: Block) -> list[str]:
    parts = [f"**{block.title}**", "\n".join(f"- {name}: {value}" for name, value in block.facts), *block.lines]
    parts += ["\n".join(f"- {bullet}" for bullet in block.bullets), block.after]
    if block.table:
        rows = [block.table[0], ["---"] * len(block.table[0]), *block.table[1:]]
        parts.append("\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows))
    return [part for part in parts if part]
