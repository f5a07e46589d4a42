"""How good a model is for people whose own part is rebuilt: on one part of their records, measured on the rest.

Who is measured may never have taken part in the training; nothing distinguishes them from those who did. The division
of a person's records is the same in every measurement. People with a single record have none to be measured on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError
from sfumato._types import Stated
from sfumato.data import UserDataset
from sfumato.federated.local_training import PartlyLocalTraining, Phase
from sfumato.federated.serving import Serving
from sfumato.federated.tasks.outputs import OutputTask

_GROUPS = (1, 10, 30, 100, 300)
"""Records of a person from which on the next group begins."""


@dataclass(frozen=True, kw_only=True)
class Personalised:
    """A model with a part of each person's own; data sets are `UserDataset`s.

    Attributes:
        inner: what is measured.
        client: how an own part is rebuilt, and how records are divided.
        trainable: which parameters were trained.
        own: a regular expression of those that are each person's own; None takes what the model says, "" for none.
        at_once: people in one batched operation.
        phases: what a person's records do to the model before it is measured; () rebuilds the own part.
    """

    inner: OutputTask
    client: PartlyLocalTraining
    trainable: str = "all"
    own: str | None = None
    at_once: int = 1
    phases: Sequence[Phase] = ()

    asks_seen: ClassVar[bool] = True
    """Measured on people who took part, too: nothing should distinguish them from others."""

    def check(self, data: UserDataset) -> None:
        """Refuse what the inner task refuses, and data of which nobody has two records."""
        self.inner.check(data)
        if data.sizes.max(initial=0) < 2:
            raise InputError("nobody has two records: one rebuilds the own part, another one updates the shared one")

    def measure(self, model: nn.Module, data: UserDataset, *, curve: bool, device: str) -> dict[str, Any]:
        """On the part of everybody's records that nothing was rebuilt from; with `curve` also by number of records."""
        own = own_parameters(model, self.own) if self.own != "" else None
        serving = Serving(model, self.client, trainable=self.trainable, own=own, at_once=self.at_once, device=device)
        phases = self.phases or ((self.client.local.phase,) if self.client.local.phase.most else ())
        asked = Phase(records="query", own=None, shared=None, batch_size=None)
        known = self.inner.known_of(data, device)
        groups: dict[int, Tensor] = {}
        people = np.zeros(len(_GROUPS), np.int64)
        for answers in serving.answers(data, phases, asked):
            group = np.searchsorted(_GROUPS, data.sizes[answers.users], side="right") - 1
            owner = np.repeat(group, answers.counts)
            people += np.bincount(group[answers.counts > 0], minlength=len(_GROUPS))
            for each in np.unique(owner).tolist():
                here = torch.from_numpy(owner == each).to(answers.outputs.device)
                sums = self.inner.sums(answers.outputs[here], answers.labels[here], known)
                groups[each] = groups[each] + sums if each in groups else sums
        total = sum(groups.values(), torch.zeros((), dtype=torch.float64, device=device))
        row = self.inner.told(total)
        if curve:
            row["by_records"] = [
                {**self.inner.row(groups[each].tolist()), "records": _range(each), "users": int(people[each])}
                for each in sorted(groups)
            ]
        return row

    def about_test(self, data: UserDataset, row: dict[str, Any]) -> dict[str, Any]:
        """As of the inner task."""
        return self.inner.about_test(data, row)

    def headline(self, row: dict[str, Any]) -> str:
        """As of the inner task."""
        return self.inner.headline(row)

    def table(self, evaluation: dict[str, Any]) -> tuple[list[str], list[str], str]:
        """As of the inner task."""
        names, keys, told = self.inner.table(evaluation)
        return names, keys, f"{told}, each with an own part rebuilt from their other records"

    def assumptions(self, data: UserDataset) -> list[Stated]:
        """As of the inner task."""
        return self.inner.assumptions(data)


def own_parameters(model: nn.Module, wanted: str | None) -> str:
    """The regular expression of the parameters that are each person's own: that which is wanted, or the model's.

    Raises:
        InputError: neither says.
    """
    told = wanted or getattr(model, "local_parameters", None)
    if not told:
        names = ", ".join(name for name, _ in model.named_parameters())
        raise InputError(
            "which parameters are each user's own? give client.local.parameters, a regular expression of whole names; "
            f"the model has {names}"
        )
    return told


def _range(group: int) -> str:
    least = _GROUPS[group]
    return f"{least} or more" if group + 1 == len(_GROUPS) else f"{least} to {_GROUPS[group + 1] - 1}"
