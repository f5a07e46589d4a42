"""Checks of arguments: each refusal names the value, what is allowed and what to do.

`InputError` is the one exception for a user's mistake. The command line prints it as a single line and exits
with code 2; anything else that reaches the command line is a defect of sfumato.

>>> positive(rounds=3)
>>> positive(rounds=0)
Traceback (most recent call last):
...
sfumato._check.InputError: rounds must be > 0, got 0
"""

import difflib
import math
from collections.abc import Iterable

LARGEST_SINGLE = 3e38
"""What single precision holds: a bound on rates, which torch's optimisers turn into it."""

_LOOKED_AT = 60  # characters of a wrong word
_CUT_SHORT = 3  # letters at least, of a word that another one begins with


class InputError(ValueError):
    """A mistake in what was given: one line that names the value and the remedy."""


def first_line(error: Exception) -> str:
    """An error of other people's code in one line: the text of a RuntimeError; any other with its kind in front.

    >>> first_line(RuntimeError("shapes differ\\nsee below")), first_line(KeyError("x")), first_line(RuntimeError())
    ('shapes differ', "KeyError: 'x'", 'RuntimeError')
    """
    text = (str(error).splitlines() or [""])[0].split(" Hint:")[0]
    return text if isinstance(error, RuntimeError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


def _number(name: str, value: object) -> float:
    if isinstance(value, str | bytes | bool) or type(value).__name__ == "bool":  # NumPy's, too
        # float("1") and float(True) are 1, but what goes on is a text or an answer to another question
        raise InputError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)  # type: ignore[arg-type]  # NumPy scalars too
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {value!r}") from None
    except OverflowError:
        raise InputError(f"{name} must be within the range of a double, up to 1.8e308; got more") from None
    if math.isnan(number):
        raise InputError(f"{name} must be a number, got nan")
    return number


def positive(*, remedy: str = "", **values: object) -> None:
    """Refuse anything that is not a finite number > 0."""
    for name, value in values.items():
        number = _number(name, value)
        if not 0 < number < math.inf:
            raise InputError(f"{name} must be > 0{' and finite' if number > 0 else ''}, got {value}{_tail(remedy)}")


def non_negative(*, remedy: str = "", **values: object) -> None:
    """Refuse anything that is not a finite number >= 0."""
    for name, value in values.items():
        number = _number(name, value)
        if not 0 <= number < math.inf:
            raise InputError(f"{name} must be >= 0 and finite, got {value}{_tail(remedy)}")


def whole(*, at_least: int = 1, remedy: str = "", **values: object) -> None:
    """Refuse anything that is not a whole number >= `at_least`."""
    for name, value in values.items():
        number = _number(name, value)
        if math.isinf(number) or number != math.floor(number) or number < at_least:
            raise InputError(f"{name} must be a whole number >= {at_least}, got {value}{_tail(remedy)}")


def between(low: float, high: float, *, ends: str = "[]", remedy: str = "", **values: object) -> None:
    """Refuse anything outside the interval; `ends` names the ends that belong to it, as in "(]"."""
    for name, value in values.items():
        number = _number(name, value)
        above = number >= low if ends[0] == "[" else number > low
        below = number <= high if ends[1] == "]" else number < high
        if not (above and below):
            raise InputError(f"{name} must be in {ends[0]}{low:g}, {high:g}{ends[1]}, got {value}{_tail(remedy)}")


def one_of(allowed: Iterable[object], *, remedy: str = "", **values: object) -> None:
    """Refuse anything that is not one of the allowed values."""
    allowed = list(allowed)
    for name, value in values.items():
        if not _is_among(value, allowed):
            choices = ", ".join(map(str, allowed))
            raise InputError(f"{name} must be one of {choices}, got {value}{guess(value, allowed)}{_tail(remedy)}")


def guess(given: object, allowed: Iterable[object]) -> str:
    """A question after the word that was meant, if something there is similar; goes after the wrong one.

    A word that was cut short means the shortest that begins with it, any other the one that looks most like it.

    >>> guess("lenet6", ["lenet5", "bilstm"]), guess("tree", ["lenet5", "bilstm"])
    (' (did you mean lenet5?)', '')
    >>> guess("--noise", ["--noise-multiplier", "--nose"])
    ' (did you mean --noise-multiplier?)'
    """
    word, words = str(given)[:_LOOKED_AT], [str(each) for each in allowed]
    longer = [each for each in words if each.startswith(word)] if len(word.lstrip("-")) >= _CUT_SHORT else []
    close = sorted(longer, key=len) or difflib.get_close_matches(word, words, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _is_among(value: object, allowed: list[object]) -> bool:
    try:
        return value in allowed
    except ValueError:  # an array, which compares element by element
        return False


def _tail(remedy: str) -> str:
    return f"; {remedy}" if remedy else ""
