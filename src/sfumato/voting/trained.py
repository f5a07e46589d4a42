"""The voter of AE-DPFL: an agent trains a copy of a public module on its own records, with domain adaptation if asked.

Domain adaptation while an agent trains: features by which its own records cannot be distinguished from the public pool.

An agent's records may look unlike the pool that it is asked about. A domain classifier learns to distinguish the two by
the features, the input of the model's last layer, and the model gets its gradient with the sign reversed (domain-
adversarial training, DANN). The pool's labels are not read. The pool is public and nothing but the vote leaves the
agent, so the adaptation costs no privacy.

The weight of the reversed gradient rises from 0 to `weight` as in the paper: weight (2 / (1 + exp(−10 p)) − 1), p being
how much of the training is done.

References:
    Ganin, Ustinova, Ajakan, Germain, Larochelle, Laviolette, Marchand, Lempitsky: Domain-Adversarial Training of Neural
    Networks. JMLR 2016, equations 13 to 18 and section 5.2.2.
    Zhu et al. (2021), section 5.2: agents that adapt to the server's domain.

>>> [round(DANN().weight_at(share), 3) for share in (0.0, 0.1, 0.5, 1.0)]
[0.0, 0.462, 0.987, 1.0]

The voter of AE-DPFL: an agent trains a copy of a public module on its own records, and its model votes.

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

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato import _check
from sfumato._check import InputError, guess
from sfumato._random import RandomSource
from sfumato._torch import one_thread_each
from sfumato.data import ExampleDataset, UserDataset, to_tensor
from sfumato.data.examples import ExampleRows
from sfumato.runs.checkpoint import digest
from sfumato.training.supervised import AddedLoss, LossAdder, Supervised, batches_in_order, outputs

_STEEPNESS = 10.0  # gamma of the paper's schedule, "in all experiments"


@dataclass(frozen=True, kw_only=True)
class DANN:
    """Settings of domain-adversarial training.

    Attributes:
        weight: of the reversed gradient at the end, > 0.
        hidden: units of the domain classifier's hidden layer, >= 1.
        batch_size: rows of the pool a step at most, >= 2.
        layer: name of the layer whose input are the features; None takes the last linear layer of the module.
    """

    weight: float = 1.0
    hidden: int = 100
    batch_size: int = 32
    layer: str | None = None

    def __post_init__(self) -> None:
        _check.positive(adaptation_weight=self.weight)
        _check.whole(adaptation_hidden=self.hidden)
        _check.whole(at_least=2, adaptation_batch_size=self.batch_size)

    def weight_at(self, share: float) -> float:
        """The weight of the reversed gradient when this share of the training is done."""
        return self.weight * (2.0 / (1.0 + math.exp(-_STEEPNESS * share)) - 1.0)

    def towards(self, pool: ExampleRows) -> LossAdder:
        """The domain classifier's loss, for `Supervised.fit`.

        Args:
            pool: public rows [n, …] as a data set stores them, n >= 2.

        Raises:
            InputError: the pool has fewer rows; or, when a training begins, the model has no such layer.
        """
        size = int(pool.shape[0])
        if size < 2:
            raise InputError(f"domain adaptation needs at least 2 public rows to adapt to, got {size}")

        @contextmanager
        def adder(model: nn.Module, source: RandomSource, device: torch.device) -> Iterator[AddedLoss]:
            seen: list[Tensor] = []

            def look(_: nn.Module, inputs: tuple[Any, ...]) -> None:
                seen[:] = [inputs[0].flatten(1)]

            def batch(rows: np.ndarray) -> Tensor:
                return to_tensor(np.asarray(pool[rows])).to(device)

            name, layer = self.feature_layer(model)
            hook = layer.register_forward_pre_hook(look)
            try:
                with torch.no_grad():
                    model.eval()(batch(np.arange(2)))
                if not seen:
                    raise InputError(f"the model does not use its layer {name}; name another one in adaptation layer=")
                classifier = self._classifier(seen[0].shape[1], source).to(device)
                model.train()
                order = batches_in_order(source, "pool", size, -(-size // self.batch_size))

                def loss(share: float) -> Tensor:
                    own = seen[0]
                    rows = next(order)
                    while len(rows) < 2:  # alone, batch norm would have no statistics
                        rows = next(order)
                    model(batch(rows))
                    logits = classifier(_Reversed.apply(torch.cat([own, seen[0]]), self.weight_at(share)))[:, 0]
                    domain = torch.cat([torch.zeros(len(own)), torch.ones(len(rows))]).to(logits)
                    # Each domain counts one half, as in the paper's batches, however many rows it has.
                    shares = torch.where(domain == 0, 0.5 / len(own), 0.5 / len(rows))
                    losses = functional.binary_cross_entropy_with_logits(logits, domain, reduction="none")
                    return (losses * shares).sum()

                yield AddedLoss(list(classifier.parameters()), loss)
            finally:
                hook.remove()

        return adder

    def feature_layer(self, model: nn.Module) -> tuple[str, nn.Module]:
        """Name and module of the layer whose input are the features.

        Raises:
            InputError: there is none.
        """
        layers = dict(model.named_modules())
        if self.layer is not None:
            if self.layer not in layers:
                raise InputError(
                    f"the model has no layer {self.layer}{guess(self.layer, layers)} whose input could be the features"
                )
            return self.layer, layers[self.layer]
        linear = [(name, layer) for name, layer in layers.items() if isinstance(layer, nn.Linear)]
        if not linear:
            raise InputError("the model has no linear layer; name the layer whose input are the features")
        return linear[-1]

    def _classifier(self, width: int, source: RandomSource) -> nn.Sequential:
        """The domain classifier, with torch's own initial weights drawn from the source."""
        generator = torch.Generator().manual_seed(source.seed64("domain classifier"))
        layers = [nn.Linear(size, out, device="meta") for size, out in ((width, self.hidden), (self.hidden, 1))]
        made = nn.Sequential(layers[0], nn.ReLU(), layers[1]).to_empty(device="cpu")
        for parameter in made.parameters():
            fan_in = width if parameter.shape[0] == self.hidden else self.hidden
            nn.init.uniform_(parameter, -(fan_in**-0.5), fan_in**-0.5, generator=generator)
        return made


class _Reversed(torch.autograd.Function):
    """The identity, whose gradient is multiplied with −weight."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: float) -> Tensor:
        ctx.weight = weight
        return features.view_as(features)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.weight * gradients[0], None


_TRIAL_STEPS, _TRIAL_ROWS = 3, 16  # of a brief trial
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
        adaptation: adapts an agent's model to the pool while it trains; None does not.
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
        adaptation: DANN | None = None,
        device: str = "cpu",
        source: RandomSource,
    ) -> None:
        (self._queries,), _ = pool.examples(queries)
        self._agents, self._model, self._settings = agents, model, settings
        self._soft, self._device, self._source = soft, device, source
        self._adaptation = adaptation
        self._added = None if adaptation is None else adaptation.towards(pool.inputs[0])

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
