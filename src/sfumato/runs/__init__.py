"""A run: its folder, key, ledger and processes, whatever is released in it; knows no loop."""

from sfumato.runs.folder import RunFolder
from sfumato.runs.team import Team

__all__ = ["RunFolder", "Team"]
