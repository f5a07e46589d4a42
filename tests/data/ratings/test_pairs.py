"""Pairs of users and items, as they are asked for: read from what ratings are read from, without their values."""

import pytest

from sfumato._check import InputError
from sfumato.data.readers.ratings import pairs

WHO = {"user": "user", "item": "item", "users": ["al", "bo"], "items": ["x", "y", "z"]}


def test_rows_keep_the_order_of_the_files_and_take_the_numbers_of_the_lists(tmp_path):
    (tmp_path / "a.csv").write_text("item,when,user\nz,1,bo\nx,2, al \n")
    (tmp_path / "b.csv").write_text("user,item\nbo,y\nbo,z\n")
    found = pairs([tmp_path / "a.csv", tmp_path / "b.csv"], **WHO)
    assert (found.users.tolist(), found.items.tolist(), found.left_out) == ([1, 0, 1, 1], [2, 0, 1, 2], 0)


def test_a_row_of_somebody_or_something_unknown_is_named_by_its_line(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\nbo,y\ncy,x\n")
    with pytest.raises(InputError, match=r"a\.csv line 3 asks about 'cy'"):
        pairs(tmp_path / "a.csv", **WHO)
    (tmp_path / "a.csv").write_text("user,item\nbo,q\nal,x\n")
    with pytest.raises(InputError, match=r"a\.csv line 2 asks about the item 'q'"):
        pairs(tmp_path / "a.csv", **WHO)
    found = pairs(tmp_path / "a.csv", **WHO, on_unknown="skip")
    assert (found.users.tolist(), found.items.tolist(), found.left_out) == ([0], [0], 1)


def test_nobody_to_ask_about_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\nbo,q\n")
    with pytest.raises(InputError, match="no user is asked about"):
        pairs(tmp_path / "a.csv", **WHO, on_unknown="skip")
