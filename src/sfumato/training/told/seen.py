"""People who took part, measured as those are who did not.

What it shows was computed from private records without noise, so it is private: it stays in the folder of the run and
on its own page, and is told nowhere else unless somebody asks for private figures.
"""

from typing import Any

import numpy as np

from sfumato.training.task import Task

SEEN = "seen"
"""The name of the measurement in evaluation.json, beside "untrained" and "trained"."""

_SAID = "measured without noise on people who took part"


def who_took_part(task: Task, data: Any, test: Any) -> Any | None:
    """Some of those who took part, at most as many as the test has; None where the task does not ask for them.

    They stand at even distances in the data: a rule that looks at nobody's records.
    """
    if test is None or not getattr(task, "asks_seen", False):
        return None
    count = min(len(data), len(test))
    return data.subset(np.arange(count) * len(data) // count)


def marked(row: dict[str, Any], people: Any) -> dict[str, Any]:
    """The row as evaluation.json has it: of how many people, and that it is private."""
    return {"not_private": _SAID, "users": len(people), **row}
