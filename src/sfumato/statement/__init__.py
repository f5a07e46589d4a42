"""The statement: what was promised to whom, and the questions that it answers; no torch."""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.statement.facts import Alternative, Facts, make_statement
    from sfumato.statement.sentences import SENTENCES, render
    from sfumato.statement.statement import NOT_STATED, QUESTIONS, Statement, brief
    from sfumato.statement.verdict import Verdict, default_delta

__all__ = [
    "NOT_STATED",
    "QUESTIONS",
    "SENTENCES",
    "Alternative",
    "Facts",
    "Statement",
    "Verdict",
    "brief",
    "default_delta",
    "make_statement",
    "render",
]
__getattr__, __dir__ = lazily(__name__)
