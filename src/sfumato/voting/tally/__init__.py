"""Who counts the votes: this process, or several parties of whom none sees a vote."""

from sfumato.voting.tally.clear import ClearTally
from sfumato.voting.tally.tally import Tally

__all__ = ["ClearTally", "Tally"]
