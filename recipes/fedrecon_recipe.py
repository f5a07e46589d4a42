"""What the recipes of ratings and likes share: models of which each person's vector never leaves, and baselines.

A method trains items' vectors, with people's vectors in a table on the server, with one vector for all, or with each
person's own. All are measured on the same people, whom no one trained on, and on the same half of their records: with
the vector that everybody begins with, or with one that some steps have rebuilt from the other half.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cells
from torch import nn

from sfumato._files import read_json, write_json
from sfumato.data import Split, UserDataset
from sfumato.federated import Centralized, FedAvg, FedRecon
from sfumato.federated.tasks import OutputTask, Personalised
from sfumato.models import Recommender
from sfumato.training import RunOptions

_MEASURED = "measured.json"


@dataclass(frozen=True, kw_only=True)
class Method:
    """How items' vectors are trained.

    Attributes:
        plan: without seed.
        table: whether the server has a vector for each person.
        rebuild: how vectors are rebuilt of people who are measured; its rounds do not matter.
        steps: by how many steps, in turn; 0 leaves the vector that everybody begins with.
        seen: whether people who took part are measured, too.
    """

    plan: Centralized | FedAvg | FedRecon
    rebuild: FedRecon
    table: bool = False
    steps: tuple[int, ...]
    seen: bool = False

    @property
    def standard(self) -> int:
        """Steps that rebuild a vector in training, and when its row is measured."""
        return self.rebuild.client.local.steps

    def titled(self, name: str) -> Iterator[tuple[str, int]]:
        """Titles of its rows, and after how many steps each is measured."""
        if len(self.steps) < 3:  # as it is, and rebuilt
            for steps in self.steps:
                yield f"{name}, then rebuilt" if steps and len(self.steps) > 1 else name, steps
            return
        yield name, self.standard
        for steps in self.steps:
            yield after(name, steps), steps

    def task(self, inner: OutputTask, steps: int) -> Personalised:
        """The measure of people whose vectors so many steps have rebuilt."""
        epochs = self.rebuild.client.local.epochs if steps == self.standard else None
        client = self.rebuild.replace(client={"local": {"steps": steps, "epochs": epochs}}).client
        return Personalised(inner=inner, client=client, at_once=client.at_once)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Methods on one data set.

    Attributes:
        methods: by name.
        people: everybody in one part; with True the inputs have the person's number as a second column.
        model: from the data, the seed, and the number of people in a table, None for one person.
        inner: what is measured of an answer.
    """

    methods: dict[str, Method]
    people: Callable[[bool], Split]
    model: Callable[[UserDataset, int, int | None], Recommender]
    inner: OutputTask

    def cell(self, name: str, seed: int, folder: Path, quick: bool, _: Path | None) -> None:
        """Train one method with one seed, or go on with it, and measure it."""
        if (folder / _MEASURED).exists():
            return
        method = self.methods[name]
        plan = method.plan.replace(rounds=3) if quick else method.plan
        train = self.people(method.table).train
        if plan.private:
            plan = dataclasses.replace(plan, delta=plan.public_population(train) ** -1.1)
        table = len(train.offsets) - 1 if method.table else None
        result = dataclasses.replace(plan, seed=seed).fit(
            self.model(train, seed, table),
            train,
            out=folder,
            resume=(folder / "checkpoint" / "state.safetensors").exists(),
            options=RunOptions(checkpoint_every=50),
        )
        cells.refuse_stopped(result.finished)
        split = self.people(False)
        single = self.model(split.train, seed, None)
        own = single.local_parameters.split("|")
        if method.table:  # no one trained on these people: their rows are as all began
            trained = result.model.state_dict()
            single.load_state_dict(
                {name: trained[name] for name in single.state_dict() if name not in own}, strict=False
            )
        else:
            single.load_state_dict(result.model.state_dict())

        def measured(people: UserDataset, steps: int) -> dict[str, Any]:
            return method.task(self.inner, steps).measure(single, people, curve=True, device="cpu")

        kept = own if isinstance(plan, FedRecon) else ()
        write_json(
            folder / _MEASURED,
            {
                "unseen": {str(steps): measured(split.test, steps) for steps in method.steps},
                "seen": measured(split.train, method.standard) if method.seen else None,
                "kilobytes_sent": None if isinstance(plan, Centralized) else _kilobytes(single, kept),
            },
        )


def _kilobytes(model: nn.Module, kept: Collection[str]) -> float:
    """What a person sends in a round: the change of all that is shared, in single precision; of a table, their row."""
    return sum(4 * value.numel() for name, value in model.named_parameters() if name not in kept) / 1000


def after(name: str, steps: int) -> str:
    """Title of the row of people whose vectors so many steps have rebuilt."""
    return f"{name}, measured after {steps} step{'s' * (steps != 1)}"


def measured(place: Callable[[str, int], Path], name: str, seeds: int) -> list[dict[str, Any]]:
    """What was measured of a method, for each seed."""
    return [read_json(place(name, seed) / _MEASURED) for seed in range(seeds)]
