"""Pages and figures for people: what was promised, what was reached, what is not covered."""

from sfumato.report.extrapolation import extrapolation_figure
from sfumato.report.in_brief import in_brief
from sfumato.report.page import write_report

__all__ = ["extrapolation_figure", "in_brief", "write_report"]
