"""Pages and figures for people: what was promised, what was reached, what is not covered.

Each name is imported when it is first asked for: figures of accounting need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.report.page import summary, write_report
    from sfumato.report.plots import extrapolation_figure

__all__ = ["extrapolation_figure", "summary", "write_report"]


def __getattr__(name: str) -> Any:
    """What this package makes public under this name."""
    if name in __all__:
        module = "plots" if name == "extrapolation_figure" else "page"
        return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
