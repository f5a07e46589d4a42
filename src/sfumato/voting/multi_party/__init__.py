"""A tally by several parties over TCP, of whom none sees a vote."""

from sfumato.voting.multi_party.tally import MultiPartyTally

__all__ = ["MultiPartyTally"]
