"""Any schema and any health records that there can be, for properties that hold for all of them."""

import numpy as np
from hypothesis import strategies as st

from sfumato.data.columns import canonical, is_missing
from sfumato.data.ehr.dataset import EHRDataset
from sfumato.data.ehr.schema import Column, Schema, categorical, numeric

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=8).map(str.strip)
CATEGORIES = st.one_of(TEXTS, st.sampled_from(["1", "2.50", "007", "1e3", "True", "a,b", 'say "x"', "line\nbreak"]))
COUNTS = st.integers(1, 3)


@st.composite
def columns(draw: st.DrawFn, names: list[str]) -> tuple[Column, ...]:
    """Columns of these names."""
    made = []
    for name in names:
        if draw(st.booleans()):
            made.append(numeric(name, whole=draw(st.booleans())))
        else:
            texts = CATEGORIES.filter(lambda text: bool(text) and not is_missing(text))
            made.append(categorical(name, draw(st.lists(texts, min_size=1, max_size=4, unique_by=canonical))))
    return tuple(made)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """A schema, with an outcome where it has a column for it."""
    names = draw(st.lists(TEXTS.filter(bool), min_size=3, max_size=7, unique=True))
    static = draw(st.integers(0, len(names) - 3))
    parts = draw(columns(names[2 : 2 + static])), draw(columns(names[2 + static :]))
    two = [column.name for column in parts[0] if len(column.categories) == 2]
    return Schema(
        id=names[0],
        time=names[1],
        time_unit=draw(st.sampled_from(["minutes", "hours", "days"])),
        static=parts[0],
        temporal=parts[1],
        outcome=draw(st.sampled_from([None, *two])),
    )


@st.composite
def records(draw: st.DrawFn, *, singles: bool = False, prefix: str = "") -> EHRDataset:
    """Records of any schema.

    Args:
        draw: given by hypothesis.
        singles: numbers that single precision holds, and times that are whole seconds.
        prefix: of every id.
    """
    schema = draw(schemas())
    lengths = draw(st.lists(COUNTS, min_size=1, max_size=3))
    visits, patients = sum(lengths), len(lengths)
    if singles:
        seconds = {"minutes": 60, "hours": 3600, "days": 86400}[schema.time_unit]
        moments = st.integers(0, 10**7).map(lambda each: each / seconds)
    else:
        life = 120 * 365 * {"minutes": 1440, "hours": 24, "days": 1}[schema.time_unit]
        moments = st.floats(0, life)
    times = [sorted(draw(st.lists(moments, min_size=n, max_size=n, unique=True))) for n in lengths]
    cells = st.floats(allow_infinity=False, width=32 if singles else 64)
    if singles:
        cells = cells.map(lambda value: float(str(np.float32(value))))
    whole = st.one_of(st.integers(-(2**24), 2**24) if singles else st.integers(-(2**53), 2**53), st.just(np.nan))

    def numbers(columns: tuple[Column, ...], rows: int) -> np.ndarray:
        return np.array(
            [[draw(whole if column.whole else cells) for column in columns] for _ in range(rows)], float
        ).reshape(rows, len(columns))

    def codes(columns: tuple[Column, ...], rows: int) -> np.ndarray:
        return np.array(
            [[draw(st.integers(-1, len(column.categories) - 1)) for column in columns] for _ in range(rows)], np.int32
        ).reshape(rows, len(columns))

    ids = st.one_of(st.sampled_from(["1", "2.50", "007", "a,b"]), TEXTS).filter(bool)
    return EHRDataset(
        schema=schema,
        ids=tuple(prefix + name for name in draw(st.lists(ids, min_size=patients, max_size=patients, unique=True))),
        static_numbers=numbers(schema.static_numeric, patients),
        static_codes=codes(schema.static_categorical, patients),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        times=np.concatenate(times),
        numbers=numbers(schema.temporal_numeric, visits),
        codes=codes(schema.temporal_categorical, visits),
    )


def assert_same(one: EHRDataset, other: EHRDataset, *, ids: bool = True) -> None:
    """Every value is the same, and the schema is."""
    assert one.schema == other.schema
    assert not ids or one.ids == other.ids
    for name in ("static_numbers", "static_codes", "offsets", "times", "numbers", "codes"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
