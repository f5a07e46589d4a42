"""What patients contribute to the autoencoder: the gradients of their losses, each cut.

Unit: a patient. The loss of a patient is a function of that patient's record, of what was drawn for it, of the model
and of the noisy tables: the sum over visits is divided by the noisy mean number of them, never by who else is there.
Padding to the longest record that is read together adds visits that count in no loss and that no state before them
sees. So a patient who comes or goes adds or takes one gradient of at most the clip norm.

What is added to a latent vector is drawn for each patient by itself. Where in its interval a number lies is drawn
independently for each number, in the order of the records: who else is present decides which draw a patient meets,
and not how it is distributed, so two neighbouring sets of records can be drawn for alike. The bound holds for each
outcome of these draws, which are not released.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from sfumato._random import RandomSource
from sfumato.clipping import ClippedSum, NormBound
from sfumato.per_example import Recording, covered
from sfumato.sampling import Cohort
from sfumato.synthesis.ehr_safe.private.own_draws import own_draws
from sfumato.synthesis.ehr_safe.records import Drawn, Records
from sfumato.synthesis.ehr_safe.sequences import SequenceCodec
from sfumato.synthesis.ehr_safe.settings import EHRSafeSettings
from sfumato.training import Contribution, Trainable

CATEGORIES = "categories"
"""What contributions call the codecs of categories in a checkpoint."""

_TOGETHER = 4096  # visits, padding included, that go through the model at once


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
        self._per_epoch = -(-len(records) // settings.batch_size)
        self._drawn = lru_cache(maxsize=1)(self._drawn_for)

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
        """The sum of the patients' bounded gradients; each contributor is one patient."""
        self.trained.load(theta)
        share = ClippedSum(bound, clip_norm, self.trained.layout, out=out)
        patients = cohort.units
        drawn = self._drawn(source, round // self._per_epoch)
        words = source.stream("private latent noise", round).words_at(patients)
        noise = self._settings.latent_noise * own_draws(words, self._settings.latent)[0]
        for places in self._together(patients):
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

    def _together(self, patients: np.ndarray) -> Iterator[np.ndarray]:
        """Places among the patients, those of similar length together: it decides the time that is taken, and nothing
        else but the last bits of the sum."""
        lengths = self._records.lengths[patients]
        order, start = np.argsort(-lengths, kind="stable"), 0
        while start < len(order):
            end = start + max(1, _TOGETHER // int(lengths[order[start]]))
            yield order[start:end]
            start = end

    def _drawn_for(self, source: RandomSource, epoch: int) -> Drawn:
        return self._records.draw(source.seed64("private scores", epoch))
