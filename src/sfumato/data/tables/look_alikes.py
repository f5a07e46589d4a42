"""Users whose names look like one: two people, or one whose rows would be protected as if they were two people's.

>>> look_alikes(["Ann", "ann ", "bo"])[0]
"2 of 3 users have names that differ only in case, blanks, zeros or Unicode form, 'Ann' and 'ann ' for example: ..."
>>> look_alikes(["ann", "bo"])
[]
"""

import re
import unicodedata
from collections.abc import Sequence

_WHOLE = re.compile(r"\+?0*(\d+)(\.0*)?")


def look_alikes(names: Sequence[str]) -> list[str]:
    """A line for people that counts them; none where all names differ in more."""
    first: dict[str, str] = {}
    others: dict[str, int] = {}
    example = "", ""
    for name in names:
        form = _folded(name)
        before = first.setdefault(form, name)
        if before is not name:
            others[form] = others.get(form, 0) + 1
            example = (before, name) if len(others) == 1 and others[form] == 1 else example
    if not others:
        return []
    one, other = map(ascii, (name if len(name) < 80 else name[:80] + "…" for name in example))
    return [
        f"{sum(others.values()) + len(others):,} of {len(names):,} users have names that differ only in case, blanks, "
        f"zeros or Unicode form, {one} and {other} for example: each is protected as somebody else; where they are one "
        "person, write the name in one way"
    ]


def _folded(name: str) -> str:
    """What names that look alike have in common."""
    if not (name.isascii() and name.isprintable()):
        name = unicodedata.normalize("NFKC", name)
        name = "".join(" " if each.isspace() else each for each in name if each.isspace() or each.isprintable())
    whole = _WHOLE.fullmatch(name.strip())
    return whole[1] if whole else " ".join(name.split()).casefold()
