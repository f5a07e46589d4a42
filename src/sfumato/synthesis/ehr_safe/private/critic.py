"""What patients contribute to the critic: the gradients of their losses, each cut; and the generator, which sees none.

Unit: a patient. A patient's latent vector is what the autoencoder, which has its noise behind it, makes of that
patient's record. Its loss is that of a pair: this vector and a generated one, with the penalty on the gradient
between the two. So a patient who comes or goes adds or takes one gradient of at most the clip norm.

The generator takes a step after every few rounds, against the critic as it was released. It meets no record, so what
it learns is post-processing, as the records are that it generates later on.

References:
    Gulrajani et al. 2017, Improved Training of Wasserstein GANs, arXiv 1704.00028. Equation 3.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.clipping import ClippedSum, NormBound
from sfumato.sampling import Cohort
from sfumato.synthesis.ehr_safe.critic import Critic
from sfumato.synthesis.ehr_safe.generator import Generator
from sfumato.synthesis.ehr_safe.learner import Learner
from sfumato.synthesis.ehr_safe.private.own_draws import own_draws
from sfumato.synthesis.ehr_safe.settings import EHRSafeSettings
from sfumato.synthesis.steps import Diverged
from sfumato.training import Contribution, Trainable
from sfumato.training.server import OptimizerFactory

_TOGETHER = 64  # patients whose gradients are held at once

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
        self._makes = Learner(generator, optimizer, average_decay=settings.average_decay)
        self._gradient = vmap(grad(self._loss), in_dims=(None, 0, 0, 0))

    def clipped_sum(
        self,
        theta: Tensor,
        cohort: Cohort,
        round: int,
        bound: NormBound,
        clip_norm: float | None,
        source: RandomSource,
        out: Tensor | None,
    ) -> ClippedSum:
        """The sum of the patients' bounded gradients; before it, the generator's step where one is due."""
        self.trained.load(theta)
        if round and round % self._settings.critic_steps == 0:
            self._make_step(round // self._settings.critic_steps - 1, source.seed64("private generator", round))
        share = ClippedSum(bound, clip_norm, self.trained.layout, out=out)
        patients = torch.from_numpy(cohort.units)
        real = self._latents[round % len(self._latents), patients]
        z, between = own_draws(source.stream("private gan", round).words_at(cohort.units), self._generator.noise)
        with torch.no_grad():
            made = self._generator(z)
        for rows in torch.arange(len(patients)).split(_TOGETHER):
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
        steps = self._settings.gan_steps
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
        made = self._generator.drawn(self._settings.gan_batch_size, torch.Generator().manual_seed(seed))
        try:
            self._makes.step(-self._critic(made).mean(), index)
        except Diverged:
            raise InputError(
                f"the generator diverged in step {index + 1:,}: its loss is not finite; start a new run with a lower "
                "gan_learning_rate (what this one has released still counts)"
            ) from None

    def _loss(self, parameters: dict[str, Tensor], real: Tensor, made: Tensor, between: Tensor) -> Tensor:
        """The loss of one pair, as in `Critic.losses`, which autograd takes twice."""

        def score(latent: Tensor) -> Tensor:
            return functional_call(self._critic, parameters, (latent[None],))[0]

        gradient: Callable[[Tensor], Tensor] = grad(score)
        norm = gradient(between * real + (1 - between) * made).norm()
        return score(made) - score(real) + self._settings.gradient_penalty * (norm - 1).square()
