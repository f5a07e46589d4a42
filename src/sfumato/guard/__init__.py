"""The one check of users' code: what runs for one unit must give what it gives without the others."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.guard.examples import SelfCheck, examples_first, self_check
    from sfumato.guard.guard import Findings, Subject, due, refuse_memory, try_out
    from sfumato.guard.recheck import Recheck, examples_tried
    from sfumato.guard.trial import Coupled

__all__ = [
    "Coupled",
    "Findings",
    "Recheck",
    "SelfCheck",
    "Subject",
    "due",
    "examples_first",
    "examples_tried",
    "refuse_memory",
    "self_check",
    "try_out",
]
__getattr__, __dir__ = lazily(__name__)
