"""Templates filled, and pages written: one file that loads nothing, whatever it is about."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sfumato import __version__
from sfumato._check import InputError
from sfumato._files import write_atomic
from sfumato.report import numbers
from sfumato.report.chart import palette


def fill(template: str, **values: Any) -> str:
    """A page's HTML.

    Args:
        template: its file's name.
        values: what it shows, besides the style sheet, the version and `count`.
    """
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    """Templates, each compiled once in a process, and what all of them show."""
    loader = PackageLoader("sfumato.report")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_unbroken,
    )
    environment.filters["drawing"] = Markup  # charts escape their own text
    style = loader.get_source(environment, "style.css")[0]
    environment.globals |= {"style": Markup(f"{style}{palette()}"), "version": __version__, "count": numbers.count}
    return environment


def write_page(out: Path, text: str, *, private: bool) -> None:
    """Write a page, for its owner's eyes alone if it is private.

    Raises:
        InputError: it cannot be written there.
    """
    try:
        write_atomic(out, text.encode(), private=private)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; choose another place") from None


def refuse_folder(out: Path, name: str) -> None:
    """Refuse a folder where a page is to be written, before any work is done for it."""
    if out.is_dir():
        raise InputError(f"{out} is a folder; give a file name, {out / name} for example")


def _unbroken(item: Any) -> Any:
    """No line ends between a number and its percent sign."""
    return item.replace(" %", "\N{NO-BREAK SPACE}%") if isinstance(item, str) else item
