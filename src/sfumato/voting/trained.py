"""The voter of AE-DPFL: an agent trains a copy of a public module on its own records, and its model votes.

What bounds a vote stands elsewhere (`voting.question`); here nothing is private and nothing leaves but the votes. An
agent's votes follow from its records, the public module, the queries and its own part of the source: not from other
agents, nor from how many threads ask. Torch computes with one thread for each agent, so that no sum is cut in another
way on another machine of the same kind.

References:
    Zhu, Yu, Tsai, Pittaluga, Faraki, Chandraker, Wang: Voting-based Approaches for Differentially Private Federated
    Learning (2020), arXiv 2010.04851, Algorithm 1.

>>> from sfumato.data import examples_from_arrays, from_arrays
>>> inputs = np.array([[-1.0], [1.0], [2.0], [3.0]], np.float32)
>>> agents = from_arrays(inputs, labels=[0, 1, 1, 1], users=["a", "a", "b", "b"])
>>> settings, source = Supervised(learning_rate=1.0), RandomSource.from_seed(1)
>>> pool = examples_from_arrays(inputs)
>>> voter = TrainedVoter(agents, pool, np.array([0, 3]), nn.Linear(1, 2), settings, source=source)
>>> voter.votes(0).argmax(1).tolist(), voter.votes(1).argmax(1).tolist()  # "b" knows a single class
([0, 1], [1, 1])
"""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato._torch import one_thread_each
from sfumato.data import ExampleDataset, UserDataset
from sfumato.runs.checkpoint import digest
from sfumato.training.supervised import Supervised, outputs
from sfumato.voting.adaptation import DANN

_TRIAL_STEPS, _TRIAL_ROWS = 3, 16  # of a brief trial
_NO_ADAPTATION = DANN(weight=None)
_STEPS = 1 << 20  # soft votes are whole numbers of such parts, so that single precision adds them up to 1 at most


class TrainedVoter:
    """Votes of models that agents train.

    Args:
        agents: each user is an agent; labels are classes, int64 [n], or attributes, bool [n, A].
        pool: public examples of the agents' shape, to which an agent's model may be adapted; labels are not read.
        queries: int64 [queries], positions in the pool.
        model: public; each agent begins with a copy of it. One output for each class or attribute.
        settings: how an agent trains.
        soft: vote with probabilities instead of the most likely class, or of the attributes that are more likely than
            not.
        adaptation: adapts an agent's model to the pool while it trains.
        device: where agents train.
        source: of this vote; each agent has a part of it.
    """

    def __init__(
        self,
        agents: UserDataset,
        pool: ExampleDataset,
        queries: np.ndarray,
        model: nn.Module,
        settings: Supervised,
        *,
        soft: bool = False,
        adaptation: DANN = _NO_ADAPTATION,
        device: str = "cpu",
        source: RandomSource,
    ) -> None:
        (self._queries,), _ = pool.examples(queries)
        self._agents, self._model, self._settings = agents, model, settings
        self._soft, self._device, self._source = soft, device, source
        self._adaptation = adaptation
        self._added = adaptation.towards(pool.inputs[0], attributes=agents.of_attributes)

    def votes(self, agent: int) -> np.ndarray:
        """One agent's votes; any number of threads may ask.

        An agent without records abstains. One whose records are all of one class votes for that class: there is
        nothing that a model could learn from them.

        Args:
            agent: its position among the agents.

        Returns:
            float32 [queries, classes], a row adds up to 1, or 0 of an agent that abstains; of attributes: each in
            [0, 1].

        Raises:
            InputError: the agent's model gives numbers that are not finite, or does not fit the records; names the
                agent.
        """
        inputs, labels = self._agents.examples(agent)
        classes = self._agents.num_classes
        if not len(labels):
            return np.zeros((len(self._queries), classes), np.float32)
        if not self._agents.of_attributes and (labels == labels[0]).all():
            return np.tile(np.eye(classes, dtype=np.float32)[labels[0]], (len(self._queries), 1))
        source = self._source.within(f"agent {agent}")
        try:
            with one_thread_each():
                model = self._settings.fit(
                    self._model, inputs, labels, source=source, device=self._device, added=self._added
                )
                found = outputs(model, self._queries, device=self._device)
            return self._vote(found)
        except InputError as error:
            raise InputError(f"agent {self._agents.user_ids[agent]}: {error}") from None

    def trial(self, agent: int | None) -> np.ndarray:
        """Outputs [k] for some queries after a few steps; of no agent, after steps on the pool's first rows."""
        if agent is None:
            inputs = self._queries[:_TRIAL_ROWS]
            classes = np.arange(len(inputs)) % self._agents.num_classes
            labels = np.eye(self._agents.num_classes, dtype=bool)[classes] if self._agents.of_attributes else classes
        else:
            inputs, labels = self._agents.examples(agent)
            inputs, labels = inputs[:_TRIAL_ROWS], labels[:_TRIAL_ROWS]
        settings = replace(self._settings, steps=_TRIAL_STEPS)
        source = RandomSource.from_seed(0)
        with one_thread_each():
            model = settings.fit(self._model, inputs, labels, source=source, device=self._device, added=self._added)
            return outputs(model, self._queries[:_TRIAL_ROWS], device=self._device).reshape(-1)

    def fingerprint(self) -> str:
        """SHA-256 of what decides the votes, without the agents' records, the queries and the pool."""
        facts = ("trained", self._settings, self._soft, self._adaptation, repr(self._model))
        return digest(repr(facts), dict(self._model.state_dict()))

    def _vote(self, found: np.ndarray) -> np.ndarray:
        """From what a model gives, float32 [queries, classes], to votes."""
        if found.shape[1:] != (self._agents.num_classes,):
            raise InputError(
                f"the model gives outputs {found.shape[1:]}, not one for each of the {self._agents.num_classes} "
                "classes; build it for as many"
            )
        if not np.isfinite(found).all():
            query = int(np.argmin(np.isfinite(found).all(1)))
            raise InputError(
                f"its model gives no finite number for query {query}; lower the learning rate, check for records "
                "that are not finite, or leave the agent out"
            )
        if not self._soft:
            if self._agents.of_attributes:
                return (found >= 0).astype(np.float32)
            return np.eye(found.shape[1], dtype=np.float32)[found.argmax(1)]
        logits = torch.from_numpy(found).double()
        shares = torch.sigmoid(logits) if self._agents.of_attributes else torch.softmax(logits, dim=1)
        return (torch.floor(shares * _STEPS) / _STEPS).float().numpy()
