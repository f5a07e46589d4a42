"""Pages and figures for people: what was promised, what was reached, what is not covered.

Each name is imported when it is first asked for: figures of accounting need no torch.
"""

from typing import TYPE_CHECKING

from sfumato._lazy import lazily

if TYPE_CHECKING:
    from sfumato.report.extrapolation import ExtrapolationRow, crossings, extrapolate
    from sfumato.report.page import summary, write_report
    from sfumato.report.plots import extrapolation_figure

__all__ = ["ExtrapolationRow", "crossings", "extrapolate", "extrapolation_figure", "summary", "write_report"]
__getattr__, __dir__ = lazily(__name__)
