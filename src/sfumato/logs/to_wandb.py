"""Numbers, configuration and the statement in a run of Weights & Biases.

Nothing is sent but what is logged: not the terminal's output, which shows losses, nor code, command line or the load of
the machine. The service itself notes when each row arrives, which tells how long a round took.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato._check import InputError
from sfumato.logs.log import Log, package
from sfumato.logs.place import Place

_FORBIDDEN = frozenset("\\#?%:")
_LONGEST = 128


class WandB(Log):
    """Into a project of Weights & Biases.

    Args:
        project: its name, or ENTITY/PROJECT.
        run: folder of the run (`fit(out=)`), so that a resumed run goes on in the same place; None for a new one.
        private: log what is private, too: see `Log`.
        public_evaluation: see `Log`.

    Raises:
        InputError: wandb is not installed, or the project cannot be called so.
    """

    service = "Weights & Biases"

    def __init__(
        self,
        project: str,
        *,
        run: str | Path | None = None,
        private: bool = False,
        public_evaluation: bool = False,
    ) -> None:
        super().__init__(private=private, public_evaluation=public_evaluation)
        entity, _, self._project = project.rpartition("/")
        self._entity = entity or None
        if not self._project or "/" in entity or _FORBIDDEN & set(project) or len(self._project) > _LONGEST:
            raise InputError(
                f"a project of Weights & Biases is PROJECT or ENTITY/PROJECT, of at most {_LONGEST} letters and none "
                f"of {' '.join(sorted(_FORBIDDEN))}, got {project!r:.160}"
            )
        self.where = project
        self._wandb = package("wandb", module="wandb", extra="wandb")
        self.failures = (OSError, self._wandb.errors.Error)
        self._place = Place(run, f"wandb:{project}")

    def begin(self, plan: Mapping[str, Any], done: int) -> None:
        """A run there, or the one that was begun; its steps only go forward, so repeated rounds are not doubled."""
        settings = self._wandb.Settings(
            console="off",
            save_code=False,
            disable_code=True,
            disable_git=True,
            x_disable_stats=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
            silent=True,
        )
        known = self._place.known
        self._run = self._wandb.init(
            project=self._project,
            entity=self._entity,
            id=known,
            name=None if self._place.run is None else self._place.run.name,
            resume=None if known is None else "allow",
            config=dict(plan),
            reinit="create_new",
            settings=settings,
        )
        self._place.keep(self._run.id)
        self._last = self._run.step - 1 if known is not None else -1

    def write(self, round: int, numbers: Mapping[str, float]) -> None:
        """One row of the round."""
        if round > self._last:
            self._run.log(dict(numbers), step=round)

    def end(self, round: int, numbers: Mapping[str, float], statement: str, *, finished: bool) -> None:
        """The statement in the summary."""
        self._run.summary.update({**numbers, "statement/text": statement})
        self._run.finish(exit_code=0 if finished else 1)
