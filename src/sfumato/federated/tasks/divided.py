"""What all data of users have to be, whatever is learned from them."""

from typing import Any

from sfumato._check import InputError
from sfumato.data import UserDataset


def refuse_undivided(data: Any) -> None:
    """Refuse data that are not divided by user.

    Raises:
        InputError: with how to divide them.
    """
    if not isinstance(data, UserDataset):
        raise InputError(
            f"data must be divided by user (UserDataset), got {type(data).__name__}; data.from_table(table, "
            "user=…, input=…) makes them of a table, data.from_arrays of arrays; single examples are for DPSGD"
        )


def refuse_few(data: UserDataset) -> None:
    """Refuse data in which nobody can hide among others.

    Raises:
        InputError: there are fewer than two users.
    """
    if len(data) == 0:
        raise InputError("the data set has no users; point to a folder with one sub-folder a user")
    if len(data) == 1:
        raise InputError("the data set has one user; a private sum needs at least 2")
