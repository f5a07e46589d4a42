"""The voter of kNN-DPFL: the label frequencies among an agent's nearest records.

Label frequencies among the k nearest records, so that one record exchanges at most one neighbour: exactly.

The sensitivity √2/k of a vote of k neighbours stands on one sentence: without a record, or with another one in its
stead, at most one of the k nearest gives way to one other. Three things would break it, and are ruled out here.

- **Ties.** If equal distances were ordered by position, every record behind an absent one would move. Neighbours are
  ordered by (distance, label), which are the record's own. What ties in both casts the same vote.
- **Rounding.** Matrix products of floats round by the shape of the matrix and the place of a row in it, so another
  record could turn near ties of all others. Features are brought to whole numbers −B … B first, each by itself, by a
  scale that the public queries alone give (values beyond it are clipped). B is so small that every sum of products, in
  any order, is a whole number below 2^53: doubles are then exact, and no rounding is left.
- **Fewer than k records.** Divided by the number that was found, every weight would change. It is divided by k.
- **Heavy rows of attributes.** A neighbour whose row may weigh more than tau moves more than √(2 tau)/k, and scaling
  the whole vote down would move what its other neighbours say, too. So each row is scaled by itself, and to whole
  `ROW_LEVELS` of a neighbour, which a ballot holds without rounding.

So a neighbour is one whole number, its key: C (|r|² − 2 q·r) + label for the euclidean distance (|q|² is the same for
all records of a query), −C q·r + label for the cosine of directions, which have B in the place of length 1. One matrix
product gives all keys, C classes being what they are counted in; the k least of a row are a multiset that does not
depend on an order, and key mod C is the label. Rows of attributes are numbered in lexicographic order for this.

With d features, C (3 d B² + 1) ≤ 2^53: at 512 features and 10 classes B is 32,767, the most that is used.

References:
    Zhu, Yu, Tsai, Pittaluga, Faraki, Chandraker, Wang: Voting-based Approaches for Differentially Private Federated
    Learning (2020), arXiv 2010.04851, Algorithm 2. docs/explanation/votes.md has the sensitivity.

>>> queries = np.array([[0.0, 0.0], [1.0, 1.0]])
>>> nearest = NearestRecords(queries, neighbours=2, classes=3)
>>> nearest.votes(np.array([[0.1, 0.0], [0.0, 0.2], [0.9, 1.0]]), np.array([0, 1, 2])).tolist()
[[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]

The voter of kNN-DPFL: an agent's vote on a query is the label frequencies among its k nearest records.

What is protected at the level of one example rests on two things. `sfumato.voting.neighbours` sees to the first:
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

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from sfumato._check import InputError, one_of, whole
from sfumato.data import ExampleDataset, UserDataset, to_tensor
from sfumato.data.digest import digest_of
from sfumato.guard.placeholders import placeholder_rows
from sfumato.metrics.verification import Progress
from sfumato.models import feature_extractor, features_of
from sfumato.training.trainable import copied

Distance = Literal["euclidean", "cosine"]
_EXACT = 1 << 53  # whole numbers up to here are doubles
_FINEST, _COARSEST = (1 << 15) - 1, 127
_LENGTHS = 1 << 20  # levels before a direction is taken, so that short vectors keep theirs
_ROW_KINDS = 1 << 16  # most different rows of attributes in one agent's records
_KEYS = 1 << 21  # keys at once, 16 MB
ROW_LEVELS = 1 << 8
"""Parts of one neighbour's weight that attributes of a row which was scaled down are whole numbers of."""


class NearestRecords:
    """What is public: the queries, the scale, k and the distance. One for all agents.

    Args:
        queries: finite floats [queries, features], public.
        neighbours: k >= 1.
        classes: number of classes of labels, or of attributes, >= 1.
        attributes: labels are rows of attributes, of which several may be true.
        at_most: what one row of attributes may weigh; None for all of its attributes.
        distance: "euclidean", or "cosine": one minus the cosine. A record of zeros has the cosine 0 with all.

    Attributes:
        scale: the largest magnitude in the queries: what is beyond it in a record is clipped.
        levels: B, the whole number that stands for `scale`, or for the length 1 of a direction.

    Raises:
        InputError: queries that are not finite, or more features than whole numbers can distinguish.
    """

    def __init__(
        self,
        queries: np.ndarray,
        *,
        neighbours: int,
        classes: int,
        attributes: bool = False,
        at_most: int | None = None,
        distance: Distance = "euclidean",
    ) -> None:
        whole(neighbours=neighbours, classes=classes)
        one_of(("euclidean", "cosine"), distance=distance)
        if queries.ndim != 2 or not queries.size:
            raise InputError(f"queries must be features [queries, features], at least one of each, got {queries.shape}")
        refuse_not_finite(queries, "query")
        self.neighbours, self.classes, self.attributes, self.distance = neighbours, classes, attributes, distance
        self._at_most = classes if at_most is None else at_most
        self.features = queries.shape[1]
        self.scale = float(np.abs(queries).max()) or 1.0
        self._codes = min(1 << min(classes, 30), _ROW_KINDS) if attributes else classes
        levels = math.isqrt((_EXACT // self._codes - 1) // (3 * self.features))
        if levels < _COARSEST:
            raise InputError(
                f"{self.features:,} features and {classes:,} {'attributes' if attributes else 'classes'} leave "
                f"{levels} levels for a feature to be exact, fewer than {_COARSEST}; take fewer features"
            )
        self.levels = min(levels, _FINEST)
        lattice = self._lattice(queries)
        factor = -2.0 if distance == "euclidean" else -1.0
        # The last column meets what a record has of its own: its squared length and its label.
        self._queries = torch.cat([lattice * (factor * self._codes), torch.ones(len(queries), 1).double()], dim=1)

    def votes(self, features: np.ndarray, labels: np.ndarray, progress: Progress | None = None) -> np.ndarray:
        """The votes of one agent, float64 [queries, classes]: how many of the k nearest have a label, divided by k.

        In double precision, so that a ballot finds the whole number of neighbours again.

        Args:
            features: finite floats [records, features].
            labels: whole numbers [records] in 0 … classes − 1, or bool [records, classes].
            progress: receives (queries done, queries).

        Raises:
            InputError: features that are not finite, or more different rows of attributes than can be numbered.
        """
        if features.shape != (len(labels), self.features):
            raise InputError(
                f"records must have the {self.features:,} features of the queries, a row a label, got {features.shape} "
                f"and {len(labels)} labels"
            )
        refuse_not_finite(features, "record")
        codes, meaning = self._coded(labels)
        records = self._augmented(self._lattice(features), codes)
        total = len(self._queries)
        votes = np.zeros((total, self.classes))
        wide = min(len(records), max(_KEYS // 16, 2 * self.neighbours))
        step = max(1, _KEYS // max(wide, 1))
        for start in range(0, total if len(records) else 0, step):
            block = slice(start, start + step)
            labelled = torch.remainder(self._least(self._queries[block], records, wide), self._codes).long()
            votes[block] = self._counted(labelled, meaning) / self.neighbours
            if progress is not None:
                progress(min(start + step, total), total)
        return votes

    def _least(self, queries: Tensor, records: Tensor, wide: int) -> Tensor:
        """The least k keys of each query, float64 [queries, up to k]."""
        best = queries.new_empty(len(queries), 0)
        for start in range(0, len(records), wide):
            keys = queries @ records[start : start + wide].T
            best = _smallest(torch.cat([best, keys], dim=1) if start else keys, self.neighbours)
        return best

    def _counted(self, labelled: Tensor, meaning: Tensor | None) -> np.ndarray:
        """How many neighbours have each class or attribute, float64 [queries, classes], multiples of 1/ROW_LEVELS."""
        if meaning is not None:
            return sum(meaning[column] for column in labelled.T).numpy()  # type: ignore[union-attr]  # never empty
        counts = torch.zeros(len(labelled), self.classes, dtype=torch.float64)
        return counts.scatter_add_(1, labelled, counts.new_ones(()).expand(labelled.shape)).numpy()

    def _coded(self, labels: np.ndarray) -> tuple[np.ndarray, Tensor | None]:
        """A number for each label that depends on it and on the order of labels alone, and what numbers stand for."""
        if not self.attributes:
            if labels.ndim != 1 or (len(labels) and not 0 <= labels.min() <= labels.max() < self.classes):
                raise InputError(f"labels must be whole numbers [records] in 0 … {self.classes - 1}; got others")
            return labels, None
        if labels.shape != (len(labels), self.classes) or labels.dtype != bool:
            raise InputError(
                f"labels must be bool [records, {self.classes}], a column an attribute, got {labels.dtype} "
                f"{labels.shape}"
            )
        rows, codes = np.unique(labels, axis=0, return_inverse=True)
        if len(rows) > self._codes:
            raise InputError(
                f"an agent has {len(rows):,} different rows of attributes, more than {self._codes:,}; leave out rare "
                "attributes"
            )
        parts = self._at_most * ROW_LEVELS // np.maximum(rows.sum(axis=1, keepdims=True), self._at_most)
        return codes.reshape(-1), torch.from_numpy(rows * parts / ROW_LEVELS)

    def _lattice(self, features: np.ndarray) -> Tensor:
        """Whole numbers −B … B as doubles [n, features]; each row by itself, one rounding of each number at a time."""
        values = np.clip(np.asarray(features, np.float64) / self.scale, -1, 1)
        if self.distance == "euclidean":
            return torch.from_numpy(np.rint(values * self.levels))
        fine = np.rint(values * min(_LENGTHS, math.isqrt(_EXACT // self.features)))
        lengths = np.sqrt((fine * fine).sum(axis=1, keepdims=True))  # of an exact sum, hence of no order
        return torch.from_numpy(np.rint(fine / np.maximum(lengths, 1) * self.levels))

    def _augmented(self, lattice: Tensor, codes: np.ndarray) -> Tensor:
        """The rows that the queries are multiplied with, [records, features + 1]."""
        last = torch.from_numpy(np.asarray(codes, np.float64))
        if self.distance == "euclidean":
            last = last + lattice.square().sum(dim=1) * self._codes
        return torch.cat([lattice, last[:, None]], dim=1)


def refuse_not_finite(features: np.ndarray, what: str) -> None:
    """Refuse NaN and infinity; names the first row that has one.

    Raises:
        InputError: there is one.
    """
    finite = np.isfinite(features).all(axis=1)
    if not finite.all():
        raise InputError(
            f"the features of {what} {int(np.argmin(finite))} are not finite; drop it, or correct what gives them"
        )


def _smallest(keys: Tensor, count: int) -> Tensor:
    if keys.shape[1] <= count:
        return keys
    return torch.topk(keys, count, dim=1, largest=False, sorted=False).values


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
                f"the features {self._name} of a query change with the order of queries; give a module that "
                "neither draws nor keeps anything"
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
            Of attributes: entries in [0, 1], multiples of 1/(k ROW_LEVELS).

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
        """SHA-256 of what decides the votes, without the agents' records and the queries."""
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
