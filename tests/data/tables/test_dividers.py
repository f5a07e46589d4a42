"""A table whose columns are divided by another mark than its name says."""

from pathlib import Path

import pytest

from sfumato._check import InputError
from sfumato.data import ehr_from_tables


@pytest.mark.parametrize("mark", [";", "|"])
def test_one_column_that_is_several_is_refused_with_the_mark_between_them(tmp_path: Path, mark: str):
    rows = [["who", "day", "bili"], ["al", "0", "1.5"], ["al", "3", "2.5"]]
    (tmp_path / "visits.csv").write_text("\n".join(mark.join(row) for row in rows))
    with pytest.raises(
        InputError, match=r"are its columns divided by .* Write them with commas, or with tabs"
    ) as refusal:
        ehr_from_tables(tmp_path / "visits.csv", id="who", time="day")
    assert repr(mark) in str(refusal.value)
