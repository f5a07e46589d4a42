"""A statement in at most eight lines for a terminal: who is protected, how well, on what it rests, what is left out.

A run that was stopped has one more, which comes first. Guarantees the words of the verdict and no others. The whole
text is in the files, and the last line says where.

>>> from sfumato.accounting.events import Gaussian
>>> event = Gaussian(1.1).poisson(0.01) * 100
>>> statement = Statement(
...     unit="user", adjacency="add_remove", epsilon=0.98, delta=1e-6, sampling="Poisson, rate 0.01",
...     mechanism="100 Gaussian sums", noise_source="operating system CSPRNG", assumptions=("N is public.",))
>>> print(*brief(statement, event), sep="\\n")
Strong protection for one person with all of their examples: epsilon 0.98, delta 1e-06.
An attacker who suspects 1 % of the users that did not take part finds at most 1.42 % of those that did.
It rests on: Poisson, rate 0.01; operating system CSPRNG; 1 condition in the statement.
Not covered: what was computed without noise (metrics, evaluations, checkpoints); other releases.
"""

import math
import textwrap

from sfumato._rounding import rounded_up
from sfumato.accounting.events import Event
from sfumato.accounting.statement.statement import Statement, unit_in_words

_WIDTH = 120
MOST_LINES = 8


def brief(
    statement: Statement, event: Event | None = None, *, stopped: str = "", trouble: str = "", where: str = ""
) -> list[str]:
    """The lines.

    Args:
        statement: what was promised.
        event: what was released, from the ledger, if it is at hand.
        stopped: how far a run came that was stopped before its end, a sentence; "" for one that is finished.
        trouble: why the model is of no use, a sentence; "" if nothing is known against it.
        where: where the whole text is.
    """
    verdict = statement.verdict(event)
    lines = _wrapped(stopped) + _wrapped(trouble)
    if math.isinf(statement.epsilon):
        lines += [f"{verdict.title}.", *_wrapped(verdict.sentence)]
    else:
        unit = unit_in_words(statement.unit)
        numbers = f"epsilon {rounded_up(statement.epsilon, 4):.4g}, delta {rounded_up(statement.delta, 3):.3g}"
        stated = f". Stated for {unit}:" if verdict.void else f" for {unit}:"
        lines += [f"{verdict.title}{stated} {numbers}."]
        lines += _wrapped(verdict.sentence) + _wrapped(verdict.delta_too_large)
        conditions = len(statement.assumptions)
        rests = f"{conditions} condition{'' if conditions == 1 else 's'} in the statement"
        lines += [f"It rests on: {statement.sampling}; {statement.noise_source}; {rests}."]
        lines += ["Not covered: what was computed without noise (metrics, evaluations, checkpoints); other releases."]
    if where:
        lines += [f"The whole text: {where}"]
    return lines


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, _WIDTH, break_long_words=False, break_on_hyphens=False)
