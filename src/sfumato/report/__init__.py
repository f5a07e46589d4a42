"""Pages and figures for people: what was promised, what was reached, what is not covered."""

from sfumato.report.extrapolation import extrapolation_figure
from sfumato.report.page import summary, write_report

__all__ = ["extrapolation_figure", "summary", "write_report"]
