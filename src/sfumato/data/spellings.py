"""Values that are written in several ways, or look like a missing one: each counts as a value of its own.

>>> odd_values("the classes", ["No", "Yes", "no", "YES "])[0]
"the classes: 4 of 4 values differ from another one only in case, blanks or Unicode form, 'No' and 'no' for ..."
>>> odd_values("the classes", ["a", "b", "NA"])
["the classes: 'NA' looks like a missing value and counts as a value; where it is missing, drop its rows"]
>>> odd_values("the classes", ["no", "yes"])
[]
"""

import unicodedata
from collections.abc import Sequence

MISSING = frozenset({"", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"})
"""What a missing value looks like in a file of text."""

_MOST = 10_000  # values that are looked at


def odd_values(told: str, values: Sequence[str]) -> list[str]:
    """Lines for people that count such values, at most two; none where there are none.

    Args:
        told: what the lines call them.
        values: each once; more than 10,000 are names rather than answers, and are not looked at.
    """
    if len(values) > _MOST:
        return []
    forms: dict[str, list[str]] = {}
    for value in values:
        form = " ".join(unicodedata.normalize("NFKC", value).split()).casefold()
        forms.setdefault(form, []).append(value)
    several = [same for same in forms.values() if len(same) > 1]
    lines = []
    if several:
        one, other = map(ascii, several[0][:2])
        lines.append(
            f"{told}: {sum(map(len, several)):,} of {len(values):,} values differ from another one only in case, "
            f"blanks or Unicode form, {one} and {other} for example: each counts as a value of its own; where they are "
            "one, write them in one way"
        )
    if missing := [value for value in values if value.strip() in MISSING]:
        lines.append(
            f"{told}: {missing[0]!r} looks like a missing value and counts as a value; where it is missing, drop its "
            "rows"
        )
    return lines
