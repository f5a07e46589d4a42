"""A run: its folder, key, ledger, processes and statement, whatever is released in it; knows no loop."""

from sfumato.runs.checkpoint import Checkpoint
from sfumato.runs.facts import Alternative, Facts
from sfumato.runs.folder import RunFolder
from sfumato.runs.run import Run
from sfumato.runs.searched import SEARCHED, alike, as_begun, is_number
from sfumato.runs.team import Team, share_cores

__all__ = [
    "SEARCHED",
    "Alternative",
    "Checkpoint",
    "Facts",
    "Run",
    "RunFolder",
    "Team",
    "alike",
    "as_begun",
    "is_number",
    "share_cores",
]
