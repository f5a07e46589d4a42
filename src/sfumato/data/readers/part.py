"""The two parts of a data set that its authors divided."""

from typing import Literal

from sfumato._check import InputError

Part = Literal["train", "test"]
"""Which of the two parts of a data set that its authors divided."""


class MissingPart(InputError):
    """The data do not come with this part, as opposed to a part that cannot be read."""
