"""The voter of kNN-DPFL: an agent's vote on a query is the label frequencies among its k nearest records.

What is protected at the level of one example rests on two things. `sfumato.voting.voters.nearest` sees to the first:
one record exchanges at most one neighbour. The second is where the features come from: a fixed public function of one
record. A network that was trained on the records, a principal component analysis of them, or batch norm over a batch
of them lets one record move the features of all others, and the sensitivity is then not √2/k. So what may be given is
a name of `sfumato.models.FEATURES`, or a frozen module whose weights are public. Records go through it one at a time
unless `batch_size` says otherwise, because even the last bit of a network's output may depend on the rest of a batch.

The features of an agent are computed when it votes, by a copy of the module that stays in evaluation mode, whichever
threads ask at once. Those of the queries are computed twice, in both orders: a module that gives others the second time
(it counts, draws, or keeps what it saw) is refused.

References:
    Zhu et al. (2020), arXiv 2010.04851, Algorithm 2.

>>> from sfumato.data import examples_from_arrays, from_arrays
>>> agents = from_arrays([[0.0], [0.2], [1.0], [0.9]], labels=[0, 0, 1, 1], users=["a", "a", "a", "b"])
>>> queries = examples_from_arrays(np.array([[0.1], [1.0]], np.float32))
>>> NeighbourVoter(agents, queries, neighbours=2)
Traceback (most recent call last):
...
sfumato._check.InputError: agent b has 1 record, fewer than neighbours=2; lower it, leave the agent out, or set \
few_records="share": its votes then add up to 1/2
>>> voter = NeighbourVoter(agents, queries, neighbours=2, few_records="share")
>>> voter.votes(0).tolist(), voter.votes(1).tolist()
([[1.0, 0.0], [0.5, 0.5]], [[0.0, 0.5], [0.0, 0.5]])
"""

from typing import Literal

import numpy as np
from torch import nn

from sfumato._check import InputError, one_of, whole
from sfumato.data import ExampleDataset, UserDataset, to_tensor
from sfumato.data.digest import digest_of
from sfumato.guard.placeholders import placeholder_rows
from sfumato.metrics.similarities import Progress
from sfumato.models import feature_extractor, features_of
from sfumato.training.trainable import copied
from sfumato.voting.voters.nearest import Distance, NearestRecords

_TRIAL_ROWS = 8  # of a brief trial

FewRecords = Literal["refuse", "share"]


class NeighbourVoter:
    """Votes of k nearest records in a public feature space.

    Args:
        agents: each user is an agent; labels are classes, or bool rows of attributes.
        queries: public inputs of the same shape; their targets are not read.
        neighbours: k >= 1.
        features: "pixels" (inputs of any shape as they are), another name of `sfumato.models.FEATURES`, or a module
            that maps what `to_tensor` gives to features: fixed, public, each row by itself.
        attributes: what the attributes of one record may weigh together; None for all of them.
        distance: "euclidean" or "cosine".
        few_records: what happens to an agent with fewer than k records: "refuse" it in one line, or let it vote with
            a "share": each neighbour still weighs 1/k. An agent without records then abstains.
        batch_size: records that go through the features at once; 1 keeps a record's features free of all others, to
            the last bit, on any machine.
        device: where the features are computed.

    Raises:
        InputError: inputs of another shape, labels that are neither, an agent with too few records, features that are
            not finite or that depend on more than their own row.
    """

    def __init__(
        self,
        agents: UserDataset,
        queries: ExampleDataset,
        *,
        neighbours: int,
        features: str | nn.Module = "pixels",
        attributes: int | None = None,
        distance: Distance = "euclidean",
        few_records: FewRecords = "refuse",
        batch_size: int = 1,
        device: str = "cpu",
    ) -> None:
        whole(neighbours=neighbours, batch_size=batch_size)
        one_of(("refuse", "share"), few_records=few_records)
        _refuse_agents(agents)
        if queries.input_shapes != (agents.input_shape,):
            raise InputError(
                f"queries must be inputs of the agents' shape {agents.input_shape}, got "
                f"{' and '.join(map(str, queries.input_shapes))}; bring both to one shape"
            )
        if few_records == "refuse":
            _refuse_few(agents, neighbours)
        self._agents, self._batch_size, self._device = agents, batch_size, device
        self._name = features if isinstance(features, str) else type(features).__name__
        (inputs,), _ = queries.examples(np.arange(len(queries)))
        one = to_tensor(inputs[:1]).shape[1:]
        self._module = copied(feature_extractor(features, one) if isinstance(features, str) else features).eval()
        found = self._features(inputs)
        if not np.array_equal(found, self._features(inputs[::-1].copy())[::-1], equal_nan=True):
            raise InputError(
                f"the features {self._name} of a query are others when queries come in another order, so one record "
                "could move those of all others; give a module that neither draws nor keeps anything"
            )
        self._nearest = NearestRecords(
            found,
            neighbours=neighbours,
            classes=agents.num_classes,
            attributes=agents.of_attributes,
            at_most=attributes,
            distance=distance,
        )

    def votes(self, agent: int, progress: Progress | None = None) -> np.ndarray:
        """How the agent's nearest records are labelled.

        Returns:
            float64 [queries, classes], multiples of 1/k; a row adds up to 1, or to n/k of an agent with n < k records.
            Of attributes: entries in [0, 1], multiples of 1/(k ROW_PARTS).

        Raises:
            InputError: the features of a record are not finite.
        """
        inputs, labels = self._agents.examples(agent)
        try:
            return self._nearest.votes(self._features(inputs), labels, progress)
        except InputError as error:
            raise InputError(f"agent {self._agents.user_ids[agent]}: {error}") from None

    def trial(self, agent: int | None) -> np.ndarray:
        """Features [k] of some of an agent's records, zeros where it has fewer; of no agent, of placeholders."""
        inputs = self._agents.examples(0 if agent is None else agent)[0][:_TRIAL_ROWS]
        if agent is None:
            inputs = placeholder_rows(inputs, _TRIAL_ROWS)
        found = self._features(inputs).reshape(len(inputs), -1)
        return np.concatenate([found, np.zeros((_TRIAL_ROWS - len(found), found.shape[1]))]).reshape(-1)

    def fingerprint(self) -> str:
        """SHA-256 of what decides the votes beside the agents' records and the queries."""
        nearest = self._nearest
        facts = ("neighbours", self._name, nearest.neighbours, nearest.distance, self._batch_size)
        state = {name: value.detach().cpu() for name, value in self._module.state_dict().items()}
        return digest_of((facts, tuple(state)), *(value.numpy() for value in state.values() if value.ndim))

    def _features(self, inputs: np.ndarray) -> np.ndarray:
        return features_of(self._module, to_tensor(inputs), batch_size=self._batch_size, device=self._device)


def _refuse_agents(agents: UserDataset) -> None:
    agents.refuse_values("be voted on")
    if agents.of_sequences:
        raise InputError("the labels are tokens of sequences: neighbours vote for one class or several attributes")
    if len(agents) == 0:
        raise InputError("there are no agents to vote; give at least one user")


def _refuse_few(agents: UserDataset, neighbours: int) -> None:
    few = np.flatnonzero(agents.sizes < neighbours)
    if len(few):
        agent = int(few[np.argmin(agents.sizes[few])])
        count = agents.size(agent)
        others = f" (and {len(few) - 1:,} more agents have too few)" if len(few) > 1 else ""
        raise InputError(
            f"agent {agents.user_ids[agent]} has {count} record{'' if count == 1 else 's'}, fewer than "
            f'neighbours={neighbours}{others}; lower it, leave the agent out, or set few_records="share": its votes '
            f"then add up to {count}/{neighbours}"
        )
