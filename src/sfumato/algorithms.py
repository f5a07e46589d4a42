"""The registry: what a system has to say to have a command, a page and a place in the tests.

A system says it in the module of its plan: `ALGORITHM = Algorithm(…)`, or `ALGORITHMS = (…)` of several. These are read
from the sources, and nothing is imported before it is asked for, so that the overview of the commands answers at once.

>>> ALGORITHMS["dpsgd"].title, ALGORITHMS["dpsgd"].load().__name__
('SGD', 'DPSGD')
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sfumato._types import Algorithm

_PACKAGES = ("federated", "central", "voting", "labels", "synthesis")
_DECLARATION = re.compile(r"^ALGORITHMS? = .*?^\)$", re.MULTILINE | re.DOTALL)


def _declared() -> Iterator[Algorithm]:
    """What the modules of these packages declare."""
    for package in _PACKAGES:
        for module in sorted(Path(__file__).with_name(package).glob("*.py")):
            for declaration in _DECLARATION.findall(module.read_text(encoding="utf-8")):
                calls = (node for node in ast.walk(ast.parse(declaration)) if isinstance(node, ast.Call))
                for call in calls:
                    yield Algorithm(**{each.arg or "": ast.literal_eval(each.value) for each in call.keywords})


ALGORITHMS = {each.name: each for each in _declared()}
"""By the name of the plan, which is also the command's unless it has one of its own."""

TRAINED = {name: each for name, each in ALGORITHMS.items() if each.records in ("users", "examples")}
"""Those that train in rounds on the records themselves."""

SYNTHETIC = {name: each for name, each in ALGORITHMS.items() if each.records == "ehr"}
"""Those that learn from health records, to make new ones, in stages of their own: what is asked of sums in rounds
does not apply to them."""


def command_of(plan: str) -> str:
    """The words of a plan's command; the name itself where no plan is called so."""
    return ALGORITHMS[plan].words if plan in ALGORITHMS else plan
