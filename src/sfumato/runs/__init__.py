"""A run: its folder, key, ledger, processes and statement, whatever is released in it; knows no loop."""

from sfumato.runs.checkpoint import Checkpoint
from sfumato.runs.facts import Alternative, Facts
from sfumato.runs.folder import RunFolder
from sfumato.runs.run import Run
from sfumato.runs.team import Team, share_cores

__all__ = ["Alternative", "Checkpoint", "Facts", "Run", "RunFolder", "Team", "share_cores"]
