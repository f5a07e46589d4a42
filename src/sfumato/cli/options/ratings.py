"""Options that say which columns of a table are ratings, and what becomes of odd ones."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class RatingOptions:
    """How ratings are read.

    Attributes:
        item: for ratings in a table: the column of items; with --user and --value. MovieLens needs none of them.
        value: for ratings in a table: the column of values.
        time: for ratings in a table: the column of times, numbers or dates; each user's ratings are put into its order.
        items: for ratings: the public catalogue of items, a file with one id a line. Without it MovieLens' films beside
            the ratings, else the items that were rated, which a guarantee refuses.
        value_range: for ratings: the lowest and the highest value; others are refused.
        duplicates: for ratings: several values of one user for one item are refused, or the last is taken, or their
            mean. Refused unless given.
        on_unknown: for ratings: an item that the catalogue does not have is refused, or left out and counted. Refused
            unless given.
    """

    item: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    value: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    time: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    items: Path | None = None
    value_range: tuple[float, float] | None = None
    duplicates: Literal["refuse", "last", "mean"] | None = None
    on_unknown: Literal["refuse", "skip"] | None = None

    def of_ratings(self) -> dict[str, Any]:
        """The options as `data.load` takes them; None for those that were not given."""
        return {
            "item": self.item,
            "value": self.value,
            "time": self.time,
            "items": self.items,
            "value_range": self.value_range,
            "duplicates": self.duplicates,
            "on_unknown": self.on_unknown,
        }
