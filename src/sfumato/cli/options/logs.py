"""`--log KIND:WHERE` → callbacks that log the run there."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sfumato._check import InputError, guess
from sfumato.cli.parse import shortened
from sfumato.integrations import Log, MLflow, TensorBoard, WandB

_URI = re.compile(r"[a-z][a-z0-9+-]*:")


def open_logs(words: Sequence[str], out: Path, *, private: bool, public_evaluation: bool) -> list[Log]:
    """The logs of a run.

    Args:
        words: as given: tensorboard:DIR, wandb:PROJECT, mlflow:EXPERIMENT or mlflow:URI#EXPERIMENT.
        out: folder of the run, whose name is the log's.
        private: log what is private, too.
        public_evaluation: what was measured may be logged.

    Raises:
        InputError: no such kind, a place of no use, the same one twice, or its package is missing.
    """
    if not words and (private or public_evaluation):
        flag = "--log-private" if private else "--public-evaluation"
        raise InputError(f"{flag} says what is logged, and there is no log; give --log tensorboard:DIR, for example")
    twice = next((word for word in words if words.count(word) > 1), None)
    if twice is not None:
        raise InputError(f"--log {shortened(twice)} is given twice; give each log once")
    return [_opened(word, out, private=private, public_evaluation=public_evaluation) for word in words]


def _opened(word: str, out: Path, **what: bool) -> Log:
    kind, _, where = word.partition(":")
    if kind not in _KINDS or not where:
        hint = "" if kind in _KINDS else guess(kind, _KINDS)
        raise InputError(
            "--log must be tensorboard:DIR, wandb:PROJECT, mlflow:EXPERIMENT or mlflow:URI#EXPERIMENT, got "
            f"{shortened(word)}{hint}"
        )
    return _KINDS[kind](where, out, what)


def _tensorboard(where: str, out: Path, what: dict[str, Any]) -> Log:
    return TensorBoard(Path(where) / out.resolve().name, **what)


def _wandb(where: str, out: Path, what: dict[str, Any]) -> Log:
    return WandB(where, run=out, **what)


def _mlflow(where: str, out: Path, what: dict[str, Any]) -> Log:
    uri, _, experiment = where.partition("#") if _URI.match(where) else ("", "", where)
    named = {"experiment": experiment} if experiment else {}
    return MLflow(**named, uri=uri or None, run=out, **what)


_KINDS: dict[str, Callable[[str, Path, dict[str, Any]], Log]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
