"""Settings that one choice of a plan reads: with another they would do nothing, and nobody would be told.

Their default means that they were not given; a default of their own could not be told from the same value given.
"""

from collections.abc import Mapping
from typing import Any

from sfumato._check import InputError


def refuse_unused(plan: Any, choice: str, only_for: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse settings that belong to another choice than the plan's.

    Args:
        plan: a dataclass.
        choice: the field that decides, "noise" for example.
        only_for: by field, the values of the choice that read it.

    Raises:
        InputError: one of them was given.
    """
    chosen, defaults = getattr(plan, choice), unset(plan, only_for)
    for name, readers in only_for.items():
        if chosen not in readers and getattr(plan, name) != defaults[name]:
            raise InputError(
                f"{name} is for {choice}={' or '.join(readers)}, got {choice}={chosen}; leave it out, or choose that "
                f"{choice}"
            )


def unset(plan: Any, names: Mapping[str, object]) -> dict[str, Any]:
    """These fields as if they had not been given."""
    fields = type(plan).__dataclass_fields__
    return {name: fields[name].default for name in names}
