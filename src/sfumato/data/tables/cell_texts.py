"""Texts of a table: which stand for nothing, which for a number, and which for the same as another one.

>>> [text for text in ("", "NA", " ? ", "+NaN", "0", "none") if is_missing(text)]
['', 'NA', ' ? ', '+NaN']
>>> as_number("1e3"), as_number("05"), as_number("1_000"), as_number("high")
(1000.0, 5.0, nan, nan)
>>> [canonical(text) for text in ("1", "1.0", "1e0", "2.50", "007", "late")]
['1', '1', '1', '2.5', '007', 'late']
"""

import math
import re

from sfumato.data.examples.schema import as_text
from sfumato.data.spellings import MISSING

_COMMA = re.compile(r"[+-]?\d+(,\d+)+(\.\d*)?|[+-]?\d+(\.\d+)*,\d+")


def is_missing(text: str) -> bool:
    """Whether a text stands for a missing value, as NA, ? and nothing at all do."""
    text = text.strip()
    return text in MISSING or text.lstrip("+-").lower() == "nan"  # which programs read as a number that is none


def as_number(text: str) -> float:
    """A text as a number, NaN if it is none."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def is_number_text(text: str) -> bool:
    """Whether a text is a finite number, and no name with zeros in front: 7 and 0.7 are, 007 is not."""
    digits = text.lstrip("+-")
    return math.isfinite(as_number(text)) and not (digits[:1] == "0" and digits[1:2].isdigit())


def is_comma_number(text: str) -> bool:
    """Whether a text is a number with commas, in front of its decimals or of each thousand: 1,4 and 1,000."""
    return _COMMA.fullmatch(text.strip()) is not None


def canonical(text: str) -> str:
    """A text as a table tells it that keeps numbers as numbers; names with zeros in front stay."""
    return as_text(as_number(text)) if is_number_text(text) else text
