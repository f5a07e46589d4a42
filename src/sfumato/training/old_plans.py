"""Plans that earlier versions wrote: flat fields, put into the parts that they belong to now.

Runs of earlier versions are read (report, personalise); they do not go on.
"""

from collections.abc import Mapping
from typing import Any

from sfumato._types import PLAN_FORMAT
from sfumato.training.plan import Plan

_PATHS = {
    "clip_norm": "clipping.norm",
    "clipping": "clipping.kind",
    "noise": "noise.kind",
    "noise_multiplier": "noise.noise_multiplier",
    "sampling": "cohort.kind",
    "optimizer": "server.name",
    "loss": "client.loss.kind",
}
"""Where old fields are now, if it is not what `Plan.renamed` says."""

_WORDS = {"fixed": "fixed_size", "cyclic": "cyclic_poisson"}
"""Words of samplings that were renamed."""


def current(recorded: Mapping[str, Any], kind: type[Plan]) -> dict[str, Any]:
    """The plan of a plan.json as it would be written now.

    Args:
        recorded: what plan.json holds, of this version or an earlier one.
        kind: the plan's class.
    """
    if recorded.get("format") == PLAN_FORMAT:
        return dict(recorded)
    found: dict[str, Any] = {"format": PLAN_FORMAT}
    for name, value in recorded.items():
        path = _PATHS.get(name, kind.renamed.get(name, name))
        if name not in _PATHS and "." in path and value is None:
            continue  # it was not given
        *parts, last = path.split(".")
        place = found
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = _WORDS.get(value, value) if path == "cohort.kind" else value
    for name, choice in kind.choices.items():
        if isinstance(found.get(name), dict):
            found[name] = _of_its_kind(found[name], choice)
    return found


def _of_its_kind(settings: dict[str, Any], choice: Any) -> dict[str, Any]:
    """Without the fields of other kinds, which an earlier version wrote too."""
    word = settings.get("kind")
    if word is None:
        return settings
    return {name: value for name, value in settings.items() if name == "kind" or word in choice.of.having(name)}
