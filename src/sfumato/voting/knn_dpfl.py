"""kNN-DPFL: an agent votes by the labels of its nearest records in a public feature space; nothing is trained.

- **Unit.** One record (the default), or an agent with all of its records.
- **Sensitivity.** sqrt(2)/k for one record: it makes way for one other neighbour, of one kind of label or another. For
  an agent 1, sqrt(2) where it is replaced. Both rest on features that are a fixed public function of one record, on
  ties that are broken by what records hold, and on distances that no other record can round in another way; see
  `voting.voters.nearest`. A vote is divided by k, however many records an agent has. Of attributes each
  record's row weighs tau at most, before rows are added up.

>>> KNNDPFL(neighbours=8, noise_std=25.0).answer_event().sensitivity("add_remove") * 8 == 2**0.5
True

References:
    Zhu et al. 2021, arXiv 2010.04851. Algorithm 2. Their cost of one record has k where the sensitivity gives k^2; a
    statement has the latter, and the printed one beside it.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from sfumato import _check
from sfumato._random import RandomSource
from sfumato.accounting.events.vote import Level
from sfumato.data import ExampleDataset, UserDataset, to_tensor
from sfumato.models import features_of
from sfumato.voting.fit import VotingPlan
from sfumato.voting.voters.nearest import ROW_PARTS, Distance
from sfumato.voting.voters.neighbours import FewRecords, NeighbourVoter


@dataclass(frozen=True, kw_only=True)
class KNNDPFL(VotingPlan):
    """Fields beside those of `VotingPlan`.

    Attributes:
        neighbours: k, how many records vote for an agent, >= 1.
        distance: "euclidean" or "cosine".
        few_records: "refuse" agents with fewer than k records, or let them vote with a "share": n/k of a vote.
        student_inputs: whether the student sees the "features" of an example or its "inputs".
    """

    level: Level = "instance"
    neighbours: int = 8  # pyright: ignore[reportIncompatibleMethodOverride]
    distance: Distance = "euclidean"
    few_records: FewRecords = "refuse"
    student_inputs: Literal["features", "inputs"] = "features"

    name: ClassVar[str] = "knn_dpfl"
    title: ClassVar[str] = "kNN-DPFL"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.whole(neighbours=self.neighbours)
        _check.one_of(("euclidean", "cosine"), distance=self.distance)
        _check.one_of(("refuse", "share"), few_records=self.few_records)
        _check.one_of(("features", "inputs"), student_inputs=self.student_inputs)

    def assumptions(self) -> tuple[str, ...]:
        return (
            "The features are a fixed public function of one record: they were not trained, fitted or scaled on the "
            "agents' records.",
        )

    def units(self, *, hard: bool) -> int:
        return super().units(hard=hard) if self.attributes is None else self.neighbours * ROW_PARTS

    def voter(
        self,
        agents: UserDataset,
        pool: ExampleDataset,
        queries: np.ndarray,
        how: Any,
        source: RandomSource,
        device: str,
    ) -> NeighbourVoter:
        return NeighbourVoter(
            agents,
            pool.subset(queries),
            neighbours=self.neighbours,
            features=how,
            attributes=self.attributes,
            distance=self.distance,
            few_records=self.few_records,
            device=device,
        )

    def lesson(self, examples: ExampleDataset, how: Any, device: str) -> ExampleDataset:
        if self.student_inputs == "inputs":
            return examples
        (inputs,), _ = examples.examples(np.arange(len(examples)))
        return replace(examples, inputs=(features_of(how, to_tensor(inputs), device=device),))
