"""A run: its folder, key, ledger, processes and statement, whatever is released in it; knows no loop."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.runs.checkpoint import Checkpoint
    from sfumato.runs.folder import RunFolder
    from sfumato.runs.processes import Team, share_cores
    from sfumato.runs.run import Run
    from sfumato.statement.facts import Alternative, Facts

__all__ = [
    "Alternative",
    "Checkpoint",
    "Facts",
    "Run",
    "RunFolder",
    "Team",
    "share_cores",
]
__getattr__, __dir__ = lazily(__name__)
