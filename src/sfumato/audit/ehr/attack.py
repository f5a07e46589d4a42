"""What an attack found, beside what it finds where nothing can have leaked.

The ideal comes from real records that the generator never saw. An attack that finds no more than that has learned what
the records say about everybody. Examples of attacks are no bound: another one may find more.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sfumato.metrics.tabular.bootstrap import Interval


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A figure of an attack; the larger, the worse.

    Attributes:
        name: what it is.
        found: with the synthetic records.
        ideal: with real records that were held out; exact where it follows from chance alone.
        excess: found − ideal, from records that were drawn again for both.
    """

    name: str
    found: Interval
    ideal: Interval
    excess: Interval

    @property
    def above(self) -> bool:
        """Whether more was found than the ideal, beyond the interval: by chance in one of forty measures."""
        return self.excess.low > 0

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return {**asdict(self), "above": self.above}


@dataclass(frozen=True, kw_only=True)
class Attack:
    """An attack and what it was run on.

    Attributes:
        name: of the attack.
        measures: the first is the one that it is known by.
        records: how many records each measure rests on.
    """

    name: str
    measures: tuple[Measure, ...]
    records: int

    @property
    def above(self) -> bool:
        """Whether one of its measures is."""
        return any(measure.above for measure in self.measures)

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        measures: Sequence[dict[str, Any]] = [measure.to_json() for measure in self.measures]
        return {"name": self.name, "measures": measures, "records": self.records, "above": self.above}
