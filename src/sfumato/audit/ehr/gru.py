"""A small recurrent classifier of patients: a GRU over their visits, with masks of what is missing.

A visit is its standardised numbers (0 where missing), which of them are there, its common categories as 0 and 1, and
the logarithm of one plus the time since the visit before. The static columns join behind the last visit. A quarter of
the training patients is kept aside and decides when to stop. Guarantees the same scores for the same seed on one
machine, and leaves torch's own generator as it was.
"""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.audit.ehr.features import Features
from sfumato.audit.ehr.flatten import flatten
from sfumato.data.ehr.dataset import EHRDataset

_WIDTH, _BATCH, _RATE = 64, 64, 3e-3
_EPOCHS, _PATIENCE = 40, 6
_MOST_VISITS = 200  # of a patient: the last ones
_MOST_CATEGORIES = 20
_LARGEST = 6.0  # standard deviations; what is further out would drown the rest


class GruClassifier:
    """The chance of the outcome, learned from patients.

    Args:
        hidden: static columns that it must not see, the outcome above all.
        seed: of weights and of the order of the batches.
    """

    def __init__(self, hidden: tuple[str, ...], seed: int) -> None:
        self._hidden, self._seed = hidden, seed

    def fit(self, records: EHRDataset, outcome: np.ndarray) -> "GruClassifier":
        """Learn from patients with 0 and 1 as the outcome, both of them present."""
        self._learn_scales(records)
        data = self._tensors(records)
        labels = torch.from_numpy(np.asarray(outcome, np.float32))
        generator = torch.Generator().manual_seed(self._seed)
        aside = torch.zeros(len(labels), dtype=torch.bool)
        for value in (0, 1):  # a quarter of either outcome
            rows = torch.nonzero(labels == value)[:, 0]
            aside[rows[torch.randperm(len(rows), generator=generator)[: len(rows) // 4]]] = True
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            self._model = _Net(data[0].shape[2], data[2].shape[1])
        if not aside.any():
            aside = ~aside  # too few to keep any: they judge themselves
            rows = torch.arange(len(labels))
        else:
            rows = torch.nonzero(~aside)[:, 0]
        self._descend(data, labels, rows, torch.nonzero(aside)[:, 0], generator)
        return self

    def scores(self, records: EHRDataset) -> np.ndarray:
        """The logit of the outcome for each patient, float64 [n]."""
        return self._logits(self._tensors(records), torch.arange(len(records))).double().numpy()

    def _descend(
        self,
        data: tuple[Tensor, Tensor, Tensor],
        labels: Tensor,
        rows: Tensor,
        aside: Tensor,
        generator: torch.Generator,
    ) -> None:
        """Adam until the patients kept aside are told no better."""
        optimizer = torch.optim.Adam(self._model.parameters(), lr=_RATE, weight_decay=1e-5)
        loss_of = nn.BCEWithLogitsLoss()
        best, best_loss, waited = copy.deepcopy(self._model.state_dict()), np.inf, 0
        for _ in range(_EPOCHS):
            for batch in rows[torch.randperm(len(rows), generator=generator)].split(_BATCH):
                optimizer.zero_grad()
                loss_of(self._model(*(each[batch] for each in data)), labels[batch]).backward()
                nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
                optimizer.step()
            loss = float(loss_of(self._logits(data, aside), labels[aside]))
            if loss < best_loss:
                best, best_loss, waited = copy.deepcopy(self._model.state_dict()), loss, 0
            else:
                waited += 1
                if waited == _PATIENCE:
                    break
        self._model.load_state_dict(best)

    def _logits(self, data: tuple[Tensor, Tensor, Tensor], rows: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([self._model(*(each[batch] for each in data)) for batch in rows.split(512)])

    def _learn_scales(self, records: EHRDataset) -> None:
        self._numbers = _Standard(records.numbers)
        self._kept = []
        for codes in records.codes.T:
            found, counts = np.unique(codes[codes >= 0], return_counts=True)
            self._kept.append(np.sort(found[np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES]]))
        static = flatten(records).without(*self._hidden).where(lambda each: each.part == "static")
        self._features = Features(static)
        self._static = _Standard(self._features.of(static))

    def _tensors(self, records: EHRDataset) -> tuple[Tensor, Tensor, Tensor]:
        """Visits [n, most visits, width], how many there are [n], and static features [n, s]; float32 but for those."""
        gaps = np.diff(records.times, prepend=0.0)
        gaps[records.offsets[:-1]] = 0.0
        hot = [codes[:, None] == kept for codes, kept in zip(records.codes.T, self._kept, strict=True)]
        visits = np.concatenate([np.log1p(gaps)[:, None], self._numbers.of(records.numbers), *hot], 1, dtype=np.float32)
        lengths = np.minimum(records.lengths, _MOST_VISITS)
        padded = np.zeros((len(records), int(lengths.max()), visits.shape[1]), np.float32)
        filled = np.arange(padded.shape[1]) < lengths[:, None]
        first = records.offsets[1:] - lengths
        padded[filled] = visits[(first[:, None] + np.arange(padded.shape[1]))[filled]]
        static = flatten(records).without(*self._hidden).where(lambda each: each.part == "static")
        features = self._static.of(self._features.of(static)).astype(np.float32)
        return torch.from_numpy(padded), torch.from_numpy(lengths), torch.from_numpy(features)


class _Standard:
    """Columns by their mean and standard deviation, and whether they are there."""

    def __init__(self, values: np.ndarray) -> None:
        there = ~np.isnan(values)
        count = np.maximum(there.sum(0), 1)
        self._mean = np.where(there, values, 0.0).sum(0) / count
        std = np.sqrt((np.where(there, values - self._mean, 0.0) ** 2).sum(0) / count)
        self._std = np.where(std > 0, std, 1.0)

    def of(self, values: np.ndarray) -> np.ndarray:
        there = ~np.isnan(values)
        scaled = np.clip((values - self._mean) / self._std, -_LARGEST, _LARGEST)
        return np.concatenate([np.where(there, scaled, 0.0), there], 1)


class _Net(nn.Module):
    def __init__(self, width: int, static: int) -> None:
        super().__init__()
        self.recurrent = nn.GRU(width, _WIDTH, batch_first=True)
        self.head = nn.Sequential(nn.Linear(_WIDTH + static, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1))

    def forward(self, visits: Tensor, lengths: Tensor, static: Tensor) -> Tensor:
        """Logits [n]."""
        packed = nn.utils.rnn.pack_padded_sequence(visits, lengths, batch_first=True, enforce_sorted=False)
        _, last = self.recurrent(packed)
        return self.head(torch.cat([last[-1], static], 1))[:, 0]
