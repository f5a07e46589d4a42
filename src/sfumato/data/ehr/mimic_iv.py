"""MIMIC-IV: stays in intensive care with their laboratory values, and who died in hospital.

A record is a stay; a patient with several counts once for each, which the statement says. Times count from the
admission to intensive care, and what was measured before it or after the stay is left out.

References:
    Johnson et al. 2023, MIMIC-IV, a freely accessible electronic health record dataset.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from sfumato._check import InputError, positive, whole
from sfumato.data.ehr.arrange import assumption
from sfumato.data.ehr.assemble import Making, records_of_events
from sfumato.data.ehr.cells import Where, numbers_of, texts_of, times_of
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.events import Events, Roles
from sfumato.data.ehr.mimic_iv_stays import DEATH, Stays, file_of, read_stays
from sfumato.data.ehr.rows import blocks_of
from sfumato.data.ehr.schema import MICROSECONDS, Schema, numeric
from sfumato.data.ratings.columns import Codes
from sfumato.data.ratings.duplicates import Duplicates
from sfumato.data.ratings.records import Records
from sfumato.data.tables.source import refuse_absent

_UNIT = MICROSECONDS["hours"]
_ROLES = Roles(id="stay_id", time="hours", code="item", values=("valuenum",))
_STAYS = "The unit is the stay in intensive care: a patient with several stays counts once for each."


def mimic_iv(
    folder: Path | str,
    *,
    items: int | Sequence[int] = 30,
    hours: float | None = None,
    duplicates: Duplicates = "last",
) -> EHRDataset:
    """Read the stays of MIMIC-IV; those without a value of any of the items are left out and counted.

    Args:
        folder: with patients, admissions, icustays, labevents and d_labitems (.csv, .csv.gz or .parquet), or with the
            folders hosp and icu that have them. Laboratory values are read a block at a time, twice where items is a
            number.
        items: the laboratory items (itemid), a choice that is public; or how many: the most frequent within stays,
            which the statement then says were taken from the records.
        hours: how long after the admission to intensive care; None reads the whole stay.
        duplicates: what becomes of several values of one stay, time and item.

    Raises:
        InputError: a file is missing or damaged, an item is unknown, or a row is wrong; it names the row.
    """
    folder = Path(folder)
    if hours is not None:
        positive(hours=hours)
    stays = read_stays(folder, hours)
    labs = file_of(folder, "labevents")
    for name in ("subject_id", "charttime", "itemid", "valuenum"):
        refuse_absent(labs.told, labs.names, name, name)
    labels = _labels(file_of(folder, "d_labitems"))
    if isinstance(items, int):
        whole(items=items)
        chosen = _most_frequent(labs, stays, items)
    else:
        chosen = [str(item) for item in items]
        if unknown := [item for item in chosen if item not in labels]:
            raise InputError(f"there is no laboratory item {unknown[0]} in {folder}; look it up in d_labitems")
    if not chosen:
        raise InputError(f"{labs.told} has no value within a stay; are these the stays of the same release?")
    names = _column_names(chosen, labels, [column.name for column in stays.columns])
    making = _events(labs, stays, names, duplicates)
    schema = Schema(
        id="stay_id",
        time="hours",
        time_unit="hours",
        static=stays.columns,
        temporal=tuple(numeric(name, whole=_is_whole(making, name)) for name in names.values()),
        outcome=DEATH,
    )
    records = records_of_events(making, schema, stays.values)
    sentences = [assumption(schema, True), _STAYS]
    if not isinstance(items, int):
        sentences.insert(1, f"The choice of the {len(chosen)} laboratory items is public by declaration.")
    return replace(records, assumptions=tuple(sentences))


def _events(labs: Records, stays: Stays, names: dict[str, str], duplicates: Duplicates) -> Making:
    """The values of the items that have a name."""
    events, rows = Events(), list[np.ndarray]()
    events.ids.add(pa.array(stays.ids), str)  # in the order of the stays, those without a value too
    for found in _within(labs, stays):
        kept = np.flatnonzero([item in names for item in found.items])
        block = {
            "stay_id": pa.array([stays.ids[stay] for stay in found.stays[kept].tolist()], pa.string()),
            "hours": pa.array(found.since[kept] / _UNIT),
            "item": pa.array([names[found.items[place]] for place in kept.tolist()], pa.string()),
            "valuenum": pa.array(found.values[kept]),
        }
        events.add(block, _ROLES, str)
        rows.append(found.rows[kept])
    told = np.concatenate(rows)
    return Making(
        events=events,
        all=events.gathered(),
        where=lambda row: f"{labs.told} {labs.place(int(told[row]))}",
        duplicates=duplicates,
        without_visits="skip",
    )


class _Found:
    """Values within stays.

    Args:
        stays: [values], the number of the stay.
        since: [values], microseconds since its beginning.
        items: [values], what was measured.
        values: float64 [values].
        rows: [values], the row of the table.
    """

    def __init__(
        self, stays: np.ndarray, since: np.ndarray, items: list[str], values: np.ndarray, rows: np.ndarray
    ) -> None:
        self.stays, self.since, self.items, self.values, self.rows = stays, since, items, values, rows


def _within(labs: Records, stays: Stays) -> Iterator[_Found]:
    """What was measured within a stay and has a number, a block at a time."""
    subjects = Codes("patient")
    subjects.add(pa.array(stays.subjects), str)
    start = 0
    for block, where in blocks_of(labs, ("subject_id", "charttime", "itemid", "valuenum")):
        size = len(block["subject_id"])
        person = subjects.add(block["subject_id"], where)
        times = dates_of(block["charttime"], "charttime", where)
        stay = stays.at(person, times)
        rows = np.flatnonzero(stay >= 0)
        values = numbers_of(block["valuenum"], "valuenum", where)[rows]
        rows = rows[~np.isnan(values)]
        texts, places = texts_of(block["itemid"], "itemid", where)
        yield _Found(
            stays=stay[rows],
            since=times[rows] - stays.begins[stay[rows]],
            items=[texts[place] for place in places[rows].tolist()],
            values=values[~np.isnan(values)],
            rows=start + rows,
        )
        start += size


def dates_of(array: pa.Array, name: str, where: Where) -> np.ndarray:
    """A block of dates, in microseconds, NaN where there is none.

    Raises:
        InputError: they are numbers, or none at all.
    """
    times, dates = times_of(array, name, where)
    if dates is False:
        raise InputError(f"{name!r} must be dates as 2150-01-31 07:30:00, but is a number at {where(0)}; correct it")
    return times


def _most_frequent(labs: Records, stays: Stays, count: int) -> list[str]:
    counts = Counter[str]()
    for found in _within(labs, stays):
        counts.update(found.items)
    return sorted(counts, key=lambda item: (-counts[item], item))[:count]


def _labels(table: Records) -> dict[str, str]:
    """What each item is called."""
    labels: dict[str, str] = {}
    for name in ("itemid", "label"):
        refuse_absent(table.told, table.names, name, name)
    for block, where in blocks_of(table, ("itemid", "label")):
        texts, places = texts_of(block["itemid"], "itemid", where)
        for place, label in zip(places.tolist(), block["label"].to_pylist(), strict=True):
            labels[texts[place]] = " ".join((label or "").split()) or texts[place]
    return labels


def _column_names(items: Sequence[str], labels: dict[str, str], taken: Sequence[str]) -> dict[str, str]:
    """The name of each item's column: its label, with its number where others are called the same."""
    counts = Counter([*(labels.get(item, item) for item in items), *taken])
    return {
        item: label if counts[label] == 1 else f"{label} ({item})"
        for item, label in ((item, labels.get(item, item)) for item in items)
    }


def _is_whole(making: Making, name: str) -> bool:
    names = making.events.codes.names
    if name not in names:
        return False
    values = making.all.numbers[making.all.codes == names.index(name)]
    return bool((values == np.floor(values)).all())
