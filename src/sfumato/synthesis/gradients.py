"""What patients contribute to the autoencoder and to the critic: the gradients of their losses, each clipped.

**Draws of a patient.** Random numbers of one patient: they do not depend on who else is drawn for a round.

**Autoencoder.** Unit: a patient. The loss of a patient is a function of that patient's record, of what was drawn for
it, of the model and of the noisy tables: the sum over visits is divided by the noisy mean number of them, never by who
else is there. Padding to the longest record of a batch adds visits that count in no loss and that no earlier state
reads. So a patient who comes or goes adds or takes one gradient of at most the clip norm.

What is added to a latent vector is drawn for each patient by itself. Where in its interval a number lies is drawn
independently for each number, in the order of the records: who else is present decides which draw a patient meets,
and not how it is distributed, so the draws of two neighbouring sets of records can be coupled. The bound holds for each
outcome of these draws, which are not released.

**Critic.** Unit: a patient. A patient's latent vector is what the autoencoder, already learned under noise, makes
of that patient's record. Its loss is that of a pair: this vector and a generated one, with the penalty on the gradient
between the two. So a patient who comes or goes adds or takes one gradient of at most the clip norm.

The generator takes a step after every few rounds, against the critic as it was released. It meets no record, so what
it learns is post-processing, as the records are that it generates later on.

References:
    Gulrajani et al. 2017, Improved Training of Wasserstein GANs, arXiv 1704.00028. Equation 3.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.clipping import ClippedSum
from sfumato.per_example import Recording, covered
from sfumato.synthesis.networks import Critic, Generator, SequenceCodec
from sfumato.synthesis.records import Drawn, Records
from sfumato.synthesis.settings import EHRSafeSettings
from sfumato.synthesis.training import Diverged, Learner
from sfumato.training import Contribution, Trainable
from sfumato.training.contribution import RoundContext
from sfumato.training.server import OptimizerFactory


def patient_draws(words: np.ndarray, width: int) -> tuple[Tensor, Tensor]:
    """Normal numbers [n, width] and one uniform number [n, 1] for each patient.

    Args:
        words: uint64 [n], of a stream at the patients' own places.
        width: of the normal numbers.
    """
    normal, uniform = torch.empty(len(words), width), torch.empty(len(words), 1)
    generator = torch.Generator()
    for place, word in enumerate(words.tolist()):
        generator.manual_seed(word >> 1)
        torch.randn(width, generator=generator, out=normal[place])
        torch.rand(1, generator=generator, out=uniform[place])
    return normal, uniform


CATEGORIES = "categories"
"""What contributions call the codecs of categories in a checkpoint."""

_VISITS_AT_ONCE = 4096  # padding included, that go through the model


class SequenceGradients(Contribution):
    """The `Contribution` of the autoencoder.

    Args:
        codec: the autoencoder, with codecs of categories that have learned; a copy of it is trained.
        categories: float [size], the parameters of these codecs, which checkpoints keep.
        records: under their noisy scales.
        settings: of the plan.
        fingerprint: of plan and records.
    """

    def __init__(
        self, codec: SequenceCodec, categories: Tensor, records: Records, settings: EHRSafeSettings, fingerprint: str
    ) -> None:
        self.trained, self.population = Trainable(codec), len(records)
        self._codec: SequenceCodec = self.trained.model  # pyright: ignore[reportAttributeAccessIssue, reportAssignmentType]
        for parameter in self.trained.parameters:
            parameter.requires_grad_(parameter.numel() > 0)  # where there are no columns of a kind
        self._layers = covered(self._codec)
        self._categories, self._records = categories, records
        self._settings, self._fingerprint = settings, fingerprint
        self._per_epoch = -(-len(records) // settings.sizes.batch_size)
        self._drawn = lru_cache(maxsize=1)(self._drawn_for)

    def clipped_sum(self, context: RoundContext) -> ClippedSum:
        """The sum of the patients' bounded gradients; each contributor is one patient."""
        self.trained.load(context.theta)
        share, source, round = context.new_sum(self.trained.layout), context.source, context.round
        patients = context.cohort.units
        drawn = self._drawn(source, round // self._per_epoch)
        words = source.stream("private latent noise", round).words_at(patients)
        noise = self._settings.latent_noise * patient_draws(words, self._settings.latent)[0]
        for places in self._by_length(patients):
            recording, losses = self.recorded(patients[places], drawn, noise[torch.from_numpy(places)])
            weights, parts = share.weigh(recording.squared_norms().sqrt()[None]), share.parts()
            recording.add_to(parts, weights[0], self.trained.parameters)
            share.tally.add(loss=torch.where(torch.isfinite(losses), losses, 0.0).sum(dtype=torch.float64))
        share.tally.add(examples=len(patients))
        return share

    def recorded(self, patients: np.ndarray, drawn: Drawn, noise: Tensor) -> tuple[Recording, Tensor]:
        """A recorded forward and backward pass, and the losses.

        Args:
            patients: their places, int64 [n], n >= 1.
            drawn: scores of all records.
            noise: [n, latent], added to the latent vectors.
        """
        with Recording(self._layers, len(patients)) as recording:
            losses = self._codec.losses(
                self._records.batch(patients, drawn),
                noise,
                time_weight=self._settings.time_weight,
                visits=self._records.scales.visits,
            )
            recording.backward(losses)
        return recording, losses.detach()

    def tensors(self) -> dict[str, Tensor]:
        """The codecs of categories."""
        return {CATEGORIES: self._categories}

    def fingerprint(self) -> str:
        """Digest of plan and records."""
        return self._fingerprint

    def _by_length(self, patients: np.ndarray) -> Iterator[np.ndarray]:
        """Places among the patients, those of similar length together: it decides the time that is taken, and nothing
        else but the last bits of the sum."""
        lengths = self._records.lengths[patients]
        order, start = np.argsort(-lengths, kind="stable"), 0
        while start < len(order):
            end = start + max(1, _VISITS_AT_ONCE // int(lengths[order[start]]))
            yield order[start:end]
            start = end

    def _drawn_for(self, source: RandomSource, epoch: int) -> Drawn:
        return self._records.draw(source.seed64("private scores", epoch))


_PAIRS_AT_ONCE = 64  # patients whose gradients are held at once

CODEC = "codec"
"""What it calls the autoencoder in a checkpoint."""

_GENERATOR = "generator."


class CriticGradients(Contribution):
    """The `Contribution` of the critic.

    Args:
        critic: a copy of it is trained.
        generator: learns in place.
        latents: float [draws, patients, latent]; a round takes one draw of them.
        learned: vectors of parameters that latent vectors follow from, which checkpoints keep.
        settings: of the plan.
        optimizer: of the generator.
        fingerprint: of plan and records.
    """

    def __init__(
        self,
        critic: Critic,
        generator: Generator,
        latents: Tensor,
        learned: dict[str, Tensor],
        settings: EHRSafeSettings,
        optimizer: OptimizerFactory,
        fingerprint: str,
    ) -> None:
        self.trained, self.population = Trainable(critic), latents.shape[1]
        self._critic: Critic = self.trained.model  # pyright: ignore[reportAttributeAccessIssue]
        self._generator, self._latents, self._learned = generator, latents, learned
        self._settings, self._fingerprint = settings, fingerprint
        self._makes = Learner(generator, optimizer, average_decay=settings.sizes.average_decay)
        self._gradient = vmap(grad(self._loss), in_dims=(None, 0, 0, 0))

    def clipped_sum(self, context: RoundContext) -> ClippedSum:
        """The sum of the patients' bounded gradients; before it, the generator's step where one is due."""
        cohort, source, round = context.cohort, context.source, context.round
        self.trained.load(context.theta)
        if round and round % self._settings.sizes.critic_steps == 0:
            self._make_step(round // self._settings.sizes.critic_steps - 1, source.seed64("private generator", round))
        share = context.new_sum(self.trained.layout)
        patients = torch.from_numpy(cohort.units)
        real = self._latents[round % len(self._latents), patients]
        z, between = patient_draws(source.stream("private gan", round).words_at(cohort.units), self._generator.noise)
        with torch.no_grad():
            made = self._generator(z)
        for rows in torch.arange(len(patients)).split(_PAIRS_AT_ONCE):
            if len(rows):
                share.add_rows(self.gradients(real[rows], made[rows], between[rows]))
        share.tally.add(examples=len(patients))
        return share

    def gradients(self, real: Tensor, made: Tensor, between: Tensor) -> Tensor:
        """The gradients of each pair's loss, float [n, size]; arguments as for `Critic.losses`."""
        parameters = {name: value.detach() for name, value in self._critic.named_parameters()}
        found = self._gradient(parameters, real, made, between)
        return torch.cat([found[name].flatten(1) for name in self.trained.layout.names], dim=1)

    def settle(self, theta: Tensor, source: RandomSource) -> None:
        """After the last round: the generator's last step, and its average in place of its parameters."""
        self.trained.load(theta)
        steps = self._settings.sizes.gan_steps
        self._make_step(steps - 1, source.seed64("private generator end"))
        self._makes.settle()

    def tensors(self) -> dict[str, Tensor]:
        """The generator with its optimiser, and what was learned before."""
        tensors, _ = self._makes.state()
        return {**self._learned, **{_GENERATOR + name: value.clone() for name, value in tensors.items()}}

    def settings(self) -> dict[str, Any]:
        """Numbers of the generator's optimiser."""
        return self._makes.state()[1]

    def restore_settings(self, settings: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from there."""
        own = {n.removeprefix(_GENERATOR): value for n, value in tensors.items() if n.startswith(_GENERATOR)}
        self._makes.load(own, settings)

    def fingerprint(self) -> str:
        """Digest of plan and records."""
        return self._fingerprint

    def _make_step(self, index: int, seed: int) -> None:
        made = self._generator.drawn(self._settings.sizes.gan_batch_size, torch.Generator().manual_seed(seed))
        try:
            self._makes.step(-self._critic(made).mean(), index)
        except Diverged:
            raise InputError(
                f"the generator diverged in step {index + 1:,}; start a new run with a lower gan_learning_rate "
                "(this cost counts)"
            ) from None

    def _loss(self, parameters: dict[str, Tensor], real: Tensor, made: Tensor, between: Tensor) -> Tensor:
        """The loss of one pair, as in `Critic.losses`, which autograd takes twice."""

        def score(latent: Tensor) -> Tensor:
            return functional_call(self._critic, parameters, (latent[None],))[0]

        gradient: Callable[[Tensor], Tensor] = grad(score)
        norm = gradient(between * real + (1 - between) * made).norm()
        return score(made) - score(real) + self._settings.gradient_penalty * (norm - 1).square()
