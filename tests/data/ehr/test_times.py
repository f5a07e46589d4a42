"""Times that are dates in numbers, and dates that stand for a missing one."""

import datetime
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato._check import InputError
from sfumato.data import ehr_from_events, ehr_from_tables, open_users
from slow import by_profile

DAYS = st.dates(datetime.date(1990, 1, 1), datetime.date(2100, 1, 1))
EPOCH = datetime.date(1970, 1, 1)
WRITTEN: dict[str, Callable[[datetime.date], float]] = {
    "YYYYMMDD": lambda day: int(day.strftime("%Y%m%d")),
    "YYYYMMDDHHMM": lambda day: int(day.strftime("%Y%m%d1230")),
    "seconds": lambda day: (day - EPOCH).days * 86_400,
    "milliseconds": lambda day: (day - EPOCH).days * 86_400_000,
    "nanoseconds": lambda day: (day - EPOCH).days * 86_400_000_000_000,
    "Excel": lambda day: (day - datetime.date(1899, 12, 30)).days,
}


def _visits(times: list) -> pd.DataFrame:
    return pd.DataFrame({"who": list("aabb"), "when": times, "bili": [1.5, 1.2, 1.0, 2.0]})


def _tables(times: list, **options: Any) -> Any:
    return ehr_from_tables(_visits(times), id="who", time="when", unsorted="sort", **options)


def _events(times: list, **options: Any) -> Any:
    frame = _visits(times).rename(columns={"bili": "value"}).assign(code="bili")
    return ehr_from_events(frame, id="who", time="when", **options)


@pytest.mark.parametrize("read", [_tables, _events])
@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("unit", ["minutes", "hours", "days"])
@settings(max_examples=by_profile(30), deadline=None)
@given(days=st.lists(DAYS, min_size=4, max_size=4, unique=True))
def test_dates_in_numbers_are_refused_or_reported(read: Callable, form: str, unit: str, days: list):
    times = [WRITTEN[form](day) for day in days]
    try:
        said = [*read(times, time_unit=unit).notes, ""]
    except InputError as refusal:
        said = [str(refusal)]
    if said[-1]:
        assert said[0].startswith("the time 'when' at")
        assert "Write dates as 2024-01-31" in said[0]
    else:  # within a life: 90 years in days; 30 days in minutes, as a stay lasts
        assert form == "Excel"
        assert unit != "days" or any("where these numbers are dates" in line for line in said)


@pytest.mark.parametrize(
    ("time", "meant"),
    [
        (20240131, "2024-01-31 written as a number"),
        (202401311230, "2024-01-31 written as a number"),
        (1706659200, "2024-01-31, in seconds since 1970"),
        (1706659200000, "2024-01-31, in milliseconds since 1970"),
        (45322, "2024-01-31, as Excel counts days"),
    ],
)
def test_the_date_that_may_be_meant_is_named(time: int, meant: str):
    with pytest.raises(InputError, match=meant):
        _tables([time, time + 1, time, time + 1])


@settings(max_examples=by_profile(30), deadline=None)
@given(st.lists(st.integers(0, 120 * 365 - 1), min_size=3, max_size=3, unique=True).filter(lambda times: times[0] != 0))
def test_times_within_a_life_are_taken_as_they_are(times: list[int]):
    read = _tables([0, *times])
    assert sorted(read.times.tolist()) == sorted([0, *times])
    assert not any("origin" in note for note in read.notes)


@pytest.mark.parametrize("read", [_tables, _events])
@pytest.mark.parametrize("kind", [None, pa.timestamp("s"), pa.timestamp("us"), pa.date32(), pa.timestamp("ms", "UTC")])
@pytest.mark.parametrize("day", ["0001-01-01", "1858-11-17", "1899-12-31", "2250-01-01", "2999-12-31", "9999-12-31"])
def test_a_date_that_stands_for_a_missing_one_is_refused_at_either_end(read: Callable, kind: Any, day: str):
    texts = ["2024-01-31", "2024-02-01", "2024-01-31", day]
    dates = pa.array(map(datetime.datetime.fromisoformat, texts), pa.timestamp("s"))
    times: Any = texts if kind is None else pd.Series(dates.cast(kind).to_pandas(types_mapper=pd.ArrowDtype))
    end = "before 1900" if day < "1900" else "after 2249"
    with pytest.raises(InputError, match=rf"the time 'when' at .* is {day} 00:00:00, {end}, as a missing date is"):
        read(times)
    films = _visits(times).assign(film=[1, 2, 1, 2])
    with pytest.raises(InputError, match=rf"the time at .* is {day} 00:00:00, {end}"):
        open_users(films, user="who", item="film", value="bili", time="when")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_are_the_same_in_every_unit_and_zone(unit: str):
    texts = ("2024-01-31T06", "2024-02-02T18", "1950-01-01", "1950-01-09")
    days = [datetime.datetime.fromisoformat(each) for each in texts]
    for zone in (None, "UTC", "America/New_York"):
        column = pa.array(days, pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
        frame = pd.Series(column.to_pandas(types_mapper=pd.ArrowDtype))
        assert _tables(frame).times.tolist() == [0, 2.5, 0, 8]


def test_durations_and_times_of_day_are_no_times():
    for kind in (pa.duration("s"), pa.time64("us")):
        column = pd.Series(pa.array([1, 2, 1, 2]).cast(kind), dtype=pd.ArrowDtype(kind))
        with pytest.raises(InputError, match=r"the time 'when' must be numbers or dates, got .*; write it as a number"):
            _tables(column)
        with pytest.raises(InputError, match=r"the times must be numbers or dates, got .*; write it as a number"):
            open_users(_visits(column).assign(film=[1, 2, 1, 2]), user="who", item="film", value="bili", time="when")
