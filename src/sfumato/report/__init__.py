"""Pages and figures for people: what was promised, what was reached, what is not covered."""

from sfumato.report.extrapolation import extrapolation_figure
from sfumato.report.page import write_report

__all__ = ["extrapolation_figure", "write_report"]
