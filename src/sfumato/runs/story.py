"""What a run has recorded so far, as one word: the same after the same releases in the same order, else another.

A phase draws its randomness under this word. So two copies of a stopped run that go on in different ways, by another
order, with something between, or at another point of a loop, draw different noise, and the difference of what they
release tells no sum; a run that goes on as it did before draws the same again. Another query under the same name, event
and public fields is not told from the first: do not go on twice from one folder. Budgets and statements are no part of
it, nor is where the ledger lies: a run in memory has the same word.

>>> from sfumato.accounting import Gaussian
>>> one, other = Story(), Story()
>>> one.add({"phase": "votes", "event": Gaussian(2.0).to_json()}); one.word == other.word
False
>>> other.add({"event": Gaussian(2.0).to_json(), "phase": "votes", "hash": "of the ledger's"}); one.word == other.word
True
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from sfumato.accounting.ledger import chain


class Story:
    """The chain of a ledger's releases without what tells one ledger from another."""

    def __init__(self) -> None:
        self.word = chain.ORIGIN

    @classmethod
    def of(cls, entries: Iterable[Mapping[str, Any]]) -> Self:
        """That of a ledger's entries."""
        story = cls()
        for entry in entries:
            if "event" in entry:
                story.add(entry)
        return story

    def add(self, entry: Mapping[str, Any]) -> None:
        """Take in a release; fields as in the ledger."""
        told = {name: value for name, value in entry.items() if name not in chain.RESERVED}
        sealed = chain.seal({**told, "event": entry["event"]}, index=0, previous=self.word)
        self.word = sealed["hash"]
