"""The schemas of Criteo's two public logs of advertisements, under the names `criteo` and `criteo-attribution`,
and with sales in the place of clicks `criteo-attribution-conversions`.

The display log has no header and no users: a click, 13 counts that may be missing or negative, 26 hashes of 32 bits
that may be missing, divided by tabs. The attribution log names its 22 columns, of which uid is the user. Both are read
as any table with a schema.

The bounds, the fills and the numbers of buckets are part of the format here and not taken from the records. Counts are
read as log(1 + max(x, 0)), as DLRM reads them, and a further number shows whether one is missing.

References:
    Naumov et al.: Deep Learning Recommendation Model for Personalization and Recommendation Systems (2019),
    arXiv 1906.00091.
    Diemert, Meynet, Galland, Lefortier: Attribution Modeling Increases Efficiency of Bidding in Display Advertising
    (2017), arXiv 1707.06409.

>>> display = criteo_schema(buckets=1000)
>>> len(display.numeric), len(display.categories), display.categories[0].size, display.order[:2]
(13, 26, 1001, ('Label', 'I1'))
>>> criteo_schema("attribution", label="conversion").categories[0].name
'campaign'
>>> named_schema("criteo:500").categories[25].size, named_schema("clicks.yaml")
(501, None)
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from sfumato._check import InputError, one_of, whole
from sfumato.data.schema import Schema, read_schema

BUCKETS = 10_000
CONVERSIONS = "criteo-attribution-conversions"
NAMES: dict[str, tuple[Literal["display", "attribution"], Literal["click", "conversion"]]] = {
    "criteo": ("display", "click"),
    "criteo-attribution": ("attribution", "click"),
    CONVERSIONS: ("attribution", "conversion"),
}
"""What a schema is called where a file could be named, the log that it is for, and what is predicted."""

_LARGEST_COUNT = 1_000_000
_SECONDS = 30 * 24 * 60 * 60  # that the attribution log covers
_UNUSED = (
    *("timestamp", "conversion_timestamp", "conversion_id", "attribution", "click_pos", "click_nb"),
    *("cost", "cpo"),
)
"""Columns that are not read: most are known after the impression only."""


def criteo_schema(
    log: Literal["display", "attribution"] = "display",
    *,
    buckets: int = BUCKETS,
    label: Literal["click", "conversion"] = "click",
) -> Schema:
    """The public facts about the columns of one of Criteo's logs.

    Args:
        log: the format.
        buckets: hash buckets of each categorical column, >= 1.
        label: what is predicted; the display log has clicks only.

    Raises:
        InputError: an argument is none of those.
    """
    one_of(("display", "attribution"), log=log)
    one_of(("click", "conversion"), label=label)
    whole(buckets=buckets)
    outcome = {"kind": "label", "values": ["0", "1"]}
    if log == "attribution":
        hashed = {"kind": "category", "buckets": buckets}
        categories = dict.fromkeys(["campaign", *(f"cat{i}" for i in range(1, 10))], hashed)
        seconds = {"kind": "numeric", "low": -1, "high": _SECONDS, "log": True, "fill": -1}
        other = "conversion" if label == "click" else "click"
        return read_schema(
            {
                "uid": "user",
                label: outcome,
                "time_since_last_click": seconds,
                **categories,
                **dict.fromkeys((other, *_UNUSED), "drop"),
            }
        )
    if label != "click":
        raise InputError(f"Criteo's display log has clicks only, got label={label!r}; use log='attribution'")
    count = {"kind": "numeric", "low": 0, "high": _LARGEST_COUNT, "log": True, "fill": 0}
    hashed = {"kind": "category", "buckets": buckets, "hex": True}
    columns: dict[str, Any] = {
        "Label": outcome,
        **dict.fromkeys([f"I{i}" for i in range(1, 14)], count),
        **dict.fromkeys([f"C{i}" for i in range(1, 27)], hashed),
    }
    return replace(read_schema(columns), order=tuple(columns))


def named_schema(name: Any) -> Schema | None:
    """The schema that a name stands for, as in criteo or criteo:100000; None where it is none of these names.

    Raises:
        InputError: what follows the colon is no number of buckets.
    """
    word, colon, buckets = str(name).partition(":") if isinstance(name, str | Path) else ("", "", "")
    if word not in NAMES:
        return None
    if colon and not (buckets.isascii() and buckets.isdigit() and int(buckets)):
        raise InputError(f"schema {word}:BUCKETS needs a whole number >= 1, got {buckets!r}; for example {word}:100000")
    log, label = NAMES[word]
    return criteo_schema(log, buckets=int(buckets) if colon else BUCKETS, label=label)
