"""What a run releases before its first round, and what model and data follow from it.

An opening is a phase of the run: its cost stands in the same ledger, before the rounds, and one statement covers both.
What it releases decides the data that the rounds see and the size of the model; both are made after it. Until then the
run is tried out with something made up, so that a mistake is found before anything is spent.

An opening answers in its docstring: which unit it protects and by how much that unit moves what it counts; who is
counted; what is released; and what happens where a run goes on.
"""

from collections.abc import Mapping
from typing import Any, Protocol, Self

from sfumato._types import Adjacency, Stated
from sfumato.accounting import Event
from sfumato.runs import Run

ROUNDS = "rounds"
"""What the ledger calls the rounds that come after an opening."""


class Opening(Protocol):
    """The first release of a run.

    Attributes:
        phase: its name in the ledger.
        words: how the statement tells it, a phrase.
        assumptions: sentences that its guarantee rests on.
        rehearsal: something made up that it could release.
    """

    @property
    def phase(self) -> str: ...
    @property
    def words(self) -> str: ...
    @property
    def assumptions(self) -> tuple[Stated, ...]: ...
    @property
    def rehearsal(self) -> Any: ...

    def decided(self, delta: float) -> Self:
        """With all settings that follow from the statement's δ.

        Raises:
            InputError: it does not go with this δ.
        """
        ...

    def as_begun(self, recorded: Mapping[str, Any]) -> Self:
        """With what a search found as the run in whose plan.json this was told of the opening has it."""
        ...

    def outlook(self, population: int) -> str:
        """Why it will hardly release anything of use among so many units, from public numbers; "" for no reason."""
        ...

    def event(self, adjacency: Adjacency) -> Event:
        """What it costs one unit.

        Raises:
            InputError: it is not accounted for such neighbours.
        """
        ...

    def fingerprint(self) -> str:
        """Digest of the settings and of the private records, so that a run cannot go on with others."""
        ...

    def about(self, found: Any = None) -> dict[str, Any]:
        """JSON for plan.json; of what was found, for the file of the released model."""
        ...

    def release(self, run: Run, data: Any, adjacency: Adjacency) -> Any:
        """Release it, or read what a run that goes on has released.

        Args:
            run: has started, unless the phase is in its checkpoint.
            data: that the rounds train on; nobody else is counted.
            adjacency: the run's.

        Raises:
            InputError: nothing of use was found; what that cost is spent.
        """
        ...

    def prepare(self, found: Any, data: Any) -> Any:
        """The data as they are after such a release: those to train on, to watch or to test on."""
        ...

    def public(self, data: Any) -> Any:
        """What is public of prepared data: a model is built from that, as its size and first weights are told."""
        ...
