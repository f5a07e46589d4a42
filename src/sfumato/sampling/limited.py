"""What samplers with limits on participation have in common: their refusals and their words.

Nothing amplifies: anybody may know who takes part when. What such a run costs follows from how often and how soon a
unit comes back, over the whole run; `Sampler.participation` promises it and `draw` keeps it.
"""

from typing import NoReturn

from sfumato._check import InputError
from sfumato.accounting import Participation


def refuse_other_plan(name: str, planned: int, present: int, rounds: int, round: int) -> None:
    """Refuse a number of units, or a round, that the schedule was not made for.

    Raises:
        InputError: it is not the planned population, or not one of the planned rounds.
    """
    if present != planned:
        raise InputError(
            f"{name} was planned for {planned} units but {present} are present: a population that changes would change "
            "who takes part when; set population to the number of units"
        )
    if not 0 <= round < rounds:
        raise InputError(
            f"{name} was planned for {rounds} rounds, got round {round + 1}; set rounds to that of the run"
        )


def refuse_single_round(name: str, limits: Participation) -> NoReturn:
    """There is no event of one round, because a unit is in few of them and repeating it would charge all.

    Raises:
        InputError: always.
    """
    raise InputError(
        f"one round of {name} has no event of its own, as nothing amplifies it and a unit is in at most {limits.most} "
        f"of {limits.rounds} rounds; account the run as a whole, by event.min_separation or by correlated noise"
    )


def within(limits: Participation, rounds: int, name: str) -> Participation:
    """The limits of the first so many rounds.

    Raises:
        InputError: more rounds than were planned.
    """
    if rounds > limits.rounds:
        raise InputError(f"{name} was planned for {limits.rounds} rounds, got {rounds}; set rounds to that of the run")
    return Participation(
        rounds=rounds, max_participations=limits.max_participations, min_separation=limits.min_separation
    )


def in_words(limits: Participation) -> str:
    """For the statement.

    >>> in_words(Participation(rounds=2000, max_participations=6, min_separation=313))
    'each unit in at most 6 rounds, 313 or more rounds between two of them'
    >>> in_words(Participation(rounds=9, max_participations=1, min_separation=2))
    'each unit in at most 1 round'
    """
    often = f"each unit in at most {limits.most} round{'s' if limits.most > 1 else ''}"
    apart = limits.min_separation
    if limits.most == 1 or apart == 0:
        return often
    return f"{often}, {apart} or more round{'s' if apart > 1 else ''} between two of them"
